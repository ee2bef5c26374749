"""Clients and workers of Majordomo, and WMP workers, around a broker, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from attrs import define, field

from wmp.actions import Reconnect, Run, Send
from wmp.balance import least_recently_used
from wmp.codec import pack_frames
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Disconnected, Finished, Received
from wmp.foreign import Arrived, Emit, Frames, Left, Requested
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.gateway.machine import GatewayMachine, GatewaySettings
from wmp.gateways.majordomo.broker_machine import MajordomoDoorMachine
from wmp.gateways.majordomo.client_machine import MajordomoClientMachine
from wmp.gateways.majordomo.door import MajordomoDoor, MajordomoService
from wmp.gateways.majordomo.worker_machine import MajordomoTimes, MajordomoWorkerMachine
from wmp.message import Outcome
from wmp.testing.gateway_worlds.foreign_world import (
    BrokenPromise,
    ForeignFault,
    ForeignNode,
    ForeignWorld,
)

SERVICES = (b"red", b"blue")
"""The names of the services."""

_TIMES = MajordomoTimes(1.0, 3.0, 0.5, 2.0)
_WMP = -1
"""Number of the port of WMP workers, which is not a door."""


def _majordomo_worker(service: bytes) -> Any:
    return MajordomoWorkerMachine(service, _TIMES)


# Without slots, so that a world can be this one and a mixed one.
@define(eq=False, kw_only=True, slots=False)
class MajordomoWorld(ForeignWorld):
    """A seeded world of Majordomo.

    Args:
        wmp_workers: Number of WMP workers, which do the requests of all services, too.
        settings: Further settings of the door.
        new_worker: Makes the machine of a Majordomo worker's process for a service.
    """

    wmp_workers: int = 0
    settings: Mapping[str, Any] = field(factory=dict)
    new_worker: Callable[[bytes], Any] = _majordomo_worker
    _connected: set[str] = field(factory=set, init=False)
    """The nodes whose sockets were connected."""
    _held: dict[str, list[Frames]] = field(factory=dict, init=False)
    """Messages in sockets whose connections ended unnoticed, by node."""

    def __attrs_post_init__(self) -> None:
        self.draw = Random(f"{self.seed}:majordomo")
        self._start_gateway()
        for number in range(self.workers):
            name = f"worker {number + 1}"
            service = SERVICES[number % len(SERVICES)]
            self.nodes[name] = ForeignNode(name, 0, self._maker(service))
        for number in range(self.wmp_workers):
            name = f"worker of wmp {number + 1}"
            self.nodes[name] = ForeignNode(name, _WMP, self._wmp_maker(name))
        for number in range(self.clients):
            name = f"client {number + 1}"
            self.nodes[name] = ForeignNode(name, 0, lambda: MajordomoClientMachine(2.5, 3))
        for name in self.nodes:
            self.after(self.draw.uniform(0, 1), self.start, name)

    def _maker(self, service: bytes) -> Callable[[], Any]:
        return lambda: self.new_worker(service)

    def _wmp_maker(self, name: str) -> Callable[[], WorkerMachine]:
        def make() -> WorkerMachine:
            settings = WorkerSettings(
                identity=name.encode(),
                epoch=self.nodes[name].life,
                roles=tuple(service.decode() for service in SERVICES),
                resources={"slots": 1},
                lane_max=1,
            )
            return WorkerMachine(settings, 1)

        return make

    def _start_gateway(self) -> None:
        self._epoch += 1
        self.gateway = self._new_gateway()
        self._connect_all()

    def _new_gateway(self, upstreams: int = 0) -> GatewayMachine:
        """Make a broker with a manager, which connects to further managers."""
        home = (b"gateway", self._epoch)
        settings = ManagerSettings(identity=home[0], epoch=home[1], max_silence=6.0)
        manager = ManagerMachine(settings, least_recently_used)
        given: dict[str, Any] = {
            "services": (MajordomoService("*", max_worker_losses=self.max_worker_losses),),
            "heartbeat": 1.0,
            "busy_timeout": 8.0,
            "linger": 2.0,
            **self.settings,
        }
        door = MajordomoDoor("inproc://door", **given)
        return GatewayMachine(
            GatewaySettings(identity=home[0], epoch=home[1], upstreams=upstreams),
            [door.make(DoorContext(epoch=home[1], home=home, offered=manager.offers))],
            [0],
            manager,
        )

    @property
    def broker(self) -> MajordomoDoorMachine:
        """The machine of the broker."""
        assert self.gateway is not None
        door = self.gateway.doors[0]
        assert isinstance(door, MajordomoDoorMachine)
        return door

    # -- messages

    def _happen(self, name: str, event: object) -> None:
        if isinstance(event, Connected):
            self._connected.add(name)
            for frames in self._held.pop(name, ()):
                super()._emit_up(self.nodes[name], frames)
        super()._happen(name, event)

    def _emit_up(self, node: ForeignNode, frames: Frames) -> None:
        unnoticed = node.connection is None and node.name in self._connected
        if unnoticed and self.draw.random() < 0.5:
            # ZeroMQ keeps the message for the next connection of the socket.
            self._held.setdefault(node.name, []).append(frames)
        else:
            super()._emit_up(node, frames)

    def kill(self, name: str, seconds: float) -> None:
        """End a process; start another one after some seconds."""
        self._drop_socket(name)
        super().kill(name, seconds)

    def _drop_socket(self, name: str) -> None:
        self._connected.discard(name)
        self._held.pop(name, None)

    def _at_gateway(self, epoch: int, event: object) -> None:
        if isinstance(event, Left) and event.port == _WMP:
            event = Disconnected(event.peer)
        super()._at_gateway(epoch, event)

    def _perform_gateway(self, actions: Sequence[Any]) -> None:
        super()._perform_gateway(actions)
        for action in actions:
            if isinstance(action, Send) and isinstance(action.link, bytes):
                connection = self._by_id.get((_WMP, action.link))
                if connection is not None and not connection.dead:
                    message = Received(0, action.message)
                    self._later(connection, self._happen, connection.node, message)

    def _perform(self, node: ForeignNode, action: Any) -> None:
        if isinstance(action, Send):
            connection = node.connection
            if connection is not None and not connection.dead:
                event = Received(connection.id, action.message)
                self._later(connection, self._at_gateway, self._epoch, event)
            return
        if isinstance(action, Reconnect):
            self._drop_socket(node.name)
        super()._perform(node, action)
        if (
            isinstance(action, Emit)
            and self.now < node.twice_until
            and len(action.frames) > 5
            and action.frames[2] == b"\x03"
        ):
            self._emit_up(node, action.frames)

    # -- requests

    def _ask(self, name: str, life: int) -> None:
        node = self.nodes[name]
        if name.startswith("client") and self.asking and node.up and node.life == life:
            number = next(self._bodies)
            node.body = b"%d of %s" % (number, name.encode())
            service = self.draw.choice(SERVICES)
            self._happen(name, Requested(number, (service, node.body)))

    def _finish(self, name: str, life: int, run: Run) -> None:
        node = self.nodes[name]
        if not node.up or node.life != life:
            return
        if node.paused is not None:
            node.paused.append((self._finish, (name, life, run)))
            return
        fails = self.now < node.fails_until and node.port != _WMP
        outcome = Outcome.ERROR if fails else Outcome.OK
        payload = b"" if fails else b"did " + bytes(run.payloads[0])
        if run.kind.codec:
            payload = pack_frames([payload])
        self._happen(name, Finished(run.lane, run.ids, [outcome], [payload]))

    # -- faults and promises

    def hit(self, fault: ForeignFault) -> None:
        """Let a fault strike a drawn node now."""
        if fault is not ForeignFault.STRANGER:
            super().hit(fault)
            return
        self.faults[fault] += 1
        words = (b"", b"MDPW01", b"MDPC01", b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"red")
        frames = tuple(self.draw.choices(words, k=self.draw.randint(1, 7)))
        if self.draw.random() < 0.7:
            frames = (b"", self.draw.choice((b"MDPW01", b"MDPC01")), *frames)
        id = b"\0s%d" % next(self._ids)
        self._at_gateway(self._epoch, Arrived(0, id, frames))
        self.after(0.1, self._at_gateway, self._epoch, Left(0, id))

    def finish(self, seconds: float = 40.0, look: float = 15.0) -> None:
        """Check that all clients are served again after the faults, and that nothing is left.

        Args:
            seconds: Time after which all clients must be served again.
            look: Time in which each client must get a reply then.

        Raises:
            BrokenPromise: A promise is broken.
        """
        self._serve_again(seconds, look)
        self.asking = False
        self.run(look)
        self._leave_nothing()
        seen = self.broker.statistics()
        if dict(seen.workers) != ({"idle": self.workers} if self.workers else {}):
            raise BrokenPromise("served again", f"the workers are {dict(seen.workers)}")
