"""Clients and workers of round robin around a server, in virtual time and with faults."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from attrs import define, field

from wmp.actions import Run
from wmp.balance import least_recently_used
from wmp.codec import pack_frames, unpack_frames
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Drained, Finished
from wmp.foreign import Arrived, EndRequest, Frames, Left, Requested, Unsent
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.gateway.machine import GatewayMachine, GatewaySettings
from wmp.gateways.round_robin.client_machine import RoundRobinClientMachine
from wmp.gateways.round_robin.door import RoundRobinDoor
from wmp.gateways.round_robin.lmq_link import LinkTimes
from wmp.gateways.round_robin.server_machine import RoundRobinDoorMachine
from wmp.gateways.round_robin.wire import REGISTER, LmqType, write_lmq
from wmp.gateways.round_robin.worker_machine import RoundRobinWorkerMachine
from wmp.message import Outcome
from wmp.testing.gateway_worlds.foreign_world import (
    BrokenPromise,
    ForeignFault,
    ForeignNode,
    ForeignWorld,
)

_COMMAND = b"\x20"
_TIMES = LinkTimes(handshake=1.0, heartbeat=2.0)


@define(eq=False, kw_only=True)
class RoundRobinWorld(ForeignWorld):
    """A seeded world of round robin.

    Args:
        slots: Number of slots of each worker.
        tracked: Whether the clients want answers.
    """

    slots: int = 2
    tracked: bool = True
    settings: Mapping[str, Any] = field(factory=dict)
    """Further settings of the door."""
    left: int = field(default=0, init=False)
    """Number of workers that left by DEREGISTER."""
    registered_again: int = field(default=0, init=False)
    """Number of workers that registered again on the same connection."""

    def __attrs_post_init__(self) -> None:
        self.draw = Random(f"{self.seed}:round-robin")
        self._start_gateway()
        for number in range(self.workers):
            name = f"worker {number + 1}"
            self.nodes[name] = ForeignNode(name, 0, self._new_worker)
        for number in range(self.clients):
            name = f"client {number + 1}"
            self.nodes[name] = ForeignNode(name, 0, self._new_client)
        for name in self.nodes:
            self.after(self.draw.uniform(0, 1), self.start, name)

    def _new_worker(self) -> RoundRobinWorkerMachine:
        return RoundRobinWorkerMachine(
            {_COMMAND: "work"}, self.slots, _TIMES, timeout=1.0, tries=1_000
        )

    def _new_client(self) -> RoundRobinClientMachine:
        return RoundRobinClientMachine(8.0, _TIMES)

    def _start_gateway(self) -> None:
        self._epoch += 1
        home = (b"gateway", self._epoch)
        settings = ManagerSettings(identity=home[0], epoch=home[1], max_silence=6.0)
        door = RoundRobinDoor(
            "inproc://door",
            max_worker_losses=self.max_worker_losses,
            heartbeat=1.0,
            **self.settings,
        )
        self.gateway = GatewayMachine(
            GatewaySettings(identity=home[0], epoch=home[1]),
            [door.make(DoorContext(epoch=home[1], home=home))],
            [0],
            ManagerMachine(settings, least_recently_used),
        )
        self._connect_all()

    @property
    def server(self) -> RoundRobinDoorMachine:
        """The machine of the server."""
        assert self.gateway is not None
        door = self.gateway.doors[0]
        assert isinstance(door, RoundRobinDoorMachine)
        return door

    def _ask(self, name: str, life: int) -> None:
        node = self.nodes[name]
        if name.startswith("client") and self.asking and node.up and node.life == life:
            number = next(self._bodies)
            node.body = b"%d of %s" % (number, name.encode())
            type = b"\x04" if self.tracked else b"\x03"
            self._happen(name, Requested(number, (type, _COMMAND, node.body)))

    def _answer(self, node: ForeignNode, action: EndRequest) -> None:
        if node.name.startswith("worker"):
            return  # the worker is registered
        if self.tracked:
            super()._answer(node, action)
            return
        self.answered[node.name] += 1
        self.after(self.draw.uniform(0.01, 0.5), self._ask, node.name, node.life)

    def _begin(self, node: ForeignNode, run: Run) -> None:
        self.begun[unpack_frames(run.payloads[0])[1]] += 1
        slow = self.now < node.slow_until
        takes = self.draw.uniform(3.0, 9.0) if slow else self.draw.uniform(0.001, 0.3)
        self.after(takes, self._finish, node.name, node.life, run)

    def _finish(self, name: str, life: int, run: Run) -> None:
        node = self.nodes[name]
        if not node.up or node.life != life:
            return
        if node.paused is not None:
            node.paused.append((self._finish, (name, life, run)))
            return
        fails = self.now < node.fails_until
        body = unpack_frames(run.payloads[0])[1]
        payload = b"" if fails else pack_frames([b"did " + body])
        outcome = Outcome.ERROR if fails else Outcome.OK
        self._happen(name, Finished(run.lane, run.ids, [outcome], [payload]))

    def _emit_up(self, node: ForeignNode, frames: Frames) -> None:
        connection = node.connection
        if connection is not None and connection.full_until > self.now:
            # The pipe to the server is full, too.
            self.after(0.0, self._happen, node.name, Unsent(0, b"", frames))
        else:
            super()._emit_up(node, frames)

    # -- what workers do by themselves

    def strike_table(self, times: int, seconds: float) -> None:
        """Let drawn workers leave or register again, at drawn times within some seconds."""
        for _ in range(times):
            act = self.draw.choice((self.leave, self.register_again))
            name = f"worker {self.draw.randint(1, self.workers)}"
            self.after(self.draw.uniform(0, seconds), act, name)

    def leave(self, name: str) -> None:
        """Let a worker send DEREGISTER and finish its messages; another process starts later."""
        node = self.nodes[name]
        if node.up:
            self.left += 1
            self._happen(name, Drained())
            self.after(self.draw.uniform(0.5, 6.0), self._end_process, name, node.life)

    def _end_process(self, name: str, life: int) -> None:
        if self.nodes[name].life == life:
            self.kill(name, self.draw.uniform(0.1, 1.0))

    def register_again(self, name: str) -> None:
        """Let a worker register another number of slots, and its own number some time later."""
        node = self.nodes[name]
        if node.up:
            self.registered_again += 1
            self._register(name, node.life, self.draw.randint(0, 2 * self.slots))
            takes = self.draw.uniform(0.1, 3.0)
            self.after(takes, self._register, name, node.life, self.slots)

    def _register(self, name: str, life: int, slots: int) -> None:
        node = self.nodes[name]
        if node.paused is not None:
            node.paused.append((self._register, (name, life, slots)))
        elif node.up and node.life == life and node.machine.registered:
            arguments = (REGISTER, b"%d" % slots)
            self._emit_up(node, write_lmq(LmqType.TRACKEXEC, b"more", arguments))

    # -- faults

    def fail(self, name: str, seconds: float) -> None:
        """Let the handlers of a worker fail for some seconds."""
        self.nodes[name].fails_until = self.now + seconds

    def fill(self, name: str, seconds: float) -> None:
        """Let the pipes between a node and the server be full for some seconds."""
        connection = self.nodes[name].connection
        if connection is not None:
            connection.full_until = self.now + seconds

    def hit(self, fault: ForeignFault) -> None:
        """Let a fault strike a drawn node now."""
        if fault is not ForeignFault.STRANGER:
            super().hit(fault)
            return
        self.faults[fault] += 1
        words = (b"", b"LMQv100", b"\x01", b"\x03", b"\x04", b"\x06", b"\x07", b"\x09", b"a")
        frames = tuple(self.draw.choices(words, k=self.draw.randint(1, 7)))
        if self.draw.random() < 0.5:
            frames = (b"", b"LMQv100", *frames, b"")
        id = b"\0s%d" % next(self._ids)
        self._at_gateway(self._epoch, Arrived(0, id, frames))
        self.after(0.1, self._at_gateway, self._epoch, Left(0, id))

    def finish(self, seconds: float = 40.0, look: float = 15.0) -> None:
        """Check that all clients are served again after the faults, and that nothing is left.

        Args:
            seconds: Time after which all clients must be served again.
            look: Time in which each client must get an answer then.

        Raises:
            BrokenPromise: A promise is broken.
        """
        self._serve_again(seconds, look)
        self.asking = False
        self.run(look)
        self._leave_nothing()
        seen = self.server.statistics()
        if (seen.workers, seen.free) != (self.workers, self.workers * self.slots):
            text = f"{seen.workers} workers with {seen.free} free slots"
            raise BrokenPromise("no slot is lost", text)
