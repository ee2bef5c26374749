"""Clients and servers of Freelance in virtual time and with faults."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import count
from random import Random
from typing import Any

from attrs import define, field

from wmp.actions import Interrupt, Reconnect, Run
from wmp.codec import pack_frames
from wmp.events import Connected, Finished, Ticked
from wmp.foreign import Arrived, Emit, EndRequest, Frames, Left, Requested, Unsent
from wmp.gateways.common.client_wire import ClientWire, ReqWire
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.common.server_machine import LazyServerMachine
from wmp.gateways.freelance.agent_machine import AgentClientMachine
from wmp.gateways.freelance.shotgun_machine import ShotgunClientMachine
from wmp.gateways.freelance.wire import AgentWire, ShotgunWire
from wmp.message import Outcome
from wmp.testing.gateway_worlds.foreign_world import BrokenPromise

_DELAY = (0.001, 0.02)
_RECONNECT = 0.1
"""Seconds until a client's socket connects again."""

_WIRES: Mapping[str, Callable[[], ClientWire]] = {
    "failover": ReqWire,
    "shotgun": ShotgunWire,
    "agent": AgentWire,
}

_WORDS = (b"", b"1", b"2", b"PING", b"PONG", b"any")


class FreelanceFault(Enum):
    """The kinds of faults."""

    CUT = "cut"
    """A connection ends, and both ends notice."""
    HALF_OPEN = "half open"
    """A connection is dead, and no end notices: only a new connection helps."""
    KILL = "kill"
    """A server's process ends; another one starts later."""
    PAUSE = "pause"
    """A server's process is stopped for some time."""
    SLOW = "slow"
    """The handlers of a server take longer, some of them longer than a client waits."""
    FULL_PIPE = "full pipe"
    """Messages to a server cannot be sent for some time."""
    STRANGER = "stranger"
    """Frames of no meaning reach a client or a server."""


@define(eq=False)
class _Link:
    client: int
    server: int
    peer: bytes = b""
    """The routing id at the server."""
    up: bool = False
    dead: bool = False
    """Whether messages vanish although no end has noticed."""
    full_until: float = 0.0
    life: int = 0
    """Number of connections so far; messages of an earlier one vanish."""
    arrives: dict[bool, float] = field(factory=dict)
    """Time of the last arrival in each direction, because a connection keeps the order."""


@define(eq=False)
class _ServerProcess:
    machine: LazyServerMachine | None = None
    life: int = 0
    paused: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
    slow_until: float = 0.0


