"""Fleets of both kinds around a gateway, in virtual time and with faults.

- :class:`ServedByWmp`: Lazy Pirate clients, a gateway, a device, and WMP workers.
- :class:`ServingWmp`: a WMP manager, a gateway, and foreign workers of two protocols.

WMP messages cross every connection as frames, through the real codec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any

from attrs import define, field

from wmp import codec
from wmp.actions import End, Halt, Recall, Reconnect, Resolve, Run, Send
from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import (
    Connected,
    Disconnected,
    Finished,
    Recalled,
    Received,
    Submitted,
    Ticked,
    Undelivered,
)
from wmp.foreign import Emit
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.gateway.machine import GatewayMachine, GatewaySettings
from wmp.gateways.queue_doors.doors import ClientDoor, WorkerDoor
from wmp.gateways.queue_doors.worker_door_machine import BackDoorMachine
from wmp.message import Kind, Link, Message, Outcome
from wmp.testing.gateway_worlds.foreign_world import (
    BrokenPromise,
    ForeignFault,
    ForeignNode,
    ForeignWorld,
    our_worker,
)

_GATEWAY = "gateway"


@define(eq=False)
class WmpNode:
    """The process of a WMP node.

    Args:
        name: Name of the node.
        make: Makes the machine of a new process.
        above: Name of the node to which it connects; empty for none.
    """

    name: str
    make: Callable[[], Any]
    above: str = ""
    machine: Any = field(init=False, default=None)
    life: int = 0
    due: float | None = None
    paused: list[object] | None = None
    """Events that wait while the process is stopped; None while the process runs."""


@define(eq=False)
class _WmpConnection:
    below: str
    above: str
    id: bytes
    arrives: float = 0.0
    open: bool = True


@define(eq=False, kw_only=True)
class MixedWorld(ForeignWorld):
    """A seeded world with WMP nodes and nodes of other protocols.

    Args:
        run_limit: Seconds for which a job of a manager may run; None for no limit.
    """

    run_limit: float | None = None
    ended: dict[int, End] = field(factory=dict, init=False)
    """How the jobs of the manager ended, by number."""
    _jobs: dict[int, bytes] = field(factory=dict, init=False)
    fleet: dict[str, WmpNode] = field(factory=dict, init=False)
    """The WMP nodes by name, without the gateway."""
    _uplinks: dict[str, _WmpConnection] = field(factory=dict, init=False)
    """The connections by the name of the lower node; each has at most one."""
    _epochs: Any = field(factory=lambda: count(5000), init=False)

    def _begin_world(self) -> None:
        self.draw = Random(f"{self.seed}:{type(self).__name__}")
        for name in self.fleet:
            self.start_wmp(name)
        self._start_gateway()
        for name in self.nodes:
            self.after(self.draw.uniform(0, 1), self.start, name)

    # -- processes

    def start_wmp(self, name: str) -> None:
        """Start a process of a WMP node; its neighbours connect to it."""
        node = self.fleet[name]
        if node.machine is None:
            node.life += 1
            node.machine = node.make()
            node.due = None
            self._connect_around(name)

    def kill_wmp(self, name: str, seconds: float) -> None:
        """End a process of a WMP node; start another one after some seconds."""
        node = self.fleet[name]
        if node.machine is not None:
            node.machine = node.paused = None
            self._cut_around(name)
            self.after(seconds, self.start_wmp, name)

    def pause_wmp(self, name: str, seconds: float) -> None:
        """Stop the process of a WMP node for some seconds."""
        node = self.fleet[name]
        if node.machine is not None and node.paused is None:
            node.paused = []
            self.after(seconds, self._resume_wmp, name, node.life)

    def _resume_wmp(self, name: str, life: int) -> None:
        node = self.fleet[name]
        if node.life == life and node.paused is not None:
            waiting, node.paused = node.paused, None
            for event in waiting:
                self._feed(name, event)
            self._tick_wmp(name, life)

    def restart_gateway(self, seconds: float) -> None:
        """End the gateway's process; start another one after some seconds."""
        if self.gateway is not None:
            super().restart_gateway(seconds)
            self._cut_around(_GATEWAY)

    def _lives(self, name: str) -> bool:
        return (
            self.gateway is not None if name == _GATEWAY else self.fleet[name].machine is not None
        )

    def _above(self, name: str) -> str:
        return self.gateway_above if name == _GATEWAY else self.fleet[name].above

    gateway_above: str = field(default="", init=False)
    """The manager to which the gateway connects; empty for none."""

    # -- connections

    def _connect_around(self, name: str) -> None:
        for below in (_GATEWAY, *self.fleet):
            if name in (below, self._above(below)):
                self.after(self.draw.uniform(0.01, 0.1), self._join, below)

    def _cut_around(self, name: str) -> None:
        for below in (_GATEWAY, *self.fleet):
            if name in (below, self._above(below)):
                self.cut_wmp(below)

    def cut_wmp(self, below: str) -> None:
        """End the connection of a node; messages on the way are lost."""
        connection = self._uplinks.pop(below, None)
        if connection is not None:
            connection.open = False
            self.after(0.001, self._feed, connection.above, Disconnected(connection.id))
            self.after(self.draw.uniform(0.01, 0.2), self._join, below)

    def _join(self, below: str) -> None:
        above = self._above(below)
        if above and below not in self._uplinks and self._lives(below) and self._lives(above):
            self._uplinks[below] = _WmpConnection(below, above, b"\0w%d" % next(self._ids))
            self._feed(below, Connected(0))

    def _feed(self, name: str, event: object) -> None:
        """Give an event to a WMP node or to the gateway."""
        if name == _GATEWAY:
            self._at_gateway(self._epoch, event)
            return
        node = self.fleet[name]
        machine = node.machine
        if machine is None or (
            isinstance(machine, DeviceMachine) and isinstance(event, Connected | Disconnected)
        ):
            return
        if node.paused is not None:
            node.paused.append(event)
            return
        for action in machine.handle(event, self.now):
            self._perform_wmp(node, action)
        due = machine.deadline()
        if due is not None and due != node.due:
            node.due = due
            self.after(max(0.0, due - self.now), self._tick_wmp, name, node.life)

    def _tick_wmp(self, name: str, life: int) -> None:
        node = self.fleet[name]
        if node.machine is None or node.life != life or node.paused is not None:
            return
        due = node.machine.deadline()
        if due is not None and due <= self.now:
            node.due = None
            self._feed(name, Ticked())

    def _send(self, name: str, link: Link, message: Message) -> None:
        if isinstance(link, int):
            connection = self._uplinks.get(name)
        else:
            connection = next(
                (
                    uplink
                    for uplink in self._uplinks.values()
                    if (uplink.above, uplink.id) == (name, link)
                ),
                None,
            )
        if connection is None:
            self.after(0.0, self._feed, name, Undelivered(link, message))
            return
        connection.arrives = max(connection.arrives, self.now + self.draw.uniform(0.0001, 0.01))
        upward = isinstance(link, int)
        frames = codec.encode(message)
        self.after(connection.arrives - self.now, self._arrive, connection, upward, frames)

    def _arrive(self, connection: _WmpConnection, upward: bool, frames: Any) -> None:
        if not connection.open:
            return
        name = connection.above if upward else connection.below
        forwards = name in self.fleet and isinstance(self.fleet[name].machine, DeviceMachine)
        message = (codec.peek if forwards else codec.decode)(frames)
        self._feed(name, Received(connection.id if upward else 0, message))

    # -- actions

    def _perform_gateway(self, actions: Sequence[Any]) -> None:
        for action in actions:
            match action:
                case Emit():
                    self._emit_down(action)
                case Send(link, message):
                    self._send(_GATEWAY, link, message)
                case Reconnect():
                    self.cut_wmp(_GATEWAY)
                case Halt(error):
                    raise BrokenPromise("no crash", f"the gateway halted: {error}")

    def _perform_wmp(self, node: WmpNode, action: Any) -> None:
        match action:
            case Send(link, message):
                self._send(node.name, link, message)
            case Run():
                self._begin_wmp(node, action)
            case Recall(lane, _):
                self._feed(node.name, Recalled(lane, ()))
            case Reconnect():
                self.cut_wmp(node.name)
            case Resolve():
                self._resolved(action)
            case Halt(error):
                raise BrokenPromise("no crash", f"{node.name} halted: {error}")

    def _begin_wmp(self, node: WmpNode, run: Run) -> None:
        (payload,) = run.payloads
        self.begun[bytes(payload)] += 1
        takes = self.draw.uniform(*self.takes)
        self.after(takes, self._finish_wmp, node.name, node.life, run)

    def _finish_wmp(self, name: str, life: int, run: Run) -> None:
        if self.fleet[name].life == life:
            result = b"did " + bytes(run.payloads[0])
            self._feed(name, Finished(run.lane, run.ids, [Outcome.OK], [result]))

    # -- jobs of a WMP manager

    def _submit(self) -> None:
        """Let the WMP manager named ``manager`` submit some jobs, again and again."""
        if self.asking:
            first = len(self._jobs) + 1
            ids = range(first, first + self.draw.randint(1, 6))
            bodies = [b"%d of the manager" % id for id in ids]
            self._jobs.update(zip(ids, bodies, strict=True))
            event = Submitted(
                ids, bodies, self._kind(), 0, None, self.max_worker_losses, run_limit=self.run_limit
            )
            self._feed("manager", event)
            self.after(self.draw.uniform(*self.pauses), self._submit)

    def _kind(self) -> Kind:
        """Return the kind of the next jobs."""
        return Kind()

    def _resolved(self, resolve: Resolve) -> None:
        """Take the ends of jobs of the manager."""
        for id, end, payload in zip(resolve.ids, resolve.ends, resolve.payloads, strict=True):
            if id in self.ended:
                raise BrokenPromise("one end", f"job {id} ended twice")
            self.ended[id] = end
            if end is End.OK and payload != b"did " + self._jobs[id]:
                raise BrokenPromise("own reply", f"{payload!r} is the end of {self._jobs[id]!r}")
            overrun = end is End.TIMEOUT and self.run_limit is not None
            if end not in (End.OK, End.LOST, End.ERROR) and not overrun:
                raise BrokenPromise("an end with a cause", f"job {id} ended as {end}")

    def _end_all(self) -> None:
        """Check that each job of the manager has an end."""
        if len(self.ended) < len(self._jobs):
            left = len(self._jobs) - len(self.ended)
            raise BrokenPromise("nothing is left", f"{left} jobs have no end")

    def check(self) -> None:
        """Check the invariants of all machines.

        Raises:
            BrokenPromise: An invariant is broken.
        """
        super().check()
        try:
            for node in self.fleet.values():
                if isinstance(node.machine, ManagerMachine | WorkerMachine):
                    node.machine.check_invariants()
        except AssertionError as error:
            raise BrokenPromise("invariants", str(error)) from error


