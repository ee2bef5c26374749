"""All interleavings of two dispatchers that dispatch one job: the design's way, and this one.

The design saves `d` whatever the job's status is, waits, and reads again: the last writer wins.
:func:`search_design` finds the interleaving in which both send the job. :func:`search_steps` runs
the steps of this library, with an end of a dispatcher between any two of them.
:func:`search_endings` goes on from there to the end of the job: its worker, completions, health
checks and a cancellation, with faults between any two of them.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, TypeVar

import attrs
from attrs import define, field, frozen

from wmp.dispatcher.job_document import NewJobDocument
from wmp.dispatcher.records import DispatchRecord, worker_number
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.checking import Check, EndCancelled
from wmp.dispatcher.steps.job_steps import CancelJob, Create, Finish
from wmp.dispatcher.steps.placing import Assign, Place
from wmp.dispatcher.steps.refusals import RefusedPost, TakeBack
from wmp.dispatcher.steps.worker_steps import NotePing, Register
from wmp.store.contract import StoreInstance
from wmp.store.stored_job import ENDED
from wmp.testing.store_worlds.reference_transaction import TransactingReference

_COOLDOWN: Final = 2
"""Ticks of the cooldown; a tick is a second."""
_HORIZON: Final = 5
"""Ticks that a search looks at."""

_REFUSED: Final = RefusedPost("refused", worker_at_fault=False)

_S = TypeVar("_S")


@frozen
class DispatchSearch:
    """The result of a search."""

    states: int
    trace: Sequence[str] | None
    """The moves that lead to a job that is sent twice or never; None without one."""


def _search(
    start: _S,
    moves: Callable[[_S], Iterable[tuple[str, _S]]],
    key: Callable[[_S], Hashable],
    is_wrong: Callable[[_S], bool],
) -> DispatchSearch:
    """Visit every state; stop at the first wrong state, by the fewest moves."""
    seen = {key(start)}
    waiting: deque[tuple[_S, tuple[str, ...]]] = deque([(start, ())])
    while waiting:
        state, trace = waiting.popleft()
        if is_wrong(state):
            return DispatchSearch(len(seen), trace)
        for name, following in moves(state):
            identity = key(following)
            if identity not in seen:
                seen.add(identity)
                waiting.append((following, (*trace, name)))
    return DispatchSearch(len(seen), None)


# -- the design ---------------------------------------------------------------------------------


@frozen
class _Design:
    """One job in a database, and two dispatchers without conditions."""

    now: int = 0
    status: str = "q"
    owner: int | None = None
    places: tuple[str, str] = ("find", "find")
    """The next step of each dispatcher."""
    ready: tuple[int, int] = (0, 0)
    sent: int = 0


def _put(pair: tuple[Any, Any], index: int, value: Any) -> tuple[Any, Any]:
    return (value, pair[1]) if index == 0 else (pair[0], value)


def _design_moves(state: _Design) -> Iterable[tuple[str, _Design]]:
    if state.now < _HORIZON:
        yield "a tick", attrs.evolve(state, now=state.now + 1)
    for me, step in enumerate(state.places):
        if step == "find" and state.status == "q":
            yield f"{me} finds", attrs.evolve(state, places=_put(state.places, me, "save"))
        elif step == "save":
            yield (
                f"{me} saves d",
                attrs.evolve(
                    state,
                    status="d",
                    owner=me,
                    places=_put(state.places, me, "read"),
                    ready=_put(state.ready, me, state.now + _COOLDOWN),
                ),
            )
        elif step == "read" and state.ready[me] <= state.now:
            mine = state.owner == me
            yield (
                f"{me} reads and sends" if mine else f"{me} reads",
                attrs.evolve(
                    state,
                    status="r" if mine else state.status,
                    places=_put(state.places, me, "end"),
                    sent=state.sent + mine,
                ),
            )


def search_design() -> DispatchSearch:
    """Search the design's two steps, in which the last writer wins."""
    return _search(_Design(), _design_moves, lambda state: state, lambda state: state.sent > 1)


