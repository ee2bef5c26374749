"""The common part of the three kinds of nodes: identity, sockets, a driver, an orderly end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import zmq

from wmp.errors import ClosedError, ConfigError, TransportError, WMPError
from wmp.events import Drained
from wmp.message import Limits
from wmp.runtime.common.checks import (
    check_count,
    check_descriptors,
    check_headers,
    check_seconds,
    check_text,
    check_utf8,
)
from wmp.runtime.common.journal import CLOSE, Journal, make_journal
from wmp.runtime.common.permissions import Act
from wmp.runtime.common.threads import aside
from wmp.runtime.driver.driver import Driver, Gather, Machine
from wmp.runtime.driver.inbox import Inbox
from wmp.runtime.driver.lease_times import StepWatcher
from wmp.runtime.driver.performers import Executors, StoreWriter, Submitters
from wmp.runtime.sockets.endpoints import check_endpoints
from wmp.runtime.sockets.ports import Port
from wmp.runtime.sockets.security import Gate, Security
from wmp.runtime.sockets.socket_settings import Context, SocketSettings
from wmp.runtime.sockets.zmq_context import dealer, publisher, router, subscriber

if TYPE_CHECKING:
    from wmp.runtime.common.recorder import Recorder

logger = logging.getLogger("wmp")

_epoch_lock = threading.Lock()
_last_epoch = 0


def new_epoch() -> int:
    """Return an epoch above every earlier epoch of this process (WMP-1.1)."""
    global _last_epoch
    with _epoch_lock:
        _last_epoch = max(_last_epoch + 1, time.time_ns() // 1_000_000)
        return _last_epoch


def make_identity(identity: bytes | str | None) -> bytes:
    """Return an identity as bytes; for None 16 random bytes.

    Raises:
        ConfigError: The identity is empty or longer than 255 bytes.
    """
    given: object = identity  # not all callers are type-checked
    if identity is None:
        return os.urandom(16)
    if not isinstance(given, str | bytes | bytearray):
        raise ConfigError(f"an identity is {identity!r}; expected bytes or text")
    encoded = check_utf8("an identity", identity) if isinstance(identity, str) else bytes(identity)
    if not 1 <= len(encoded) <= Limits.IDENTITY:
        raise ConfigError(f"an identity has {len(encoded)} bytes; expected 1 to {Limits.IDENTITY}")
    return encoded


def make_label(label: str | None) -> str:
    """Return the name of this node for people; for None the host and the process.

    Raises:
        ConfigError: The name is not text, or longer than 1024 bytes.
    """
    if label is None:
        return f"{socket.gethostname()}:{os.getpid()}"
    return check_text("label", label, Limits.LONG_TEXT)


_Settings = TypeVar("_Settings")

_COLUMNS = Limits.COLUMNS // Limits.INLINE // 2
"""Limit of the jobs in one message. A columns frame can hold twice as many small payloads."""

_MIN = {
    "bundle": 1,
    "bundle_bytes": 1,
    "lane_max": 1,
    "max_bytes": 1,
    "max_hops": 1,
    "max_identities": 1,
    "max_jobs": 1,
    "max_leases": 1,
    "max_workers": 1,
    "silence": 1,
    "unacked_bytes": 1,
    "wake_scan": 1,
}
"""Settings that are whole numbers and must not be 0."""

_MAX = {"bundle": _COLUMNS, "lane_max": _COLUMNS, "max_hops": Limits.HOPS}

_MAY_BE_ZERO = frozenset(
    ("hold", "jitter", "lane_time", "max_stall", "reply_margin", "window_time")
)
"""Settings that are times and may be 0, for no wait.

With any other time of 0 a node would never rest.
"""


def make_settings(
    cls: type[_Settings], node: str, given: Mapping[str, Any], **own: Any
) -> _Settings:
    """Make a machine's settings from keyword arguments.

    Raises:
        ConfigError: An argument is unknown or has an impossible value. The text lists the known
            arguments.
    """
    fields = attrs.fields_dict(cls)  # type: ignore[arg-type]
    known = sorted(fields.keys() - own.keys())
    for name, value in given.items():
        if name in ("bind", "connect"):
            raise ConfigError(
                f"a {node} has no setting {name!r}; give its addresses first and without a name, "
                f'for example {node.capitalize()}("tcp://127.0.0.1:5570")'
            )
        if name in _RENAMED and _RENAMED[name] in known:
            raise ConfigError(
                f"a {node} has no setting {name!r}; the name of this setting is {_RENAMED[name]!r}"
            )
        if name not in fields or name in own:
            raise ConfigError(
                f"a {node} has no setting {name!r}; its settings are {', '.join(known)}"
            )
        kind = str(fields[name].type)
        if value is None and "None" in kind:
            continue
        if kind.startswith("int"):
            check_count(name, value, _MIN.get(name, 0), _MAX.get(name, Limits.UINT))
        elif name == "jitter":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
                raise ConfigError(f"jitter is {value!r}; expected a number from 0 to less than 1")
        elif name == "headers":
            given = {**given, name: check_headers(name, value)}
        elif kind.startswith("float"):
            seconds = check_seconds(name, value, zero=name in _MAY_BE_ZERO)
            given = {**given, name: seconds}
    return cls(**own, **given)


_RENAMED: Final = {"keep": "orphan_ttl"}
"""Earlier names of settings."""

_DESCRIPTORS = 16
"""Number of file descriptors of a node apart from its endpoints: its context, journal and wake-up,
and some that are open for moments.
"""


_open: Final[dict[int, tuple[object, ...]]] = {}
"""Context and allow list of each serving node, by the id of the node.

