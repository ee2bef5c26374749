"""The driver: the only caller of ``machine.handle``, and all I/O of a node.

The driver works in *turns* on one asyncio loop. A turn gives the machine the posted events, the
received messages and the time, and performs the returned actions in order. Turns are bounded, so
that timers and other users of the loop get their time. No user code runs here.

ZeroMQ's descriptors are edge-triggered: they report a change once, and any call on a socket may use
up the report. Hence the rule of this file: *the last call of a turn on a socket finds no message
there*. A turn receives until the socket is empty. After sending, a turn asks for the socket's
events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import zmq

from wmp import codec
from wmp.actions import (
    Acknowledge,
    Decline,
    DeviceAction,
    Drop,
    Halt,
    Interrupt,
    ManagerAction,
    Met,
    Note,
    Notify,
    Recall,
    Reconnect,
    Resolve,
    Run,
    Send,
    WorkerAction,
    Write,
)
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.errors import ClosedError, DecodeError, StoreUnusable
from wmp.events import (
    Closed,
    Connected,
    Disconnected,
    Finished,
    Garbled,
    Received,
    Ticked,
    Undelivered,
)
from wmp.message import Command, Frame, Link, Message, counted, named, printable
from wmp.runtime.common.counters import Counters, describe_drop
from wmp.runtime.common.threads import LONGEST_WAIT, ThreadEnded
from wmp.runtime.driver.defects import Defects
from wmp.runtime.driver.inbox import Event, Inbox, OpenSubmission
from wmp.runtime.driver.lease_times import StepWatcher
from wmp.runtime.driver.performers import Executors, StoreWriter, Submitters
from wmp.runtime.driver.refusals import Refusals
from wmp.runtime.driver.throttle import Throttle
from wmp.runtime.sockets.identity_holders import IdentityHolders, taken
from wmp.runtime.sockets.local_ids import LocalIds
from wmp.runtime.sockets.node_sockets import NodeSockets
from wmp.runtime.sockets.ports import Port, SendQueue, UpperRouter
from wmp.runtime.sockets.security import Gate
from wmp.runtime.sockets.transport import Transport

if TYPE_CHECKING:
    from wmp.foreign import ForeignAction
    from wmp.runtime.common.recorder import Recorder

logger = logging.getLogger("wmp")

Action: TypeAlias = "ManagerAction | WorkerAction | DeviceAction | ForeignAction"
Gather: TypeAlias = "Callable[[Finished, float], Sequence[Action]]"
"""Takes an event of a worker's lane, and the time, as ``Machine.handle`` does."""

_BATCH = 256
"""Maximum number of messages of one socket, and of posted events, for one turn."""

_STALL = 0.05
"""Seconds until the next ``Ticked`` for a machine whose deadline has passed."""

_RENEWAL = 0.02
"""Seconds between two renewals of the time until which lanes may begin jobs."""

_CATCH_UP = 0.5
"""Seconds for which messages go before ``Ticked``; afterwards they take turns with it."""


class Machine(Protocol):
    """A machine of :mod:`wmp.core` as the driver uses it."""

    @property
    def settings(self) -> ManagerSettings | WorkerSettings | DeviceSettings | None:
        """The machine's settings, with its name and limits; None at a foreign protocol."""

    def handle(self, event: Any, now: float) -> Sequence[Action]:
        """Take one event; return the actions to perform."""

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""


