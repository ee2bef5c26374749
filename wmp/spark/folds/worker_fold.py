"""The lines of one worker, folded: facts of jobs, locks, WAKEs, conversations, load and violations.

Locks are checked against the table of :mod:`wmp.core.worker.locks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
from attrs import define, field

from wmp.core.protocol.outbound import REFUSALS, Arrival
from wmp.core.worker.locks import LockInput
from wmp.message import ERROR_CODES, ErrorCode
from wmp.spark.folds.facts import ProcessKey
from wmp.spark.folds.lock_fold import LockFold, SeenWake
from wmp.spark.folds.process_fold import ProcessFold, jobs_of
from wmp.spark.journals.lines import LineRow

_UNHEEDED: Final = frozenset(
    {"claimed", "old session", "unknown session", *(a.value for a in Arrival), *ERROR_CODES}
)
"""Reasons for which a worker ignores a whole message of a manager."""
_content: Final = attrgetter("credit", "window", "roles", "resources", "label")
_KEPT: Final = 4096
"""Number of the newest locks and DONEs that are remembered; a TAKE for an older lock is ignored."""
_ROUNDED: Final = 2_000
"""Tolerance for times that were rounded to milliseconds, in µs."""
_REMEMBERED: Final = 60_000_000
"""µs for which a closed lock without jobs, and a DONE, are remembered."""


@define(eq=False)
class _OpenLane:
    """A lane with jobs that have not ended."""

    owner: ProcessKey
    needs: Mapping[str, int]
    begin: int
    since: int
    """When the lane last reported an end, or began."""
    jobs: dict[int, int]
    """The attempt of each job."""
    forwarded: bool
    """Whether a forwarding manager brought the jobs."""


class _TakenJob(NamedTuple):
    """A job of a TAKE, as long as its DONE was not sent."""

    take: LineRow
    position: int
    """The position of the job in the TAKE."""
    attempt: int | None

    def entry(self, column: list[Any] | None) -> Any:
        """Return the job's entry of a column; None without the column."""
        return None if not column else column[self.position if len(column) > 1 else 0]

    @property
    def begin_by(self) -> int | None:
        """The time on the worker's clock after which the job may not begin (WMP-6.7, 6.19)."""
        bounds = [self.entry(self.take.left), self.entry(self.take.expires)]
        times = [ms for ms in bounds if ms is not None]
        return self.take.at + min(times) * 1000 if times else None


