"""Every order of the steps of a small world with a store: managers end between any two of them.

Theory of operation. A job is submitted to a manager with one worker. From each state every move is
made on a copy: a message arrives, the store applies a batch, its answer arrives, a job ends, a
manager is killed or starts again, or time goes on. A state that was seen before is not followed
again. From each state without moves the world runs on without faults: all jobs must then have
ended, and each must have been begun once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from math import inf
from types import FunctionType, MethodType
from typing import Any, Final, TypeAlias

import attrs
from attrs import define, field, frozen

from wmp.actions import Write
from wmp.events import Submitted, Written
from wmp.message import Kind, Message
from wmp.store.contract import JobFilter
from wmp.store.job_terms import StoredTerms
from wmp.testing.simulator.network import LinkQueue, Network, Pipe
from wmp.testing.state.clone import clone
from wmp.testing.store_worlds.store_world import SimulatedCommitter, StoreFaults, StoreWorld

StoreMove: TypeAlias = tuple[Any, ...]

_NOTHING: Final = frozenset(
    {"actions", "dropped", "drops", "reports", "ticks", "sent", "_random", "_ties", "calm"}
)
"""Names of fields that decide nothing."""


@define(eq=False)
class ModelCommitter(SimulatedCommitter):
    """A committer whose steps are moves of the model."""

    applied: Written | None = None
    """The answer that is on its way."""

    def write(self, action: Write) -> None:
        self.writes.append(action)

    def look_soon(self) -> None:
        self.look()

    def commit(self) -> None:
        """Let the store apply the oldest batch."""
        write, store = self.writes[0], self.world.store
        self.number += 1
        answer = store.apply(self.me, self.number, write.batch)
        held = None
        if write.held:
            held = store.list(JobFilter(instance=self.me.number), limit=100, payloads=True)
        seen = store.list(JobFilter(ids=write.look), limit=100, payloads=True)
        self.applied = Written(write.step, answer, held, seen if write.look else ())
        self.world.wrote(self.manager)

    def answer(self) -> None:
        """Let the answer arrive."""
        written, self.applied = self.applied, None
        self.writes.popleft()
        self.world.happen(self.manager, written)
        self.look()


@define(eq=False)
class StoreModel(StoreWorld):
    """A world with a store whose next step the caller chooses."""

    faults: StoreFaults = field(factory=lambda: StoreFaults(*(0,) * 9))
    managers: int = 1
    workers: int = 1
    jobs: int = 1
    kills: int = 1
    """Number of times that a manager may still be killed."""
    ticks_left: int = 2
    """Number of times that time may still go on while nothing else happens."""

    def __attrs_post_init__(self) -> None:
        StoreWorld.__attrs_post_init__(self)
        self._run(1.5)
        name = min(self.committers)
        ids = self._ids[name][-1][: self.jobs]
        payloads = [b"job %d" % id for id in ids]
        self.payloads.update(zip(ids, payloads, strict=True))
        self.open[name].update(ids)
        self.happen(name, Submitted(ids, payloads, Kind(), stored=StoredTerms()))

    # -- in place of the schedule of the seed

    def _commit_by(self, name: str) -> SimulatedCommitter:
        return ModelCommitter(self, name, self.begin_instance(name))

    def carry(self, pipe: Pipe, message: Message) -> None:
        Network.carry(self, pipe, message)

    def begin(self, name: str, lane: LinkQueue) -> None:
        self.begin_job(name, lane)

    # -- moves

    def moves(self) -> list[StoreMove]:
        """Return all possible next steps."""
        if self._is_settled():
            return []
        moves: list[StoreMove] = [
            ("deliver", pipe) for pipe in self.busy() if self.alive(self.receiver(pipe))
        ]
        for name, committer in self.committers.items():
            if self.alive(name) and committer.writes:
                applied = committer.applied is not None  # type: ignore[attr-defined]
                moves.append(("answer" if applied else "commit", name))
        moves += [("finish", name, lane.run.lane) for name, lane in self.running()]
        if not moves and self.ticks_left > 0 and self.deadline() is not None:
            moves.append(("tick",))
        moves += [("start", name) for name in sorted(self.down)]
        if self.kills > 0:
            moves += [("kill", name) for name in self.committers if self.alive(name)]
        return moves

    def make(self, move: StoreMove) -> None:
        """Make a step.

        Raises:
            BrokenStorePromise: The step breaks a promise.
        """
        match move:
            case ("deliver", pipe):
                self.deliver(pipe)
            case ("commit", name):
                self.committers[name].commit()  # type: ignore[attr-defined]
            case ("answer", name):
                self.committers[name].answer()  # type: ignore[attr-defined]
            case ("finish", name, number):
                self.finish(name, self.lanes[name][number])
            case ("kill", name):
                self.kills -= 1
                self.kill(name, inf)
            case ("start", name):
                self._restart(name)
            case _:
                self.ticks_left -= 1
                self._pass()

    def _pass(self) -> None:
        """Let time go on to the next deadline."""
        due = self.deadline()
        if due is not None:
            self.advance(max(due, self.now))

    def close(self) -> None:
        """Run the world to its end without faults, and check what is left.

        Raises:
            BrokenStorePromise: A promise is broken.
        """
        self.kills = 0
        for name in sorted(self.down):
            self._restart(name)
        self._run(self.now + 60.0)
        self.check()

    def _run(self, until: float) -> None:
        """Make all steps in turn, and let time go on."""
        while self.now < until:
            self.ticks_left = 1
            moves = [move for move in self._urgent() if move[0] != "kill"]
            if moves:
                self.make(moves[0])
            elif self.payloads and self._is_settled():
                return
            else:
                self._pass()

    def _urgent(self) -> Sequence[StoreMove]:
        busy: list[StoreMove] = [("deliver", pipe) for pipe in self.busy()]
        if busy:
            return busy
        for name, committer in self.committers.items():
            if committer.writes:
                applied = committer.applied is not None  # type: ignore[attr-defined]
                return [("answer" if applied else "commit", name)]
        return [("finish", name, lane.run.lane) for name, lane in self.running()]

    def state(self) -> Hashable:
        """Return a value that is equal for equal states."""
        return hash(_shape(self, {}))


def _shape(value: Any, seen: dict[int, int]) -> Hashable:
    """Return the values of an object and of its parts; a part that comes again is a number."""
    kind = type(value)
    if kind in (int, float, str, bytes, bool, type(None)) or isinstance(value, range):
        return value  # type: ignore[no-any-return]
    if kind in (FunctionType, MethodType):
        return None
    if isinstance(value, dict):
        rows = [(_shape(key, seen), _shape(item, seen)) for key, item in value.items()]
        return tuple(sorted(rows, key=repr))
    if isinstance(value, set | frozenset):
        return tuple(sorted([_shape(item, seen) for item in value], key=repr))
    if isinstance(value, list | tuple | deque):
        return tuple([_shape(item, seen) for item in value])
    if not attrs.has(kind):
        return repr(value) if not hasattr(value, "__dict__") else kind.__name__
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = len(seen)
    parts = [
        _shape(getattr(value, part.name), seen)
        for part in attrs.fields(kind)
        if part.name not in _NOTHING
    ]
    return (kind.__name__, *parts)


@frozen(kw_only=True)
class StoreSearch:
    """The result of a search."""

    states: int
    leaves: int
    """Number of states without moves; from each the world ran to its end."""
    emptied: bool
    """Whether all states were seen."""


def search_store(
    maximum: int, *, managers: int = 1, jobs: int = 1, kills: int = 1, ticks_left: int = 2
) -> StoreSearch:
    """Visit the states of a :class:`StoreModel`, up to ``maximum``.

    Raises:
        BrokenStorePromise: A promise is broken in some state.
    """
    first = StoreModel(managers=managers, jobs=jobs, kills=kills, ticks_left=ticks_left)
    seen, leaves = {first.state()}, 0
    frontier = [first]
    while frontier and len(seen) < maximum:
        model = frontier.pop()
        moves = model.moves()
        if not moves:
            leaves += 1
            model.close()
        for move in moves:
            after = clone(model)
            after.make(move)
            state = after.state()
            if state not in seen:
                seen.add(state)
                frontier.append(after)
    return StoreSearch(states=len(seen), leaves=leaves, emptied=not frontier)