@define(eq=False, kw_only=True)
class FreelanceWorld:
    """A seeded world.

    Args:
        seed: Decides all times and faults.
        model: ``"failover"``, ``"shotgun"`` or ``"agent"``.
        clients: Number of clients; each sends one request after the other.
        servers: Number of servers.
        depth: Number of requests that a client has in progress.
    """

    seed: int
    model: str = "agent"
    clients: int = 2
    servers: int = 3
    depth: int = 1
    now: float = field(default=0.0, init=False)
    draw: Random = field(init=False)
    faults: Counter[FreelanceFault] = field(factory=Counter, init=False)
    answered: int = field(default=0, init=False)
    abandoned: int = field(default=0, init=False)
    """Number of requests without a reply."""
    begun: Counter[tuple[int, bytes]] = field(factory=Counter, init=False)
    """Number of runs of each request at the present process of each server."""
    asking: bool = field(default=True, init=False)
    """Whether clients go on to send requests."""
    machines: list[Any] = field(factory=list, init=False)
    """The machines of the clients."""
    nodes: list[_ServerProcess] = field(factory=list, init=False)
    """The servers."""
    _links: dict[tuple[int, int], _Link] = field(factory=dict, init=False)
    _open: dict[tuple[int, int], bytes] = field(factory=dict, init=False)
    """The bodies of the requests in progress, by client and number."""
    _heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(
        factory=list, init=False
    )
    _numbers: Any = field(factory=lambda: count(1), init=False)
    _ticks: dict[int, float] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.draw = Random(f"{self.seed}:{self.model}")
        self.nodes = [_ServerProcess() for _ in range(self.servers)]
        for number in range(self.servers):
            self._start_server(number)
        for client in range(self.clients):
            self.machines.append(self._make_client())
            for server in range(self.servers):
                link = self._links[client, server] = _Link(client, server)
                self._at(self.draw.uniform(*_DELAY), self._connect, link, 0)
            for _ in range(self.depth):
                self._at(self.draw.uniform(0.0, 0.5), self._ask, client)

    def run(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            BrokenPromise: A promise is broken.
        """
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            self.now, _, act, args = heapq.heappop(self._heap)
            act(*args)
        self.now = end

    def strike(self, kinds: Sequence[FreelanceFault], number: int, seconds: float) -> None:
        """Draw faults of these kinds for the next seconds."""
        for _ in range(number):
            self._at(self.draw.uniform(0.0, seconds), self._fault, self.draw.choice(kinds))

    def finish(self, seconds: float) -> None:
        """Let the clients continue for some time; check that all are served and nothing is left.

        Raises:
            BrokenPromise: A promise is broken.
        """
        self.run(15.0)  # times of silence, of slow handlers and of restarts
        before = self.answered, self.abandoned
        self.run(seconds)
        self.asking = False
        self.run(10.0)
        if self.abandoned > before[1]:
            raise BrokenPromise("served again", f"{self.abandoned - before[1]} without a reply")
        if self.answered - before[0] < self.clients:
            raise BrokenPromise("served again", f"{self.answered - before[0]} replies")
        if self._open:
            raise BrokenPromise("nothing is left", f"{self._open}")

    # -- clients

    def _make_client(self) -> Any:
        if self.model == "failover":
            return LazyClientMachine(1.0, self.servers, self.servers)
        return ShotgunClientMachine(2.5) if self.model == "shotgun" else AgentClientMachine()

    def _ask(self, client: int) -> None:
        if not self.asking:
            return
        number = next(self._numbers)
        body = b"request %d" % number
        self._open[client, number] = body
        self._feed_client(client, Requested(number, (body,)))

    def _feed_client(self, client: int, event: Any) -> None:
        machine = self.machines[client]
        for action in machine.handle(event, self.now):
            match action:
                case Emit(port, _, frames):
                    self._from_client(self._links[client, port], frames)
                case EndRequest(id, frames):
                    self._answer(client, id, frames)
                case Reconnect(int(port)):
                    self._reopen(self._links[client, port])
        due = machine.deadline()
        if due is not None and self._ticks.get(client) != due:
            self._ticks[client] = due
            self._at(max(0.0, due - self.now), self._tick, client, due)

    def _tick(self, client: int, due: float) -> None:
        if self.machines[client].deadline() == due:
            self._ticks.pop(client, None)
            self._feed_client(client, Ticked())

    def _answer(self, client: int, number: int, frames: Frames | None) -> None:
        body = self._open.pop((client, number), None)
        if body is None:
            raise BrokenPromise("a request ends once", f"request {number} of client {client}")
        if frames is None:
            self.abandoned += 1
        elif frames != (b"reply to " + body,):
            raise BrokenPromise("its own reply", f"{frames} is the reply to {body!r}")
        else:
            self.answered += 1
        self._at(self.draw.uniform(0.0, 0.3), self._ask, client)

    # -- connections

    def _connect(self, link: _Link, life: int) -> None:
        if link.up or link.life != life:
            return
        if self.nodes[link.server].machine is None:
            self._at(_RECONNECT, self._connect, link, life)
            return
        link.life += 1
        link.up, link.dead, link.full_until = True, False, 0.0
        link.peer = b"%d.%d.%d" % (link.client, link.server, link.life)
        link.arrives.clear()
        self._feed_client(link.client, Connected(link.server))

    def _cut(self, link: _Link) -> None:
        """End a connection; both ends notice."""
        if not link.up:
            return
        link.up = False
        self._to_server(link.server, Left(0, link.peer))
        if self.model == "agent":
            self._feed_client(link.client, Left(link.server, b""))
        self._at(_RECONNECT, self._connect, link, link.life)

    def _reopen(self, link: _Link) -> None:
        """Replace the socket of a client."""
        if link.up:
            link.up = False
            if not link.dead:
                self._to_server(link.server, Left(0, link.peer))
        link.life += 1
        self._at(self.draw.uniform(*_DELAY), self._connect, link, link.life)

    def _from_client(self, link: _Link, frames: Frames) -> None:
        if not link.up or link.full_until > self.now:
            self._at(0.0, self._feed_client, link.client, Unsent(link.server, b""))
        elif not link.dead:
            self._travel(link, True, self._arrive, link, link.life, Arrived(0, link.peer, frames))

    def _arrive(self, link: _Link, life: int, event: Arrived) -> None:
        if link.up and link.life == life and not link.dead:
            self._to_server(link.server, event)

    def _from_server(self, server: int, peer: bytes, frames: Frames) -> None:
        for client in range(self.clients):
            link = self._links[client, server]
            if link.up and link.peer == peer and not link.dead:
                self._travel(link, False, self._reach, link, link.life, frames)

    def _reach(self, link: _Link, life: int, frames: Frames) -> None:
        if link.up and link.life == life and not link.dead:
            self._feed_client(link.client, Arrived(link.server, b"", frames))

    def _travel(self, link: _Link, up: bool, act: Callable[..., None], *args: Any) -> None:
        at = max(self.now + self.draw.uniform(*_DELAY), link.arrives.get(up, 0.0))
        link.arrives[up] = at
        self._at(at - self.now, act, *args)

    # -- servers

    def _start_server(self, number: int) -> None:
        node = self.nodes[number]
        node.life += 1
        node.machine = LazyServerMachine(slots=2, limit=100, wire=_WIRES[self.model]())
        node.paused = None

    def _to_server(self, number: int, event: Any) -> None:
        node = self.nodes[number]
        if node.machine is None:
            return
        if node.paused is not None:
            node.paused.append((self._to_server, (number, event)))
            return
        for action in node.machine.handle(event, self.now):
            match action:
                case Emit(_, peer, frames):
                    self._from_server(number, peer, frames)
                case Run():
                    self._begin(number, action)
                case Interrupt():
                    pass  # The handler goes on, and its result is dropped.

    def _begin(self, number: int, run: Run) -> None:
        node = self.nodes[number]
        body = bytes(run.payloads[0])
        self.begun[number, body] += 1
        seconds = self.draw.uniform(0.0, 0.1)
        if node.slow_until > self.now:
            seconds += self.draw.uniform(0.5, 4.0)
        result = b"reply to " + body
        if run.kind.codec:
            result = pack_frames((result,))
        self._at(seconds, self._end, number, node.life, run.lane, result)

    def _end(self, number: int, life: int, lane: int, result: bytes) -> None:
        node = self.nodes[number]
        if node.life != life:
            return
        if node.paused is not None:
            node.paused.append((self._end, (number, life, lane, result)))
            return
        self._to_server(number, Finished(lane, (lane,), (Outcome.OK,), (result,)))

    # -- faults

    def _fault(self, kind: FreelanceFault) -> None:
        self.faults[kind] += 1
        number = self.draw.randrange(self.servers)
        link = self._links[self.draw.randrange(self.clients), number]
        seconds = self.draw.uniform(0.5, 8.0)
        match kind:
            case FreelanceFault.CUT:
                self._cut(link)
            case FreelanceFault.HALF_OPEN:
                link.dead = link.up
            case FreelanceFault.KILL:
                self.kill(number, seconds)
            case FreelanceFault.PAUSE:
                self._pause(number, seconds)
            case FreelanceFault.SLOW:
                self.nodes[number].slow_until = self.now + seconds
            case FreelanceFault.FULL_PIPE:
                link.full_until = self.now + seconds / 4
            case FreelanceFault.STRANGER:
                frames = tuple(self.draw.choices(_WORDS, k=self.draw.randint(1, 5)))
                self._to_server(number, Arrived(0, b"stranger", frames))

    def kill(self, number: int, seconds: float) -> None:
        """End the process of a server; another one starts after some seconds."""
        node = self.nodes[number]
        if node.machine is None:
            return
        node.machine = None
        node.life += 1
        for key in [key for key in self.begun if key[0] == number]:
            del self.begun[key]
        for client in range(self.clients):
            self._cut(self._links[client, number])
        self._at(seconds, self._start_server, number)

    def _pause(self, number: int, seconds: float) -> None:
        node = self.nodes[number]
        if node.machine is not None and node.paused is None:
            node.paused = []
            self._at(seconds, self._resume, number, node.life)

    def _resume(self, number: int, life: int) -> None:
        node = self.nodes[number]
        if node.life == life and node.paused is not None:
            waiting, node.paused = node.paused, None
            for act, args in waiting:
                act(*args)

    def _at(self, seconds: float, act: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._heap, (self.now + seconds, next(self._numbers), act, args))
