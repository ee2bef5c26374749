"""Clients and workers of other protocols around a gateway, in virtual time and with faults.

ZeroMQ loses no message of a connection that works, and keeps the order. So faults are those of
connections and processes: a cut that both ends notice, a connection that is dead unnoticed, ends of
processes, pauses, slow handlers, full pipes, and frames of strangers.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import count
from random import Random
from typing import Any

from attrs import define, field

from wmp.actions import Halt, Interrupt, Reconnect, Run
from wmp.balance import least_recently_used
from wmp.codec import pack_frames
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Connected, Finished, Ticked
from wmp.foreign import (
    Arrived,
    Emit,
    EndRequest,
    Frames,
    Left,
    RepliesArrived,
    Requested,
    Settled,
    Unsent,
)
from wmp.gateways.common.ping_pong_wire import PingPongWire
from wmp.gateways.common.pirate_wire import ParanoidWire, SimpleWire
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.common.worker_machine import ForeignWorkerMachine, SignTimes
from wmp.gateways.common.worker_wire import WorkerWire
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.gateway.machine import GatewayMachine, GatewaySettings
from wmp.gateways.queue_doors.doors import ClientDoor, WorkerDoor
from wmp.gateways.queue_doors.worker_door_machine import BackDoorMachine
from wmp.message import Outcome


class ForeignFault(Enum):
    """The kinds of faults."""

    CUT = "cut"
    """A connection ends, and both ends notice."""
    HALF_OPEN = "half open"
    """A connection is dead, and no end notices: only a new connection helps."""
    KILL_WORKER = "kill worker"
    """A worker's process ends; another one starts later."""
    KILL_CLIENT = "kill client"
    """A client's process ends during a request; another one starts later."""
    RESTART_GATEWAY = "restart gateway"
    """The gateway's process ends, and starts again at its addresses."""
    PAUSE_WORKER = "pause worker"
    """A worker's process is stopped for some time."""
    PAUSE_GATEWAY = "pause gateway"
    """The gateway's process is stopped for some time."""
    SLOW = "slow"
    """A worker's handlers take longer than a client waits."""
    FULL_PIPE = "full pipe"
    """Messages to a peer cannot be sent for some time."""
    FAIL = "fail"
    """Handlers of a worker fail for some time."""
    TWICE = "twice"
    """A worker sends each reply twice for some time."""
    STRANGER = "stranger"
    """A connection sends any frames to a door."""


class BrokenPromise(AssertionError):
    """A promise about clients, workers or the gateway is broken.

    Attributes:
        name: Name of the promise.
    """

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


@define(eq=False)
class _NodeConnection:
    node: str
    port: int
    id: bytes
    dead: bool = False
    """Whether messages vanish although no end has noticed."""
    full_until: float = 0.0
    arrives: float = 0.0
    """Time of the last arrival, because a connection keeps the order."""
    queued: int = 0
    """Number of messages on the way to the node."""


@define(eq=False)
class ForeignNode:
    """The process of a client or worker.

    Args:
        name: Name of the node.
        port: Number of the door to which the node connects.
        make: Makes the machine of a new process.
    """

    name: str
    port: int
    make: Callable[[], Any]
    machine: Any = field(init=False, default=None)
    life: int = 0
    """Number of processes so far."""
    connection: _NodeConnection | None = None
    paused: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
    """Calls that wait while the process is stopped; None while the process runs."""
    slow_until: float = 0.0
    fails_until: float = 0.0
    twice_until: float = 0.0
    body: bytes = b""
    """The body of the request in progress, of a client."""
    late: bool = False
    """Whether the process was stopped while a connection was made: a Simple Pirate then notices the
    connection after its reply has left there, and READY behind a reply counts twice."""

    @property
    def up(self) -> bool:
        """Return whether the process runs, or is stopped."""
        return self.machine is not None


