"""This project's machines as testees: an example for adapting another implementation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

from attrs import define, field

from wmp import balance, codec
from wmp.actions import (
    Halt,
    Interrupt,
    Notify,
    Recall,
    Reconnect,
    Resolve,
    Run,
    Send,
    Write,
)
from wmp.conformance.wire.virtual import Sends
from wmp.conformance.wire.wire import JobEnd, SubmittedJob, Terms
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import DecodeError
from wmp.events import (
    Begun,
    Cancelled,
    Connected,
    Drained,
    Finished,
    Garbled,
    InstanceBegun,
    Recalled,
    Received,
    Reported,
    Submitted,
    Ticked,
    Undelivered,
    Woken,
    Written,
)
from wmp.message import Frame, Kind, Outcome
from wmp.retry import Retry
from wmp.store.contract import JobFilter, StoreInstance
from wmp.store.job_terms import StoredTerms
from wmp.testing.store_worlds.reference_store import ReferenceStore

ROLES = ("echo", "fail", "slow", "die")


@define(eq=False)
class _LibraryTestee:
    """A machine with the methods of a testee."""

    machine: Any
    ended: bool = False
    later: deque[Any] = field(factory=deque)
    """Events that follow from actions."""

    def start(self, now: float) -> Sends:
        return ()

    def receive(self, link: int | bytes, frames: Sequence[Frame], now: float) -> Sends:
        try:
            message = self.read(frames)
        except DecodeError as error:
            return self.handle(Garbled(link, error), now)
        return self.handle(Received(link, message), now)

    def undelivered(self, link: int | bytes, frames: Sequence[Frame], now: float) -> Sends:
        return self.handle(Undelivered(link, self.read(frames)), now)

    def deadline(self) -> float | None:
        due: float | None = self.machine.deadline()
        return due

    def tick(self, now: float) -> Sends:
        return self.handle(Ticked(), now)

    def read(self, frames: Sequence[Frame]) -> Any:
        """Read frames into the form that the machine takes."""
        return codec.decode(frames)

    def handle(self, event: Any, now: float) -> Sends:
        """Handle an event and the events that follow; return the messages to send."""
        sends: list[tuple[int | bytes, Sequence[Frame] | None]] = []
        self.later.append(event)
        while self.later:
            for action in self.machine.handle(self.later.popleft(), now):
                match action:
                    case Send(link, message):
                        sends.append((link, codec.encode(message)))
                    case Reconnect(link):
                        sends.append((link, None))
                        self.later.append(Connected(link))
                    case Halt():
                        self.ended = True
                    case _:
                        self.act(action, now)
        return sends

    def act(self, action: Any, now: float) -> None:
        """Perform an action that only one kind of machine returns."""


@define(eq=False)
class LibraryManager(_LibraryTestee):
    """``wmp.core.manager.machine`` as a testee."""

    machine: Any = field(
        factory=lambda: ManagerMachine(
            ManagerSettings(identity=b"manager", epoch=1000), balance.any_worker
        )
    )
    devices: int = 0
    """Number of devices to which the manager dials in."""
    _names: dict[int, str] = field(factory=dict)
    _ends: list[JobEnd] = field(factory=list)

    @classmethod
    def of(cls, terms: Terms) -> Self:
        """Make a testee."""
        return cls(devices=terms.endpoints)

    def start(self, now: float) -> Sends:
        return [send for link in range(self.devices) for send in self.handle(Connected(link), now)]

    def drain(self, now: float) -> Sends:
        return self.handle(Drained(), now)

    def submit(self, job: SubmittedJob, now: float) -> Sends:
        id = len(self._names) + 1
        self._names[id] = job.name
        max_worker_losses: dict[str, Any] = (
            {} if job.max_worker_losses is None else {"max_worker_losses": job.max_worker_losses}
        )
        again = None
        if job.retries is not None:
            again = Retry(times=job.retries, backoff=job.wait or 0.0, jitter=False)
        event = Submitted(
            [id],
            [job.payload],
            Kind(job.role),
            job.priority,
            job.timeout,
            expires=job.expires,
            run_limit=job.run_limit,
            delay=job.delay or 0.0,
            retry=again,
            **max_worker_losses,
        )
        return self.handle(event, now)

    def cancel(self, name: str, now: float) -> Sends:
        ids = [id for id, known in self._names.items() if known == name]
        return self.handle(Cancelled(ids), now)

    def ends(self) -> list[JobEnd]:
        ends, self._ends = self._ends, []
        return ends

    def act(self, action: Any, now: float) -> None:
        match action:
            case Resolve(ids, ends, payloads, _):
                for id, end, payload in zip(ids, ends, payloads, strict=True):
                    self._ends.append(JobEnd(self._names[id], end.value, bytes(payload)))
            case Notify(id, fraction, text):
                self._ends.append(JobEnd(self._names[id], "status", f"{fraction} {text}".encode()))


_STORE_TAKES: Final = 0.05
"""Seconds from a write to its answer."""


@define(eq=False)
class LibraryStoredManager(LibraryManager):
    """A manager with a store in memory; ``restart`` ends its process and starts another one."""

    store: ReferenceStore = field(init=False)
    _me: StoreInstance = field(init=False)
    _ids: Iterator[int] = field(init=False)
    _number: int = 0
    _now: float = 0.0
    _writes: deque[tuple[float, Write]] = field(factory=deque)
    _open: set[int] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.store = ReferenceStore(lambda: self._now + 1e6)

    def start(self, now: float) -> Sends:
        self._now = now
        epoch = getattr(getattr(self.machine, "settings", None), "epoch", 999) + 1
        settings = ManagerSettings(identity=b"manager", epoch=epoch)
        self.machine = ManagerMachine(settings, balance.any_worker, stored=True)
        self._me = self.store.begin(b"manager", "kit")
        self._ids, self._number = iter(self._me.block), 0
        owner = self.store.identity, self.store.generation
        return self.handle(InstanceBegun(sorted(self._open), owner, self._me.number), now)

    def restart(self, now: float) -> Sends:
        """End the process without a word; a new one begins."""
        self._writes.clear()
        self.store.died.add(self._me.number)
        return self.start(now)

    def submit(self, job: SubmittedJob, now: float) -> Sends:
        id = next(self._ids)
        self._names[id] = job.name
        self._open.add(id)
        again = None
        if job.retries is not None:
            again = Retry(times=job.retries, backoff=job.wait or 0.0, jitter=False)
        max_worker_losses = 3 if job.max_worker_losses is None else job.max_worker_losses
        event = Submitted(
            [id],
            [job.payload],
            Kind(job.role),
            job.priority,
            job.timeout,
            max_worker_losses,
            job.expires,
            job.run_limit,
            job.delay or 0.0,
            again,
            StoredTerms(max_worker_losses, job.run_limit, again),
        )
        return self.handle(event, now)

    def deadline(self) -> float | None:
        times = [due for due, _ in self._writes]
        if (due := super().deadline()) is not None:
            times.append(due)
        return min(times, default=None)

    def tick(self, now: float) -> Sends:
        self._now = now
        sends: list[Any] = []
        while self._writes and self._writes[0][0] <= now:
            sends += self.handle(self._written(self._writes.popleft()[1]), now)
            news = self.store.news(self._me)
            event = Woken(news.ended, news.cancelling, self.store.kinds())
            sends += self.handle(event, now)
        return [*sends, *super().tick(now)]

    def _written(self, write: Write) -> Written:
        self._number += 1
        answer = self.store.apply(self._me, self._number, write.batch)
        held = None
        if write.held or answer.repeated:
            held = self.store.list(JobFilter(instance=self._me.number), payloads=True)
        seen = self.store.list(JobFilter(ids=write.look), payloads=True) if write.look else []
        return Written(write.step, answer, held, seen)

    def act(self, action: Any, now: float) -> None:
        match action:
            case Write():
                self._writes.append((now + _STORE_TAKES, action))
            case Resolve(ids, _, _, _):
                self._open.difference_update(ids)
                super().act(action, now)
            case _:
                super().act(action, now)


@define(eq=False)
class _VirtualLane:
    """Jobs that run one after the other."""

    run: Run
    ids: deque[int]
    due: float = 0.0


@define(eq=False)
class LibraryWorker(_LibraryTestee):
    """``wmp.core.worker.machine`` as a testee, with the handlers of ``specs/testee.md``."""

    _lanes: dict[int, _VirtualLane] = field(factory=dict)

    @classmethod
    def of(cls, terms: Terms) -> Self:
        """Make a testee."""
        settings = WorkerSettings(
            identity=b"worker", epoch=2000, roles=ROLES, resources={"slots": terms.slots}
        )
        return cls(machine=WorkerMachine(settings, terms.endpoints))

    def start(self, now: float) -> Sends:
        sends: list[Any] = []
        for link in range(self.machine.count):
            sends += self.handle(Connected(link), now)
        return sends

    def drain(self, now: float) -> Sends:
        return self.handle(Drained(), now)

    def deadline(self) -> float | None:
        dues = [lane.due for lane in self._lanes.values()]
        if (due := self.machine.deadline()) is not None:
            dues.append(due)
        return min(dues, default=None)

    def tick(self, now: float) -> Sends:
        for number, lane in list(self._lanes.items()):
            if lane.due <= now:
                outcome, payload = self._outcome(lane)
                self._end(number, lane, outcome, payload, now)
        # A tick is always allowed, even when nothing else is due.
        return self.handle(Ticked(), now)

    def act(self, action: Any, now: float) -> None:
        match action:
            case Run():
                lane = self._lanes[action.lane] = _VirtualLane(action, deque(action.ids))
                self._begin(lane, now)
            case Recall(number, ids):
                lane = self._lanes[number]
                waiting = self._take_back(lane, ids)
                if waiting:
                    self.later.append(Recalled(number, waiting))
            case Interrupt(number, ids):
                if (running := self._lanes.get(number)) is not None:
                    self._interrupt(number, running, ids, now)

    def _begin(self, lane: _VirtualLane, now: float) -> None:
        """Start the first job of a lane. All roles except ``slow`` end at the next tick."""
        lane.due = now
        if lane.run.limits is not None:
            self.later.append(Begun(lane.run.lane, lane.ids[0]))
        if lane.run.kind.role == "slow":
            lane.due += int(self._payload(lane) or b"0") / 1000
            self.later.append(Reported(lane.run.lane, lane.ids[0], 0.0, "begun"))

    def _payload(self, lane: _VirtualLane) -> bytes:
        return bytes(lane.run.payloads[list(lane.run.ids).index(lane.ids[0])])

    def _outcome(self, lane: _VirtualLane) -> tuple[Outcome, bytes]:
        match lane.run.kind.role:
            case "fail":
                return Outcome.ERROR, codec.pack_error("Failed", "the role fail always fails", "")
            case "die":
                return Outcome.LOST, b"what ran it died"
        return Outcome.OK, self._payload(lane)

    def _end(
        self, number: int, lane: _VirtualLane, outcome: Outcome, payload: bytes, now: float
    ) -> None:
        self.later.append(Finished(number, [lane.ids.popleft()], [outcome], [payload]))
        if lane.ids:
            self._begin(lane, now)
        else:
            del self._lanes[number]

    def _take_back(self, lane: _VirtualLane, ids: Sequence[int]) -> list[int]:
        """Take jobs that have not begun off a lane."""
        waiting = [id for id in list(lane.ids)[1:] if id in ids]
        for id in waiting:
            lane.ids.remove(id)
        return waiting

    def _interrupt(self, number: int, lane: _VirtualLane, ids: Sequence[int], now: float) -> None:
        waiting = self._take_back(lane, ids)
        if waiting:
            outcomes, payloads = [Outcome.CANCELLED] * len(waiting), [b""] * len(waiting)
            self.later.append(Finished(number, waiting, outcomes, payloads))
        if lane.ids[0] in ids:
            self._end(number, lane, Outcome.CANCELLED, b"", now)


@define(eq=False)
class LibraryDevice(_LibraryTestee):
    """``wmp.core.device`` as a testee."""

    @classmethod
    def of(cls, terms: Terms) -> Self:
        """Make a testee."""
        return cls(
            DeviceMachine(DeviceSettings(identity=b"device", epoch=3000, upstreams=terms.endpoints))
        )

    def read(self, frames: Sequence[Frame]) -> Any:
        return codec.peek(frames)
