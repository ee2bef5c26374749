"""The lines of one worker, folded: facts of jobs, locks, WAKEs, conversations, load and violations.

The lines come in the order of their numbers. Locks are checked against the table of
:mod:`wmp.core.worker.locks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from attrs import define, field

from wmp.core.protocol.outbound import REFUSALS, Arrival
from wmp.core.worker.locks import LockInput
from wmp.message import ERROR_CODES, ErrorCode
from wmp.spark.facts import Fact, FoldSink, KnownProcess, Process
from wmp.spark.lines import LineRow
from wmp.spark.lock_fold import LockFold
from wmp.spark.streams import Streams

__all__ = ["UNHEEDED", "WorkerFold"]

UNHEEDED: Final = frozenset(
    {"claimed", "old session", "unknown session", *(a.value for a in Arrival), *ERROR_CODES}
)
"""Reasons for which a worker ignores a whole message of a manager."""
_KEPT: Final = 4096
"""Number of the newest locks and DONEs that are remembered; a TAKE for an older lock is ignored."""
_REMEMBERED: Final = 60_000_000
"""µs for which a closed lock without jobs, and a DONE, are remembered."""


@define(eq=False)
class _Wake:
    """A WAKE whose GIVE has not been sent yet."""

    role: str | None
    count: int | None
    at: int
    ready: int | None
    """When the last READY before it was sent."""
    answer: str | None = None
    """The next command to its manager."""
    decided: bool = False


@define(eq=False)
class _OpenLane:
    """A lane with jobs that have not ended."""

    owner: Process
    role: str
    needs: dict[str, int]
    begin: int
    since: int
    """When the lane last reported an end, or began."""
    jobs: dict[int, int]
    """The attempt of each job."""


@define(eq=False)
class WorkerFold:
    """The state of a worker as its lines show it."""

    me: KnownProcess
    sink: FoldSink
    _streams: Streams = field(init=False)
    _locks: dict[int, LockFold] = field(factory=dict)
    _highest: int = 0
    """The greatest number of a lock."""
    _wakes: dict[Process, _Wake] = field(factory=dict)
    _lanes: dict[int, _OpenLane] = field(factory=dict)
    _taken: dict[str, int] = field(factory=dict)
    """Amount of each resource that the lanes take."""
    _have: dict[str, int] = field(init=False)
    """The largest amount of each resource so far (WMP-3.15)."""
    _amounts: dict[str, int] = field(init=False)
    """The present amount of each resource."""
    _changed: int | None = None
    """Time of the last change of the amounts; None for none."""
    _ready: tuple[int, int] | None = None
    """Number and time of the last READY."""
    _held: dict[tuple[str | None, int | None, int], int] = field(factory=dict)
    """The lock of each job whose DONE was not sent, by (owner, owner_epoch, job)."""
    _answers: dict[tuple[Any, ...], tuple[Any, ...]] = field(factory=dict)
    """The newest DONEs, by (manager, epoch, session, number)."""

    def __attrs_post_init__(self) -> None:
        self._streams = Streams(self.me, self.sink)
        self._have = dict(self.me.resources)
        self._amounts = dict(self.me.resources)

    def step(self, lines: Sequence[LineRow]) -> None:
        """Fold the lines of one step."""
        # The locks of a session are lost before a message of the next session counts.
        for line in lines:
            if line.what == "note":
                self._note(line)
        for line in lines:
            if line.what == "send":
                self._sent(line)
            elif line.what == "received":
                self._received(line)
            elif line.what == "run":
                self._run(line)
            elif line.what == "resized":
                self._resized(line)
            elif line.what == "finished" or line.what == "recalled":
                self._ended(line)

    def attach(self, me: KnownProcess | None, sink: FoldSink | None) -> None:
        """Continue with these facts of the process and this sink; None before a pause."""
        self.me = self._streams.me = me  # type: ignore[assignment]
        self.sink = self._streams.sink = sink  # type: ignore[assignment]

    def finish(self) -> None:
        """Report everything that is still open."""
        for lane in self._lanes.values():
            self._used(lane, max(self.me.last, lane.begin))
        if self._changed is not None:
            self._count_amounts(self._changed, self.me.last)
        for lock in self._locks.values():
            self._report_lock(lock)
        for manager, wake in self._wakes.items():
            self._report_wake(manager, wake, None)

    # -- facts and violations

    def _fact(self, line: LineRow, event: str, owner: Process, job: int, **more: Any) -> None:
        time = line.at + self.me.clock
        self.sink.facts[*owner, job].append(
            Fact(1, line.node, line.epoch, line.n, line.at, time, event, **more)
        )

    def _break(self, line: LineRow, name: str, detail: str, **about: Any) -> None:
        where = (line.node, line.epoch, line.n, line.at)
        self.sink.violation(name, detail, where, worker=(line.node, line.epoch), **about)

    # -- messages

    def _sent(self, line: LineRow) -> None:
        if (line.source, line.source_epoch) != (line.node, line.epoch):
            return
        self._streams.sent(line)
        manager = (line.target or "", line.target_epoch or 0)
        match line.command:
            case "READY":
                self._sent_ready(line, manager)
            case "GIVE" if line.want and line.lock is not None:
                self._give(line, manager)
            case "GIVE":
                lock = self._lock_of(line)
                if lock is not None:
                    lock.withdraw(line)
            case "DONE" if line.ids is not None:
                self._answer(line, manager)

    def _sent_ready(self, line: LineRow, manager: Process) -> None:
        last = self._ready
        if last is not None and (line.ready or 0) < last[0]:
            text = (
                f"READY was sent with number {line.ready} after READY {last[0]}; expected a "
                "greater number"
            )
            self._break(line, "WMP-3.2", text)
        self._ready = (line.ready or 0, line.at)
        self._decide(manager, "READY")

    def _give(self, line: LineRow, manager: Process) -> None:
        assert line.lock is not None
        lock = self._locks.get(line.lock)
        self._decide(manager, "GIVE")
        wake = self._wakes.pop(manager, None)
        if lock is not None or line.lock <= self._highest:
            text = f"GIVE has lock number {line.lock} after lock {self._highest}"
            story = () if lock is None else (*lock.lines, (line.node, line.epoch, line.n))
            self._break(line, "WMP-4.1", text, lock=line.lock, lines=story)
            if lock is not None:
                return
        self._highest = max(self._highest, line.lock)
        device = line.via[0] if line.via else None
        self._locks[line.lock] = LockFold(line, manager, device, wake)
        while self._locks:
            number, oldest = next(iter(self._locks.items()))
            if len(self._locks) <= _KEPT and not oldest.is_over(line.at - _REMEMBERED):
                break
            self._report_lock(self._locks.pop(number))

    def _answer(self, line: LineRow, manager: Process) -> None:
        owner = (line.owner or manager[0], line.owner_epoch or manager[1])
        outcomes, attempts = line.each(line.outcomes), line.each(line.attempts)
        about = {
            "peer": manager[0], "peer_epoch": manager[1], "session": line.session,
            "number": line.number,
        }  # fmt: skip
        for job, attempt, outcome in zip(line.ids or (), attempts, outcomes, strict=True):
            self._fact(line, "answered", owner, job, attempt=attempt, value=outcome, **about)
            lock = self._locks.get(self._release(owner, job))
            if lock is not None:
                lock.done = line.at
        answer = (line.at, owner, line.session, line.number, tuple(line.ids or ()), tuple(attempts))
        self._answers[*manager, line.session, line.number] = answer
        while True:
            oldest = next(iter(self._answers))
            since = self._answers[oldest][0]
            if len(self._answers) <= _KEPT and since >= line.at - _REMEMBERED:
                break
            del self._answers[oldest]

    def _received(self, line: LineRow) -> None:
        self._streams.received(line)
        if line.command == "ERROR":
            self._refused(line)
            return
        if line.reason in UNHEEDED and (line.reason != ErrorCode.UNKNOWN or line.command != "NO"):
            return
        manager = (line.source or "", line.source_epoch or 0)
        owner = (line.owner or manager[0], line.owner_epoch or manager[1])
        about = {"peer": manager[0], "peer_epoch": manager[1]}
        match line.command:
            case "WAKE" if line.target == line.node:
                before = self._wakes.pop(manager, None)
                if before is not None:
                    self._report_wake(manager, before, None)
                ready = None if self._ready is None else self._ready[1]
                self._wakes[manager] = _Wake(line.role, line.count, line.at, ready)
            case "TAKE" | "NO":
                lock = self._lock_of(line)
                if lock is not None:
                    lock.answer_by(line, self._break)
                rows = zip(line.ids or (), line.each(line.attempts), strict=True)
                for job, attempt in rows:
                    about |= {"session": line.session, "number": line.number}
                    self._fact(line, "taken", owner, job, attempt=attempt, **about)
                    self._release(owner, job)
                    self._held[*owner, job] = line.lock or 0
                    if lock is not None:
                        lock.held += 1
            case "CANCEL":
                for job, attempt in zip(line.ids or (), line.each(line.attempts), strict=True):
                    value = int(bool(line.unstarted))
                    self._fact(line, "cancel", owner, job, attempt=attempt, value=value, **about)

    def _refused(self, line: LineRow) -> None:
        """Record an ERROR that refuses a DONE; a device names the manager as well (WMP-7.11)."""
        if line.code not in REFUSALS or line.about != "DONE":
            return
        manager = (
            (line.source, line.source_epoch)
            if line.about_peer is None
            else (line.about_peer, line.about_epoch)
        )
        found = self._answers.pop((*manager, line.session, line.about_number), None)
        if found is None:
            return
        _, owner, session, number, ids, attempts = found
        for job, attempt in zip(ids, attempts, strict=True):
            self._fact(
                line, "refused", owner, job, attempt=attempt, peer=manager[0],
                peer_epoch=manager[1], session=session, number=number,
            )  # fmt: skip

    # -- locks and WAKEs

    def _lock_of(self, line: LineRow) -> LockFold | None:
        """Return the lock that a line names; report a lock that was never used."""
        lock = self._locks.get(line.lock or 0)
        if lock is None and line.what == "received" and (line.lock or 0) > self._highest:
            text = f"{line.command} names a lock for which no GIVE was sent"
            self._break(line, "WMP-4.13", text, lock=line.lock)
        return lock

    def _note(self, line: LineRow) -> None:
        for number in line.locks or ():
            lock = self._locks.get(number)
            if lock is not None:
                lock.step(LockInput(line.reason), line)
        if line.owner is not None and line.reason == "forget":
            owner = (line.owner, line.owner_epoch or 0)
            for job in line.ids or ():
                self._release(owner, job)
                self._fact(line, "forgotten", owner, job, peer=line.about_peer)

    def _release(self, owner: Process, job: int) -> int:
        """Forget the lock of a job, and return its number; 0 if the job is unknown."""
        number = self._held.pop((*owner, job), 0)
        lock = self._locks.get(number)
        if lock is not None:
            lock.held -= 1
        return number

    def _decide(self, manager: Process, command: str) -> None:
        wake = self._wakes.get(manager)
        if wake is not None and not wake.decided:
            wake.answer, wake.decided = command, True

    def _report_wake(self, manager: Process, wake: _Wake, lock: LockFold | None) -> None:
        if not self.sink.shows(wake.at + self.me.clock):
            return
        jobs = 0 if lock is None else lock.jobs
        answer = "GIVE" if lock is not None else wake.answer
        clock = self.me.clock
        row = (
            self.me.node, self.me.epoch, *manager, wake.role, wake.count, wake.at + clock, answer,
            None if lock is None else lock.number, jobs, not jobs,
        )  # fmt: skip
        self.sink.add("wakes", row)
        self.sink.count(int(not jobs), "wakes")

    def _report_lock(self, lock: LockFold) -> None:
        me, clock, sink = self.me, self.me.clock, self.sink
        worker = (me.node, me.epoch)

        def time(at: int | None) -> int | None:
            return None if at is None else at + clock

        give, wake = lock.give, lock.wake
        if wake is not None:
            self._report_wake(lock.manager, wake, lock)
        if not sink.shows(give.at + clock):
            return
        sink.add(
            "locks",
            (
                *worker, lock.number, *lock.manager, give.roles, give.want, give.hold or 0,
                give.at + clock, time(lock.answered), time(lock.closed), lock.state.value,
                lock.answer, lock.withdrawn, lock.jobs, lock.late,
            ),
        )  # fmt: skip
        woken, ready = (None, None) if wake is None else (wake.at, wake.ready)
        sink.add(
            "conversations",
            (
                *worker, *lock.manager, lock.number, time(ready), time(woken), give.at + clock,
                time(lock.answered), time(lock.done), lock.answer, lock.jobs, lock.device,
            ),
        )  # fmt: skip
        sink.count(lock.late, "locks", lock.answer)
        who = (None, lock.manager[0], me.node, lock.device)
        for phase, first, last in (
            ("ready to wake", ready, woken),
            ("wake to give", woken, give.at),
            ("give to take", give.at, lock.answered if lock.answer == "TAKE" else None),
            ("give to no", give.at, lock.answered if lock.answer == "NO" else None),
        ):
            if first is not None and last is not None:
                sink.phase(phase, last - first, last + clock, *who)

    # -- lanes

    def _run(self, line: LineRow) -> None:
        assert line.lane is not None
        owner, needs = (line.owner or "", line.owner_epoch or 0), line.needs or {}
        jobs = dict(zip(line.ids or (), line.each(line.attempts), strict=True))
        lane = _OpenLane(owner, line.role or "", needs, line.at, line.at, jobs)
        self._lanes[line.lane] = lane
        for job, attempt in jobs.items():
            self._fact(
                line, "run", owner, job, attempt=attempt, value=line.lane, role=line.role,
                text=line.needs,
            )  # fmt: skip
        for name, amount in needs.items():
            taken = self._taken[name] = self._taken.get(name, 0) + amount
            have = self._have.get(name, 0)
            if amount > 0 and taken > have:
                text = (
                    f"the running jobs of worker {line.node} need {taken} {name}; the worker has "
                    f"{have}"
                )
                self._break(line, "no double booking", text)

    def _ended(self, line: LineRow) -> None:
        lane = self._lanes.get(line.lane or 0)
        if lane is None or not line.ids:
            return
        recalled = line.what == "recalled"
        share = (line.at - lane.since) / len(line.ids)
        for place, (job, outcome) in enumerate(
            zip(line.ids, line.each(line.outcomes), strict=True)
        ):
            if job not in lane.jobs:
                continue
            about: dict[str, Any] = {"word": "recalled"}
            if not recalled:
                begun = int(lane.since + share * place) + self.me.clock
                about = {"value": outcome, "number": begun, "session": int(share)}
            attempt = lane.jobs.pop(job)
            self._fact(line, "finished", lane.owner, job, attempt=attempt, other=line.lane, **about)
        if not recalled:
            lane.since = line.at
        if not lane.jobs:
            del self._lanes[line.lane or 0]
            for name, amount in lane.needs.items():
                self._taken[name] -= amount
            self._used(lane, line.at)

    def _used(self, lane: _OpenLane, end: int) -> None:
        """Count the time for which a lane had its resources, by stretch."""
        for part, overlap in self._stretches(lane.begin, end):
            for name, amount in islice(lane.needs.items(), 16):
                busy = amount * overlap
                self.sink.count(busy, "busy", self.me.node, self.me.epoch, name, part)

    def _stretches(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Return the stretches between two times, each with the µs that are between them."""
        length, clock = self.sink.length, self.me.clock
        since, until = self.sink.window
        begin, end = max(begin + clock, since), min(end + clock, until)
        for part in range(begin // length * length, end + 1, length):
            yield part, min(end, part + length) - max(begin, part)

    def _resized(self, line: LineRow) -> None:
        """Record that the amounts of the resources changed (WMP-3.15)."""
        begin = self.me.first if self._changed is None else self._changed
        self._count_amounts(begin, line.at)
        self._changed = line.at
        found = line.resources or {}
        self._amounts = {name: found.get(name, 0) for name in {**self._amounts, **found}}
        for name, amount in found.items():
            self._have[name] = max(amount, self._have.get(name, 0))

    def _count_amounts(self, begin: int, end: int) -> None:
        """Count the time for which the worker had its present resources, by stretch."""
        for part, overlap in self._stretches(begin, end):
            for name, amount in islice(self._amounts.items(), 16):
                self.sink.count(amount * overlap, "had", self.me.node, self.me.epoch, name, part)
