"""The rows of one job: the job, its leases and its executions, from the facts of both ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import define, field

from wmp.actions import End
from wmp.core.manager.job_lifecycle import JobState
from wmp.message import Outcome
from wmp.spark.folds.facts import Fact, FoldSink, JobKey

OUTCOMES: Final = {int(outcome): outcome.name.lower() for outcome in Outcome}
"""The name of each outcome, as in the tables."""
_OF_LEASES: Final = frozenset({
    "granted", "taken", "run", "answered", "arrived", "noted", "resolved",
})  # fmt: skip
"""Events that belong to a lease."""
_SHOWS_LEASE: Final = _OF_LEASES - {"noted", "resolved"}
"""Events that only a lease which was granted has."""
_GIVEN_BACK: Final = {
    int(Outcome.REFUSED): "refused",
    int(Outcome.CANCELLED): "handed back",
    int(Outcome.LOST): "lost at the worker",
}


@define(eq=False)
class JobRows:
    """Sorts the facts of a job by event, lease and lane, and makes rows of them."""

    job: JobKey
    facts: Sequence[Fact]
    sink: FoldSink
    first: dict[str, Fact] = field(factory=dict)
    """The first fact of each event."""
    _leases: defaultdict[int, dict[str, Fact]] = field(factory=lambda: defaultdict(dict))
    """The first fact of each event, by attempt; of the ends only a timeout."""
    _runs: dict[tuple[str, int, int], Fact] = field(factory=dict)
    """When the job was handed to a lane, by (worker, epoch, lane)."""
    _ends: dict[Fact, Fact] = field(factory=dict)
    """When it ended there."""

    def __attrs_post_init__(self) -> None:
        for fact in self.facts:
            event = fact.event
            if event not in self.first:
                self.first[event] = fact
            if event == "finished":
                run = self._runs.get((fact.node, fact.epoch, fact.other or 0))
                if run is not None:
                    self._ends.setdefault(run, fact)
                continue
            if event == "run":
                self._runs[fact.node, fact.epoch, fact.value or 0] = fact
            elif event == "resolved" and not (fact.attempt and fact.word == End.TIMEOUT.value):
                continue
            if event in _OF_LEASES:
                self._leases[fact.attempt or 0].setdefault(event, fact)

    def report(self, state: JobState | None) -> None:
        """Add the rows to the sink; ``state`` is the last state of the job, None if unknown."""
        begin = self.first.get("submitted")
        if not self.sink.shows(self.facts[0].time if begin is None else begin.called):
            return
        for run in self._runs.values():
            self._report_run(run, self._ends.get(run))
        over = sum([self._report_lease(*lease) for lease in self._leases.items()])
        if begin is not None:
            self._report_job(begin, state, over)
        elif self.first.keys() & _OF_LEASES:
            self._report_partly_known(state, over)

    def _report_partly_known(self, state: JobState | None, over: int) -> None:
        """Add the row of a job whose submission no line shows, as after the kill of its manager."""
        leases = {n: lease for n, lease in self._leases.items() if lease.keys() & _SHOWS_LEASE}
        newest = leases[max(leases)] if leases else {}
        shown = newest.get("granted") or next(iter(newest.values()), None)
        holder: tuple[str | None, int | None] = (None, None)
        if shown is not None:
            holder = shown.process if shown.side == 1 else (shown.peer, shown.peer_epoch)
        end, request, run = map(self.first.get, ("resolved", "asked", "run"))
        grant = self.first.get("granted")
        role = next((fact.role for fact in (grant, run) if fact is not None), None)
        word = None if end is None else end.word
        self.sink.add(
            "jobs",
            (
                *self.job, role, _map(None if run is None else run.text), None, None, None,
                _time(request), _time(end), word, None if state is None else state.name.lower(),
                len(leases), over, len(self._runs), *holder, None, None,
            ),
        )  # fmt: skip
        self.sink.count(int(len(leases) > 1), "jobs", word)
        self.sink.count(1, "partly known")

    def _report_job(self, begin: Fact, state: JobState | None, over: int) -> None:
        end, request, sink = self.first.get("resolved"), self.first.get("asked"), self.sink
        grants = {n: lease["granted"] for n, lease in self._leases.items() if "granted" in lease}
        newest = grants[max(grants)] if grants else None
        holder = (None, None) if newest is None else (newest.peer, newest.peer_epoch)
        called = begin.called
        wait = min([grant.time for grant in grants.values()]) - called if grants else None
        if request is not None and end is not None and end.time < request.time:
            request = None
        word, total = (None, None) if end is None else (end.word, end.time - called)
        sink.add(
            "jobs",
            (
                *self.job, begin.role, _map(begin.text), begin.other, begin.value, called,
                _time(request), _time(end), word, None if state is None else state.name.lower(),
                len(grants), over,
                len(self._runs), *holder, wait, total,
            ),
        )  # fmt: skip
        who = (begin.role, self.job[0], holder[0], None)
        sink.count(int(len(grants) > 1), "jobs", word)
        sink.count(0, "submitted", begin.role, called // sink.length * sink.length)
        sink.count(-called, "first submission")
        if wait is not None:
            sink.phase("queue wait", wait, called, *who)
        if end is not None and total is not None:
            part = end.time // sink.length * sink.length
            sink.count(total, "ended", begin.role, part, word != "ok")
            sink.count(end.time, "last end")
            sink.phase("total", total, end.time, *who)

    def _report_lease(self, attempt: int, lease: Mapping[str, Fact]) -> bool:
        """Add the row of a lease; return whether it was granted and ended without a result."""
        grant, received, run = lease.get("granted"), lease.get("taken"), lease.get("run")
        answered, accepted = lease.get("answered"), lease.get("arrived")
        end = None if run is None else self._ends.get(run)
        finished = None if end is None or end.word is not None else end
        shown = grant or received or answered or accepted
        if shown is None:
            return False
        worker = (shown.peer, shown.peer_epoch)
        if shown.side == 1:
            worker = shown.process
        answer = accepted or answered
        outcome = None if answer is None else answer.value
        cause = _cause(lease, outcome)
        role, via = None if run is None else run.role, None
        if grant is not None:
            role, via = grant.role, grant.text
        leased = None
        if grant is not None and accepted is not None:
            leased = accepted.at - grant.at
        phases = (
            ("take trip", _between(grant, received), received),
            ("lane wait", _after(received, run), run),
            ("handler", None if finished is None else finished.session, finished),
            ("done wait", _after(finished, answered), answered),
            ("done trip", _between(answered, accepted), accepted),
            ("lease", leased, accepted),
            ("take to done", _after(received, answered), answered),
        )
        sink = self.sink
        sink.add(
            "attempts",
            (
                *self.job, attempt, *worker, role,
                None if grant is None else grant.other, via, _time(grant), _time(received),
                _time(run), _time(finished), _time(answered), _time(accepted),
                _time(lease.get("noted")), None if run is None else run.value,
                None if outcome is None else OUTCOMES.get(outcome), cause,
                *[took for _, took, _ in phases[:-1]],
            ),
        )  # fmt: skip
        who = (role, self.job[0], worker[0], via[-1] if via else None)
        for phase, took, last in phases:
            if took is not None and last is not None:
                sink.phase(phase, took, last.time, *who)
        if outcome in (Outcome.OK, Outcome.ERROR):
            handler = 0 if finished is None else finished.session or 0
            sink.count(handler, "shares", *self.job[:2], *worker)
        if grant is not None:
            sink.count(int(cause is not None), "leases", cause)
        if cause is not None:
            sink.count(1, "requeues", cause, role, *worker)
        return grant is not None and cause is not None

    def _report_run(self, begin: Fact, end: Fact | None) -> None:
        began: int | None = begin.time
        ended, outcome, handler = None, None, None
        if end is not None:
            began, handler, outcome = end.number, end.session, end.word
            if outcome is None:
                ended, outcome = end.time, OUTCOMES.get(end.value or 0)
        self.sink.add(
            "executions",
            (
                begin.node, begin.epoch, begin.value, *self.job, begin.attempt, begin.role,
                _map(begin.text), begin.time, began, ended, outcome, handler,
            ),
        )  # fmt: skip


def _cause(lease: Mapping[str, Fact], outcome: int | None) -> str | None:
    """Return why a lease ended without a result; None if no line shows it."""
    if (noted := lease.get("noted")) is not None:
        return noted.word
    accepted, timed = lease.get("arrived"), lease.get("resolved")
    over = accepted is not None and (outcome or 0) > Outcome.ERROR
    if timed is not None and not (over and accepted.at <= timed.at):  # type: ignore[union-attr]
        return End.TIMEOUT.value
    return _GIVEN_BACK.get(outcome or 0) if over else None


def _map(amounts: Mapping[str, int] | None) -> list[tuple[str, int]] | None:
    """Return amounts as the entries of a map."""
    return None if amounts is None else list(amounts.items())


def _time(fact: Fact | None) -> int | None:
    return None if fact is None else fact.time


def _between(first: Fact | None, last: Fact | None) -> int | None:
    return None if first is None or last is None else last.time - first.time


def _after(first: Fact | None, last: Fact | None) -> int | None:
    """Return the µs between two facts of one process.

    A DONE may answer for a newer lease than the lease that ran; then it shows no waiting time.
    """
    if first is None or last is None or first.node != last.node or first.epoch != last.epoch:
        return None
    return last.time - first.time if last.time >= first.time else None
