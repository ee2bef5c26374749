"""A server of round robin for tests: its door with the manager of its gateway, and a clock."""

from __future__ import annotations

from tests.unit.gateways.foreign import Driven
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.foreign import Arrived, Emit, Settled
from wmp.gateways import RoundRobinDoor
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.gateway.machine import GatewayMachine, GatewaySettings

V = b"LMQv100"
PING, PONG, EXEC, TRACKEXEC, TRACKADDRESS, RESPONSE = (bytes((n,)) for n in range(1, 7))


class Server(Driven):
    """A gateway with one door for round robin."""

    def __init__(self, **settings) -> None:
        door = RoundRobinDoor("inproc://door", **settings)
        home = (b"gateway", 1)
        self.door = door.make(DoorContext(home=home))
        manager = ManagerMachine(
            ManagerSettings(identity=home[0], epoch=1, max_silence=6.0),
            least_recently_used,
        )
        terms = GatewaySettings(identity=home[0], epoch=1)
        super().__init__(GatewayMachine(terms, [self.door], [0], manager))

    def get(self, *frames: bytes, peer: bytes = b"") -> list:
        """Let a message arrive, as the only one of a turn."""
        first = self.feed(Arrived(0, peer, frames))
        self.actions = [*first, *self.machine.handle(Settled(), self.now)]
        return self.actions

    def exec(self, peer: bytes, id: bytes, *arguments: bytes, tracked: bool = True) -> list:
        return self.get(b"", V, TRACKEXEC if tracked else EXEC, id, *arguments, b"", peer=peer)

    def register(self, peer: bytes, slots: int) -> None:
        self.exec(peer, b"reg1", b"\x08", b"%d" % slots)
        assert self.emitted[0] == (peer, (b"", V, RESPONSE, b"reg1", b""))

    def increment(self, peer: bytes) -> list:
        return self.exec(peer, b"inc1", b"\x07", tracked=False)

    def answer(self, peer: bytes, frames: tuple[bytes, ...], *result: bytes) -> list:
        """Let a worker answer a message."""
        assert frames[-2] == b""
        return self.get(frames[-1], b"", V, RESPONSE, frames[3], *result, b"", peer=peer)

    @property
    def emitted(self) -> list[tuple[bytes, tuple[bytes, ...]]]:
        return [
            (action.peer, tuple(map(bytes, action.frames)))
            for action in self.actions
            if isinstance(action, Emit)
        ]

    @property
    def rows(self) -> list[tuple[bytes, int]]:
        return [(row.peer, row.free) for row in self.door.table.rows()]

    @property
    def counted(self) -> dict[str, int]:
        return dict(self.door.statistics().dropped)