class Driver:
    """Runs one machine on the running asyncio loop.

    Args:
        machine: The manager, worker or device.
        inbox: Events for the machine.
        ports: Its sockets; DEALERs by their numbers.
        transport: Options of the sockets.
        name: The node's name, with which log lines begin.
        halted: Called when the machine has ended; the driver gives the machine no further event.
        submitters: Perform a manager's actions about jobs.
        writer: Performs a manager's actions about its store.
        executors: Perform a worker's actions about lanes.
        gather: Takes the end of jobs when another end follows at once; None without executors.
        reopen: Opens the DEALER of that number again.
        forwards: Whether messages only pass through, as at a device. Then only their heads are read
            (WMP-8.4), and a message for a full pipe counts as undelivered at once (WMP-1.6).
        link_events: Whether the machine takes events about connections (managers and workers).
        owed: Returns whether a manager behind a link still owes a reply. If the manager leaves
            then, the connection counts as lost, and not as closed in order.
        gate: The handler of the allow list; None without one.
        recorder: Writes the node's journal; None without one.
        watchers: Called with event, actions and time of each step of the machine; never raise.
        lost: Called with the number of a DEALER whose connection ended; None for no call.
        lanes_until: The time until which lanes may begin jobs, and what computes it (WMP-9.22).
        dialed: The upper ROUTER of a device, for the links of managers that dialed in.
    """

    from_peers: ClassVar[tuple[type[Event], ...]] = (Received, Garbled, Undelivered)
    """The events that a peer can cause. A defect that they reveal does not stop the node."""

    others: ClassVar[str] = "the manager at "
    """The nodes behind DEALERs, for log lines with an address."""

    def __init__(
        self,
        machine: Machine,
        inbox: Inbox,
        ports: Sequence[Port],
        *,
        transport: Transport,
        name: str,
        halted: Callable[[Exception | None], None],
        submitters: Submitters | None = None,
        writer: StoreWriter | None = None,
        executors: Executors | None = None,
        gather: Gather | None = None,
        reopen: Callable[[int], Port] | None = None,
        forwards: bool = False,
        link_events: bool = False,
        owed: Callable[[int], bool] | None = None,
        gate: Gate | None = None,
        recorder: Recorder | None = None,
        watchers: Sequence[StepWatcher] = (),
        lost: Callable[[int], None] | None = None,
        lanes_until: tuple[Any, Callable[[], float]] | None = None,
        dialed: UpperRouter | None = None,
    ) -> None:
        self.machine = machine
        self.name = name
        self.counters = Counters(name)
        self._defects = Defects(name, self.counters)
        self.turns = 0
        self.running = False
        self._inbox = inbox
        self._halted = halted
        self._transport = transport
        self._forwards = forwards
        self._decode = codec.peek if forwards else codec.decode
        self._link_events = link_events
        self._gate = gate
        self._recorder = recorder
        self._watchers = tuple(watchers) if recorder is None else (recorder.step, *watchers)
        self._late: deque[Event] = deque()
        self._parted: list[bytes] = []
        """Routing ids whose connections ended, until the ROUTER was found empty."""
        self.sockets = self._sockets = NodeSockets(
            ports,
            name=name,
            reopen=reopen,
            owed=owed,
            on_readable=self._on_readable,
            schedule=inbox.schedule,
            connected=self._connected,
            disconnected=self._disconnected,
            transport=transport,
            others=self.others,
            failed=self._connection_failed,
            closed=self._connection_failed,
            lost=lost,
        )
        self._local_ids = LocalIds() if forwards else None
        self._send_queue = SendQueue(
            self._sockets.router,
            self._sockets.dealers,
            transport,
            parks=not forwards,
            undelivered=self._undelivered,
            count=self._count,
            sent=inbox.schedule,
            local_ids=self._local_ids,
            dialed=dialed,
        )
        self._lanes_until, self._renew_at = lanes_until, 0.0
        self._resting = False
        """Whether the node does not read its ROUTER, because it dropped too many messages."""
        self._gather = gather
        self._throttle = Throttle(transport.max_chatter, transport.max_refused, forwards=forwards)
        self._holders = IdentityHolders() if gate is not None else None
        self._refusals = Refusals(self._throttle, self.counters, self._clock, self._rest_for)
        self._performers = self._make_performers(submitters, executors)
        if writer is not None:
            self._performers |= {
                Write: writer.write,
                Acknowledge: writer.acknowledge,
                Decline: writer.decline,
            }
        """The method that carries out each action."""
        self._timer: asyncio.TimerHandle | None = None
        self._now = 0.0
        self._behind: float | None = None
        """Time from which messages come before ``Ticked``; None while they do not."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: Exception | None = None
        """The error that stops the node without a Halt of its machine."""

    # -- calls from outside ----------------------------------------------------------------

    def start(self) -> None:
        """Begin to take events and to watch the sockets; call it on the loop."""
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time()
        self.running = True
        self._inbox.start(self._turn, self._loop_closed)
        self._sockets.start()
        if self._gate is not None:
            self._loop.add_reader(self._gate.descriptor, self._gate.answer)
            self._gate.answer()
        self._inbox.schedule()

    def add_dealer(self, port: Port) -> None:
        """Watch one more DEALER; call this on the loop."""
        self._sockets.add_dealer(port)

    def close_machine(self) -> None:
        """Let the machine take the posted events and then end; call this on the loop."""
        if self._loop is not None:
            self.take_all_posted()
            self._feed(Closed())

    def take_all_posted(self) -> None:
        """Let the machine take the events posted so far now; call this on the loop."""
        for _ in range(1 + len(self._inbox.entries) // _BATCH):
            self._take_posted()

    def stop(self, linger: float | None = None) -> None:
        """Remove sockets, readers and timers; call this on the loop. Idempotent."""
        if self._loop is None:
            return
        self.running = False
        self._rest()
        self._loop = None
        self._inbox.close()
        if self._gate is not None:
            self._gate.close()
        self._send_queue.close()
        self._sockets.close(self._transport.linger if linger is None else linger)

    def _rest(self) -> None:
        """Cancel the timer and stop watching the sockets, which stay open."""
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._gate is not None:
            self._loop.remove_reader(self._gate.descriptor)
        self._sockets.unwatch()

    def _loop_closed(self) -> None:
        self.running = False

    def statistics(self) -> dict[str, int]:
        """Return counts of messages that the runtime dropped or could not deliver, by reason."""
        counts = self.counters.counts()
        if self._gate is not None and self._gate.refused:
            counts["not allowed"] = self._gate.refused
        if self._recorder is not None and self._recorder.lost:
            counts["journal"] = self._recorder.lost
        return counts

    # -- turns ------------------------------------------------------------------------------

    def _on_readable(self, port: Port) -> None:
        self._sockets.readable[port] = None
        if not self._inbox.scheduled:
            self._turn()

    def _turn(self) -> None:
        self._inbox.scheduled = False
        if not self.running:
            return
        self.turns += 1
        try:
            readable = self._sockets.readable
            self._take_posted()
            if readable:
                self._take_received()
            if self._parted and not self._resting and self._sockets.router not in readable:
                parted, self._parted = self._parted, []
                for routing_id in parted:
                    self._part(routing_id)
            self._take_time()
            self._take_late()
            if self._ended():
                return
            if self._lanes_until is not None and self._now >= self._renew_at:
                value, compute = self._lanes_until
                value.value, self._renew_at = compute(), self._now + _RENEWAL
            touched = self._send_queue.touched
            for port in touched:
                if port.readable():
                    readable[port] = None
            touched.clear()
            if self._resting and self._sockets.router is not None:
                readable.pop(self._sockets.router, None)
            if readable or self._inbox.entries or self._late:
                self._inbox.schedule()
            if not self._resting:  # the end of a rest begins the next turn
                self._arm()
        except Exception as error:  # noqa: BLE001 — a defect; without a timer the node is deaf
            self._stop_after(ThreadEnded("a turn", error))
        except BaseException:
            # For example Ctrl-C. The application may let its loop continue, and the node with it.
            self._sockets.look()
            self._inbox.schedule()
            raise

    def _part(self, routing_id: bytes) -> None:
        """Report to the machine that a connection of the ROUTER ended."""
        self._throttle.forget(routing_id)
        self._feed(Disconnected(routing_id))

    def _ended(self) -> bool:
        # A method: a type checker would assume in ``_turn`` that the attribute never changes.
        return not self.running

    def _take_posted(self) -> None:
        entries = self._inbox.entries
        for _ in range(min(len(entries), _BATCH)):
            entry = entries.popleft()
            if isinstance(entry, OpenSubmission):
                self._feed(entry.seal())
            elif isinstance(entry, ThreadEnded):
                self._stop_after(entry)
            elif type(entry) is Finished and entries and type(entries[0]) is Finished:
                self._feed(entry, self._gather)  # the results of both leave in one message
            else:
                self._feed(entry)

    def _stop_after(self, ended: ThreadEnded) -> None:
        """Stop the node because one of its threads ended; its peers receive BYE."""
        if not self.running:
            return
        what, cause = f"{ended.name} of the {self.name}", ended.cause
        if isinstance(cause, StoreUnusable):
            self._failure = cause  # the text names the cause and the remedy
        else:
            logger.error("%s: %s ended", self.name, ended.name, exc_info=cause)
            self._failure = ClosedError(f"{what} ended unexpectedly: {cause!r}")
            self._failure.__cause__ = cause
        self._feed(Closed())
        self._halt(self._failure)

    def _take_received(self) -> None:
        readable = self._sockets.readable
        ports = list(readable)
        readable.clear()
        for port in ports:
            index = port.index
            router = index is None
            if router and self._resting:
                port.readable()  # clear the descriptor, else it wakes the loop again
                continue
            direct = router and self._local_ids is None
            ignored = self._throttle.ignored(self._clock()) if direct else ()
            for count in range(_BATCH):
                # A check for a second message is cheaper than a receive that fails.
                if count == 1 and not port.readable():
                    self._send_queue.touched.pop(port, None)
                    break
                try:
                    frames: list[Frame] = port.receive(heads=self._forwards, ignored=ignored)
                except zmq.Again:
                    if port.skipped:
                        self._skipped(port)
                    break
                except zmq.ZMQError as error:
                    if self.running:
                        self._count("transport", f"cannot receive on {port.name}: {error}")
                    break
                if port.skipped:
                    self._skipped(port)
                    if not frames:
                        if self._resting:
                            break
                        continue
                key = bytes(frames.pop(0)) if index is None else b""
                link = self._link(key) if index is None else index
                event: Received | Garbled | None = None
                if router and self._throttle.ignores(link, self._now):
                    self._refusals.ignored(self._now)
                else:
                    try:
                        message = self._decode(frames)
                    except DecodeError as error:
                        connections = port.connections if router else None
                        if connections is not None and not connections.spoil(key):
                            self._throttle.ignore(link, self._now)
                        if not router or self._refusals.garbled(link, error, self._now):
                            event = Garbled(link, error)
                    else:
                        if router and not self._throttle.admits(
                            link, message.command, message.source, self._now
                        ):
                            self._refusals.flooded(link, message, self._now)
                        elif not (router and self._holders) or self._holders.admits(
                            port.user(key), key, message.source, self._now
                        ):
                            event = Received(link, message)
                        elif self._refusals.garbled(
                            link, stolen := taken(message), self._now
                        ) and self._holders.is_other_process(message.source):
                            event = Garbled(link, stolen)
                if event is not None:
                    self._feed(event)
                if not self.running:
                    return
                if router and self._resting:
                    break
            else:
                readable[port] = None

    def _link(self, routing_id: bytes) -> Link:
        """Return the link of a message that came with this routing id."""
        return routing_id if self._local_ids is None else self._local_ids.local(routing_id)

    def _skipped(self, port: Port) -> None:
        """Count the messages of ignored connections that a port dropped."""
        skipped, port.skipped = port.skipped, 0
        self._refusals.skipped(skipped, self._now)

    def _rest_for(self, seconds: float) -> None:
        """Do not read the ROUTER for some seconds."""
        if self._loop is not None:
            self._resting = True
            self._loop.call_later(seconds, self._rested)

    def _rested(self) -> None:
        self._resting = False
        router = self._sockets.router
        if self.running and router is not None:
            self._on_readable(router)

    def _take_time(self) -> None:
        if not self.running:
            return
        due = self.machine.deadline()
        if due is None or due > self._clock():
            self._behind = None
            return
        # Messages that wait in the sockets may be older than ``now``. After a pause of this node
        # they must be read first; otherwise peers would count as silent.
        self._sockets.look()
        if self._sockets.readable:
            if self._behind is None:
                self._behind = self._now
            if self._now - self._behind < _CATCH_UP:
                return
        self._behind = None
        self._feed(Ticked())

    def _take_late(self) -> None:
        for _ in range(len(self._late)):
            self._feed(self._late.popleft())

    def _clock(self) -> float:
        """Return seconds on the loop's clock; the value never decreases."""
        assert self._loop is not None
        now = self._loop.time()
        if now > self._now:
            self._now = now
        return self._now

    def _feed(
        self, event: Event, handle: Callable[[Any, float], Sequence[Action]] | None = None
    ) -> None:
        if not self.running:
            return
        now = self._clock()
        try:
            actions = (handle or self.machine.handle)(event, now)
        except Exception as error:  # noqa: BLE001 - a defect, with which no caller could deal
            self._defects.in_event(event, error, now)
            for watch in self._watchers:
                watch(event, (Drop("defect", detail=repr(error)),), now)
            if not isinstance(event, self.from_peers):
                # Peers must not stop a node (WMP-10.1). Others might wait for ever.
                self._halt(error)
            return
        for watch in self._watchers:
            watch(event, actions, now)
        problem: BaseException | None = None
        for action in actions:
            try:
                self._performers[type(action)](action)
            except Exception as error:  # noqa: BLE001 - a defect; the loop must continue
                self._defects.in_action(action, error, now)
            except BaseException as error:  # noqa: BLE001 - such as Ctrl-C; raised at last
                problem = error  # the other actions may end jobs
        if problem is not None:
            raise problem

    def _arm(self) -> None:
        """Schedule a turn at the machine's deadline.

        If the timer is already set for an earlier time, the timer stays: an idle turn is cheaper
        than moving the timer for every message.
        """
        assert self._loop is not None
        due = self.machine.deadline()
        if due is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        if due <= self._now and self._behind is not None and self._inbox.scheduled:
            return  # the next turn is scheduled, and continues receiving
        if due <= self._now:
            # After Ticked at ``now``, ``deadline()`` must be later than ``now``; a defect here must
            # not keep the loop busy. If a turn took long, the next deadline may have passed without
            # a defect.
            now = self._clock()
            self.counters.count(
                "late", f"the deadline passed {now - due:.3f} s ago", now, alarming=False
            )
            due = now + (_STALL if now - due > _STALL else 0.001)
        self._timer = self._loop.call_at(min(due, self._now + LONGEST_WAIT), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        # A loop may call slightly early, within the resolution of its clock.
        due = self.machine.deadline()
        if due is not None and self._now < due <= self._clock() + 0.0005:
            self._now = max(self._now, due)
        if not self._inbox.scheduled:
            self._turn()

    # -- actions ----------------------------------------------------------------------------

    def _make_performers(
        self, submitters: Submitters | None, executors: Executors | None
    ) -> dict[type[Action], Callable[[Any], None]]:
        """Return a function for each action that the machine may return."""
        performers: dict[type[Action], Callable[[Any], None]] = {
            Send: self._forward if self._forwards else self._send_queue.send,
            Drop: self._dropped,
            Note: lambda note: None,  # only the journal needs notes
            Met: self._met,
            Reconnect: lambda reconnect: self._reconnect(reconnect.link),
            Halt: lambda halt: self._halt(halt.error),
        }
        if submitters is not None:
            performers |= {Resolve: submitters.resolve, Notify: submitters.notify}
        if executors is not None:
            performers |= {
                Run: executors.run,
                Recall: executors.recall,
                Interrupt: executors.interrupt,
            }
        return performers

    def _met(self, met: Met) -> None:
        label = printable(met.label) or named(met.peer[0])
        logger.info("%s: ready: connected to manager %s", self.name, label)

    def _halt(self, error: Exception | None) -> None:
        if not self.running:
            return
        self.running = False
        error = error or self._failure
        if error is not None:
            logger.error("%s: stopped: %s", self.name, error)
        if self._loop is not None:
            self._rest()  # last messages may still leave the sockets
        self._halted(error)

    def _reconnect(self, link: Link) -> None:
        if not isinstance(link, int):
            return
        old = self._sockets.reopen(link)
        if old is None:
            return
        self._send_queue.touched.pop(old, None)
        lost = self._send_queue.forget(link)
        if lost:
            self._count(
                "reconnected", f"dropped {counted(lost, 'message')} that waited in the old socket"
            )

    def _connected(self, link: int) -> None:
        if self._link_events:
            self._late.append(Connected(link))
            self._inbox.schedule()

    def _disconnected(self, routing_id: bytes, garbled: bool) -> None:
        if self._holders is not None:
            self._holders.forget(routing_id)
        if garbled:
            # A flood may have left thousands of frames, whose answers no peer would receive.
            self._throttle.ignore(self._link(routing_id), self._clock())
        # Last messages of the closed connection may still wait, and are received first.
        router = self._sockets.router
        if self._link_events and router is not None:
            self._parted.append(routing_id)
            self._sockets.readable[router] = None
            self._inbox.schedule()

    def _undelivered(self, link: Link, message: Message) -> None:
        self._late.append(Undelivered(link, message))
        self._inbox.schedule()

    def _dropped(self, drop: Drop) -> None:
        self._count(drop.reason, drop.detail or describe_drop(drop))
        if drop.link is not None and drop.message is not None:
            self._refusals.refused(drop.link, drop.message.hops, drop.reason, self._now)

    def _forward(self, send: Send) -> None:
        """Send a message of a device, and expect results for the jobs in the message."""
        message = send.message
        if message.command is Command.TAKE:
            # A device does not read columns (WMP-8.4). Each job takes two bytes there, or more.
            self._throttle.sent(send.link, message.to, len(message.frames[0]) // 2)
        self._send_queue.send(send)

    def _connection_failed(self, reason: str, detail: str) -> None:
        self.counters.count(reason, detail, self._clock(), alarming=True)

    def _count(self, reason: str, detail: str) -> None:
        self.counters.count(reason, detail, self._now)
