"""Host names in the addresses to which a node connects: looked up on threads of their own.

libzmq looks names up on the thread that does the I/O of all sockets of a context, so one slow name
server would stall every connection of a node. Here a thread looks up each name, and libzmq gets
numeric addresses only.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from attrs import define, field

from wmp.runtime.common.threads import start_thread

logger = logging.getLogger("wmp")

_ENDPOINT: Final = re.compile(r"tcp://(?P<host>[^\[\]:]+):(?P<port>\d+)")

_PAUSE: Final = 1.0
_MAX_PAUSE: Final = 8.0
"""Seconds between two lookups of a name; the pause doubles while there is no answer."""

_LOCAL_PAUSE: Final = 0.1
"""Seconds between two lookups of localhost, which may be ::1 as well as 127.0.0.1."""

_SLOW: Final = 5.0
"""Seconds without an answer after which a line in the log names the address."""


def resolve(host: str) -> list[str]:
    """Return the addresses of a host, IPv4 first. The call may block for a long time.

    Raises:
        OSError: The name is not known, or no name server answers.
    """
    rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(str(row[4][0]) for row in rows)
    return sorted(addresses, key=lambda address: ":" in address)


@define(eq=False)
class NamedEndpoint:
    """The address of a DEALER with a host name, and the numeric address that is used for it."""

    endpoint: str
    host: str
    port: str
    address: str = ""
    """The numeric endpoint to which the socket connects; empty before the first answer."""
    _tried: int = field(default=-1, init=False)

    @classmethod
    def of(cls, endpoint: str) -> NamedEndpoint | None:
        """Return the parts of an address; None if the address has no host name."""
        match = _ENDPOINT.fullmatch(endpoint)
        if match is None:
            return None
        import ipaddress  # nodes of one process alone need no parser of addresses

        with suppress(ValueError):
            ipaddress.ip_address(match["host"])
            return None
        return cls(endpoint, match["host"], match["port"])

    def follow(self, earlier: NamedEndpoint) -> None:
        """Continue with the addresses after those that another socket has tried."""
        self._tried = earlier._tried

    def next_address(self, addresses: list[str]) -> str:
        """Return the endpoint to try next: that after the last one, in turn."""
        self._tried = (self._tried + 1) % len(addresses)
        address = addresses[self._tried]
        return (
            f"tcp://[{address}]:{self.port}" if ":" in address else f"tcp://{address}:{self.port}"
        )


Answer = Callable[[list[str], str], None]
"""Takes the addresses of a name, or the reason why there are none."""


class _Lookup:
    """A name of one node that is looked up again and again."""

    __slots__ = ("answer", "due", "logged", "named", "pause", "pending", "timer")

    def __init__(self, named: NamedEndpoint, answer: Answer) -> None:
        self.named = named
        self.answer = answer
        self.pending = self.logged = False
        self.pause = self.shortest
        self.due = 0.0
        self.timer: asyncio.TimerHandle | None = None

    @property
    def shortest(self) -> float:
        """The shortest pause between two lookups, in seconds."""
        return _LOCAL_PAUSE if self.named.host == "localhost" else _PAUSE


class HostNames:
    """Looks up names for one node, with at most one thread for each connection.

    All methods are called on the loop.

    Args:
        name: The node's name, for log lines.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lookups: dict[int, _Lookup] = {}
        self._closed = False

    def look_up(self, index: int, named: NamedEndpoint, answer: Answer) -> None:
        """Look a name up soon, and call ``answer`` on the loop.

        A call while the name is looked up, or waits to be looked up again, replaces ``answer``.

        Args:
            index: Number of the connection.
            named: Its address.
            answer: Takes the addresses of the host.
        """
        lookup = self._lookups.get(index)
        if lookup is None:
            lookup = self._lookups[index] = _Lookup(named, answer)
        lookup.answer = answer
        if lookup.pending or lookup.timer is not None:
            return
        loop = asyncio.get_running_loop()
        if lookup.due <= loop.time():
            self._start(loop, lookup)
        else:
            lookup.timer = loop.call_at(lookup.due, self._start, loop, lookup)

    def connected(self, index: int) -> None:
        """Record that a connection is open: its next lookup is at once."""
        lookup = self._lookups.pop(index, None)
        if lookup is not None and lookup.timer is not None:
            lookup.timer.cancel()

    def close(self) -> None:
        """Forget all names. A thread that waits for a name server ends by itself."""
        self._closed = True
        for lookup in self._lookups.values():
            if lookup.timer is not None:
                lookup.timer.cancel()
        self._lookups.clear()

    def _start(self, loop: asyncio.AbstractEventLoop, lookup: _Lookup) -> None:
        if self._closed:
            return
        lookup.pending, lookup.timer = True, None
        slow = loop.call_later(_SLOW, self._log_slow, lookup)

        def ask() -> None:
            addresses: list[str] = []
            reason = "no address"
            try:
                addresses = resolve(lookup.named.host)
            except (OSError, UnicodeError) as error:
                reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            finally:
                with suppress(RuntimeError):  # the loop has ended, and the node with it
                    loop.call_soon_threadsafe(answered, addresses, reason)

        def answered(addresses: list[str], reason: str) -> None:
            slow.cancel()
            lookup.pending = False
            lookup.due = loop.time() + lookup.pause
            lookup.pause = lookup.shortest if addresses else min(2 * lookup.pause, _MAX_PAUSE)
            if not self._closed:
                lookup.answer(addresses, reason)

        if start_thread(ask, f"{self._name}-host-name") is None:
            answered([], "no thread can be started")

    def _log_slow(self, lookup: _Lookup) -> None:
        if lookup.logged:
            return
        lookup.logged = True
        logger.warning(
            "%s: looking up the host of %s has taken %g s so far; check the name servers of this "
            "machine, or use a numeric address; other connections go on",
            self._name,
            lookup.named.endpoint,
            _SLOW,
        )
