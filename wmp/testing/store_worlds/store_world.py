"""Managers that share a store, in virtual time, with everything that may fail.

The store answers late, not at all, or after it has applied a batch. Processes die, between any two
steps, or pause. Clocks jump. A :class:`StoreWorld` is made from a seed, checks each step, and at
last lets all faults end: then every acknowledged job must have ended once, with its result.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final

from attrs import define, evolve, field

from wmp import codec
from wmp.actions import Acknowledge, Decline, End, Resolve, Send, Write
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import InstanceEnded
from wmp.events import Cancelled, InstanceBegun, Submitted, Woken, Written
from wmp.message import Command, Field, Kind, Message, Outcome
from wmp.retry import Retry
from wmp.store.contract import JobFilter, StoreInstance
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import ENDED, OPEN, StoredJobState
from wmp.testing.simulator.network import Action, LinkQueue, Network, Pipe
from wmp.testing.store_worlds.reference_store import ReferenceStore

_NEW: Final = frozenset({Field.KEEP, Field.SERVES, Field.KEPT})
"""Fields that an old worker ignores."""
_VALIDITY: Final = 15.0
"""Seconds after a jump of the clock in which an instance may end too early."""
_KINDS: Final = (Kind(), Kind("other"))
_RETRY: Final = Retry(times=3, on="builtins.ValueError", backoff=0.5)
_ENDS: Final = {
    StoredJobState.OK: End.OK,
    StoredJobState.ERROR: End.ERROR,
    StoredJobState.CANCELLED: End.CANCELLED,
    StoredJobState.TIMEOUT: End.TIMEOUT,
    StoredJobState.LOST: End.LOST,
}


class BrokenStorePromise(AssertionError):
    """A promise about stored jobs was broken.

    Attributes:
        name: The promise.
    """

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


@define
class StoreFaults:
    """The faults of a world, as probabilities for each write or each second."""

    slow: float = 0.02
    """Probability that a write takes up to 10 s."""
    absent: float = 0.05
    """Probability that a write fails and changes nothing."""
    lost: float = 0.05
    """Probability that the answer to a write is lost after its transaction."""
    killed_managers: float = 0.05
    down: float = 15.0
    """Longest time in seconds for which a killed manager is down."""
    long: float = 0.0
    """Probability that a job takes longer than the jobs of a dead manager stay reserved."""
    killed_workers: float = 0.03
    paused_managers: float = 0.02
    """Pauses last up to 30 s: longer than the validity of an instance."""
    jumps: float = 0.02
    """Jumps of the store's clock, by up to 60 s in both directions."""