# -- the steps of this library ------------------------------------------------------------------


@define(eq=False)
class _Steps:
    """One job in the store in memory, and two dispatchers."""

    store: TransactingReference
    parties: list[StoreInstance]
    now: int = 0
    cooling: list[dict[tuple[int, int], int]] = field(factory=lambda: [{}, {}])
    """For each dispatcher, when its jobs in `d` get their worker."""
    ended: int | None = None
    sent: list[tuple[int, int]] = field(factory=list)
    settings: DispatcherSettings = field(
        factory=lambda: DispatcherSettings(
            cooldown_period=1000 * _COOLDOWN, dispatch_timeout=1000 * (_COOLDOWN + 1)
        )
    )

    def key(self) -> Hashable:
        """Return the key of the state: two states with the same key have the same future."""
        rows = [
            (job.id, job.state, job.attempt, job.instance, job.lost) for job in self.store.list()
        ]
        records = sorted(
            (sort, id, row.open, tuple(sorted((name, str(v)) for name, v in row.body.items())))
            for (sort, id), row in self.store._records.items()
        )
        cooling = [tuple(sorted(jobs.items())) for jobs in self.cooling]
        living = tuple(self.store.living())
        return tuple(rows), tuple(records), tuple(cooling), self.now, self.ended, living

    def copied(self) -> _Steps:
        """Return an independent copy."""
        copied = copy.copy(self)
        copied.cooling = [dict(jobs) for jobs in self.cooling]
        copied.sent = list(self.sent)
        copied.store = copy.copy(self.store)
        copied.store.clock = lambda: 1_800_000_000.0 + copied.now
        rows, instances = copy.deepcopy((self.store._rows, self.store._instances))
        copied.store._rows, copied.store._instances = rows, instances
        copied.store._records = dict(self.store._records)
        return copied

    def run(self, me: int, step: Any) -> Any:
        """Run a step of a dispatcher."""
        return self.store.transact(self.parties[me], step.run)

    def place(self, me: int) -> None:
        """Run the first step of dispatching."""
        placed = self.run(me, Place(self.settings))
        self.cooling[me].update(dict.fromkeys(placed.cooling, self.now + _COOLDOWN))

    def assign(self, me: int) -> None:
        """Run the second step of dispatching, and send what it gives."""
        ready = [job for job, when in self.cooling[me].items() if when <= self.now]
        for job in ready:
            del self.cooling[me][job]
        for assignment in self.run(me, Assign(self.settings, ready)).assignments:
            self.sent.append((assignment.id, assignment.attempt))

    def end(self, me: int) -> None:
        """End a dispatcher between two steps."""
        self.store.end(self.parties[me])
        self.cooling[me].clear()
        self.ended = me


def _step_moves(state: _Steps) -> Iterable[tuple[str, _Steps]]:
    def after(name: str, act: Callable[[_Steps], object]) -> tuple[str, _Steps]:
        copied = state.copied()
        act(copied)
        return name, copied

    if state.now < _HORIZON:
        yield after("a tick", _tick)
    for me in (0, 1):
        if state.ended == me:
            continue
        yield after(f"{me} saves d", lambda copied, me=me: copied.place(me))  # type: ignore[misc]
        yield after(f"{me} checks", lambda copied, me=me: copied.run(me, Check(copied.settings)))  # type: ignore[misc]
        if any(when <= state.now for when in state.cooling[me].values()):
            yield after(f"{me} gives", lambda copied, me=me: copied.assign(me))  # type: ignore[misc]
        if state.ended is None:
            yield after(f"{me} ends", lambda copied, me=me: copied.end(me))  # type: ignore[misc]


def _tick(state: _Steps) -> None:
    state.now += 1


