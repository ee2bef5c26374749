"""A Majordomo broker without sockets: a gateway with one door, and its messages."""

from __future__ import annotations

from tests.unit.gateways.foreign import Driven
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.foreign import Arrived, Emit, Left, Settled, Unsent
from wmp.gateways import MajordomoDoor
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.gateway.machine import GatewayMachine, GatewaySettings

C, W = b"MDPC01", b"MDPW01"
HEARTBEAT = (b"", W, b"\x04")
DISCONNECT = (b"", W, b"\x05")


class Broker(Driven):
    """A gateway with one door for Majordomo."""

    def __init__(self, **settings) -> None:
        door = MajordomoDoor("inproc://door", **settings)
        home = (b"gateway", 1)
        manager = ManagerMachine(
            ManagerSettings(identity=home[0], epoch=1, max_silence=6.0), least_recently_used
        )
        self.manager = manager
        self.door = door.make(DoorContext(home=home, offered=manager.offers))
        terms = GatewaySettings(identity=home[0], epoch=1)
        super().__init__(GatewayMachine(terms, [self.door], [0], manager))

    def get(self, *frames: bytes, peer: bytes = b"") -> list:
        """Let a message arrive, as the only one of a turn."""
        return self._turn(Arrived(0, peer, frames))

    def leave(self, peer: bytes) -> list:
        """Let a connection end."""
        return self._turn(Left(0, peer))

    def refuse(self, peer: bytes) -> list:
        """Report that a message could not be sent."""
        return self._turn(Unsent(0, peer))

    def _turn(self, event) -> list:
        first = self.feed(event)
        self.actions = [*first, *self.machine.handle(Settled(), self.now)]
        return self.actions

    def ready(self, peer: bytes, service: bytes = b"echo") -> list:
        return self.get(b"", W, b"\x01", service, peer=peer)

    def beat(self, peer: bytes) -> list:
        return self.get(*HEARTBEAT, peer=peer)

    def ask(self, peer: bytes, *body: bytes, service: bytes = b"echo") -> list:
        return self.get(b"", C, service, *body, peer=peer)

    def answer(self, peer: bytes, token: bytes, *body: bytes) -> list:
        return self.get(b"", W, b"\x03", token, b"", *body, peer=peer)

    def given(self, peer: bytes) -> tuple[bytes, tuple[bytes, ...]]:
        """Return token and body of the request that the last step sent to a worker."""
        ((to, frames),) = self.emitted
        assert to == peer
        assert frames[:3] == (b"", W, b"\x02")
        assert frames[4] == b""
        return frames[3], frames[5:]

    @property
    def emitted(self) -> list[tuple[bytes, tuple[bytes, ...]]]:
        return [
            (action.peer, tuple(map(bytes, action.frames)))
            for action in self.actions
            if isinstance(action, Emit)
        ]

    @property
    def counted(self) -> dict[str, int]:
        return dict(self.door.statistics().dropped)

    @property
    def states(self) -> dict[str, int]:
        return dict(self.door.statistics().workers)
