"""Machines joined by links in virtual time: the whole protocol without a socket.

A :class:`Network` performs the actions of any number of manager, worker and device
machines. Messages wait on their link until the caller delivers, drops or repeats them, so
a test (or a property) decides the schedule. Messages cross every link as frames,
through the real codec.

A subclass that decides the times of messages and handlers itself overrides the methods under
"decisions of the schedule": :class:`wmp.testing.search.model.Model` decides by a search,
:class:`wmp.testing.worlds.simulation.SimulatedNetwork` from a seed. All actions are performed in
this one place.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, field

from wmp import codec
from wmp.actions import (
    DeviceAction,
    Drop,
    End,
    Halt,
    Interrupt,
    ManagerAction,
    Note,
    Notify,
    Recall,
    Reconnect,
    Resolve,
    Run,
    Send,
    WorkerAction,
)
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import DecodeError
from wmp.events import (
    Begun,
    Cancelled,
    Connected,
    Finished,
    Garbled,
    Recalled,
    Received,
    Submitted,
    Ticked,
    Undelivered,
)
from wmp.message import Command, Frame, Kind, Link, Message, Outcome
from wmp.testing.simulator.forwarder import SimulatedForwarder

Node = ManagerMachine | WorkerMachine | DeviceMachine
Action = ManagerAction | WorkerAction | DeviceAction
Pipe = tuple[str, Link]
"""One direction of a connection: the sending node and its link."""
_DUE_AGAIN = 20
"""How often in a row a node may be due again at the same time."""


@define(eq=False)
class LinkQueue:
    """Jobs that a worker started: the first job runs, the others have not begun."""

    run: Run
    left: list[int]
    """Ids of the remaining jobs, in order."""
    cancelled: set[int] = field(factory=set)

    def payload(self, id: int) -> bytes:
        """Return the payload of one of these jobs."""
        return bytes(self.run.payloads[list(self.run.ids).index(id)])


@define(eq=False)
class Network:
    """Nodes by name, pipes between the nodes, results by manager.

    Every connection is a DEALER (an ``int`` link) below a ROUTER (a ``bytes`` link). The ROUTER's
    link consists of the name and link of the DEALER, and of the number of times that it was
    connected, so that each connection has a routing id of its own. The upper ROUTER of a device, to
    which managers dial in, has an ``int`` link for each connection, as WMP-8.3 requires.
    """

    now: float = 0.0
    nodes: dict[str, Node] = field(factory=dict)
    pipes: dict[Pipe, deque[list[Frame]]] = field(factory=dict)
    lanes: dict[str, dict[int, LinkQueue]] = field(factory=dict)
    results: dict[tuple[str, int], tuple[End, bytes]] = field(factory=dict)
    twice: list[tuple[str, int]] = field(factory=list)
    """Jobs that were resolved more than once; must stay empty."""
    halted: dict[str, Exception | None] = field(factory=dict)
    down: set[str] = field(factory=set)
    """Nodes whose process does not run: they get no events."""
    uplinks: dict[str, tuple[str, ...]] = field(factory=dict)
    """The other ends of the DEALER links 0, 1, … of each node: of a worker or device those above,
    of a manager the devices to which the manager dials in."""
    forwarders: dict[str, SimulatedForwarder] = field(factory=dict)
    """The forwarding managers, by the names of both of their sides."""
    reports: list[tuple[str, Notify]] = field(factory=list)
    drops: list[tuple[str, Drop]] = field(factory=list)
    ticks: Counter[str] = field(factory=Counter)
    due_again: Counter[str] = field(factory=Counter)
    """How often in a row a node was due again at the same time."""
    """Number of times that each node was woken by its own deadline."""
    sent: Counter[Command] = field(factory=Counter)
    """Number of messages put on a pipe, by command."""
    _far: dict[Pipe, Pipe] = field(factory=dict)
    _joined: Counter[Pipe] = field(factory=Counter)
    _dialed: Counter[str] = field(factory=Counter)
    """Number of connections that managers have made to each device."""
    _last_id: dict[str, int] = field(factory=dict)
    _inbox: deque[tuple[str, object]] = field(factory=deque)

    # -- building

    def add(self, name: str, node: Node, upstreams: Sequence[str] = ()) -> None:
        """Add a node whose DEALER links 0, 1, … lead to the named nodes.

        The links are not connected yet: see :meth:`connect`.
        """
        self.nodes[name] = node
        self.lanes[name] = {}
        self.uplinks[name] = tuple(upstreams)
        for link in range(len(upstreams)):
            self.join(name, link)

    def join(self, name: str, link: int) -> None:
        """Make a connection in place of the former connection. No node is notified."""
        self.part(name, link)
        above: Pipe = (name, link)
        self._joined[above] += 1
        again = f"#{self._joined[above]}" if self._joined[above] > 1 else ""
        other = self.uplinks[name][link]
        below: Pipe = (other, f"{name}/{link}{again}".encode())
        if isinstance(self.nodes.get(name), ManagerMachine):
            below = (other, len(self.uplinks[other]) + self._dialed[other])
            self._dialed[other] += 1
        self._far[above], self._far[below] = below, above
        self.pipes[above], self.pipes[below] = deque(), deque()

    def part(self, name: str, link: int) -> None:
        """Break a connection: the messages on the way are lost, and sending fails."""
        below = self._far.pop((name, link), None)
        if below is not None:
            del self._far[below], self.pipes[below], self.pipes[name, link]

    def connections(self, name: str) -> list[tuple[str, int]]:
        """Return the DEALER links of a node and the links that lead to it, connected or not."""
        return [
            (below, link)
            for below, upstreams in self.uplinks.items()
            for link, above in enumerate(upstreams)
            if name in (below, above)
        ]

    def far(self, pipe: Pipe) -> Pipe | None:
        """Return the other direction of the same connection; None if there is no connection."""
        return self._far.get(pipe)

    def receiver(self, pipe: Pipe) -> str:
        """Return the node at the other end of a pipe."""
        return self._far[pipe][0]

    def restart_ids(self, name: str) -> None:
        """Number the jobs of a manager from 1 again, for a new process of the manager."""
        self._last_id[name] = 0

    def alive(self, name: str) -> bool:
        """Return whether the node's process runs."""
        return name not in self.halted and name not in self.down

    def connect(self, name: str) -> None:
        """Report to a worker that all its links are connected."""
        for link in range(len(self.uplinks[name])):
            self.happen(name, Connected(link))

    def replace(self, name: str, node: Node) -> None:
        """Restart a node: its running jobs and the messages to and from it are lost.

        Its peers are connected to the new process, and the workers among them are notified.
        """
        self.nodes[name] = node
        self.lanes[name].clear()
        self.halted.pop(name, None)
        links = self.connections(name)
        for below, link in links:
            self.join(below, link)
        for below, link in links:
            if below != name and not isinstance(self.nodes[below], DeviceMachine):
                self.happen(below, Connected(link))

    # -- events

    def happen(self, name: str, event: object) -> None:
        """Give a node an event, and perform the actions that follow."""
        self._inbox.append((name, event))
        if len(self._inbox) > 1:
            return  # the outer call will handle the event
        while self._inbox:
            name, event = self._inbox[0]
            if self.alive(name):
                actions = self.nodes[name].handle(event, self.local(name))  # type: ignore[arg-type]
                self.handled(name, event, actions)
                for action in actions:
                    self._perform(name, action)
                if name in self.forwarders:
                    self._forwarder_stepped(self.forwarders[name])
            self._inbox.popleft()

    def forward(self, lower: str, upper: str) -> SimulatedForwarder:
        """Make a forwarding manager of a manager machine and a worker machine."""
        forwarder = SimulatedForwarder(lower, upper, self.happen)
        self.forwarders[lower] = self.forwarders[upper] = forwarder
        return forwarder

    def _forwarder_stepped(self, forwarder: SimulatedForwarder) -> None:
        manager = self.nodes.get(forwarder.lower)
        both = self.alive(forwarder.lower) and self.alive(forwarder.upper)
        if both and isinstance(manager, ManagerMachine):
            forwarder.stepped(manager, self.local(forwarder.lower))

    def submit(
        self,
        name: str,
        payloads: Sequence[bytes],
        kind: Kind | None = None,
        *,
        priority: int = 0,
        timeout: float | None = None,
        max_worker_losses: int = 3,
        **times: Any,
    ) -> range:
        """Submit jobs to a manager; return their ids. ``times``: further fields of the event."""
        first = self._last_id.get(name, 0) + 1
        ids = range(first, first + len(payloads))
        self._last_id[name] = ids[-1]
        event = Submitted(
            ids, payloads, kind or Kind(), priority, timeout, max_worker_losses, **times
        )
        self.happen(name, event)
        return ids

    def cancel(self, name: str, ids: Sequence[int]) -> None:
        """Cancel jobs at their manager."""
        self.happen(name, Cancelled(ids))

    def busy(self) -> list[Pipe]:
        """List the pipes with messages, in a fixed order."""
        return [pipe for pipe, queue in self.pipes.items() if queue]

    def deliver(self, pipe: Pipe) -> None:
        """Let the next message of a pipe arrive."""
        self.arrive(pipe, self.pipes[pipe].popleft())

    def arrive(self, pipe: Pipe, frames: list[Frame]) -> None:
        """Let frames that were sent on ``pipe`` arrive at its other end."""
        name, link = self._far[pipe]
        if not self.alive(name):
            return
        read = codec.peek if isinstance(self.nodes[name], DeviceMachine) else codec.decode
        try:
            event: object = Received(link, read(frames))
        except DecodeError as error:
            event = Garbled(link, error)
        self.happen(name, event)

    def drop(self, pipe: Pipe) -> None:
        """Lose the next message of a pipe."""
        self.pipes[pipe].popleft()

    def repeat(self, pipe: Pipe) -> None:
        """Put a copy of the next message of a pipe behind the others."""
        self.pipes[pipe].append(self.pipes[pipe][0])

    def refuse(self, pipe: Pipe) -> None:
        """Return the next message of a pipe to its sender as undeliverable."""
        name, link = pipe
        frames = self.pipes[pipe].popleft()
        read = codec.peek if isinstance(self.nodes[name], DeviceMachine) else codec.decode
        self.happen(name, Undelivered(link, read(frames)))

    def running(self) -> Iterator[tuple[str, LinkQueue]]:
        """Return all lanes of all workers, with the worker's name."""
        for name, lanes in self.lanes.items():
            for lane in tuple(lanes.values()):
                yield name, lane

    def finish(self, name: str, lane: LinkQueue, outcome: Outcome = Outcome.OK) -> None:
        """End the running job of a lane; its result is ``b"did " + payload``."""
        id = lane.left[0]
        if id in lane.cancelled:
            outcome = Outcome.CANCELLED
        result = b"" if outcome is Outcome.CANCELLED else b"did " + lane.payload(id)
        self.end(name, lane, outcome, result)

    def end(
        self,
        name: str,
        lane: LinkQueue,
        outcome: Outcome,
        result: bytes,
        text: str | None = None,
        wait: int | None = None,
        codec: str | None = None,
    ) -> None:
        """End the first job that is left in a lane; the next job begins.

        Args:
            name: The worker.
            lane: The lane.
            outcome: How the job ended.
            result: Its payload.
            text: The error, as in DONE.
            wait: Milliseconds after which the handler wants the job tried again.
            codec: Codec of the result; None for the codec of the job.
        """
        id = lane.left.pop(0)
        if not lane.left:
            del self.lanes[name][lane.run.lane]
        event = Finished(lane.run.lane, [id], [outcome], [result], codec=codec)
        if text is not None:
            event = event.with_(texts=[text], waits=None if wait is None else [wait])
        self.happen(name, event)
        if lane.left and self.lanes[name].get(lane.run.lane) is lane:
            self._begin_next(name, lane)

    def _begin_next(self, name: str, lane: LinkQueue) -> None:
        """Begin the next job that is left in a lane, unless its expiry has passed."""
        id, run = lane.left[0], lane.run
        row = list(run.ids).index(id)
        begin_by = None if run.begin_by is None else run.begin_by[row]
        if begin_by is not None and begin_by <= self.local(name):
            self.end(name, lane, Outcome.CANCELLED, b"")  # WMP-6.19
            return
        if run.limits is not None and run.limits[row] is not None:
            self.happen(name, Begun(run.lane, id))
        self.begin(name, lane)

    def bereave(self, name: str, lane: LinkQueue) -> None:
        """End the process of the first job. The lane's other jobs are not lost (WMP-6.14)."""
        lost = lane.left[0] not in lane.cancelled
        if lost:
            self.end(name, lane, Outcome.LOST, b"what ran it has died")
        else:
            self.end(name, lane, Outcome.CANCELLED, b"")

    def deadline(self) -> float | None:
        """Return the earliest deadline of all nodes."""
        times = (node.deadline() for name, node in self.nodes.items() if self.alive(name))
        return min((time for time in times if time is not None), default=None)

    def advance(self, until: float) -> None:
        """Let time pass up to ``until``, ticking every node at its deadlines."""
        while (due := self.deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            for name, node in self.nodes.items():
                when = node.deadline()
                if self.alive(name) and when is not None and when <= self.now:
                    self.tick(name)
        self.now = max(self.now, until)

    def tick(self, name: str) -> None:
        """Report to a node that its deadline has come."""
        self.ticks[name] += 1
        self.happen(name, Ticked())
        if not self.alive(name):
            return
        later, now = self.nodes[name].deadline(), self.local(name)
        if later is None or later > now:
            self.due_again.pop(name, None)
            return
        # A job whose run limit is 0 may have begun, so the node is due once more.
        self.due_again[name] += 1
        if self.due_again[name] > _DUE_AGAIN:
            raise AssertionError(
                f"{name} has the deadline {later} at {now}, and no time passes; expected a "
                "later deadline"
            )

    def settle(self, budget: int = 100_000) -> None:
        """Deliver all messages and finish all jobs, until nothing is left to do at this time."""
        for _ in range(budget):
            if pipes := self.busy():
                for pipe in pipes:
                    if self.pipes.get(pipe):  # an earlier delivery may have emptied the pipe
                        self.deliver(pipe)
            elif lanes := list(self.running()):
                for name, lane in lanes:
                    if lane.left:
                        self.finish(name, lane)
            else:
                return
        raise AssertionError(
            f"the world is still busy after {budget} steps; expected it to come to rest"
        )

    def run(self, until: float, step: float = 0.05) -> None:
        """Settle and let time pass, in turn, without faults."""
        while self.now < until:
            self.settle()
            self.advance(min(until, self.now + step))
        self.settle()

    # -- decisions of the schedule

    def local(self, name: str) -> float:
        """Return the time on the clock of a node."""
        return self.now

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        """Called when a node has handled an event; its actions are performed after this call."""

    def carry(self, pipe: Pipe, message: Message) -> None:
        """Put a message on its pipe."""
        self.pipes[pipe].append(codec.encode(message))

    def begin(self, name: str, lane: LinkQueue) -> None:
        """Begin the first job that is left in a lane; ``finish`` must be called for the job."""

    def reconnect(self, name: str, link: int) -> None:
        """Replace the socket of a worker's link."""
        self.join(name, link)
        self.happen(name, Connected(link))

    # -- performing

    def _perform(self, name: str, action: Action) -> None:
        forwarder = self.forwarders.get(name)
        if forwarder is not None and forwarder.takes(name, action):
            forwarder.relayed(action, self.local(name))  # type: ignore[arg-type]
            return
        match action:
            case Send(link, message):
                self._send((name, link), message)
            case Run():
                lane = self.lanes[name][action.lane] = LinkQueue(action, list(action.ids))
                self._begin_next(name, lane)
            case Interrupt(number, ids):
                if number in self.lanes[name]:
                    self.lanes[name][number].cancelled.update(ids)
            case Recall(number, ids):
                self._recall(name, number, ids)
            case Resolve(ids, ends, payloads, _):
                for id, end, payload in zip(ids, ends, payloads, strict=True):
                    if (name, id) in self.results:
                        self.twice.append((name, id))
                    self.results[name, id] = (end, bytes(payload))
            case Notify():
                self.reports.append((name, action))
            case Reconnect(link):
                assert isinstance(link, int)
                self.reconnect(name, link)
            case Drop():
                self.drops.append((name, action))
            case Note():
                pass  # this action is only for the journal
            case Halt(error):
                self.halted[name] = error
                self.lanes[name].clear()

    def _send(self, pipe: Pipe, message: Message) -> None:
        if pipe not in self.pipes:
            # A ROUTER without such a connection reports the message (ROUTER_MANDATORY), and a
            # DEALER that is not connected reports it too (IMMEDIATE).
            self.happen(pipe[0], Undelivered(pipe[1], message))
        else:
            self.sent[message.command] += 1
            self.carry(pipe, message)

    def _recall(self, name: str, number: int, ids: Sequence[int]) -> None:
        lane = self.lanes[name].get(number)
        taken = []
        if lane is not None:
            wanted = set(ids)
            taken = [id for id in lane.left[1:] if id in wanted]
            lane.left = [id for id in lane.left if id not in taken]
        self.happen(name, Recalled(number, taken))
