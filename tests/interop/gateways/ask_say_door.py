"""A whole protocol with two messages, as a door: a client sends ASK and a body, and gets SAY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from attrs import define, field, frozen

from wmp.actions import Drop, End, Halt, Resolve
from wmp.events import Closed, Drained, Submitted
from wmp.foreign import Arrived, Emit, Settled
from wmp.gateways.gateway.door import Door, DoorFlag
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.message import DEFAULT_NEEDS, Kind


@frozen
class AskSayDoor(Door):
    """A door for clients that send ``ASK`` and a body."""

    protocol: str = field(default="ask-say", init=False)
    role: str = field(default="answer", kw_only=True)
    takes_clients: ClassVar[bool] = True
    takes_workers: ClassVar[bool] = False

    def describe(self) -> str:
        return f"role {self.role}"

    @classmethod
    def flags(cls) -> Sequence[DoorFlag]:
        return [
            DoorFlag(
                "--ask-say",
                ("ENDPOINT",),
                "Address for clients of ASK and SAY.",
                lambda given, count, opened: [cls(given, open=opened)],
            )
        ]

    def make(self, context: DoorContext) -> AskSayMachine:
        return AskSayMachine(self, context)


@define(eq=False)
class AskSayMachine:
    """Makes a job of each ASK, and a SAY of each result."""

    door: AskSayDoor
    context: DoorContext
    dismisses: ClassVar[bool] = False
    _clients: dict[int, tuple[int, bytes]] = field(factory=dict, init=False)
    _ending: bool = field(default=False, init=False)

    def handle(self, event: Any, now: float) -> list[Any]:
        actions: list[Any] = []
        match event:
            case Arrived(port, peer, (ask, body)) if bytes(ask) == b"ASK":
                number = next(self.context.job_numbers)
                self._clients[number] = port, peer
                kind = Kind(self.door.role, DEFAULT_NEEDS)
                actions.append(Submitted(ids=[number], payloads=[body], kind=kind))
            case Arrived():
                actions.append(Drop("invalid"))
            case Resolve(ids, ends, payloads):
                for number, end, payload in zip(ids, ends, payloads, strict=True):
                    port, peer = self._clients.pop(number, (0, b""))
                    if peer and end is End.OK:
                        actions.append(Emit(port, peer, (b"SAY", payload)))
            case Drained():
                self._ending = True
            case Closed():
                self._clients.clear()
                self._ending = True
            case Settled() | _:
                pass
        if self._ending and not self._clients:
            actions.append(Halt(None))
        return actions

    def deadline(self) -> float | None:
        return None

    def statistics(self) -> int:
        return len(self._clients)

    def open_requests(self) -> int:
        return len(self._clients)

    def attendances(self) -> dict[str, dict[bytes, Any]]:
        return {}
