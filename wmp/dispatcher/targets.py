"""The hosts to which a dispatcher sends requests, because a client named them (DSP-11)."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from typing import Final

from attrs import frozen

from wmp.errors import ConfigError

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

Resolver = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the addresses of a host name; raises :class:`OSError` for an unknown one."""

_PATIENCE: Final = 5.0
"""Seconds for the resolution of a name."""
_NAME: Final = re.compile(r"[0-9a-zA-Z_]([-0-9a-zA-Z_.]*[0-9a-zA-Z_])?\.?")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("100.100.100.200", "192.0.0.192", "fd00:ec2::254"))
)
"""Addresses at which clouds publish the secrets of a machine, besides link-local ones."""


class TargetRefused(Exception):
    """A dispatcher sends no request to a target."""


def read_address(host: str) -> IpAddress | None:
    """Return the IP address that a host is, with or without brackets; None for a name.

    An IPv4 address that is written as an IPv6 address is returned as the IPv4 address.
    """
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def network_address(client: str | None) -> str | None:
    """Return the network address of a client: all addresses of loopback are one (DSP-10.4)."""
    address = None if client is None else read_address(client)
    if address is None:
        return client
    return "loopback" if address.is_loopback else str(address)


def loopback_host(address: str) -> str | None:
    """Return the name of this host for an address of its loopback; None for another address.

    Dispatchers on other hosts share the store, and have a loopback of their own (DSP-11.6).
    """
    target = read_address(address)
    return socket.gethostname() if target is not None and target.is_loopback else None


@frozen
class AllowedTarget:
    """A host or network, and ports, to which a dispatcher may send requests."""

    host: str | None
    """Name in lower case; None for a network."""
    network: _Network | None
    ports: Sequence[range] = ()
    """Empty: every port."""

    def covers(self, hostname: str, address: IpAddress, port: int) -> bool:
        """Return whether a target is allowed."""
        if self.ports and not any(port in ports for ports in self.ports):
            return False
        if self.network is None:
            return hostname.lower().removesuffix(".") == self.host
        return address.version == self.network.version and address in self.network


def read_target(text: str) -> AllowedTarget:
    """Return the target of ``--allow-target``.

    Args:
        text: HOST, or NETWORK, with or without a colon and PORTS: a port, or the first and the last
            one, and several of these with commas between. An IPv6 address or network with ports
            stands in brackets.

    Raises:
        ConfigError: The text has another form, or names addresses that are never allowed.
    """
    host, ports = text, ""
    if text.startswith("["):
        host, bracket, ports = text[1:].partition("]")
        wrong = not bracket or ports[:1] not in ("", ":")
        ports = ports[1:]
    else:
        wrong = False
        if text.count(":") == 1:
            host, _, ports = text.partition(":")
            wrong = not ports
    try:
        ranges = [_port_range(part) for part in ports.split(",")] if ports else []
    except ValueError:
        wrong = True
    network: _Network | None = None
    if not wrong:
        try:
            network = ipaddress.ip_network(host, strict=False)
        except ValueError:
            wrong = not _NAME.fullmatch(host) or host.replace(".", "").isdigit()
    if wrong:
        raise ConfigError(
            f"--allow-target is {text!r}; expected HOST or NETWORK, perhaps with PORTS, for "
            "example hooks.example.com, 10.1.0.0/16:8000-8999 or [2001:db8::/32]:80,443"
        )
    reason = None if network is None else never(network.network_address)
    if reason is not None and network is not None and never(network.broadcast_address) == reason:
        raise ConfigError(
            f"--allow-target is {text!r}, but no request is ever sent to {reason}; leave it out"
        )
    return AllowedTarget(
        None if network is not None else host.lower().removesuffix("."), network, tuple(ranges)
    )


def _port_range(text: str) -> range:
    """Return the ports of PORT or FIRST-LAST.

    Raises:
        ValueError: The text has another form.
    """
    first, _, last = text.partition("-")
    ports = range(int(first), int(last or first) + 1)
    if not (first.isdigit() and (last or first).isdigit()) or not ports or ports[-1] > 65_535:
        raise ValueError(text)
    return ports