_WIRES: Mapping[str, tuple[Callable[[], WorkerWire], SignTimes | None]] = {
    "simple-pirate": (SimpleWire, None),
    "paranoid-pirate": (ParanoidWire, SignTimes(1.0, 3.0, 1.0, 4.0)),
    "ping-pong": (PingPongWire, SignTimes(1.0, 3.0)),
}


def our_worker(protocol: str) -> ForeignWorkerMachine:
    """Make a worker of this library."""
    wire, times = _WIRES[protocol]
    return ForeignWorkerMachine(wire(), times)


@define(eq=False, kw_only=True)
class ForeignWorld:
    """A seeded world.

    Args:
        seed: Decides all times and faults.
        protocol: The protocol of the workers.
        clients: Number of clients; each sends one request after the other.
        workers: Number of workers.
        max_worker_losses: Number of lost attempts that a request survives.
        door: Further settings of the door for workers.
        front: Further settings of the door for clients.
        make_worker: Makes the machine of a worker's process.
        takes: Shortest and longest time of a handler that is not slow.
        way: Shortest and longest time of a message on its way.
        pauses: Shortest and longest time between a reply and the next request of a client.
    """

    seed: int
    protocol: str = "paranoid-pirate"
    clients: int = 3
    workers: int = 2
    max_worker_losses: int = 3
    door: dict[str, Any] = field(factory=dict)
    front: dict[str, Any] = field(factory=dict)
    make_worker: Callable[[str], Any] = our_worker
    takes: tuple[float, float] = (0.001, 0.3)
    way: tuple[float, float] = (0.0001, 0.01)
    pauses: tuple[float, float] = (0.01, 0.5)
    now: float = field(default=0.0, init=False)
    draw: Random = field(init=False)
    gateway: GatewayMachine | None = field(default=None, init=False)
    nodes: dict[str, ForeignNode] = field(factory=dict, init=False)
    faults: Counter[ForeignFault] = field(factory=Counter, init=False)
    answered: Counter[str] = field(factory=Counter, init=False)
    """Number of replies of each client."""
    abandoned: int = field(default=0, init=False)
    """Number of requests without a reply after the last try."""
    begun: Counter[bytes] = field(factory=Counter, init=False)
    """Number of runs of the handlers, by body."""
    max_queued: int = field(default=0, init=False)
    """Maximum number of messages that waited for one node."""
    asking: bool = field(default=True, init=False)
    """Whether clients go on to send requests."""
    _heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(
        factory=list, init=False
    )
    _ties: Any = field(factory=count, init=False)
    _by_id: dict[tuple[int, bytes], _NodeConnection] = field(factory=dict, init=False)
    _ids: Any = field(factory=lambda: count(1), init=False)
    _bodies: Any = field(factory=lambda: count(1), init=False)
    _epoch: int = field(default=1000, init=False)
    _gateway_paused: deque[tuple[Callable[..., None], tuple[Any, ...]]] | None = field(
        default=None, init=False
    )
    _ticks: dict[str, float] = field(factory=dict, init=False)
    _runs: dict[str, tuple[int, Run]] = field(factory=dict, init=False)
    """The request that a worker's process runs, with the number of the process."""

    def __attrs_post_init__(self) -> None:
        self.draw = Random(f"{self.seed}:{self.protocol}")
        self._start_gateway()
        for number in range(self.workers):
            name = f"worker {number + 1}"
            self.nodes[name] = ForeignNode(name, 1, lambda: self.make_worker(self.protocol))
        for number in range(self.clients):
            name = f"client {number + 1}"
            self.nodes[name] = ForeignNode(name, 0, lambda: LazyClientMachine(2.5, 3))
        for name in self.nodes:
            self.after(self.draw.uniform(0, 1), self.start, name)

    # -- time

    def after(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call ``what`` after some seconds."""
        heapq.heappush(self._heap, (self.now + seconds, next(self._ties), what, arguments))

    def run(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            BrokenPromise: A promise is broken.
        """
        until = self.now + seconds
        steps = 0
        while self._heap and self._heap[0][0] <= until:
            self.now, _, what, arguments = heapq.heappop(self._heap)
            what(*arguments)
            steps += 1
            if steps > 200_000:
                raise BrokenPromise("no livelock", f"{steps} steps in {seconds} s")
        self.now = until
        self.check()

    # -- processes

    def _start_gateway(self) -> None:
        self._epoch += 1
        identity, epoch = b"gateway", self._epoch
        settings = ManagerSettings(identity=identity, epoch=epoch, max_silence=6.0)
        front = ClientDoor("inproc://front", max_worker_losses=self.max_worker_losses, **self.front)
        back = WorkerDoor("inproc://back", protocol=self.protocol, **self.door)
        context = DoorContext(epoch=epoch, home=(identity, epoch))
        self.gateway = GatewayMachine(
            GatewaySettings(identity=identity, epoch=epoch),
            [front.make(context), back.make(context)],
            [0],
            ManagerMachine(settings, least_recently_used),
        )
        self._connect_all()

    def restart_gateway(self, seconds: float) -> None:
        """End the gateway's process; start another one after some seconds."""
        if self.gateway is None:
            return
        self.gateway = None
        self._gateway_paused = None
        for connection in list(self._by_id.values()):
            self._forget(connection)
        self.after(seconds, self._start_gateway)

    def start(self, name: str) -> None:
        """Start a process of a client or worker."""
        node = self.nodes[name]
        if node.up:
            return
        node.life += 1
        node.machine = node.make()
        self._connect(name, node.life)
        if node.port == 0:
            self._ask(name, node.life)

    def kill(self, name: str, seconds: float) -> None:
        """End a process; start another one after some seconds."""
        node = self.nodes[name]
        if not node.up:
            return
        if node.connection is not None:
            self._end(node.connection)
        node.machine = node.paused = None
        self._runs.pop(name, None)
        self.after(seconds, self.start, name)

    def pause(self, name: str, seconds: float) -> None:
        """Stop the process of a node for some seconds."""
        node = self.nodes[name]
        if node.up and node.paused is None:
            node.paused = []
            self.after(seconds, self._resume, name, node.life)

    def _resume(self, name: str, life: int) -> None:
        node = self.nodes[name]
        if node.life == life and node.paused is not None:
            waiting, node.paused = node.paused, None
            for what, arguments in waiting:
                what(*arguments)

    def pause_gateway(self, seconds: float) -> None:
        """Stop the gateway's process for some seconds."""
        if self.gateway is not None and self._gateway_paused is None:
            self._gateway_paused = deque()
            self.after(seconds, self._resume_gateway, self._epoch)

    def _resume_gateway(self, epoch: int) -> None:
        if self._epoch == epoch and self._gateway_paused is not None:
            waiting, self._gateway_paused = self._gateway_paused, None
            for what, arguments in waiting:
                what(*arguments)
            self._tick_gateway(epoch)

    # -- connections

    def _connect(self, name: str, life: int) -> None:
        node = self.nodes[name]
        if not node.up or node.life != life or node.connection is not None:
            return
        if self.gateway is None:
            return  # the next gateway connects all nodes
        node.late = node.late or node.paused is not None
        connection = _NodeConnection(name, node.port, b"\0%d" % next(self._ids))
        node.connection = self._by_id[node.port, connection.id] = connection
        self._happen(name, Connected(0))

    def _connect_all(self) -> None:
        """Let all nodes connect to a gateway that has just started."""
        for name, node in self.nodes.items():
            if node.up:
                self.after(self.draw.uniform(0.05, 0.2), self._connect, name, node.life)

    def _forget(self, connection: _NodeConnection) -> None:
        """Remove a connection at the side of its node; the gateway is not notified."""
        self._by_id.pop((connection.port, connection.id), None)
        node = self.nodes[connection.node]
        if node.connection is connection:
            node.connection = None
        connection.dead = True

    def _end(self, connection: _NodeConnection) -> None:
        """End a connection; the gateway notices unless the connection was dead before."""
        noticed = not connection.dead and self.gateway is not None
        self._forget(connection)
        if noticed:
            event = Left(connection.port, connection.id)
            self._later(connection, self._at_gateway, self._epoch, event)

    def cut(self, name: str) -> None:
        """End the connection of a node; both ends notice, and the node connects again."""
        node = self.nodes[name]
        if node.connection is not None:
            self._end(node.connection)
            self.after(self.draw.uniform(0.05, 0.2), self._connect, name, node.life)

    def half_open(self, name: str) -> None:
        """Let the messages of a connection vanish from now on."""
        connection = self.nodes[name].connection
        if connection is not None:
            connection.dead = True
            self.after(self.draw.uniform(4, 8), self._notice, connection)

    def _notice(self, connection: _NodeConnection) -> None:
        """Let the operating systems of both ends notice a dead connection at last."""
        node = self.nodes[connection.node]
        if self.gateway is not None:
            event = Left(connection.port, connection.id)
            self._at_gateway(self._epoch, event)
        if node.connection is connection:
            self._forget(connection)
            self._connect(node.name, node.life)

    def _later(
        self, connection: _NodeConnection, what: Callable[..., None], *arguments: Any
    ) -> None:
        """Call ``what`` after the way over a connection, in the order of its messages."""
        arrives = max(connection.arrives, self.now + self.draw.uniform(*self.way))
        connection.arrives = arrives
        self.after(arrives - self.now, what, *arguments)

    # -- the gateway

    def _at_gateway(self, epoch: int, event: object) -> None:
        if self.gateway is None or epoch != self._epoch:
            return
        if self._gateway_paused is not None:
            self._gateway_paused.append((self._at_gateway, (epoch, event)))
            return
        for each in (event, RepliesArrived(), Settled()):
            self._perform_gateway(self.gateway.handle(each, self.now))
        self._plan_gateway()

    def _perform_gateway(self, actions: Sequence[Any]) -> None:
        for action in actions:
            if isinstance(action, Emit):
                self._emit_down(action)
            elif isinstance(action, Halt):
                raise BrokenPromise("no crash", f"the gateway halted: {action.error}")

    def _emit_down(self, action: Emit) -> None:
        connection = self._by_id.get((action.port, action.peer))
        if connection is None or connection.full_until > self.now:
            unsent = Unsent(action.port, action.peer, action.frames)
            self.after(0.0, self._at_gateway, self._epoch, unsent)
            return
        connection.queued += 1
        self.max_queued = max(self.max_queued, connection.queued)
        if not connection.dead:
            self._later(connection, self._at_node, connection, action.frames)

    def _plan_gateway(self) -> None:
        assert self.gateway is not None
        due = self.gateway.deadline()
        if due is not None and self._ticks.get("") != due:
            self._ticks[""] = due
            self.after(max(0.0, due - self.now), self._tick_gateway, self._epoch)

    def _tick_gateway(self, epoch: int) -> None:
        if self.gateway is None or epoch != self._epoch or self._gateway_paused is not None:
            return
        due = self.gateway.deadline()
        if due is not None and due <= self.now:
            self._perform_gateway(self.gateway.handle(Ticked(), self.now))
        self._plan_gateway()

    # -- clients and workers

    def _at_node(self, connection: _NodeConnection, frames: Frames) -> None:
        node = self.nodes[connection.node]
        if connection.dead or node.connection is not connection:
            return
        if node.paused is not None:
            node.paused.append((self._at_node, (connection, frames)))
            return
        connection.queued -= 1
        self._happen(node.name, Arrived(0, b"", frames))

    def _happen(self, name: str, event: object) -> None:
        node = self.nodes[name]
        if not node.up:
            return
        if node.paused is not None:
            node.paused.append((self._happen, (name, event)))
            return
        for action in node.machine.handle(event, self.now):
            self._perform(node, action)
        second = isinstance(event, Arrived) and getattr(node.machine, "_backlog", None)
        if second and not node.late:
            raise BrokenPromise("one request at a time", f"{name} has a second request")
        due = None if node.machine is None else node.machine.deadline()
        if due is not None and self._ticks.get(name) != due:
            self._ticks[name] = due
            self.after(max(0.0, due - self.now), self._tick, name, node.life)

    def _tick(self, name: str, life: int) -> None:
        node = self.nodes[name]
        if not node.up or node.life != life:
            return
        due = node.machine.deadline()
        if due is not None and due <= self.now:
            self._ticks.pop(name, None)
            self._happen(name, Ticked())

    def _perform(self, node: ForeignNode, action: Any) -> None:
        match action:
            case Emit():
                self._emit_up(node, action.frames)
            case Reconnect():
                if node.connection is not None:
                    self._end(node.connection)
                self.after(0.01, self._connect, node.name, node.life)
            case Run():
                self._begin(node, action)
            case EndRequest():
                self._answer(node, action)
            case Interrupt() | Halt() | _:
                pass

    def _emit_up(self, node: ForeignNode, frames: Frames) -> None:
        connection = node.connection
        if connection is None:
            self.after(0.0, self._happen, node.name, Unsent(0, b"", frames))
        elif not connection.dead:
            event = Arrived(connection.port, connection.id, frames)
            self._later(connection, self._at_gateway, self._epoch, event)

    def _begin(self, node: ForeignNode, run: Run) -> None:
        body = bytes(run.payloads[0])
        self.begun[body] += 1
        self._runs[node.name] = (node.life, run)
        slow = self.now < node.slow_until
        takes = self.draw.uniform(3.0, 9.0) if slow else self.draw.uniform(*self.takes)
        self.after(takes, self._finish, node.name, node.life, run)

    def _finish(self, name: str, life: int, run: Run) -> None:
        node = self.nodes[name]
        if not node.up or node.life != life:
            return
        if node.paused is not None:
            node.paused.append((self._finish, (name, life, run)))
            return
        if self._runs.get(name) == (life, run):
            del self._runs[name]
        fails = self.now < node.fails_until
        outcome = Outcome.ERROR if fails else Outcome.OK
        body = bytes(run.payloads[0])
        payload = b"" if fails else b"did " + body
        if run.kind.codec:
            payload = pack_frames([payload])
        twice = None
        if self.now < node.twice_until and node.connection is not None and not fails:
            twice = node.machine.wire.reply(node.machine._envelope, (b"did " + body,))
        self._happen(name, Finished(run.lane, run.ids, [outcome], [payload]))
        if twice is not None:
            self._emit_up(node, twice)

    def _ask(self, name: str, life: int) -> None:
        node = self.nodes[name]
        if self.asking and node.up and node.life == life:
            number = next(self._bodies)
            node.body = b"%d of %s" % (number, name.encode())
            self._happen(name, Requested(number, (node.body,)))

    def _answer(self, node: ForeignNode, action: EndRequest) -> None:
        if action.frames is None:
            self.abandoned += 1
        else:
            if action.frames != (b"did " + node.body,):
                reply, body = b" ".join(map(bytes, action.frames)), node.body
                raise BrokenPromise("own reply", f"{reply!r} is the reply to {body!r}")
            self.answered[node.name] += 1
        node.body = b""
        self.after(self.draw.uniform(*self.pauses), self._ask, node.name, node.life)

    # -- faults

    def strike(self, kinds: Sequence[ForeignFault], times: int, seconds: float) -> None:
        """Let faults strike at drawn times within some seconds."""
        for _ in range(times):
            fault = self.draw.choice(list(kinds))
            self.after(self.draw.uniform(0, seconds), self.hit, fault)

    def hit(self, fault: ForeignFault) -> None:
        """Let a fault strike a drawn node now."""
        self.faults[fault] += 1
        worker, client = self._any("worker"), self._any("client")
        lasts = self.draw.uniform(0.5, 6.0)
        anyone = self.draw.choice([worker, worker, client])
        match fault:
            case ForeignFault.CUT:
                self.cut(anyone)
            case ForeignFault.HALF_OPEN:
                self.half_open(anyone)
            case ForeignFault.KILL_WORKER:
                self.kill(worker, lasts)
            case ForeignFault.KILL_CLIENT:
                self.kill(client, lasts)
            case ForeignFault.RESTART_GATEWAY:
                self.restart_gateway(lasts / 3)
            case ForeignFault.PAUSE_WORKER:
                self.pause(worker, lasts)
            case ForeignFault.PAUSE_GATEWAY:
                self.pause_gateway(lasts)
            case ForeignFault.SLOW:
                self.nodes[worker].slow_until = self.now + lasts
            case ForeignFault.FULL_PIPE:
                # The pipe to a Simple Pirate contains at most one message, and is never full.
                simple = self.protocol == "simple-pirate"
                connection = self.nodes[client if simple else anyone].connection
                if connection is not None:
                    connection.full_until = self.now + lasts
            case ForeignFault.FAIL:
                self.nodes[worker].fails_until = self.now + lasts
            case ForeignFault.TWICE:
                self.nodes[worker].twice_until = self.now + lasts
            case ForeignFault.STRANGER:
                words = (b"", b"\x01", b"\x02", b"READY", b"PING", b"a", bytes(8))
                frames = tuple(self.draw.choices(words, k=self.draw.randint(1, 6)))
                port, id = self.draw.choice((0, 1)), b"\0s%d" % next(self._ids)
                self._at_gateway(self._epoch, Arrived(port, id, frames))
                self.after(0.1, self._at_gateway, self._epoch, Left(port, id))

    def _any(self, kind: str) -> str:
        """Draw a worker or client; draw any node if there is none."""
        names = [name for name in self.nodes if name.startswith(kind)]
        return self.draw.choice(names or list(self.nodes))

    # -- promises

    @property
    def back(self) -> BackDoorMachine:
        """The door for workers."""
        assert self.gateway is not None
        door = self.gateway.doors[1]
        assert isinstance(door, BackDoorMachine)
        return door

    def check(self) -> None:
        """Check the invariants of all machines.

        Raises:
            BrokenPromise: An invariant is broken.
        """
        try:
            if self.gateway is not None and self.gateway.manager is not None:
                self.gateway.manager.check_invariants()
                for group in self.gateway.groups.values():
                    group.worker.check_invariants()
        except AssertionError as error:
            raise BrokenPromise("invariants", str(error)) from error

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
        states = list(self.back.workers.values())
        if len(states) != self.workers or any(state.name != "IDLE" for state in states):
            raise BrokenPromise(
                "served again", f"the workers are {[state.name for state in states]}"
            )

    def _serve_again(self, seconds: float, look: float) -> None:
        """Check that some time after the faults each client gets replies to all its requests."""
        self.run(seconds)
        before, abandoned = dict(self.answered), self.abandoned
        self.run(look)
        for name in self.nodes:
            if name.startswith("client") and self.answered[name] <= before.get(name, 0):
                raise BrokenPromise("served again", f"{name} got no reply in {look:g} s")
        if self.abandoned > abandoned:
            raise BrokenPromise("served again", f"requests got no reply in {look:g} s")

    def _leave_nothing(self) -> None:
        """Check that neither the gateway's manager nor the door for clients holds a request."""
        assert self.gateway is not None
        assert self.gateway.manager is not None
        left = self.gateway.manager.statistics()
        front: Any = self.gateway.doors[0].statistics()
        if left.queued or left.leased or front.waiting:
            raise BrokenPromise("nothing is left", f"{left.queued} queued, {left.leased} leased")