@define(eq=False)
class SimulatedCommitter:
    """The committer of one process of a manager."""

    world: StoreWorld
    manager: str
    me: StoreInstance
    alive: bool = True
    number: int = 0
    writes: deque[Write] = field(factory=deque)
    busy: bool = False

    def write(self, action: Write) -> None:
        """Apply a batch soon."""
        self.writes.append(action)
        self._next()

    def _next(self) -> None:
        if self.writes and not self.busy:
            self.busy = True
            self._after(self.world.latency(), self._apply)

    def _after(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        self.world.after(seconds, self._do, what, arguments)

    def _do(self, what: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.alive:
            return
        if (until := self.world.paused.get(self.manager, 0.0)) > self.world.now:
            self.world.after(until - self.world.now, self._do, what, arguments)
        else:
            what(*arguments)

    def _apply(self) -> None:
        world, write = self.world, self.writes[0]
        absent, lost = world.fate()
        if absent:
            self._after(0.1, self._apply)
            return
        try:
            answer = world.store.apply(self.me, self.number + 1, write.batch)
        except InstanceEnded:
            self.writes.popleft()
            self.me = world.begin_instance(self.manager)
            self.number, self.busy = 0, False
            world.happen(self.manager, world.begun_event(self, world.stored_here(self.manager)))
            self._next()
            return
        if lost:
            self.answer_lost()
            self._after(0.1, self._apply)
            return
        self.number += 1
        store, held = world.store, None
        if answer.repeated or write.held:
            held = store.list(JobFilter(instance=self.me.number), limit=10**6, payloads=True)
        seen = store.list(JobFilter(ids=write.look), limit=10**6, payloads=True)
        written = Written(write.step, answer, held, seen if write.look else ())
        self._after(world.latency(), self._answer, written)
        world.wrote(self.manager)

    def answer_lost(self) -> None:
        """Note that an answer was lost: the same number is given again."""

    def _answer(self, written: Written) -> None:
        self.writes.popleft()
        self.busy = False
        world = self.world
        world.happen(self.manager, written)
        if written.answer.repeated:
            ids = world.stored_here(self.manager)
            ended = world.store.list(JobFilter(ids=ids, states=ENDED), limit=10**6, payloads=True)
            world.happen(self.manager, Woken(ended, (), ()))
        self.look()
        self._next()

    def look(self) -> None:
        """Report what others wrote."""
        store = self.world.store
        news = store.news(self.me)
        self.world.happen(self.manager, Woken(news.ended, news.cancelling, store.kinds()))

    def look_soon(self) -> None:
        """Look after a moment, as a process that polls."""
        self._after(0.01, self.look)


@define(eq=False)
class StoreWorld(Network):
    """Managers, workers and one store.

    Args:
        seed: Decides everything.
        faults: The faults that may happen.
        managers: Number of managers.
        workers: Number of workers, each connected to all managers.
        old: Number of these workers that know nothing of successors (spec section 14).
    """

    seed: int = 0
    faults: StoreFaults = field(factory=StoreFaults)
    managers: int = 2
    workers: int = 3
    old: int = 0
    store: ReferenceStore = field(init=False)
    committers: dict[str, SimulatedCommitter] = field(factory=dict)
    open: dict[str, set[int]] = field(factory=dict)
    """Jobs of each process of a manager whose ends were not reported."""
    paused: dict[str, float] = field(factory=dict)
    payloads: dict[int, bytes] = field(factory=dict)
    """Payloads of all submitted jobs."""
    acknowledged: set[int] = field(factory=set)
    cancelled: set[int] = field(factory=set)
    reported: dict[int, tuple[End, bytes]] = field(factory=dict)
    begun: Counter[tuple[int, int]] = field(factory=Counter)
    granted: dict[tuple[int, int], bytes] = field(factory=dict)
    instances: int = 0
    """Number of instances that were begun."""
    jumped_at: float = -1e9
    """When the clock of the store last jumped."""
    calm: bool = False
    _random: Random = field(init=False)
    _agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(factory=list)
    _ties: int = 0
    _offset: float = 1e9
    _epochs: Counter[str] = field(factory=Counter)
    _ids: dict[str, list[range]] = field(factory=dict)
    _confirmed: dict[str, set[int]] = field(factory=dict)
    _arrivals: dict[Pipe, float] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self._random = Random(self.seed)
        self.store = ReferenceStore(self.store_time)
        names = [f"m{number}" for number in range(1, self.managers + 1)]
        for name in names:
            self.add(name, self._manager(name))
            self._start(name)
        for number in range(1, self.workers + 1):
            name = f"w{number}"
            self.add(name, self._worker(name), names)
            self.connect(name)

    # -- nodes

    def _manager(self, name: str) -> ManagerMachine:
        self._epochs[name] += 1
        settings = ManagerSettings(identity=name.encode(), epoch=self._epochs[name])
        return ManagerMachine(settings, least_recently_used, stored=True)

    def _worker(self, name: str) -> WorkerMachine:
        self._epochs[name] += 1
        settings = WorkerSettings(
            identity=name.encode(),
            epoch=self._epochs[name],
            roles=("default", "other"),
            resources={"slots": self._random.randint(1, 3)},
        )
        return WorkerMachine(settings, self.managers)

    def store_time(self) -> float:
        """Return the time on the clock of the store."""
        return self.now + self._offset

    def begin_instance(self, name: str) -> StoreInstance:
        """Begin an instance for a manager."""
        me = self.store.begin(name.encode(), name)
        self.instances += 1
        self._ids.setdefault(name, []).append(me.block)
        return me

    def begun_event(self, committer: SimulatedCommitter, owned: Sequence[int]) -> InstanceBegun:
        """Return the event of an instance that begins."""
        peer = (self.store.identity, self.store.generation)
        return InstanceBegun(owned, peer, committer.me.number)

    def stored_here(self, name: str) -> list[int]:
        """Return the acknowledged jobs of a manager's process whose ends were not reported."""
        return sorted(self.open[name] & self._confirmed[name])

    def _start(self, name: str) -> None:
        self._ids[name] = []
        self.open[name] = set()
        self._confirmed[name] = set()
        self.committers[name] = self._commit_by(name)
        self.happen(name, self.begun_event(self.committers[name], ()))
        self.committers[name].look()

    def _commit_by(self, name: str) -> SimulatedCommitter:
        """Return the committer of a new process of a manager."""
        return SimulatedCommitter(self, name, self.begin_instance(name))

    def kill(self, name: str, seconds: float) -> None:
        """Kill a process; another one starts after some seconds."""
        self.down.add(name)
        self.paused.pop(name, None)
        if name in self.committers:
            committer = self.committers[name]
            committer.alive = False
            self.store.died.add(committer.me.number)
        self.after(seconds, self._restart, name)

    def _restart(self, name: str) -> None:
        self.down.discard(name)
        if name in self.committers:
            self.replace(name, self._manager(name))
            self._start(name)
        else:
            self.replace(name, self._worker(name))
            self.connect(name)

    # -- time

    def after(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call a function after some seconds."""
        self._ties += 1
        heapq.heappush(self._agenda, (self.now + seconds, self._ties, what, arguments))

    def go(self, until: float) -> None:
        """Let time pass."""
        while True:
            due = [
                (max(when, self.paused.get(name, 0.0)), name)
                for name, node in self.nodes.items()
                if self.alive(name) and (when := node.deadline()) is not None
            ]
            tick = min(due, default=(float("inf"), ""))
            first = self._agenda[0][0] if self._agenda else float("inf")
            if min(first, tick[0]) > until:
                break
            self.now = max(self.now, min(first, tick[0]))
            if first <= tick[0]:
                _, _, what, arguments = heapq.heappop(self._agenda)
                what(*arguments)
            else:
                self.tick(tick[1])
        self.now = max(self.now, until)

    def latency(self) -> float:
        """Return the seconds that one way to the store takes."""
        if not self.calm and self._random.random() < self.faults.slow:
            return self._random.uniform(0.0, 10.0)
        return self._random.uniform(0.0005, 0.005)

    def fate(self) -> tuple[bool, bool]:
        """Return whether a write fails, and whether its answer is lost."""
        if self.calm:
            return False, False
        return self._random.random() < self.faults.absent, self._random.random() < self.faults.lost

    def wrote(self, by: str) -> None:
        """Let the other processes notice a write."""
        for name, committer in self.committers.items():
            if name != by:
                committer.look_soon()

    # -- what users and fate do

    def submit_some(self, name: str, count: int) -> None:
        """Submit jobs to a manager: usually plain ones."""
        draw = self._random
        block = self._ids[name][-1]
        if len(block) < count or not self.alive(name) or name in self.paused:
            return
        ids, self._ids[name][-1] = block[:count], block[count:]
        payloads = [b"%s job %d" % (draw.choice((b"ok", b"ok", b"bad")), id) for id in ids]
        self.payloads.update(zip(ids, payloads, strict=True))
        more: dict[str, Any] = {}
        if draw.random() < 0.2:
            more["keys"] = [f"key {draw.randrange(20)}" for _ in ids]
            more["unique"] = draw.choice(("open", "kept"))
        if draw.random() < 0.1:
            more["delay"] = draw.uniform(0.0, 3.0)
        terms = StoredTerms(max_worker_losses=100, retry=_RETRY)
        self.open[name].update(ids)
        self.happen(
            name,
            Submitted(
                ids, payloads, draw.choice(_KINDS), draw.randrange(2), max_worker_losses=100,
                retry=_RETRY, stored=terms, **more,
            ),
        )  # fmt: skip

    def cancel_one(self, name: str) -> None:
        """Cancel a job that was submitted to a manager."""
        if self.open[name] and self.alive(name) and name not in self.paused:
            id = self._random.choice(sorted(self.open[name]))
            self.cancelled.add(id)
            self.happen(name, Cancelled([id]))

    def play(self, seconds: float) -> None:
        """Let jobs come and faults happen, then end all faults and check what is left."""
        names, workers = list(self.committers), [n for n in self.nodes if n not in self.committers]
        draw, faults = self._random, self.faults
        until = self.now + seconds
        while self.now < until:
            self.go(self.now + draw.uniform(0.0, 0.2))
            self._resume()
            name = draw.choice(names)
            self.submit_some(name, draw.randint(1, 8))
            if draw.random() < 0.05:
                self.cancel_one(name)
            part = 0.1  # seconds of one round
            if draw.random() < faults.killed_managers * part * len(names) and self.alive(name):
                self.kill(name, draw.uniform(0.0, self.faults.down))
            worker = draw.choice(workers)
            if draw.random() < faults.killed_workers * part * len(workers) and self.alive(worker):
                self.kill(worker, draw.uniform(0.0, 8.0))
            if draw.random() < faults.paused_managers * part * len(names) and self.alive(name):
                self.paused[name] = self.now + draw.uniform(0.0, 30.0)
            if draw.random() < faults.jumps * part:
                self._offset += draw.uniform(-60.0, 60.0)
                self.jumped_at = self.now
        self.calm = True
        self.rest()

    def _resume(self) -> None:
        for name, until in tuple(self.paused.items()):
            if until <= self.now:
                del self.paused[name]

    def rest(self, patience: float = 60.0) -> None:
        """Let everything come to rest without faults, and check what is left.

        Args:
            patience: Seconds without the end of any job after which this stops.

        Raises:
            BrokenStorePromise: A promise was broken.
        """
        until, left = self.now + patience, -1
        while self.now < until and not self._is_settled():
            self.go(self.now + 0.5)
            self._resume()
            still = len(self.store.list(JobFilter(states=OPEN), limit=10**6))
            if still != left:
                until, left = self.now + patience, still
        self.check()

    @property
    def gentle(self) -> bool:
        """Whether all that may happen to jobs is that managers end: then no work is done twice."""
        faults = self.faults
        others = (faults.slow, faults.killed_workers, faults.paused_managers, faults.jumps)
        return not any(others) and not self.old

    def _is_settled(self) -> bool:
        rows = self.store.list(JobFilter(states=OPEN), limit=1)
        return not rows and not any(self.open.values()) and not self.down

    def check(self) -> None:
        """Check the promises at the end.

        Raises:
            BrokenStorePromise: A promise was broken.
        """
        rows = {row.id: row for row in self.store.list(limit=10**6, payloads=True)}
        ended = self.instances - len(self.store.living())
        for id in sorted(self.acknowledged):
            row = rows.get(id)
            _hold("an acknowledged job is stored", row is not None, f"job {id}")
            assert row is not None
            _hold(
                "an acknowledged job ends",
                row.state in ENDED,
                f"job {id} is {row.state.name}, reserved by instance {row.instance}",
            )
            if row.state is StoredJobState.OK:
                right = row.result == b"did " + self.payloads[id]
                _hold("a result is the result of the job", right, f"job {id}: {row.result!r}")
            runs = sum(count for (job, _), count in self.begun.items() if job == id)
            # A manager may end before it has stored a cancellation that its worker has received.
            again = 0 if self.gentle and id not in self.cancelled else ended
            maximum = 1 + row.lost + row.failed + again
            _hold(
                "a job runs no more often than it must", runs <= maximum, f"job {id}: {runs} times"
            )
        for name, left in self.open.items():
            _hold("every end is reported", not left, f"{name} waits for the jobs {sorted(left)}")

    # -- questions of the network

    def carry(self, pipe: Pipe, message: Message) -> None:
        """Let a message arrive after a moment, behind the others of its pipe."""
        receiver = self.receiver(pipe)
        if receiver in self.lanes and receiver not in self.committers and self._is_old(receiver):
            fields = {key: value for key, value in message.fields.items() if key not in _NEW}
            message = evolve(message, fields=fields)
        super().carry(pipe, message)
        when = max(self._arrivals.get(pipe, 0.0), self.now + self._random.uniform(0.0005, 0.02))
        self._arrivals[pipe] = when
        self.after(when - self.now, self._arrive, pipe)

    def _is_old(self, worker: str) -> bool:
        return int(worker.removeprefix("w")) <= self.old

    def _arrive(self, pipe: Pipe) -> None:
        if not self.pipes.get(pipe):
            return
        until = self.paused.get(self.receiver(pipe), 0.0)
        if until > self.now:
            self.after(until - self.now, self._arrive, pipe)
        else:
            self.deliver(pipe)

    def begin_job(self, name: str, lane: LinkQueue) -> None:
        """Note that a worker begins a job."""
        run, id = lane.run, lane.left[0]
        attempt = run.attempts[list(run.ids).index(id)]
        self.begun[id, attempt] += 1
        _hold("an attempt begins once", self.begun[id, attempt] == 1, f"job {id}, {attempt}")

    def begin(self, name: str, lane: LinkQueue) -> None:
        """Let the first job of a lane take some time."""
        self.begin_job(name, lane)
        takes = self._random.choice((0.001, 0.05, 0.5, 3.0))
        if self.faults.long and self._random.random() < self.faults.long:
            takes = 20.0
        self.after(takes, self._finish, name, lane, lane.left[0])

    def _finish(self, name: str, lane: LinkQueue, id: int) -> None:
        if self.lanes[name].get(lane.run.lane) is not lane or lane.left[:1] != [id]:
            return
        if not self.alive(name):
            return
        bad = lane.payload(id).startswith(b"bad") and id not in lane.cancelled
        if bad and self._random.random() < 0.3:
            self._fail(name, lane)
        elif self._random.random() < 0.02:
            self.bereave(name, lane)
        else:
            self.finish(name, lane)

    def _fail(self, name: str, lane: LinkQueue) -> None:
        error = codec.pack_error("ValueError", "bad")
        self.end(name, lane, Outcome.ERROR, error, text="bad\nbuiltins.ValueError")

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Check the actions of a manager."""
        for action in actions:
            match action:
                case Send(_, message) if message.command is Command.TAKE:
                    assert message.columns is not None
                    assert message.receiver is not None
                    columns = message.columns
                    self._granted(name, message.receiver, columns.ids, columns.attempts)
                case Resolve(ids, ends, payloads, _):
                    self._resolved(name, ids, ends, payloads)
                case Acknowledge(ids, joined):
                    self._acknowledged(name, ids, joined or {})
                case Decline(ids, _):
                    self.open[name].difference_update(ids)

    def _granted(
        self, name: str, worker: bytes, ids: Sequence[int], attempts: Sequence[int]
    ) -> None:
        me = self.committers[name].me.number
        for id, attempt in zip(ids, attempts, strict=True):
            (row,) = self.store.list(JobFilter(ids=[id]))
            if (id, attempt) not in self.granted and self.now - self.jumped_at > _VALIDITY:
                _hold(
                    "only the instance that has reserved a job grants it",
                    (row.instance, row.attempt) == (me, attempt),
                    f"job {id} in attempt {attempt} by instance {me}; the store has {row}",
                )
            _hold(
                "an attempt is written before it is granted",
                row.attempt >= attempt > 0,
                f"job {id} in attempt {attempt}; the store has {row.attempt}",
            )
            first = self.granted.setdefault((id, attempt), worker)
            _hold("an attempt is granted to one worker", first == worker, f"job {id}, {attempt}")

    def _acknowledged(self, name: str, ids: Sequence[int], joined: dict[int, int] | Any) -> None:
        for id in ids:
            stored_id = joined.get(id, id)
            rows = self.store.list(JobFilter(ids=[stored_id]))
            _hold("what is acknowledged is stored", bool(rows), f"job {stored_id}")
            self.acknowledged.add(stored_id)
            self._confirmed[name].add(stored_id)
            if stored_id != id:
                self.open[name].discard(id)
                self.open[name].add(stored_id)

    def _resolved(
        self, name: str, ids: Iterable[int], ends: Iterable[End], payloads: Iterable[Any]
    ) -> None:
        for id, end, payload in zip(ids, ends, payloads, strict=True):
            if id >= FIRST_UNSTORED:
                continue
            self.open[name].discard(id)
            (row,) = self.store.list(JobFilter(ids=[id]), payloads=True)
            _hold(
                "what is reported is stored",
                _ENDS.get(row.state) is end,
                f"job {id}: {end}, and the store has {row.state.name}",
            )
            first = self.reported.setdefault(id, (end, bytes(payload)))
            same = first[0] is end and (end is not End.OK or first[1] == bytes(payload))
            _hold("all learn of the same end", same, f"job {id}: {first}, {end}")

    def _perform(self, name: str, action: Action) -> None:
        match action:
            case Write():
                self.committers[name].write(action)
            case Acknowledge() | Decline() | Resolve():
                pass  # checked in ``handled``; several managers may report one end
            case _:
                super()._perform(name, action)


def _hold(name: str, holds: bool, detail: str) -> None:
    if not holds:
        raise BrokenStorePromise(name, detail)