@define(eq=False)
class WorkerFold(ProcessFold):
    """The state of a worker as its lines show it."""

    side: ClassVar[int] = 1
    _locks: dict[int, LockFold] = field(factory=dict)
    _highest: int = 0
    """The greatest number of a lock."""
    _wakes: dict[ProcessKey, SeenWake] = field(factory=dict)
    """The WAKEs whose GIVE has not been sent yet."""
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
    _content: tuple[Any, ...] = ()
    """Its content."""
    _held: dict[tuple[str | None, int | None, int], _TakenJob] = field(factory=dict)
    """Each job whose DONE was not sent, by (owner, owner_epoch, job)."""
    _forwarders: set[tuple[ProcessKey, str]] = field(factory=set, init=False)
    """Owners of jobs, and the forwarding managers that brought them (WMP section 19)."""
    _answers: dict[tuple[Any, ...], LineRow] = field(factory=dict)
    """The newest DONEs, by (manager, epoch, session, number)."""

    def __attrs_post_init__(self) -> None:
        self._have, self._amounts = dict(self.me.resources), dict(self.me.resources)

    def step(self, lines: Sequence[LineRow]) -> None:
        """Fold the lines of one step."""
        # The locks of a session are lost before a message of the next session counts.
        for line in lines:
            if line.what == "note":
                self._note(line, lines[0].n)
        for line in lines:
            match line.what:
                case "send" if self._is_own(line):
                    self._sent(line)
                case "received":
                    self._received(line)
                case "run":
                    self._run(line)
                case "finished" | "recalled":
                    self._ended(line)
                case "recall":
                    self._check_lane(line, lines[0])
                case "begun" | "interrupt" | "reported":
                    self._check_lane(line)
                case "drop":
                    self._check_drop(line, lines[0])
                case "undelivered":
                    self._check_undelivered(line)
                case "resized":
                    self._resized(line)

    def _fact(
        self, line: LineRow, event: str, owner: ProcessKey, job: int, attempt: int | None = None,
        peer: str | None = None, *rest: Any, **more: Any,
    ) -> None:  # fmt: skip
        # The facts of a forwarded job are those of its lease above: no job counts twice.
        if not self._forwarders or (owner, peer) not in self._forwarders:
            ProcessFold._fact(self, line, event, owner, job, attempt, peer, *rest, **more)

    def finish(self) -> None:
        """Report everything that is still open."""
        for lane in self._lanes.values():
            self._count_time("busy", lane.needs, lane.begin, max(self.me.last, lane.begin))
        if self._changed is not None:
            self._count_time("had", self._amounts, self._changed, self.me.last)
        for lock in self._locks.values():
            lock.report(self.me, self.sink)
        for wake in self._wakes.values():
            wake.report(self.me, self.sink, None)

    def _break(self, line: LineRow, name: str, detail: str, **about: Any) -> None:
        ProcessFold._break(self, line, name, detail, worker=(line.node, line.epoch), **about)

    # -- messages

    def _sent(self, line: LineRow) -> None:
        self._check_sent(line)
        manager = (line.target or "", line.target_epoch or 0)
        match line.command:
            case "READY":
                number, last, content = line.ready or 0, self._ready, _content(line)
                if last is not None and number == last[0] and content != self._content:
                    text = (
                        f"READY {number} was sent with {content}, and before with {self._content}"
                    )
                    self._break(line, "WMP-3.2", text)
                self._content = content
                if last is not None and number < last[0]:
                    text = (
                        f"READY was sent with number {line.ready} after READY {last[0]}; expected "
                        "a greater number"
                    )
                    self._break(line, "WMP-3.2", text)
                self._ready = (number, line.at)
                self._check_offer(line)
                wake = self._wakes.get(manager)
                if wake is not None:
                    wake.answer = wake.answer or "READY"
            case "GIVE" if line.want and line.lock is not None:
                self._check_offer(line)
                self._give(line, manager)
            case "GIVE":
                lock = self._lock_of(line)
                if lock is not None:
                    lock.withdraw(line)
            case "DONE" if line.ids is not None:
                self._answer(line, manager)

    def _check_offer(self, line: LineRow) -> None:
        """Compare a READY or GIVE with the worker's roles and resources (WMP-3.1)."""
        roles, has = tuple(line.roles or ()), tuple(self.me.roles)
        if has and roles != has and (line.command == "READY" or not set(roles) <= set(has)):
            text = f"{line.command} offers {', '.join(roles)}; the worker has {', '.join(has)}"
            self._break(line, "WMP-3.1", text)
        offered = {name: n for name, n in (line.resources or {}).items() if n}
        if line.resources is not None and offered != {n: v for n, v in self._amounts.items() if v}:
            text = f"READY has the resources {line.resources}; the worker has {self._amounts}"
            self._break(line, "WMP-3.1", text)

    def _give(self, line: LineRow, manager: ProcessKey) -> None:
        lock = self._locks.get(line.lock)
        wake = self._wakes.pop(manager, None)
        if lock is not None or line.lock <= self._highest:
            text = f"GIVE has lock number {line.lock} after lock {self._highest}"
            story = () if lock is None else (*lock.lines, (line.node, line.epoch, line.n))
            self._break(line, "WMP-4.1", text, lock=line.lock, lines=story)
            if lock is not None:
                return
        self._highest = max(self._highest, line.lock)
        self._locks[line.lock] = LockFold(line, manager, wake)
        while self._locks:
            number, oldest = next(iter(self._locks.items()))
            if len(self._locks) <= _KEPT and not oldest.is_over(line.at - _REMEMBERED):
                break
            self._locks.pop(number).report(self.me, self.sink)

    def _answer(self, line: LineRow, manager: ProcessKey) -> None:
        owner = (line.owner or manager[0], line.owner_epoch or manager[1])
        for job, attempt, outcome in jobs_of(line, line.outcomes):
            self._fact(
                line, "answered", owner, job, attempt, *manager, outcome, line.session, line.number
            )
            lock = self._release(owner, job)
            if lock is not None:
                lock.done = line.at
        self._answers[*manager, line.session, line.number] = line
        while True:
            oldest, done = next(iter(self._answers.items()))
            if len(self._answers) <= _KEPT and done.at >= line.at - _REMEMBERED:
                break
            del self._answers[oldest]

    def _received(self, line: LineRow) -> None:
        self._check_received(line)
        command = line.command
        if command == "ERROR":
            self._refused(line)
            return
        if line.reason in _UNHEEDED and (line.reason != ErrorCode.UNKNOWN or command != "NO"):
            return
        manager = (line.source or "", line.source_epoch or 0)
        owner = (line.owner or manager[0], line.owner_epoch or manager[1])
        match command:
            case "WAKE" if line.target == line.node:
                before = self._wakes.pop(manager, None)
                if before is not None:
                    before.report(self.me, self.sink, None)
                ready = None if self._ready is None else self._ready[1]
                self._wakes[manager] = SeenWake(manager, line, ready)
            case "TAKE" | "NO":
                if line.passed:
                    self._forwarders.add((owner, manager[0]))
                lock = self._lock_of(line)
                if lock is not None:
                    lock.answer_by(line, self._break)
                for position, (job, attempt, _) in enumerate(jobs_of(line)):
                    self._fact(
                        line, "taken", owner, job, attempt, *manager, None, line.session,
                        line.number,
                    )  # fmt: skip
                    held = self._held.get((*owner, job))
                    if held is not None and (held.attempt or 0) > (attempt or 0):
                        continue  # the worker keeps the newer attempt (WMP-4.14)
                    self._release(owner, job)
                    self._held[*owner, job] = _TakenJob(line, position, attempt)
                    if lock is not None:
                        lock.held += 1
            case "CANCEL":
                for job, attempt, _ in jobs_of(line):
                    value = int(bool(line.unstarted))
                    self._fact(line, "cancel", owner, job, attempt, *manager, value)

    def _refused(self, line: LineRow) -> None:
        """Record an ERROR that refuses a DONE; a device names the manager as well (WMP-7.11)."""
        if line.code not in REFUSALS or line.about != "DONE":
            return
        manager = (line.about_peer, line.about_epoch)
        if line.about_peer is None:
            manager = (line.source, line.source_epoch)
        done = self._answers.pop((*manager, line.session, line.about_number), None)
        if done is None:
            return
        owner = (done.owner or done.target or "", done.owner_epoch or done.target_epoch or 0)
        for job, attempt, _ in jobs_of(done):
            self._fact(
                line, "refused", owner, job, attempt, *manager, None, done.session, done.number
            )

    # -- locks

    def _lock_of(self, line: LineRow) -> LockFold | None:
        """Return the lock that a line names; report a lock that was never used."""
        lock = self._locks.get(line.lock or 0)
        if lock is None and line.what == "received" and (line.lock or 0) > self._highest:
            text = f"{line.command} names a lock for which no GIVE was sent"
            self._break(line, "WMP-4.13", text, lock=line.lock)
        return lock

    def _note(self, line: LineRow, begin: int) -> None:
        """Record a note; ``begin`` is the number of the first line of its step.

        A TAKE of a newer session forgets the jobs of the old session before it brings its own.
        """
        for number in line.locks or ():
            lock = self._locks.get(number)
            if lock is not None and line.about_peer not in (None, lock.manager[0]):
                text = f"a note names lock {number} of {line.about_peer}; {lock.manager[0]} has it"
                self._break(line, "WMP-4.13", text, lock=number)
            elif lock is not None:
                lock.step(LockInput(line.reason), line)
        if line.owner is not None and line.reason == "forget":
            owner = (line.owner, line.owner_epoch or 0)
            for job in line.ids or ():
                self._release(owner, job)
                self._fact(
                    msgspec.structs.replace(line, n=begin), "forgotten", owner, job,
                    peer=line.about_peer,
                )  # fmt: skip

    def _release(self, owner: ProcessKey, job: int) -> LockFold | None:
        """Forget the lock of a job, and return it."""
        held = self._held.pop((*owner, job), None)
        lock = None if held is None else self._locks.get(held.take.lock or 0)
        if lock is not None:
            lock.held -= 1
        return lock

    # -- lanes

    def _run(self, line: LineRow) -> None:
        owner, needs = (line.owner or "", line.owner_epoch or 0), line.needs or {}
        jobs = {job: attempt for job, attempt, _ in jobs_of(line)}
        for job, attempt, runs in jobs_of(line, line.begun):
            if runs is not None and runs >= attempt:
                text = f"job {job} is run in attempt {attempt} after {runs} earlier runs"
                self._break(line, "runs are counted", text)
        if line.lane in self._lanes:
            text = f"lane {line.lane} got jobs while it had others"
            self._break(line, "a lane ends each job once", text)
        self._check_run(line, owner)
        self._lanes[line.lane] = _OpenLane(owner, needs, line.at, line.at, jobs, bool(line.passed))
        for job, attempt in jobs.items() if not line.passed else ():
            self._fact(
                line, "run", owner, job, attempt, value=line.lane, role=line.role, text=line.needs
            )
        for name, amount in needs.items():
            taken = self._taken[name] = self._taken.get(name, 0) + amount
            have = self._have.get(name, 0)
            if amount > 0 and taken > have:
                text = (
                    f"the running jobs of worker {line.node} need {taken} {name}; the worker has "
                    f"{have}"
                )
                self._break(line, "no double booking", text)

    def _check_run(self, line: LineRow, owner: ProcessKey) -> None:
        """Compare the jobs of a lane with their TAKEs."""
        limits = line.each(line.limits)
        for (job, attempt, runs), limit in zip(jobs_of(line, line.begun), limits, strict=True):
            held = self._held.get((*owner, job))
            if held is None:
                continue  # a job that the worker does not hold is a finding of its own
            take = held.take
            lane = (attempt, line.role, line.needs or {}, line.codec, limit, runs)
            brought = (
                held.attempt, take.role, take.needs or {}, take.codec, held.entry(take.limits),
                held.entry(take.begun),
            )  # fmt: skip
            if lane != brought:
                names = ("attempt", "role", "needs", "codec", "limit", "earlier runs")
                text = "; ".join(
                    f"the lane has {name} {value} for job {job}, its TAKE has {other}"
                    for name, value, other in zip(names, lane, brought, strict=True)
                    if value != other
                )
                self._break(line, "a lane runs what its TAKE brought", text, owner=owner, job=job)
            until = held.begin_by
            if until is not None and line.at > until + _ROUNDED:
                text = f"job {job} was begun {(line.at - until) / 1e6:.3f} s too late by its TAKE"
                self._break(line, "times are kept", text, owner=owner, job=job)

    def _check_lane(self, line: LineRow, event: LineRow | None = None) -> None:
        """Report the jobs of a line that its lane does not have.

        After a pause a worker recalls the jobs of its lanes before it handles the event, which may
        be the end of some of these jobs (WMP-9.22).
        """
        lane = self._lanes.get(line.lane or 0)
        ends = event is not None and event.what == "finished" and event.lane == line.lane
        ended: Sequence[int] = (event.ids or ()) if event is not None and ends else ()
        jobs = {*ended, *(() if lane is None else lane.jobs)}
        strange = [job for job in line.ids or () if job not in jobs]
        if strange:
            text = f"{line.what} names job {strange[0]}, which lane {line.lane} does not have"
            self._break(line, "a lane ends each job once", text)

    def _ended(self, line: LineRow) -> None:
        self._check_lane(line)
        lane = self._lanes.get(line.lane or 0)
        if lane is None or not line.ids:
            return
        share = (line.at - lane.since) / len(line.ids)
        recalled = line.what == "recalled"
        for position, (job, _, outcome) in enumerate(jobs_of(line, line.outcomes)):
            if job not in lane.jobs:
                continue
            attempt, owner = lane.jobs.pop(job), lane.owner
            if lane.forwarded:
                continue
            if recalled:
                self._fact(line, "finished", owner, job, attempt, word="recalled", other=line.lane)
                continue
            begun = int(lane.since + share * position) + self.me.clock
            self._fact(
                line, "finished", owner, job, attempt, None, None, outcome, int(share), begun,
                other=line.lane,
            )  # fmt: skip
        if not recalled:
            lane.since = line.at
        if not lane.jobs:
            del self._lanes[line.lane or 0]
            for name, amount in lane.needs.items():
                self._taken[name] -= amount
            self._count_time("busy", lane.needs, lane.begin, line.at)

    def _resized(self, line: LineRow) -> None:
        """Record that the amounts of the resources changed (WMP-3.15)."""
        begin = self.me.first if self._changed is None else self._changed
        self._count_time("had", self._amounts, begin, line.at)
        self._changed = line.at
        resources = line.resources or {}
        self._amounts = {name: resources.get(name, 0) for name in {**self._amounts, **resources}}
        for name, amount in resources.items():
            self._have[name] = max(amount, self._have.get(name, 0))

    def _count_time(self, what: str, amounts: Mapping[str, int], begin: int, end: int) -> None:
        """Count amount × µs of each resource between two times, by stretch."""
        length, clock = self.sink.length, self.me.clock
        since, until = self.sink.window
        begin, end = max(begin + clock, since), min(end + clock, until)
        for part in range(begin // length * length, end + 1, length):
            overlap = min(end, part + length) - max(begin, part)
            for name, amount in islice(amounts.items(), 16):
                self.sink.count(amount * overlap, what, self.me.node, self.me.epoch, name, part)
