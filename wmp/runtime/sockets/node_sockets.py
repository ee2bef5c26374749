"""The sockets of a node on its loop: their readable messages, their connections, their reopening.

ZeroMQ's descriptors are edge-triggered: they report a change once, and any call on a socket may use
up the report. So a socket counts as readable from its report until the driver has received all its
messages.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import zmq

from wmp.errors import WMPError
from wmp.runtime.sockets.connections import Connections
from wmp.runtime.sockets.host_names import HostNames
from wmp.runtime.sockets.listeners import PAUSE, Listeners
from wmp.runtime.sockets.ports import Port
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.sockets.zmq_context import describe

logger = logging.getLogger("wmp")

_REOPEN = 1.0
"""Seconds between two attempts to open a DEALER, or to listen again."""

_LOOK = 0.1
"""Seconds between two checks of the memory of this process while there are connections."""

_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""Errors that mean that this process or the machine has no free descriptor for a connection."""


class NodeSockets:
    """Watches the ROUTER and the DEALERs of one node. All methods are called on the loop.

    Args:
        ports: The sockets; DEALERs by their numbers.
        name: The node's name, for log lines.
        transport: Limits of the connections.
        others: The nodes behind DEALERs, for log lines with an address.
        reopen: Opens the DEALER of that number again.
        owed: Returns whether a manager behind a link still owes a reply. If the manager leaves
            then, the connection counts as lost, and not as closed in order.
        on_readable: Called by the loop with a socket that became readable.
        schedule: Requests a turn soon, because there may be a message to read.
        connected: Called with the number of a link that is connected.
        disconnected: Called at the end of a connection of the ROUTER, with the routing id, and
            whether frames came that are not a message.
        failed: Called with ``handshake`` or ``accept`` and a description of the failure.
        closed: Called with the reason and a description when a connection is closed.
        lost: Called with the number of a DEALER whose connection ended; None for no call.

    Attributes:
        router: The ROUTER; None for a node without a ROUTER.
        dealers: The DEALERs by number.
        readable: Sockets from which the driver has not yet received all messages.
    """

    def __init__(
        self,
        ports: Sequence[Port],
        *,
        name: str,
        transport: Transport,
        others: str,
        reopen: Callable[[int], Port] | None,
        owed: Callable[[int], bool] | None,
        on_readable: Callable[[Port], None],
        schedule: Callable[[], None],
        connected: Callable[[int], None],
        disconnected: Callable[[bytes, bool], None],
        failed: Callable[[str, str], None],
        closed: Callable[[str, str], None],
        lost: Callable[[int], None] | None = None,
    ) -> None:
        self.router = next((port for port in ports if port.index is None), None)
        self.dealers = {port.index: port for port in ports if port.index is not None}
        self.readable: dict[Port, None] = {}
        self._lost = lost
        self._doors: list[Port] = []
        self._ends: dict[Port, tuple[Callable[[bytes, bool], None], Callable[[], None]]] = {}
        """The calls of ``report_ends`` by ROUTER."""
        self._failures: dict[Port, str] = {}
        """Descriptions of failed handshakes, until the event that follows each."""
        self._name = name
        self._transport = transport
        self._others = others
        self._reopen = reopen
        self._owed = owed
        self._on_readable = on_readable
        self._schedule = schedule
        self._on_connected = connected
        self._on_disconnected = disconnected
        self._on_failed = failed
        self._on_closed = closed
        self._host_names = HostNames(name)
        self._listeners = Listeners(transport.max_useless)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lookout: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Port]:
        if self.router is not None:
            yield self.router
        yield from self._doors
        yield from self.dealers.values()

    def add_door(self, port: Port) -> None:
        """Watch one more ROUTER, from ``start`` on."""
        self._doors.append(port)

    def report_ends(
        self, port: Port, disconnected: Callable[[bytes, bool], None], begun: Callable[[], None]
    ) -> None:
        """Report the ends and the begins of the connections of a ROUTER, in their order.

        Args:
            port: The ROUTER.
            disconnected: Called at the end of a connection of this ROUTER, in place of the call of
                this object.
            begun: Called when messages of a further connection may come.
        """
        self._ends[port] = disconnected, begun

    def add_dealer(self, port: Port) -> None:
        """Watch one more DEALER, from now on."""
        assert port.index is not None
        self.dealers[port.index] = port
        self._watch(port)

    def start(self) -> None:
        """Watch the sockets on the running loop."""
        self._loop = asyncio.get_running_loop()
        for port in self:
            self._watch(port)

    def address_of(self, link: int) -> str:
        """Return the endpoint to which a DEALER connects; empty if there is none."""
        port = self.dealers.get(link)
        return "" if port is None else port.address

    def unwatch(self) -> None:
        """Stop watching all sockets: descriptors that are never read would keep waking the loop."""
        loop, self._loop = self._loop, None
        self._host_names.close()
        if self._lookout is not None:
            self._lookout.cancel()
            self._lookout = None
        if loop is not None:
            for port in self:
                self._unwatch(loop, port)

    def close(self, linger: float) -> None:
        """Close the sockets. Last messages have ``linger`` seconds to leave."""
        self.unwatch()
        for port in self:
            port.close(linger)

    def look(self) -> None:
        """Check every socket for waiting messages."""
        for port in self:
            if port not in self.readable and port.readable():
                self.readable[port] = None

    def _watch(self, port: Port) -> None:
        assert self._loop is not None
        limits = self._transport
        port.connections = Connections(
            limits.max_message, limits.max_open, limits.max_silent, self._on_closed
        )
        port.connections.parted = partial(self._parted, port)
        port.look_at_monitor = partial(self._on_monitor, port)
        self._loop.add_reader(port.descriptor, self._on_readable, port)
        self._loop.add_reader(port.monitor_descriptor, self._on_monitor, port)
        # Events from the time before the readers were added would never wake the loop.
        self.readable[port] = None
        without_monitor = port.index is not None and port.connected
        self._on_monitor(port)
        if without_monitor:
            self._connected(port)
        if port.named is not None and not port.named.address:
            self._look_up(port)
        self._schedule()

    def _unwatch(self, loop: asyncio.AbstractEventLoop, port: Port) -> None:
        port.look_at_monitor = None
        loop.remove_reader(port.descriptor)
        loop.remove_reader(port.monitor_descriptor)
        self.readable.pop(port, None)

    def _connected(self, port: Port) -> None:
        assert port.index is not None
        if port.warned:
            logger.info("%s: connected to %s", self._name, port.name)
        port.connected, port.met, port.warned = True, True, False
        if port.named is not None:
            self._host_names.connected(port.index)
        self._on_connected(port.index)

    def _on_monitor(self, port: Port) -> None:
        connections = port.connections
        assert connections is not None
        failed = self._failures.pop(port, "")
        for event, value in port.happenings():
            if failed and event != zmq.EVENT_DISCONNECTED:
                self._on_failed("handshake", failed)
                failed = ""
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                if port.old and port.connected:
                    port.old = False  # a slow peer with ZMTP 3
                elif port.index is not None:
                    self._connected(port)
                elif port in self._ends:
                    self._ends[port][1]()
            elif event in (zmq.EVENT_ACCEPTED, zmq.EVENT_CONNECTED):
                connections.opened(value)
                if port.index is not None:
                    connections.learn(b"", value)
                self._look_later()
            elif event == zmq.EVENT_DISCONNECTED:
                old = port.old
                if port.index is None:
                    old = connections.ended_old(value, failed=bool(failed))
                if failed and not old:
                    self._on_failed("handshake", failed)
                failed = ""
                if port.index is None and not old and connections.useless(value):
                    self._useless(port)
                garbled = connections.is_garbled(value)
                key = connections.gone(value)
                if port.index is not None:
                    port.connected = port.old = False
                    if self._lost is not None:
                        self._lost(port.index)
                elif key is not None:
                    self._ended(port, key, garbled)
            elif event == zmq.EVENT_ACCEPT_FAILED:
                if value in _NO_DESCRIPTORS and not port.paused:
                    self._pause(port)
            elif event == zmq.EVENT_LISTENING:
                self._listeners.opened(value)
            elif event == zmq.EVENT_CLOSED:
                self._listeners.closed(value)
            elif event == zmq.EVENT_CONNECT_RETRIED:
                if port.named is not None and not port.connected:
                    self._look_up(port)  # the host may have another address by now
                if port.index is not None and not port.connected and not port.warned:
                    port.warned = True
                    # A manager, for the workers below a device.
                    text = (
                        f"lost the connection to {self._others}%s"
                        if port.met
                        else "no answer from %s"
                    )
                    peace = port.met and self._owed is not None and not self._owed(port.index)
                    level = logging.INFO if peace else logging.WARNING
                    logger.log(level, f"%s: {text}; retrying", self._name, port.name)
            else:
                reason = describe(event, value, connects=port.index is not None)
                if reason is not None:
                    # The end of a connection of ZMTP 1 or 2 looks so, too.
                    failed = f"{port.name}: {reason}"
        if failed and self._loop is not None:
            # The end of the connection follows at once, and shows what has failed.
            self._failures[port] = failed
            self._look_later()

    def _parted(self, port: Port, key: bytes) -> None:
        """Report the end of a connection of ZMTP 1 or 2."""
        if port.index is None:
            self._ended(port, key, garbled=False)

    def _ended(self, port: Port, key: bytes, garbled: bool) -> None:
        ends = self._ends.get(port)
        (self._on_disconnected if ends is None else ends[0])(key, garbled)

    def _look_up(self, port: Port) -> None:
        """Look up the host of a DEALER, and connect to its address."""
        assert port.named is not None
        assert port.index is not None
        self._host_names.look_up(port.index, port.named, partial(self._looked_up, port))

    def _looked_up(self, port: Port, addresses: list[str], reason: str) -> None:
        if self._loop is None or port.index is None or self.dealers.get(port.index) is not port:
            return
        if port.connected:
            return
        assert port.named is not None
        if addresses:
            try:
                port.redirect(addresses)
            except zmq.ZMQError as error:
                reason = f"{', '.join(addresses)}: {error.strerror.lower()}"
            else:
                return
        if not port.warned:
            port.warned = True
            logger.warning(
                "%s: cannot look up the host of %s: %s; trying again",
                self._name,
                port.name,
                reason,
            )
        self._look_up(port)

    def _look_later(self) -> None:
        if self._loop is not None and self._lookout is None:
            self._lookout = self._loop.call_later(_LOOK, self._look_around)

    def _look_around(self) -> None:
        """Check for messages that never end while there are connections."""
        self._lookout = None
        for port in tuple(self):
            if port in self._failures:
                self._on_monitor(port)
            if failed := self._failures.pop(port, ""):
                self._on_failed("handshake", failed)
            if port.connections:
                # Ended connections are handled first, because their descriptors may belong to other
                # files by now.
                self._on_monitor(port)
                port.connections.look()
                if not port.connected and port.connections.greeted_as_old():
                    port.old = True
                    self._connected(port)
                if port.connections.pending and port.readable():
                    self._on_readable(port)
                self._look_later()

    def _useless(self, port: Port) -> None:
        """Count a connection without a readable message; accept none for a moment if there are
        many.
        """
        if self._loop is not None and self._listeners.useless(self._loop.time()):
            text = (
                "many connections ended without a readable message; new connections wait for a "
                "moment; find out what connects to this address"
            )
            self._on_failed("useless", f"{port.name}: {text}")
            self._loop.call_later(PAUSE, self._listen)

    def _listen(self) -> None:
        if self._loop is not None:
            self._listeners.resume(self._loop.time())

    def _pause(self, port: Port) -> None:
        """Accept no connections for some seconds; libzmq would try again without a pause."""
        if self._loop is None:
            return
        port.pause()
        self._on_failed(
            "accept", f"{port.name}: cannot accept a connection, because no file descriptor is left"
        )
        self._loop.call_later(_REOPEN, self._resume, port, logging.ERROR)

    def _resume(self, port: Port, level: int) -> None:
        if self._loop is None:
            return
        try:
            port.resume()
        except WMPError as error:
            logger.log(level, "%s: cannot listen again: %s; trying again", self._name, error)
            self._loop.call_later(_REOPEN, self._resume, port, logging.DEBUG)

    def reopen(self, link: int) -> Port | None:
        """Close a DEALER and open it again. A DEALER that was never open is opened.

        Return the closed DEALER, or None if there was none.
        """
        if self._loop is None or self._reopen is None:
            return None
        old = self.dealers.pop(link, None)
        if old is not None:
            self._unwatch(self._loop, old)
            old.close(0)
        self._open_again(link, old, logging.ERROR)
        return old

    def _open_again(self, link: int, old: Port | None, level: int) -> None:
        """Open a DEALER, and try every second until it succeeds."""
        if self._loop is None or self._reopen is None:
            return
        try:
            port = self._reopen(link)
        except WMPError as error:
            logger.log(
                level, "%s: cannot reopen link %d: %s; trying again", self._name, link, error
            )
            self._loop.call_later(_REOPEN, self._open_again, link, old, logging.DEBUG)
            return
        if old is not None:
            # The address is the same, so warnings about it are not repeated.
            port.met, port.warned = old.met, old.warned
            if port.named is not None and old.named is not None:
                port.named.follow(old.named)
        self.dealers[link] = port
        self._watch(port)