def never(address: IpAddress) -> str | None:
    """Return why no request is ever sent to an address; None for any other address (DSP-11.2)."""
    if address.is_link_local:
        return "a link-local address"
    if address in _METADATA:
        return "an address of cloud metadata"
    if address.is_unspecified:
        return "the unspecified address"
    if address.is_multicast or address == ipaddress.IPv4Address("255.255.255.255"):
        return "an address of many hosts"
    return None


async def resolve_by_system(hostname: str) -> Sequence[str]:
    """Return the addresses of a name, by the resolver of the system.

    Raises:
        OSError: The name is unknown.
    """
    loop = asyncio.get_running_loop()
    rows = await loop.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    return [str(row[4][0]) for row in rows]


def is_of_this_host(address: IpAddress) -> bool:
    """Return whether an address is one of this host. Nothing is sent."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


class Targets:
    """Decides to which targets a dispatcher sends requests.

    Args:
        allowed: Targets besides the address from which a request came.
        resolve: Resolves names.
        own_ports: Ports of the dispatcher on this host.
    """

    def __init__(
        self,
        allowed: Iterable[AllowedTarget] = (),
        resolve: Resolver = resolve_by_system,
        own_ports: Iterable[int] = (),
    ) -> None:
        self._allowed = tuple(allowed)
        self._resolve = resolve
        self._own_ports = set(own_ports)

    def add_own_ports(self, ports: Iterable[int]) -> None:
        """Add ports of the dispatcher, to which no request is sent (DSP-11.3)."""
        self._own_ports.update(ports)

    async def pin(self, hostname: str, port: int, client: str | None) -> str:
        """Return the address of a target that a client names, resolved once (DSP-11.4).

        Args:
            hostname: The name or address.
            port: The port.
            client: The address from which the request came; None for a record without address.

        Raises:
            TargetRefused: No address of the target is allowed.
        """
        source = None if client is None else read_address(client)
        why = "has no address"
        for address in await self._addresses(hostname):
            try:
                self.check(str(address), port)
            except TargetRefused as error:
                why = str(error)
                continue
            if self._is_source(address, source) or any(
                target.covers(hostname, address, port) for target in self._allowed
            ):
                return str(address)
            why = f"is {address}" if str(address) != hostname else "is another host"
            why += f", and the request came from {client}" if client else ""
        shown = f"[{hostname}]" if ":" in hostname else hostname
        raise TargetRefused(
            f"{hostname} {why}; expected the address from which the request came, or a target that "
            f"the dispatcher was started with: --allow-target {shown}:{port}"
        )

    def check(self, address: str, port: int) -> None:
        """Check the address of a target before a request is sent (DSP-11.2, DSP-11.3).

        Raises:
            TargetRefused: No request is ever sent to this address and port.
        """
        target = read_address(address)
        if target is None:
            raise TargetRefused(f"{address} is no address")
        reason = never(target)
        if reason is not None:
            raise TargetRefused(f"is {reason} ({target}), to which no request is ever sent")
        if port in self._own_ports and is_of_this_host(target):
            raise TargetRefused(f"is a port of this dispatcher ({target}, port {port})")

    @staticmethod
    def _is_source(address: IpAddress, source: IpAddress | None) -> bool:
        """Return whether an address is the one from which the request came (DSP-11.1)."""
        if source is None:
            return False
        return address == source or (address.is_loopback and source.is_loopback)

    async def _addresses(self, hostname: str) -> Sequence[IpAddress]:
        """Return the addresses of a host.

        Raises:
            TargetRefused: The name is unknown, or was not resolved in time.
        """
        literal = read_address(hostname)
        if literal is not None:
            return [literal]
        try:
            async with asyncio.timeout(_PATIENCE):
                texts = await self._resolve(hostname)
        except (OSError, UnicodeError, TimeoutError) as error:
            text = "no answer came in time" if isinstance(error, TimeoutError) else str(error)
            raise TargetRefused(f"{hostname} cannot be resolved: {text}") from error
        addresses = [read_address(text) for text in texts]
        return [address for address in addresses if address is not None]
