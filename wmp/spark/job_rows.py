"""The rows of one job: the job, its leases and its executions, from the facts of both ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import define, field

from wmp.actions import End
from wmp.core.manager.job_lifecycle import JobState
from wmp.message import Outcome
from wmp.spark.facts import Fact, FoldSink

__all__ = ["OUTCOMES", "JobRows"]

OUTCOMES: Final = {int(outcome): outcome.name.lower() for outcome in Outcome}
"""The name of each outcome, as in the tables."""
_GIVEN_BACK: Final = {
    int(Outcome.REFUSED): "refused",
    int(Outcome.CANCELLED): "handed back",
    int(Outcome.LOST): "lost at the worker",
}


@define(eq=False)
class _Lease:
    """The facts of one lease, from the lines of both ends."""

    grant: Fact | None = None
    received: Fact | None = None
    answered: Fact | None = None
    accepted: Fact | None = None
    noted: Fact | None = None
    timed: Fact | None = None
    run: _LaneRun | None = None


@define(eq=False)
class _LaneRun:
    """A job in a lane."""

    begin: Fact
    end: Fact | None = None


@define(eq=False)
class JobRows:
    """Sorts the facts of a job by lease and lane, and makes rows of them."""

    facts: Sequence[Fact]
    sink: FoldSink
    submitted: Fact | None
    results: set[tuple[int | None, int | None]] = field(factory=set)
    """Attempt and outcome of each DONE that the manager received."""
    _asked: Fact | None = None
    _end: Fact | None = None
    _leases: dict[int, _Lease] = field(factory=dict)
    _runs: dict[tuple[str, int, int], _LaneRun] = field(factory=dict)
    """By (worker, epoch, lane)."""

    def keep(self, fact: Fact) -> None:
        """Record a fact; the first of several equal facts counts."""
        match fact.event:
            case "asked":
                self._asked = self._asked or fact
                return
            case "resolved":
                self._end = self._end or fact
                if fact.word == End.TIMEOUT.value and fact.attempt:
                    lease = self._lease(fact)
                    lease.timed = lease.timed or fact
                return
            case "granted":
                lease = self._lease(fact)
                lease.grant = lease.grant or fact
            case "arrived":
                self.results.add((fact.attempt, fact.value))
                lease = self._lease(fact)
                lease.accepted = lease.accepted or fact
            case "noted":
                lease = self._lease(fact)
                lease.noted = lease.noted or fact
            case "taken":
                lease = self._lease(fact)
                lease.received = lease.received or fact
            case "answered":
                lease = self._lease(fact)
                lease.answered = lease.answered or fact
            case "run":
                run = self._runs[fact.node, fact.epoch, fact.value or 0] = _LaneRun(fact)
                lease = self._lease(fact)
                lease.run = lease.run or run
            case "finished":
                ran = self._runs.get((fact.node, fact.epoch, fact.other or 0))
                if ran is not None and ran.end is None:
                    ran.end = fact

    def _lease(self, fact: Fact) -> _Lease:
        return self._leases.setdefault(fact.attempt or 0, _Lease())

    def _time(self, fact: Fact | None) -> int | None:
        """Return the time of a fact on the common clock."""
        return None if fact is None else self.sink.time((fact.node, fact.epoch), fact.at)

    def _from(self, begin: Fact, end: Fact | None) -> int | None:
        """Return the µs between two facts, which managers of one store may share."""
        if end is None:
            return None
        if (begin.node, begin.epoch) == (end.node, end.epoch):
            return end.at - begin.at
        return _between(self._time(begin), self._time(end))

    def report(self, state: JobState) -> None:
        """Add the rows to the sink; ``state`` is the last state of the job."""
        if not self.sink.shows(self._time(self.submitted or self.facts[0])):
            return
        for run in self._runs.values():
            self._report_run(run)
        over = sum(map(self._report_lease, self._leases, self._leases.values()))
        if self.submitted is not None:
            self._report_job(self.submitted, state, over)

    def _report_job(self, begin: Fact, state: JobState, over: int) -> None:
        end, asked, sink = self._end, self._asked, self.sink
        granted = {n: one.grant for n, one in self._leases.items() if one.grant is not None}
        newest = granted[max(granted)] if granted else None
        holder = (None, None) if newest is None else (newest.peer, newest.peer_epoch)
        first = min(granted.values(), key=lambda one: self._time(one) or one.at, default=None)
        wait, total = self._from(begin, first), self._from(begin, end)
        if asked is not None and (self._from(asked, end) or 0) < 0:
            asked = None
        word = None if end is None else end.word
        submitted, ended = self._time(begin), self._time(end)
        sink.add(
            "jobs",
            (
                begin.owner, begin.owner_epoch, begin.job, begin.role, _map(begin.text),
                begin.other, begin.value, submitted, self._time(asked), ended, word,
                state.name.lower(), len(granted), over, len(self._runs), *holder, wait, total,
            ),
        )  # fmt: skip
        sink.count(int(len(granted) > 1), "jobs", word)
        who = (begin.role, begin.owner, holder[0], None)
        length = sink.length
        if submitted is not None:
            sink.count(0, "submitted", begin.role, submitted // length * length)
            sink.bound(-submitted, "first submission")
            if wait is not None:
                sink.sample("queue wait", wait, submitted, *who)
        if ended is not None and total is not None:
            sink.count(total, "ended", begin.role, ended // length * length, word != "ok")
            sink.bound(ended, "last end")
            sink.sample("total", total, ended, *who)

    def _report_lease(self, attempt: int, lease: _Lease) -> bool:
        """Add the row of a lease; return whether it was granted and ended without a result."""
        grant, first = lease.grant, self.facts[0]
        if not any((grant, lease.received, lease.answered, lease.accepted)):
            return False
        answer = lease.accepted or lease.answered
        outcome = None if answer is None else answer.value
        cause = None
        over = lease.accepted is not None and (outcome or 0) > Outcome.ERROR
        in_time = lease.timed is None or (over and lease.accepted.at <= lease.timed.at)  # type: ignore[union-attr]
        if lease.noted is not None:
            cause = lease.noted.word
        elif over and in_time and outcome in _GIVEN_BACK:
            cause = _GIVEN_BACK[outcome or 0]
        elif lease.timed is not None and not (over and in_time):
            cause = End.TIMEOUT.value
        worker: tuple[str | None, int | None]
        run = lease.run
        if grant is not None:
            worker = (grant.peer, grant.peer_epoch)
        else:
            seen = lease.received or lease.answered
            worker = (seen.node, seen.epoch) if seen is not None else (
                (lease.accepted.peer, lease.accepted.peer_epoch)  # type: ignore[union-attr]
            )  # fmt: skip
        end = None if run is None else run.end
        finished = end if end is not None and end.word is None else None
        via = None if grant is None else grant.text
        role = grant.role if grant is not None else None if run is None else run.begin.role
        begin = None if run is None else run.begin
        lengths = {
            "take trip": _between(self._time(grant), self._time(lease.received)),
            "lane wait": _after(lease.received, begin),
            "handler": None if finished is None else finished.session,
            "done wait": _after(finished, lease.answered),
            "done trip": _between(self._time(lease.answered), self._time(lease.accepted)),
            "lease": _between(grant and grant.at, lease.accepted and lease.accepted.at),
        }
        times = {
            "take trip": lease.received, "lane wait": begin, "handler": finished,
            "done wait": lease.answered, "done trip": lease.accepted, "lease": lease.accepted,
            "take to done": lease.answered,
        }  # fmt: skip
        sink, device = self.sink, via[-1] if via else None
        sink.add(
            "attempts",
            (
                first.owner, first.owner_epoch, first.job, attempt, *worker, role,
                None if grant is None else grant.other, via, self._time(grant),
                self._time(lease.received), self._time(begin), self._time(finished),
                self._time(lease.answered), self._time(lease.accepted), self._time(lease.noted),
                None if run is None else run.begin.value,
                None if outcome is None else OUTCOMES.get(outcome), cause, *lengths.values(),
            ),
        )  # fmt: skip
        lengths["take to done"] = _after(lease.received, lease.answered)
        for phase, took in lengths.items():
            at = self._time(times[phase])
            if took is not None and at is not None:
                sink.sample(phase, took, at, role, first.owner, worker[0], device)
        if outcome in (Outcome.OK, Outcome.ERROR):
            handler = lengths["handler"] or 0
            sink.count(handler, "shares", first.owner, first.owner_epoch, *worker)
        if grant is not None:
            sink.count(int(cause is not None), "leases", cause)
        if cause is not None:
            sink.count(1, "requeues", cause, role, *worker)
        return grant is not None and cause is not None

    def _report_run(self, run: _LaneRun) -> None:
        begin, end = run.begin, run.end
        recalled = end is not None and end.word is not None
        began = begin.at if end is None else end.number
        outcome = None if end is None else end.word or OUTCOMES.get(end.value or 0)
        clock = (begin.node, begin.epoch)
        self.sink.add(
            "executions",
            (
                *clock, begin.value, begin.owner, begin.owner_epoch, begin.job, begin.attempt,
                begin.role, _map(begin.text), self._time(begin), self.sink.time(clock, began),
                None if recalled else self._time(end), outcome,
                None if end is None else end.session,
            ),
        )  # fmt: skip


def _map(amounts: Mapping[str, int] | None) -> list[tuple[str, int]] | None:
    """Return amounts as the entries of a map."""
    return None if amounts is None else list(amounts.items())


def _between(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else last - first


def _after(first: Fact | None, last: Fact | None) -> int | None:
    """Return the µs between two facts of one process.

    A DONE may answer for a newer lease than the lease that ran; then it shows no waiting time.
    """
    if first is None or last is None or (first.node, first.epoch) != (last.node, last.epoch):
        return None
    return last.at - first.at if last.at >= first.at else None
