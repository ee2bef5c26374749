"""The driver: one inbox, one caller of ``machine.handle``, all I/O of a node.

Everything happens in *turns* on one asyncio loop. A turn feeds the machine what was posted,
what arrived and what time it is, and performs the actions that come back, in order. Turns are
bounded, so that timers and other users of the loop get theirs. No user code runs here.

ZeroMQ's descriptors are edge-triggered: they tell that something changed, once, and any
call on a socket may swallow that. Hence the rule of this file: *the last thing that a turn does
on a socket is to see that nothing waits there*, by receiving until there is no more, or, after
sending, by asking for its events.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, assert_never

import zmq

from wmp import codec
from wmp.actions import (
    DeviceAction,
    Drop,
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
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.errors import DecodeError, WMPError
from wmp.events import (
    Closed,
    Connected,
    DeviceEvent,
    Garbled,
    ManagerEvent,
    Received,
    Ticked,
    Undelivered,
    WorkerEvent,
)
from wmp.message import Frame, Link, Message
from wmp.runtime.counters import Counters
from wmp.runtime.journal import Recorder
from wmp.runtime.security import Gate
from wmp.runtime.send_queue import SendQueue
from wmp.runtime.sockets import Port, Transport, describe
from wmp.runtime.wakeup import Wakeup

__all__ = ["Action", "Driver", "Event", "LateEvent", "Machine", "Performer"]

logger = logging.getLogger("wmp")

Event = ManagerEvent | WorkerEvent | DeviceEvent
Action = ManagerAction | WorkerAction | DeviceAction
LateEvent = Callable[[], Event | None]
"""An event that is made when its turn comes: what belongs to it may gather until then."""

_BATCH = 256
"""Messages of one socket, and posted events, that one turn takes."""

_STALL = 0.05
"""Seconds until a machine that asks for the past is ticked again."""

_CATCH_UP = 0.5
"""Seconds for which receiving goes before telling the time, after which both take turns."""


class Machine(Protocol):
    """What the driver needs of a machine of :mod:`wmp.core`."""

    @property
    def settings(self) -> ManagerSettings | WorkerSettings | DeviceSettings:
        """Who it is, and how it was set."""

    def handle(self, event: Any, now: float) -> Sequence[Action]:
        """Take one event, return what to do."""

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""


class Performer(Protocol):
    """Who carries out the actions that are not I/O. None of them may block or raise."""

    def resolve(self, action: Resolve) -> None:
        """Tell submitters that jobs ended."""

    def notify(self, action: Notify) -> None:
        """Tell a submitter about progress."""

    def work(self, action: Run | Recall | Interrupt) -> None:
        """Hand work to the pool."""

    def halted(self, error: Exception | None) -> None:
        """Learn that the node has ended; the driver feeds its machine nothing more."""


class Driver:
    """Runs one machine on the running asyncio loop.

    Args:
        machine: The manager, worker or device.
        ports: Its sockets; DEALERs by their numbers.
        performer: Takes the actions that are not I/O.
        transport: Options of the sockets.
        name: What log lines begin with.
        reopen: Opens the DEALER of that number anew.
        forwards: Whether messages only pass through, as at a device: their heads alone are read
            (WMP-8.4), and one for a full pipe is not kept for a while but counts as undelivered
            at once (WMP-1.6).
        tells: Whether the machine wants to know when its links connect (workers).
        owed: Whether a manager behind a link has not answered everything yet: one that goes
            then did not end in peace.
        gate: The allow list's handler, if there is one.
        recorder: Writes the node's journal, if it has one.
    """

    def __init__(
        self,
        machine: Machine,
        ports: Sequence[Port],
        performer: Performer,
        *,
        transport: Transport,
        name: str,
        reopen: Callable[[int], Port] | None = None,
        forwards: bool = False,
        tells: bool = False,
        owed: Callable[[int], bool] | None = None,
        gate: Gate | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.machine = machine
        self.name = name
        self.tally = Counters(name)
        self.turns = 0
        self.running = False
        self._performer = performer
        self._transport = transport
        self._reopen = reopen
        self._forwards = forwards
        self._decode = codec.peek if forwards else codec.decode
        self._tells = tells
        self._owed = owed
        self._gate = gate
        self._recorder = recorder
        self._router = next((port for port in ports if port.index is None), None)
        self._dealers = {port.index: port for port in ports if port.index is not None}
        self._inbox: deque[Event | LateEvent] = deque()
        self._late: deque[Event] = deque()
        self._readable: dict[Port, None] = {}
        self._outbox = SendQueue(
            self._router,
            self._dealers,
            transport,
            parks=not forwards,
            undelivered=self._undelivered,
            count=self._count,
            sent=self._schedule,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._now = 0.0
        self._behind: float | None = None
        """Since when the machine is not told the time, because there is more to receive."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._bell: Wakeup | None = None

    # -- from outside -----------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch the sockets; call it on the loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._bell = Wakeup(self._loop, self._turn)
        self._now = self._loop.time()
        self.running = True
        for port in self._ports():
            self._watch(port)
        if self._gate is not None:
            self._loop.add_reader(self._gate.descriptor, self._gate.answer)
            # A question asked before the reader was there would never wake it.
            self._gate.answer()
        self._schedule()

    def post(self, event: Event | LateEvent) -> None:
        """Add an event to the inbox and wake the loop, once a burst. Any thread may call it.

        Appending comes first and a turn clears the mark before it drains: whatever finds
        the mark set is drained by the turn that is on its way.
        """
        self._inbox.append(event)
        loop = self._loop  # it may be gone a moment later
        if self._scheduled or loop is None:
            return
        if threading.get_ident() == self._thread:
            self._schedule()
            return
        self._scheduled = True
        bell = self._bell
        if bell is None or not bell.ring():
            # The loop is closed, and with it the node: nobody waits for this event.
            self.running = False

    def say_goodbye(self) -> None:
        """Let the machine do what was posted and say its last words; call it on the loop."""
        if self._loop is None:
            return
        # What comes in meanwhile is too late.
        for _ in range(1 + len(self._inbox) // _BATCH):
            self._take_posted()
        self._feed(Closed())

    def stop(self, linger: float | None = None) -> None:
        """Let go of sockets, readers and timers; call it on the loop. Idempotent."""
        if self._loop is None:
            return
        loop, self._loop = self._loop, None
        self.running = False
        self._rest(loop)
        if self._bell is not None:
            self._bell.close()
        if self._gate is not None:
            self._gate.close()
        self._outbox.close()
        for port in self._ports():
            port.close(self._transport.linger if linger is None else linger)
        self._inbox.clear()

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hear and see nothing any more: descriptors that nobody empties would keep waking us."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._gate is not None:
            loop.remove_reader(self._gate.descriptor)
        for port in self._ports():
            self._unwatch(loop, port)

    def statistics(self) -> dict[str, int]:
        """Return counts of what the runtime dropped, kept or could not deliver, by reason."""
        counts = self.tally.counts()
        if self._gate is not None and self._gate.refused:
            counts["not allowed"] = self._gate.refused
        if self._recorder is not None and self._recorder.lost:
            counts["journal"] = self._recorder.lost
        return counts

    # -- turns ------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled and self._loop is not None and self.running:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if not self.running:
            return
        self.turns += 1
        self._take_posted()
        if self._readable:
            self._take_received()
        self._take_time()
        self._take_late()
        if self._ended():
            return
        touched = self._outbox.touched
        for port in touched:
            if port.readable():
                self._readable[port] = None
        touched.clear()
        if self._readable or self._inbox or self._late:
            self._schedule()
        self._arm()

    def _ended(self) -> bool:
        return not self.running

    def _take_posted(self) -> None:
        inbox = self._inbox
        for _ in range(min(len(inbox), _BATCH)):
            entry = inbox.popleft()
            event = entry() if callable(entry) else entry
            if event is not None:
                self._feed(event)

    def _take_received(self) -> None:
        ports, self._readable = self._readable, {}
        for port in ports:
            router = port.index is None
            for count in range(_BATCH):
                # Mostly one came, and to ask whether more wait is cheaper than to be refused.
                if count == 1 and not port.readable():
                    self._outbox.touched.pop(port, None)
                    break
                try:
                    frames: list[Frame] = port.receive(heads=self._forwards)
                except zmq.Again:
                    break
                except zmq.ZMQError as error:
                    if self.running:
                        self._count("transport", f"cannot receive on {port.name}: {error}")
                    break
                if router:
                    link: Link = bytes(frames[0])
                    del frames[0]
                else:
                    link = port.index  # type: ignore[assignment]
                try:
                    message = self._decode(frames)
                except DecodeError as error:
                    self._feed(Garbled(link, error))
                else:
                    self._feed(Received(link, message))
                if not self.running:
                    return
            else:
                self._readable[port] = None

    def _take_time(self) -> None:
        if not self.running:
            return
        due = self.machine.deadline()
        if due is None or due > self._clock():
            self._behind = None
            return
        # What waits in the sockets came before now: a node that was held up must not take
        # for silent whom it has only not listened to yet.
        for port in self._ports():
            if port not in self._readable and port.readable():
                self._readable[port] = None
        if self._readable:
            if self._behind is None:
                self._behind = self._now
            if self._now - self._behind < _CATCH_UP:
                return
        self._behind = None
        self._feed(Ticked())

    def _take_late(self) -> None:
        # Bounded: what these events cause in turn waits for the next turn.
        for _ in range(len(self._late)):
            self._feed(self._late.popleft())

    def _clock(self) -> float:
        """Seconds on the loop's clock; never goes back."""
        assert self._loop is not None
        now = self._loop.time()
        if now > self._now:
            self._now = now
        return self._now

    def _feed(self, event: Event) -> None:
        if not self.running:
            return
        now, recorder = self._clock(), self._recorder
        try:
            actions = self.machine.handle(event, now)
        except Exception as error:  # A defect of a machine. Nobody above could handle it.
            logger.exception("%s: defect: handling %s failed", self.name, type(event).__name__)
            self.tally.count("defect", repr(error), self._now, alarming=True)
            if recorder is not None:
                recorder.step(event, (Drop("defect", detail=repr(error)),), now)
            if not isinstance(event, Received | Garbled | Undelivered):
                # Peers must not be able to stop a node (WMP-10.1). Anything else would leave
                # somebody waiting for ever.
                self._perform(Halt(error))
            return
        if recorder is not None:
            recorder.step(event, actions, now)
        for action in actions:
            self._perform(action)

    def _arm(self) -> None:
        """Have a turn at the machine's deadline.

        A timer that is armed for earlier is left alone: it costs one idle turn, which
        is cheaper than to move it for every message.
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
        if due <= self._now and self._behind is not None and self._scheduled:
            return  # a turn is on its way, and goes on receiving
        if due <= self._now:
            # Law: after Ticked at now, deadline() is later. Do not let a defect spin the loop; a
            # turn that took long enough for the next deadline to pass is not one.
            now = self._clock()
            self.tally.count("late", f"deadline {now - due:.3f} s ago", now, alarming=False)
            due = now + (_STALL if now - due > _STALL else 0.001)
        self._timer = self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        # A loop may call a little early, within its clock's resolution.
        due = self.machine.deadline()
        if due is not None and self._now < due <= self._clock() + 0.0005:
            self._now = max(self._now, due)
        if not self._scheduled:
            self._turn()

    # -- actions ----------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:
        match action:
            case Send():
                self._send(action)
            case Resolve():
                self._performer.resolve(action)
            case Run() | Recall() | Interrupt():
                self._performer.work(action)
            case Notify():
                self._performer.notify(action)
            case Drop():
                self._count(action.reason, action.detail or _describe_drop(action))
            case Note():
                pass  # it is there for the journal
            case Reconnect():
                self._reconnect(action.link)
            case Halt():
                if self.running:
                    self.running = False
                    if action.error is not None:
                        logger.error("%s: stopped: %s", self.name, action.error)
                    if self._loop is not None:
                        self._rest(self._loop)  # last words may still leave the sockets
                    self._performer.halted(action.error)
            case _:
                assert_never(action)

    def _send(self, action: Send) -> None:
        try:
            self._outbox.send(action.link, action.message)
        except Exception as error:  # A defect: a machine made what cannot be encoded.
            logger.exception("%s: defect: cannot send %s", self.name, action.message.command.name)
            self.tally.count("defect", repr(error), self._now, alarming=True)

    def _undelivered(self, link: Link, message: Message) -> None:
        self._late.append(Undelivered(link, message))
        self._schedule()

    def _count(self, reason: str, detail: str) -> None:
        self.tally.count(reason, detail, self._now)

    # -- sockets ----------------------------------------------------------------------------

    def _ports(self) -> list[Port]:
        router = [self._router] if self._router is not None else []
        return [*router, *self._dealers.values()]

    def _watch(self, port: Port) -> None:
        assert self._loop is not None
        self._loop.add_reader(port.descriptor, self._on_readable, port)
        self._loop.add_reader(port.monitor_descriptor, self._on_monitor, port)
        # What happened before the readers were there would never wake them.
        self._readable[port] = None
        self._on_monitor(port)
        if port.index is not None and port.connected:
            self._connected(port)
        self._schedule()

    def _connected(self, port: Port) -> None:
        assert port.index is not None
        if port.warned:
            logger.info("%s: connected to %s", self.name, port.name)
        port.connected, port.met, port.warned = True, True, False
        if self._tells:
            self._late.append(Connected(port.index))
            self._schedule()

    def _unwatch(self, loop: asyncio.AbstractEventLoop, port: Port) -> None:
        loop.remove_reader(port.descriptor)
        loop.remove_reader(port.monitor_descriptor)
        self._readable.pop(port, None)
        self._outbox.touched.pop(port, None)

    def _on_readable(self, port: Port) -> None:
        self._readable[port] = None
        if not self._scheduled:
            self._turn()

    def _on_monitor(self, port: Port) -> None:
        for event, value in port.happenings():
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                if port.index is not None:
                    self._connected(port)
            elif event == zmq.EVENT_DISCONNECTED:
                if port.index is not None:
                    port.connected = False
            elif event == zmq.EVENT_CONNECT_RETRIED:
                if port.index is not None and not port.connected and not port.warned:
                    port.warned = True
                    # A device is a manager to those below it.
                    text = "the manager at %s has gone" if port.met else "nobody answers at %s"
                    peace = port.met and self._owed is not None and not self._owed(port.index)
                    level = logging.INFO if peace else logging.WARNING
                    logger.log(level, f"%s: {text}; trying on", self.name, port.name)
            else:
                reason = describe(event, value)
                if reason is not None:
                    self.tally.count(
                        "handshake", f"{port.name}: {reason}", self._clock(), alarming=True
                    )

    def _reconnect(self, link: Link) -> None:
        if self._loop is None or self._reopen is None or not isinstance(link, int):
            return
        old = self._dealers[link]
        self._unwatch(self._loop, old)
        old.close(0)
        lost = self._outbox.forget(link)
        if lost:
            # Streams go back to what was acknowledged when the link is there again.
            self._count("reconnected", f"{lost} messages of the old socket dropped")
        del self._dealers[link]
        self._open_again(link, old, logging.ERROR)

    def _open_again(self, link: int, old: Port, level: int) -> None:
        """Open a DEALER anew, and if that fails try again every second: it worked before."""
        if not self.running or self._loop is None or self._reopen is None:
            return
        try:
            port = self._reopen(link)
        except WMPError as error:
            logger.log(level, "%s: cannot reopen link %d: %s", self.name, link, error)
            self._loop.call_later(1.0, self._open_again, link, old, logging.DEBUG)
            return
        # The same place: what was said about it is not said again.
        port.met, port.warned = old.met, old.warned
        self._dealers[link] = port
        self._watch(port)


def _describe_drop(action: Drop) -> str:
    parts = []
    if action.message is not None:
        parts.append(action.message.command.name)
        if action.message.source:
            parts.append(f"of {_short(action.message.source[0])}")
    if action.link is not None:
        parts.append(f"on {_short(action.link)}")
    return " ".join(parts)


def _short(value: bytes | int) -> str:
    if isinstance(value, int):
        return f"link {value}"
    return value.decode() if value.isascii() and value.decode().isprintable() else value.hex()[:16]