These references keep both from the garbage collector, as in
:data:`wmp.runtime.sockets.ports._open`.
"""


@attrs.frozen
class DoorAddress:
    """The addresses of one door."""

    bind: tuple[str, ...]
    security: Security | None = None
    open: bool = False
    """Whether the door may be open to the network without keys."""
    routing_id: bytes | None = None
    """Name that peers with a ROUTER use for this one; empty for the first address."""
    more_messages: int = 0
    """Number of messages that libzmq queues for a peer beyond ``high_water_mark``."""


class Node:
    """Sockets and driver of one machine, from ``start`` to ``stop``.

    All methods are called on the loop on which the node was started.

    Args:
        name: Name for log lines and errors, ``"manager"`` for example.
        bind: Endpoints of the ROUTER; empty for a node without a ROUTER.
        above: Endpoints of a device's upper ROUTER; empty for a node without one.
        connect: Endpoints of the DEALERs, in the order of their numbers. A machine may open more
            DEALERs to the last of them, by ``Reconnect`` with higher numbers.
        sockets: Settings of all sockets.
        journal: The journal to write; None for no journal.
        doors: Endpoints of further ROUTERs, which speak other protocols, by their numbers.
        make_routing_id: Makes the routing id of each new DEALER; None for ids that peers choose.
        routing_id: Name of the ROUTER for peers with a ROUTER; empty for its first address.
        publishes: Whether the sockets are a PUB in place of the ROUTER, and SUBs in place of the
            DEALERs.
    """

    def __init__(
        self,
        name: str,
        *,
        bind: Iterable[str],
        connect: Iterable[str],
        sockets: SocketSettings,
        journal: Journal | str | os.PathLike[str] | None,
        above: Iterable[str] = (),
        doors: Iterable[DoorAddress] = (),
        make_routing_id: Callable[[], bytes] | None = None,
        routing_id: bytes | None = None,
        publishes: bool = False,
    ) -> None:
        self.name = name
        self.bind = tuple(bind)
        self.connect = tuple(connect)
        check_endpoints(self.bind, bind=True, security=sockets.security)
        check_endpoints(self.connect, bind=False, security=sockets.security)
        self.above = tuple(above)
        check_endpoints(self.above, bind=True, security=sockets.security)
        self.upper_endpoints: tuple[str, ...] = ()
        self.doors = tuple(doors)
        for door in self.doors:
            check_endpoints(door.bind, bind=True, security=door.security, open=door.open)
        self.door_endpoints: tuple[tuple[str, ...], ...] = ()
        self._make_routing_id = make_routing_id
        self._routing_id = routing_id
        self._publishes = publishes
        self.sockets = sockets
        self._journal = make_journal(journal)
        self._recorder: Recorder | None = None
        self.inbox = Inbox()
        self.endpoints: tuple[str, ...] = ()
        self.error: Exception | None = None
        self.driver: Driver | None = None
        self._on_halt: Callable[[Exception | None], None] | None = None
        self.watchers: list[StepWatcher] = []
        """Called with the event, the actions and the time of each step of the machine."""
        self._context: Context | None = None
        self._pid = 0
        self._ended: asyncio.Event | None = None
        self._drained = False
        self._stopped = False

    def __del__(self) -> None:
        # The loop's readers refer to a serving node, so the node is collected only after the end of
        # its loop. A forked process shares these descriptors with the first process and must not
        # close them.
        if getattr(self, "_context", None) is None or self._pid != os.getpid():
            return
        self._stopped = True
        context, self._context = self._context, None
        try:
            warnings.warn(
                f"unclosed {self.name} at {', '.join(self.endpoints or self.connect)}; "
                f"call close(), or use the {self.name} as a context manager",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
        finally:
            if self.driver is not None:
                self.driver.stop(0.0)
            if self._recorder is not None:
                self._recorder.stop()
            if context is not None:
                self._term(context, 0)
            _open.pop(id(self), None)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses to which peers can connect.

        Raises:
            ClosedError: The system chooses a port or a path, and has not chosen it yet.
        """
        if self._ended is not None:
            return self.endpoints
        for endpoint in self.bind:
            if endpoint.endswith(("*", ":0")):
                raise ClosedError(
                    f"the {self.name} has no address yet: the system chooses one for {endpoint} "
                    f"at the start; use the {self.name} as a context manager, or call start() "
                    "first"
                )
        return self.bind

    @property
    def running(self) -> bool:
        """Whether the node serves."""
        return self.driver is not None and self.driver.running and not self.forked

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the process in which the node was started.

        The sockets, threads and children belong to the other process, and so does the epoll object
        of its loop: the end of a reader here would be the end of the reader there.
        """
        return self._pid not in (0, os.getpid())

    def check_process(self) -> None:
        """Check that the node was not started before a fork.

        Raises:
            ClosedError: The node runs in the process from which this process was forked.
        """
        if self.forked:
            raise ClosedError(
                f"the {self.name} runs in the parent process, not in this fork; make a "
                f"{self.name} in this process"
            )

    @property
    def draining(self) -> bool:
        """Whether the node was asked to end."""
        return self._drained

    @property
    def closed(self) -> bool:
        """Whether the node has closed its sockets."""
        return self._stopped

    def check_descriptors(self, more: int = 0) -> None:
        """Check that this process may open the descriptors of this node, and some more.

        Raises:
            TransportError: The limit of this process is too low.
        """
        bound = len(self.bind) + len(self.above) + sum(len(door.bind) for door in self.doors)
        needed = _DESCRIPTORS + 2 * bound + 4 * (len(self.connect) + len(self.doors)) + more
        check_descriptors(f"a {self.name}", needed)

    def check_open(self) -> None:
        """Check that the node may be started.

        Raises:
            ClosedError: The node was closed, or runs in the parent process.
        """
        self.check_process()
        if self._stopped:
            raise ClosedError(f"the {self.name} is closed; make a new {self.name}")

    def start(
        self,
        machine: Machine,
        *,
        submitters: Submitters | None = None,
        writer: StoreWriter | None = None,
        executors: Executors | None = None,
        gather: Gather | None = None,
        forwards: bool = False,
        link_events: bool = False,
        owed: Callable[[int], bool] | None = None,
        lanes_until: tuple[Any, Callable[[], float]] | None = None,
        make_driver: Callable[..., Driver] = Driver,
        on_halt: Callable[[Exception | None], None] | None = None,
    ) -> Driver:
        """Open the sockets and begin to serve, on the running loop.

        ``on_halt`` is called on the loop with the error, or None, when the machine has ended. The
        other arguments are those of the driver.

        Raises:
            ConfigError: An address cannot be used.
            TransportError: ZeroMQ refused.
            ClosedError: The node was closed.
        """
        self.check_open()
        self.check_descriptors()
        self._on_halt = on_halt
        self._ended = asyncio.Event()
        self._pid = os.getpid()
        security = self.sockets.security
        context = self._context = self.sockets.context or zmq.Context()
        ports: list[Port] = []
        doors: list[Port] = []
        upper: list[Port] = []
        gate = None
        try:
            guarded = self.bind or any(door.security is not None for door in self.doors)
            if security is not None and security.guarded and guarded:
                gate = Gate(context, security)
            if self.bind:
                ports.append(self._bound())
                self.endpoints = tuple(ports[0].endpoints)
            if self.above:
                upper.append(self._upper_router())
                self.upper_endpoints = tuple(upper[0].endpoints)
            for index in range(len(self.connect)):
                ports.append(self._dealer(index))
            for door in self.doors:
                doors.append(
                    router(
                        attrs.evolve(self._opened, security=door.security).with_queue(
                            door.more_messages
                        ),
                        door.bind,
                        routing_id=door.routing_id,
                        act=Act.CONNECT_DOOR,
                    )
                )
            self.door_endpoints = tuple(tuple(port.endpoints) for port in doors)
            if self._journal is not None and machine.settings is not None:
                endpoints = (*self.endpoints, *self.upper_endpoints, *self.connect)
                loop = asyncio.get_running_loop()
                # Most nodes keep no journal, and need not import what writes it.
                from wmp.runtime.common.recorder import Recorder

                self._recorder = Recorder.begin(
                    self._journal, machine.settings, endpoints, loop, self.inbox.post
                )
        except BaseException as error:
            for port in (*ports, *doors, *upper):
                port.close(0)
            if gate is not None:
                gate.close()
            self._term(context, 0)
            self._context = None
            if isinstance(error, zmq.ZMQError):
                # For example, another part of the program now uses descriptors that were free a
                # moment ago.
                raise TransportError(f"cannot start the {self.name}: {error}") from error
            raise
        self.driver = make_driver(
            machine,
            self.inbox,
            ports,
            transport=self.sockets.transport,
            name=self.name,
            halted=self.halted,
            submitters=submitters,
            writer=writer,
            executors=executors,
            gather=gather,
            reopen=self._dealer,
            forwards=forwards,
            link_events=link_events,
            owed=owed,
            lanes_until=lanes_until,
            gate=gate,
            recorder=self._recorder,
            watchers=self.watchers,
            **({"doors": doors} if doors else {}),
            **({"above": upper[0]} if upper else {}),
        )
        _open[id(self)] = (context, gate)
        self.driver.start()
        return self.driver

    @property
    def _opened(self) -> SocketSettings:
        """The settings with the context in which the sockets are opened."""
        return attrs.evolve(self.sockets, context=self._context)

    def _bound(self) -> Port:
        if self._publishes:
            return publisher(self._opened, self.bind)
        return router(self._opened, self.bind, routing_id=self._routing_id)

    def _upper_router(self) -> Port:
        return router(self._opened, self.above, act=Act.CONNECT_MANAGER)

    def _dealer(self, index: int) -> Port:
        if self._publishes:
            return subscriber(self._opened, index, self.connect[index])
        return dealer(
            self._opened,
            index,
            self.connect[min(index, len(self.connect) - 1)],
            routing_id=None if self._make_routing_id is None else self._make_routing_id(),
        )

    def address_of(self, link: int) -> str:
        """Return the endpoint of a DEALER by its number, with the numeric address of its host.

        Empty while the host is looked up.
        """
        return "" if self.driver is None else self.driver.sockets.address_of(link)

    def add_connection(self, endpoint: str) -> int:
        """Open one more DEALER; return its number.

        Raises:
            ConfigError: The address cannot be used.
            TransportError: ZeroMQ refused, or too few file descriptors are left in this process.
            ClosedError: The node is not started, or has ended.
        """
        driver = self.serving()
        check_endpoints((endpoint,), bind=False, security=self.sockets.security)
        check_descriptors(f"a connection of the {self.name}", 4)
        self.connect = (*self.connect, endpoint)
        number = len(self.connect) - 1
        try:
            driver.add_dealer(self._dealer(number))
        except zmq.ZMQError as error:
            self.connect = self.connect[:-1]
            raise TransportError(f"cannot connect to {endpoint}: {error}") from error
        return number

    def serving(self) -> Driver:
        """Return the driver.

        Raises:
            ClosedError: The node is not started, has ended, or runs in the parent process.
        """
        self.check_process()
        if self.driver is None:
            raise ClosedError(
                f"the {self.name} is not started; use the {self.name} as a context manager, or "
                "call start()"
            )
        if self._stopped:
            raise ClosedError(f"the {self.name} is closed")
        return self.driver

    def halted(self, error: Exception | None) -> None:
        """Record that the machine has ended; the first error is kept."""
        if self.error is None:
            self.error = error
        if self._on_halt is not None:
            self._on_halt(error)
        if self._ended is not None:
            self._ended.set()

    def drain(self) -> None:
        """Ask the machine to finish its jobs and to end.

        Idempotent; the node may be just starting.
        """
        if self._drained or self.forked:
            return
        self._drained = True
        self.inbox.post(Drained())  # before the start the event waits in the inbox

    async def wait_ended(self, timeout: float | None = None) -> bool:
        """Wait until the machine has ended; return whether it did within ``timeout`` seconds."""
        if self._ended is None or self._ended.is_set():
            return True
        try:
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def raise_error(self) -> None:
        """Raise the error that stopped the node, if there was one."""
        if self.error is not None:
            if isinstance(self.error, WMPError):
                raise self.error
            raise ClosedError(f"the {self.name} stopped: {self.error!r}") from self.error

    async def stop(self) -> None:
        """Close the sockets. Idempotent.

        The transport's ``linger`` limits the time in which the last messages may leave.

        In a fork of the node's process this does nothing.
        """
        if self._stopped or self.forked:
            return
        self._stopped = True
        if self.driver is not None:
            if self.driver.running:
                self.driver.close_machine()
            self.driver.stop()
        if self._ended is not None:
            self._ended.set()
        if self._recorder is not None:
            self._recorder.stop()
            await aside(self._recorder.wait, f"{self.name}-journal", CLOSE + 1.0)
        context, self._context = self._context, None
        _open.pop(id(self), None)
        if context is None or self.sockets.context is not None:
            return
        # Terminating the context waits for the last messages.
        linger = self.sockets.transport.linger
        await aside(lambda: self._term(context, linger), f"{self.name}-term", linger + 1.0)

    def _term(self, context: Context, linger: float) -> None:
        if self.sockets.context is None:
            context.destroy(linger=int(linger * 1000))