@define(eq=False, kw_only=True)
class ServedByWmp(MixedWorld):
    """Lazy Pirate clients whose requests are done by WMP workers behind a device."""

    def __attrs_post_init__(self) -> None:
        for number in range(self.clients):
            name = f"client {number + 1}"
            self.nodes[name] = ForeignNode(name, 0, lambda: LazyClientMachine(2.5, 3))
        self.fleet["device"] = WmpNode("device", self._new_device, _GATEWAY)
        for number in range(self.workers):
            name = f"worker {number + 1}"
            self.fleet[name] = WmpNode(name, partial(self._new_worker, name), "device")
        self._begin_world()

    def _new_device(self) -> DeviceMachine:
        settings = DeviceSettings(identity=b"device", epoch=next(self._epochs), upstreams=1)
        return DeviceMachine(settings)

    def _new_worker(self, name: str) -> WorkerMachine:
        settings = WorkerSettings(
            identity=name.encode(), epoch=next(self._epochs), resources={"slots": 2}, lane_max=1
        )
        return WorkerMachine(settings, 1)

    def _start_gateway(self) -> None:
        self._epoch += 1
        identity, epoch = b"gateway", self._epoch
        front = ClientDoor("inproc://front", max_worker_losses=self.max_worker_losses, **self.front)
        self.gateway = GatewayMachine(
            GatewaySettings(identity=identity, epoch=epoch),
            [front.make(DoorContext())],
            [0],
            ManagerMachine(
                ManagerSettings(identity=identity, epoch=epoch, max_silence=3.0),
                least_recently_used,
            ),
        )
        self._connect_all()
        self._connect_around(_GATEWAY)

    def hit(self, fault: ForeignFault) -> None:
        """Let a fault strike a drawn node now."""
        client = self.draw.choice(list(self.nodes))
        worker = self.draw.choice(list(self.fleet))
        lasts = self.draw.uniform(0.2, 3.0)
        self.faults[fault] += 1
        match fault:
            case ForeignFault.KILL_WORKER:
                self.kill_wmp(worker, lasts)
            case ForeignFault.CUT:
                self.cut_wmp(worker)
            case ForeignFault.HALF_OPEN:
                self.half_open(client)
            case ForeignFault.KILL_CLIENT:
                self.kill(client, lasts)
            case ForeignFault.RESTART_GATEWAY:
                self.restart_gateway(lasts / 3)
            case _:
                self.pause_gateway(lasts)

    def finish(self, seconds: float = 20.0, look: float = 8.0) -> None:
        """Check that all clients are served again after the faults, and that nothing is left."""
        self._serve_again(seconds, look)
        self.asking = False
        self.run(look)
        self._leave_nothing()


