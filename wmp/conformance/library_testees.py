"""This project's machines as testees: an example for adapting another implementation."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Self

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
)
from wmp.conformance.virtual import Sends
from wmp.conformance.wire import JobEnd, SubmittedJob, Terms
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
    Recalled,
    Received,
    Reported,
    Submitted,
    Ticked,
    Undelivered,
)
from wmp.message import Frame, Kind, Outcome
from wmp.retry import Retry

__all__ = ["ROLES", "LibraryDevice", "LibraryManager", "LibraryWorker"]

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
    _names: dict[int, str] = field(factory=dict)
    _ends: list[JobEnd] = field(factory=list)

    @classmethod
    def of(cls, terms: Terms) -> Self:
        """Make a testee; the terms do not affect a manager."""
        return cls()

    def submit(self, job: SubmittedJob, now: float) -> Sends:
        id = len(self._names) + 1
        self._names[id] = job.name
        retries: dict[str, Any] = {} if job.retries is None else {"retries": job.retries}
        again = None
        if job.tries is not None:
            again = Retry(times=job.tries, backoff=job.wait or 0.0, jitter=False)
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
            **retries,
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
