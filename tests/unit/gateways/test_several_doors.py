"""Several doors of one gateway: no door ends before the requests of the others are done."""

from __future__ import annotations

import pytest

from tests.unit.gateways.foreign import Driven
from tests.unit.gateways.majordomo import DISCONNECT, C, W
from tests.unit.gateways.round_robin import EXEC, RESPONSE, TRACKEXEC, V
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Drained
from wmp.foreign import Arrived, Emit, Left, Settled
from wmp.gateways import ClientDoor, MajordomoDoor, RoundRobinDoor, WorkerDoor
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.gateway.machine import GatewayMachine, GatewaySettings

HOME = (b"gateway", 1)


class Gateway(Driven):
    """A gateway whose first door takes Pirate clients; its second door has workers."""

    def __init__(self, role: str, *others, limit: int = 1000) -> None:
        settings = ManagerSettings(identity=HOME[0], epoch=1, max_silence=6.0)
        manager = ManagerMachine(settings, least_recently_used)
        context = DoorContext(home=HOME, offered=manager.offers)
        values = [ClientDoor("inproc://clients", role=role, limit=limit), *others]
        doors = [door.make(context) for door in values]
        fronts = [number for number, door in enumerate(values) if door.takes_clients]
        super().__init__(
            GatewayMachine(GatewaySettings(identity=HOME[0], epoch=1), doors, fronts, manager)
        )

    def arrive(self, door: int, peer: bytes, *frames: bytes) -> list[tuple[int, bytes, tuple]]:
        """Let a message arrive, as the only one of a turn; return what is sent."""
        first = self.feed(Arrived(door, peer, frames))
        return self.look([*first, *self.machine.handle(Settled(), self.now)])

    def leave(self, door: int, peer: bytes) -> None:
        """Let a connection end."""
        self.feed(Left(door, peer))

    def drain(self) -> list[tuple[int, bytes, tuple]]:
        return self.look(self.feed(Drained()))

    def look(self, actions) -> list[tuple[int, bytes, tuple]]:
        self.actions = actions
        return [
            (action.port, action.peer, tuple(map(bytes, action.frames)))
            for action in actions
            if isinstance(action, Emit)
        ]


def pirate(gateway, peer, body):
    return gateway.arrive(0, peer, b"", body)


def test_a_majordomo_door_serves_the_other_doors_until_their_requests_are_done():
    gateway = Gateway("echo", MajordomoDoor("inproc://mdp"))
    gateway.arrive(1, b"w", b"", W, b"\x01", b"echo")
    ((_, _, first),) = pirate(gateway, b"p1", b"one")
    pirate(gateway, b"p2", b"two")  # waits for the worker
    assert gateway.drain() == []
    assert not gateway.halted
    sent = gateway.arrive(1, b"w", b"", W, b"\x03", first[3], b"", b"1")
    assert (0, b"p1", (b"", b"1")) in sent
    (second,) = [frames for door, peer, frames in sent if (door, peer) == (1, b"w")]
    assert second[2] == b"\x02"
    assert second[5:] == (b"two",)
    sent = gateway.arrive(1, b"w", b"", W, b"\x03", second[3], b"", b"2")
    assert sent == [(0, b"p2", (b"", b"2")), (1, b"w", DISCONNECT)]
    assert gateway.halted


def test_the_clients_of_a_majordomo_door_wait_for_no_other_door():
    gateway = Gateway("echo", MajordomoDoor("inproc://mdp"))
    gateway.arrive(1, b"w", b"", W, b"\x01", b"echo")
    ((_, _, first),) = gateway.arrive(1, b"c", b"", C, b"echo", b"one")
    pirate(gateway, b"p", b"two")
    gateway.drain()
    gateway.arrive(1, b"x", b"", C, b"echo", b"late")
    assert gateway.drops == ["draining"]
    sent = gateway.arrive(1, b"w", b"", W, b"\x03", first[3], b"", b"1")
    assert (1, b"c", (b"", C, b"echo", b"1")) in sent
    assert not gateway.halted
    gateway.leave(1, b"w")
    gateway.arrive(1, b"w2", b"", W, b"\x01", b"echo")  # the worker starts again
    assert [frames[-1] for door, _, frames in gateway.look(gateway.actions) if door] == [b"two"]


def test_a_round_robin_door_serves_the_other_doors_until_their_requests_are_done():
    gateway = Gateway("round-robin", RoundRobinDoor("inproc://rr"))
    gateway.arrive(1, b"w", b"", V, TRACKEXEC, b"reg1", b"\x08", b"1", b"")
    ((_, _, first),) = pirate(gateway, b"p1", b"one")
    pirate(gateway, b"p2", b"two")
    gateway.drain()
    assert not gateway.halted
    sent = []
    for given, result in ((first, b"1"), (None, b"2")):
        frames = given or next(f for d, p, f in sent if (d, p) == (1, b"w"))
        sent = gateway.arrive(1, b"w", frames[-1], b"", V, RESPONSE, frames[3], result, b"")
        assert (0, b"p" + result, (b"", result)) in sent
        if given:
            sent = gateway.arrive(1, b"w", b"", V, EXEC, b"inc1", b"\x07", b"")
    assert gateway.halted


@pytest.mark.parametrize("protocol", ["simple-pirate", "paranoid-pirate", "ping-pong"])
def test_a_door_for_workers_alone_ends_last(protocol):
    gateway = Gateway("echo", WorkerDoor("inproc://w", protocol=protocol, roles="echo"))
    ready = (b"READY",) if protocol == "ping-pong" else (b"\x01",)
    gateway.arrive(1, b"w", *(() if protocol == "paranoid-pirate" else (b"",)), *ready)
    ((_, _, first),) = pirate(gateway, b"p1", b"one")
    pirate(gateway, b"p2", b"two")
    gateway.drain()
    sent = gateway.arrive(1, b"w", *first[:-1], b"1")
    (second,) = [frames for door, _, frames in sent if door == 1]
    assert second[-1] == b"two"
    assert not gateway.halted
    sent = gateway.arrive(1, b"w", *second[:-1], b"2")
    assert (0, b"p2", (b"", b"2")) in sent
    assert gateway.halted


@pytest.mark.rule("PIRATE-7.5", "MDP-4.13")
@pytest.mark.parametrize("protocol", ["simple-pirate", "paranoid-pirate", "ping-pong", "majordomo"])
def test_no_worker_that_a_door_knows_is_idle_while_requests_wait(protocol):
    """A WMP worker has 4096 jobs at a time, and all workers of a door are one."""
    ready = {
        "simple-pirate": (b"", b"\x01"),
        "paranoid-pirate": (b"\x01",),
        "ping-pong": (b"", b"READY"),
        "majordomo": (b"", W, b"\x01", b"echo"),
    }[protocol]
    other = (
        MajordomoDoor("inproc://w")
        if protocol == "majordomo"
        else WorkerDoor("inproc://w", protocol=protocol, roles="echo")
    )
    gateway = Gateway("echo", other, limit=5000)
    for number in range(4100):
        gateway.machine.handle(Arrived(1, b"w%d" % number, ready), gateway.now)
    gateway.machine.handle(Settled(), gateway.now)
    seen = gateway.machine.statistics().doors[1]
    assert (seen.workers, seen.dropped) == ({"idle": 4096}, {"limit": 4})
    for number in range(5000):
        gateway.machine.handle(Arrived(0, b"c%d" % number, (b"", b"body")), gateway.now)
    gateway.machine.handle(Settled(), gateway.now)
    assert gateway.machine.statistics().doors[1].workers == {"busy": 4096}