def _is_wrong(state: _Steps) -> bool:
    """Return whether an attempt was sent twice, or the job can no longer be sent."""
    if len(set(state.sent)) < len(state.sent) or len(state.sent) > 1:
        return True
    left = state.copied()
    for _ in range(2 * _COOLDOWN + 2):
        for me in (0, 1):
            if me != left.ended:
                left.run(me, Check(left.settings))
                left.place(me)
                left.assign(me)
        left.now += 1
    return len(left.sent) != 1


def search_steps() -> DispatchSearch:
    """Search the steps of two dispatchers, one of which may end between any two of them."""
    store = TransactingReference(lambda: 1_800_000_000.0, undoes=False)
    parties = [store.begin(b"a", "a"), store.begin(b"b", "b")]
    start = _Steps(store, parties)
    start.run(0, Register(start.settings, "h", 1, 2, {"t": True}))
    start.run(0, Create(start.settings, 1, NewJobDocument("t", None)))
    return _search(start, _step_moves, lambda state: state.key(), _is_wrong)


# -- to the end of the job ----------------------------------------------------------------------


@define(eq=False)
class _Endings(_Steps):
    """The same state, with a worker, and a number of faults that may still happen."""

    faults: int = 0
    posts: list[tuple[int, int, int]] = field(factory=list)
    """Dispatcher, number and attempt of each job that is on its way to the worker."""
    running: list[tuple[int, int]] = field(factory=list)
    """Jobs that the worker does, also after a completion whose answer was lost."""
    counted: int = 0
    stale: bool = False
    """Whether the result of an attempt counted that was not the current attempt."""

    def key(self) -> Hashable:
        """Return the key of the state."""
        more = (tuple(sorted(self.posts)), tuple(sorted(self.running)), self.counted, self.stale)
        return super().key(), more, tuple(sorted(self.sent)), self.faults

    def copied(self) -> _Endings:
        """Return an independent copy."""
        copied = super().copied()
        assert isinstance(copied, _Endings)
        copied.posts, copied.running = list(self.posts), list(self.running)
        return copied

    def spend(self) -> None:
        """Let one fault happen."""
        self.faults -= 1

    def give(self, me: int) -> None:
        """Dispatch the job, and send it."""
        for assignment in self.run(me, Place(self.settings)).assignments:
            self.sent.append((assignment.id, assignment.attempt))
            self.posts.append((me, assignment.id, assignment.attempt))

    def check(self, me: int) -> None:
        """Check, and send the cancellations that follow; the worker answers each."""
        for cancellation in self.run(me, Check(self.settings)).cancellations:
            if (cancellation.id, cancellation.attempt) in self.running:
                self.running.remove((cancellation.id, cancellation.attempt))
            if cancellation.awaited:
                self.run(me, EndCancelled(cancellation.id, cancellation.attempt))

    def report(self, me: int, job: tuple[int, int], *, answered: bool) -> None:
        """Report the end of a job to a dispatcher."""
        current = self.store.list()[0].attempt
        if self.run(me, Finish(*job, "s", b"1")).counts:
            self.counted += 1
            self.stale |= job[1] != current
        if answered:
            self.running.remove(job)

    def ping(self, me: int, error: str | None) -> None:
        """Write a health check, in which the worker names its jobs."""
        # It counts if it began `post_timeout`, here a millisecond, after the job was given.
        began = round(1000 * self.store.clock()) + 1
        self.run(me, NotePing(self.settings, worker_number("h", 1), began, error, self.running))

    def is_given_up(self) -> bool:
        """Return whether further health checks would show nothing new."""
        record = self.store._records.get((DispatchRecord.SORT, 1))
        return record is not None and record.body["unknown"] >= 2

    def register(self, me: int) -> None:
        """Register the worker."""
        self.run(me, Register(self.settings, "h", 1, 2, {"t": True}))