@define(eq=False, kw_only=True)
class ServingWmp(MixedWorld):
    """A WMP manager whose jobs are done by Paranoid Pirates and ping-pong workers."""

    def __attrs_post_init__(self) -> None:
        self.gateway_above = "manager"
        for port, protocol in enumerate(("paranoid-pirate", "ping-pong")):
            for number in range(self.workers):
                name = f"worker {port * self.workers + number + 1}"
                self.nodes[name] = ForeignNode(name, port, partial(our_worker, protocol))
        settings = ManagerSettings(identity=b"manager", epoch=1, max_silence=3.0)
        self.fleet["manager"] = WmpNode(
            "manager", lambda: ManagerMachine(settings, least_recently_used)
        )
        self._begin_world()
        self.after(0.1, self._submit)

    def start(self, name: str) -> None:
        """Start a process of a foreign worker."""
        node = self.nodes[name]
        if not node.up:
            node.life += 1
            node.machine = node.make()
            self._connect(name, node.life)

    def _start_gateway(self) -> None:
        self._epoch += 1
        identity, epoch = b"gateway", self._epoch
        doors = [
            WorkerDoor("inproc://back", protocol=protocol, **self.door)
            for protocol in ("paranoid-pirate", "ping-pong")
        ]
        self.gateway = GatewayMachine(
            GatewaySettings(identity=identity, epoch=epoch, upstreams=1),
            [door.make(DoorContext(epoch=epoch)) for door in doors],
            [],
        )
        self._connect_all()
        self._connect_around(_GATEWAY)

    def hit(self, fault: ForeignFault) -> None:
        """Let a fault strike a drawn node now."""
        worker = self.draw.choice(list(self.nodes))
        lasts = self.draw.uniform(0.2, 3.0)
        self.faults[fault] += 1
        match fault:
            case ForeignFault.CUT:
                self.cut_wmp(_GATEWAY) if self.draw.random() < 0.5 else self.cut(worker)
            case ForeignFault.HALF_OPEN:
                self.half_open(worker)
            case ForeignFault.KILL_WORKER:
                self.kill(worker, lasts)
            case ForeignFault.PAUSE_WORKER:
                self.pause(worker, lasts)
            case ForeignFault.SLOW:
                self.nodes[worker].slow_until = self.now + lasts
            case ForeignFault.FAIL:
                self.nodes[worker].fails_until = self.now + lasts
            case ForeignFault.PAUSE_GATEWAY:
                self.pause_gateway(lasts)
            case _:
                self.restart_gateway(lasts / 3)

    def finish(self, seconds: float = 20.0, look: float = 12.0) -> None:
        """Check that jobs are done again after the faults, and that each job has an end."""
        self.run(seconds)
        before = len(self.ended)
        self.run(look)
        if len(self.ended) <= before:
            raise BrokenPromise("served again", f"no job ended in {look:g} s")
        self.asking = False
        self.run(look)
        self._end_all()
        assert self.gateway is not None
        for door in self.gateway.doors:
            assert isinstance(door, BackDoorMachine)
            states = [state.name for state in door.workers.values()]
            if states != ["IDLE"] * self.workers:
                raise BrokenPromise("served again", f"the workers are {states}")
