"""Majordomo and WMP around one broker, under the same service names, with faults.

Clients of Majordomo and a WMP manager give the same broker work. Workers of Majordomo and
WMP workers do it; those of WMP connect to the broker directly, or through a device. Messages of
WMP cross every connection as frames, through the real codec.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from attrs import define

from wmp.actions import End
from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.gateway.machine import GatewayMachine, GatewaySettings
from wmp.gateways.majordomo.client_machine import MajordomoClientMachine
from wmp.gateways.majordomo.door import MajordomoDoor
from wmp.message import Kind
from wmp.testing.gateway_worlds.foreign_world import BrokenPromise, ForeignFault, ForeignNode
from wmp.testing.gateway_worlds.majordomo_world import SERVICES, MajordomoWorld
from wmp.testing.gateway_worlds.mixed_world import MixedWorld, WmpNode

_GATEWAY = "gateway"
_MANAGER = "manager"
_DEVICE = "device"
_TRIES = 3


@define(eq=False, kw_only=True)
class MixedMajordomoWorld(MixedWorld, MajordomoWorld):
    """A seeded world of both protocols.

    Without clients the broker has no manager of its own: its workers serve the manager above only.

    Args:
        direct: Number of WMP workers that connect to the broker.
        behind: Number of WMP workers behind a device.
        above: Whether the broker's workers serve a WMP manager above the broker, too.
        beside: Number of WMP workers that connect to the manager above.
    """

    direct: int = 0
    behind: int = 0
    above: bool = False
    beside: int = 0

    def __attrs_post_init__(self) -> None:
        self.draw = Random(f"{self.seed}:{type(self).__name__}")
        for number in range(self.workers):
            service = SERVICES[number % len(SERVICES)]
            self._add("worker", number, self._maker(service))
        for number in range(self.clients):
            self._add("client", number, lambda: MajordomoClientMachine(2.5, _TRIES))
        if self.above:
            self.gateway_above = _MANAGER
            self.fleet[_MANAGER] = WmpNode(_MANAGER, self._new_manager)
        if self.behind:
            self.fleet[_DEVICE] = WmpNode(_DEVICE, self._new_device, _GATEWAY)
        for kind, count, end in (
            ("direct", self.direct, _GATEWAY),
            ("behind", self.behind, _DEVICE),
            ("beside", self.beside, _MANAGER),
        ):
            for number in range(count):
                name = f"{kind} {number + 1}"
                self.fleet[name] = WmpNode(name, partial(self._new_worker, name), end)
        self._begin_world()
        if self.above:
            self.after(0.1, self._submit)

    def _add(self, kind: str, number: int, make: Callable[[], Any]) -> None:
        name = f"{kind} {number + 1}"
        self.nodes[name] = ForeignNode(name, 0, make)

    # -- machines

    def _new_manager(self) -> ManagerMachine:
        settings = ManagerSettings(identity=_MANAGER.encode(), epoch=1, max_silence=3.0)
        return ManagerMachine(settings, least_recently_used)

    def _new_device(self) -> DeviceMachine:
        identity = _DEVICE.encode()
        return DeviceMachine(
            DeviceSettings(identity=identity, epoch=next(self._epochs), upstreams=1)
        )

    def _new_worker(self, name: str) -> WorkerMachine:
        settings = WorkerSettings(
            identity=name.encode(),
            epoch=next(self._epochs),
            roles=tuple(service.decode() for service in SERVICES),
            resources={"slots": 1},
            lane_max=1,
        )
        return WorkerMachine(settings, 1)

    def _start_gateway(self) -> None:
        super()._start_gateway()
        self._connect_around(_GATEWAY)

    def _new_gateway(self, upstreams: int = 0) -> GatewayMachine:
        upstreams = int(self.above)
        if self.clients:
            return super()._new_gateway(upstreams)
        epoch = self._epoch
        door = MajordomoDoor(
            "inproc://door", serves="workers", heartbeat=1.0, busy_timeout=8.0, linger=2.0
        )
        terms = GatewaySettings(identity=b"gateway", epoch=epoch, upstreams=upstreams)
        return GatewayMachine(terms, [door.make(DoorContext(epoch=epoch))], [])

    # -- requests and jobs

    def _kind(self) -> Kind:
        return Kind(self.draw.choice(SERVICES).decode())

    def check(self) -> None:
        """Check the invariants of all machines, and that nothing ran too often.

        Raises:
            BrokenPromise: A promise is broken.
        """
        super().check()
        for body, runs in self.begun.items():
            # A client sends each request a few times, and each of them is a new request.
            maximum = (self.max_worker_losses + 1) * (
                1 if body.endswith(b"of the manager") else _TRIES
            )
            if runs > maximum:
                raise BrokenPromise("bounded runs", f"{body!r} ran {runs} times, not {maximum}")

    # -- faults

    def hit(self, fault: ForeignFault) -> None:
        """Let a fault strike a drawn node of either protocol now."""
        # The jobs of the manager end with its process, so that only its connections are struck.
        below = [name for name in self.fleet if name != _MANAGER]
        links = [*below, *((_GATEWAY,) if self.above else ())]
        lasts = self.draw.uniform(0.5, 6.0)
        foreign = self.draw.random() < 0.5
        match fault:
            case ForeignFault.CUT if links and not foreign:
                self.faults[fault] += 1
                self.cut_wmp(self.draw.choice(links))
            case ForeignFault.KILL_WORKER if below and not (foreign and self.workers):
                self.faults[fault] += 1
                self.kill_wmp(self.draw.choice(below), lasts)
            case ForeignFault.PAUSE_WORKER if below and not (foreign and self.workers):
                self.faults[fault] += 1
                self.pause_wmp(self.draw.choice(below), lasts)
            case _:
                super().hit(fault)

    # -- promises

    def finish(self, seconds: float = 40.0, look: float = 15.0) -> None:
        """Check that clients and manager are served again, and that nothing is left.

        Args:
            seconds: Time after which all must be served again.
            look: Time in which each client must get a reply then, and each worker a job.

        Raises:
            BrokenPromise: A promise is broken.
        """
        self._serve_again(seconds, look)
        before = len(self.ended)
        self.run(look)
        if self.above and len(self.ended) <= before:
            raise BrokenPromise("served again", f"no job ended in {look:g} s")
        self.asking = False
        self.run(look)
        self._end_all()
        if self.clients:
            self._leave_nothing()
        states = dict(self.broker.statistics().workers)
        if states != ({"idle": self.workers} if self.workers else {}):
            raise BrokenPromise("served again", f"the workers are {states}")

    def done(self) -> int:
        """Return the number of replies of clients, and of jobs that were done."""
        return sum(self.answered.values()) + list(self.ended.values()).count(End.OK)