def _ending_moves(state: _Endings) -> Iterable[tuple[str, _Endings]]:
    def after(name: str, *acts: Callable[[_Endings], object]) -> tuple[str, _Endings]:
        copied = state.copied()
        for act in acts:
            act(copied)
        return name, copied

    spend = _Endings.spend
    for post in state.posts:
        me, id, attempt = post
        yield after(
            f"job {id} arrives in attempt {attempt}",
            lambda copied, post=post: copied.posts.remove(post),  # type: ignore[misc]
            lambda copied, post=post: copied.running.append(post[1:]),  # type: ignore[misc]
        )
        if state.faults:
            gone = after(
                "a job is lost",
                spend,
                lambda copied, post=post: copied.posts.remove(post),  # type: ignore[misc]
            )
            yield gone
            if state.ended != me:
                back = TakeBack(state.settings, id, attempt, _REFUSED)
                refused = gone[1].copied()
                refused.run(me, back)
                yield f"{me} takes a refused job back", refused
    if state.faults and state.running:
        yield after("the worker forgets its jobs", spend, lambda copied: copied.running.clear())
    for me in (0, 1):
        if state.ended == me:
            continue
        yield after(f"{me} dispatches", lambda copied, me=me: copied.give(me))  # type: ignore[misc]
        yield after(f"{me} checks", lambda copied, me=me: copied.check(me))  # type: ignore[misc]
        if not state.posts and not state.is_given_up():
            yield after(f"{me} sees the worker", lambda copied, me=me: copied.ping(me, None))  # type: ignore[misc]
        for job in state.running:
            yield after(
                f"{job} is reported to {me}",
                lambda copied, me=me, job=job: copied.report(me, job, answered=True),  # type: ignore[misc]
            )
        if not state.faults:
            continue
        for job in state.running:
            yield after(
                f"{job} is reported to {me} without an answer",
                spend,
                lambda copied, me=me, job=job: copied.report(me, job, answered=False),  # type: ignore[misc]
            )
        if state.posts:
            yield after("a job is late", spend, lambda copied, me=me: copied.ping(me, None))  # type: ignore[misc]
        yield after(
            f"{me} misses the worker",
            spend,
            lambda copied, me=me: copied.ping(me, "refused"),  # type: ignore[misc]
        )
        yield after(
            f"{me} cancels",
            spend,
            lambda copied, me=me: copied.run(me, CancelJob(1)),  # type: ignore[misc]
        )
        if state.ended is None:
            yield after(f"{me} ends", spend, lambda copied, me=me: copied.end(me))  # type: ignore[misc]


def _ends_wrong(state: _Endings) -> bool:
    """Return whether two results count, an attempt is sent twice, or the job cannot end."""
    if state.counted > 1 or state.stale or len(set(state.sent)) < len(state.sent):
        return True
    left = state.copied()
    for _ in range(6):
        left.running += [post[1:] for post in left.posts]
        left.posts.clear()
        for me in (0, 1):
            if me != left.ended:
                left.register(me)
                left.ping(me, None)
                left.check(me)
                left.give(me)
                for job in tuple(left.running):
                    left.report(me, job, answered=True)
    return left.store.list()[0].state not in ENDED


def search_endings(faults: int) -> DispatchSearch:
    """Search all ways of one job to its end.

    Args:
        faults: Maximum number of lost jobs, refusals, lost answers, failed health checks, restarts
            of the worker, cancellations and ends of dispatchers together.
    """
    store = TransactingReference(lambda: 1_800_000_000.0, undoes=False)
    parties = [store.begin(b"a", "a"), store.begin(b"b", "b")]
    settings = DispatcherSettings(max_failed_checks=1, post_timeout=1, max_worker_losses=10)
    start = _Endings(store, parties, settings=settings, faults=faults)
    start.register(0)
    start.run(0, Create(start.settings, 1, NewJobDocument("t", None)))
    return _search(start, _ending_moves, lambda state: state.key(), _ends_wrong)
