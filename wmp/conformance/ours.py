"""This project's machines as testees; also shows how another implementation is adapted."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

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
from wmp.conformance.wire import End, Job, Terms
from wmp.core.device import Device
from wmp.core.manager import Manager
from wmp.core.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker import Worker
from wmp.errors import DecodeError
from wmp.events import (
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

__all__ = ["ROLES", "OurDevice", "OurManager", "OurWorker"]

ROLES = ("echo", "fail", "slow", "die")


@define(eq=False)
class _Ours:
    """A machine behind the few methods of a testee."""

    machine: Any
    ended: bool = False

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
        """Frames to what the machine takes."""
        return codec.decode(frames)

    def handle(self, event: Any, now: float) -> Sends:
        """Let the machine take an event; return what it sends."""
        sends: list[tuple[int | bytes, Sequence[Frame] | None]] = []
        self.act(self.machine.handle(event, now), now, sends)
        return sends

    def act(self, actions: Sequence[Any], now: float, sends: list[Any]) -> None:
        """Do what a machine asks for."""
        for action in actions:
            match action:
                case Send(link, message):
                    sends.append((link, codec.encode(message)))
                case Halt():
                    self.ended = True
                case _:
                    self.other(action, now, sends)

    def other(self, action: Any, now: float, sends: list[Any]) -> None:
        """Do what only one kind of machine asks for."""


@define(eq=False)
class OurManager(_Ours):
    """``wmp.core.manager`` as a testee."""

    machine: Any = field(
        factory=lambda: Manager(
            ManagerSettings(identity=b"manager", epoch=1000), balance.any_worker
        )
    )
    _names: dict[int, str] = field(factory=dict)
    _ends: list[End] = field(factory=list)

    def submit(self, job: Job, now: float) -> Sends:
        id = len(self._names) + 1
        self._names[id] = job.name
        retries = {} if job.retries is None else {"retries": job.retries}
        return self.handle(
            Submitted([id], [job.payload], Kind(job.role), job.priority, job.timeout, **retries),
            now,
        )

    def cancel(self, name: str, now: float) -> Sends:
        ids = [id for id, known in self._names.items() if known == name]
        return self.handle(Cancelled(ids), now)

    def ends(self) -> list[End]:
        ends, self._ends = self._ends, []
        return ends

    def other(self, action: Any, now: float, sends: list[Any]) -> None:
        match action:
            case Resolve(ids, ends, payloads, _):
                for id, end, payload in zip(ids, ends, payloads, strict=True):
                    self._ends.append(End(self._names[id], end.value, bytes(payload)))
            case Notify(id, fraction, text):
                self._ends.append(End(self._names[id], "status", f"{fraction} {text}".encode()))


@define(eq=False)
class _Lane:
    """Jobs that run one after the other."""

    run: Run
    ids: deque[int]
    due: float = 0.0
    interrupted: bool = False


@define(eq=False)
class OurWorker(_Ours):
    """``wmp.core.worker`` as a testee, with the handlers of ``specs/testee.md``."""

    _lanes: dict[int, _Lane] = field(factory=dict)

    @classmethod
    def of(cls, terms: Terms) -> OurWorker:
        """Make one."""
        settings = WorkerSettings(
            identity=b"worker", epoch=2000, roles=ROLES, resources={"slots": terms.slots}
        )
        return cls(Worker(settings, terms.endpoints))

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
        sends: list[Any] = []
        for number, lane in list(self._lanes.items()):
            if number in self._lanes and lane.due <= now:
                sends += self._finish(number, lane, now)
        due = self.machine.deadline()
        if due is not None and due <= now:
            sends += self.handle(Ticked(), now)
        return sends

    def other(self, action: Any, now: float, sends: list[Any]) -> None:
        match action:
            case Run():
                lane = self._lanes[action.lane] = _Lane(action, deque(action.ids))
                self._begin(lane, now, sends)
            case Recall(number, ids):
                waiting = [id for id in list(self._lanes[number].ids)[1:] if id in ids]
                for id in waiting:
                    self._lanes[number].ids.remove(id)
                if waiting:
                    sends += self.handle(Recalled(number, waiting), now)
            case Interrupt(number, ids):
                if (running := self._lanes.get(number)) is not None:
                    self._interrupt(number, running, ids, now, sends)
            case Reconnect(link):
                sends.append((link, None))
                sends += self.handle(Connected(link), now)

    def _begin(self, lane: _Lane, now: float, sends: list[Any]) -> None:
        """Start the first job of a lane; ``echo`` and its kind end at the next tick."""
        lane.interrupted = False
        lane.due = now
        if lane.run.kind.role == "slow":
            lane.due += int(bytes(self._payload(lane)) or b"0") / 1000
            sends += self.handle(Reported(lane.run.lane, lane.ids[0], 0.0, "begun"), now)

    def _payload(self, lane: _Lane) -> bytes:
        return bytes(lane.run.payloads[list(lane.run.ids).index(lane.ids[0])])

    def _finish(self, number: int, lane: _Lane, now: float) -> Sends:
        payload, outcome = self._payload(lane), Outcome.OK
        match lane.run.kind.role:
            case "fail":
                outcome = Outcome.ERROR
                payload = codec.pack_error("Failed", "as it was told to", "")
            case "die":
                outcome, payload = Outcome.LOST, b"what ran it died"
        return self._end(number, lane, outcome, payload, now)

    def _end(
        self, number: int, lane: _Lane, outcome: Outcome, payload: bytes, now: float
    ) -> list[Any]:
        id = lane.ids.popleft()
        sends: list[Any] = []
        if lane.ids:
            self._begin(lane, now, sends)
        else:
            del self._lanes[number]
        return [*self.handle(Finished(number, [id], [outcome], [payload]), now), *sends]

    def _interrupt(
        self, number: int, lane: _Lane, ids: Sequence[int], now: float, sends: list[Any]
    ) -> None:
        waiting = [id for id in list(lane.ids)[1:] if id in ids]
        for id in waiting:
            lane.ids.remove(id)
        if waiting:
            outcomes, payloads = [Outcome.CANCELLED] * len(waiting), [b""] * len(waiting)
            sends += self.handle(Finished(number, waiting, outcomes, payloads), now)
        if lane.ids and lane.ids[0] in ids:
            sends += self._end(number, lane, Outcome.CANCELLED, b"", now)


@define(eq=False)
class OurDevice(_Ours):
    """``wmp.core.device`` as a testee."""

    @classmethod
    def of(cls, terms: Terms) -> OurDevice:
        """Make one."""
        return cls(
            Device(DeviceSettings(identity=b"device", epoch=3000, upstreams=terms.endpoints))
        )

    def read(self, frames: Sequence[Frame]) -> Any:
        return codec.peek(frames)
