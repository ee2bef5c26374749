"""What the stored requests of Titanic may take: shares of clients and services, and lifetimes.

A store that is full refuses everybody. So no client and no service fills it: each may have half of
the room that the others leave (MDP-8.11).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeVar

from attrs import define, field, frozen

from wmp.runtime.common.checks import check_count, check_seconds

_RESERVED: Final = ("titanic.", "mmi.")
"""Beginnings of the names of services that no stored request may have (MDP-8.10)."""

_UNSERVED_SHARE: Final = 4
"""Services without workers together may have one part of this many."""

_UNSERVED_SERVICES: Final = 1000
"""Maximum number of different services without workers: each is looked up at the broker."""

NO_WORKERS: Final = "the services without workers have their share of the store"
"""Why a request is refused that would be stored if its service had a worker."""

_WEEK: Final = 7 * 24 * 3600.0

_K = TypeVar("_K", bytes, str)


@frozen(kw_only=True)
class TitanicLimits:
    """What the stored requests of one server may take, and for how long.

    Args:
        request_ttl: Seconds for which a request waits for its reply; then it is given up.
        reply_ttl: Seconds for which a reply waits for ``titanic.close``; then it is purged.
        limit: Maximum number of stored requests, replied or not.
        limit_bytes: Maximum number of bytes of their bodies and replies, as far as this server
            stored them since its start.

    Raises:
        ConfigError: A limit is wrong.
    """

    request_ttl: float = _WEEK
    reply_ttl: float = _WEEK
    limit: int = 100_000
    limit_bytes: int = 1 << 30

    def __attrs_post_init__(self) -> None:
        check_seconds("request_ttl", self.request_ttl, zero=False)
        check_seconds("reply_ttl", self.reply_ttl, zero=False)
        check_count("limit", self.limit, 1)
        check_count("limit_bytes", self.limit_bytes, 1)


def refuse_service(service: str) -> str:
    """Return why no request for a service is stored; empty if one may be (MDP-8.10).

    A stored request for ``titanic.request`` would store another one, and a short chain of names
    would fill the store.
    """
    for beginning in _RESERVED:
        if service.startswith(beginning):
            return f"a service {beginning}* is not for stored requests; ask it directly"
    return ""


@define
class _Held:
    """What the requests of one client or one service take."""

    count: int = 0
    size: int = 0


@frozen
class _Entry:
    client: bytes
    service: str
    size: int
    until: int
    """When the store forgets the request, in milliseconds."""


@define(eq=False)
class StoredQuotas:
    """The stored requests of one server, counted by client and by service.

    Args:
        limits: The limits.
    """

    limits: TitanicLimits
    all: _Held = field(factory=_Held, init=False)
    staffed: set[str] = field(factory=set, init=False)
    """The services that had a worker when they were looked up last."""
    _waiting: OrderedDict[int, _Entry] = field(factory=OrderedDict, init=False)
    """The requests without a reply, the first that is given up first."""
    _replied: OrderedDict[int, _Entry] = field(factory=OrderedDict, init=False)
    """The requests with a reply, the first that is purged first."""
    _clients: dict[bytes, _Held] = field(factory=dict, init=False)
    _services: dict[str, _Held] = field(factory=dict, init=False)

    def refusal(self, client: bytes, service: str, size: int) -> str:
        """Return why a request is not stored; empty if it may be.

        Args:
            client: The connection of the client; empty if the broker does not show it.
            service: The service.
            size: Bytes of the body.
        """
        limits, total = self.limits, self.all
        if total.count >= limits.limit or total.size + size > limits.limit_bytes:
            return "the store has its maximum number of requests or bytes"
        if client and self._over_half(self._clients.get(client), size):
            return "this client has its share of the store"
        if self._over_half(self._services.get(service), size):
            return "this service has its share of the store"
        if service not in self.staffed and self._unserved_full(service, size):
            return NO_WORKERS
        return ""

    def _over_half(self, held: _Held | None, size: int) -> bool:
        """Return whether a request exceeds half of what the others leave."""
        if held is None:
            held = _Held()
        limits, total = self.limits, self.all
        count = limits.limit - total.count + held.count
        room = limits.limit_bytes - total.size + held.size
        # The first request of a client or a service is taken while there is room at all.
        return held.count > 0 and (2 * (held.count + 1) > count or 2 * (held.size + size) > room)

    def _unserved_full(self, service: str, size: int) -> bool:
        unserved = [held for name, held in self._services.items() if name not in self.staffed]
        count, room = sum(held.count for held in unserved), sum(held.size for held in unserved)
        return (
            (service not in self._services and len(unserved) >= _UNSERVED_SERVICES)
            or (count + 1) * _UNSERVED_SHARE > self.limits.limit
            or (room + size) * _UNSERVED_SHARE > self.limits.limit_bytes
        )

    def add(
        self,
        number: int,
        client: bytes,
        service: str,
        size: int,
        until: int,
        *,
        replied: bool = False,
    ) -> None:
        """Count a stored request.

        Args:
            number: The number of its job.
            client: As for ``refusal``.
            service: The service.
            size: Bytes of the body, and of the reply.
            until: When the store forgets the request, in milliseconds of its clock.
            replied: Whether the reply is stored.
        """
        self.remove(number)
        table = self._replied if replied else self._waiting
        table[number] = _Entry(client, service, size, until)
        self._count(client, service, 1, size)

    def reply(self, number: int, size: int, until: int) -> None:
        """Count the reply to a request."""
        entry = self._waiting.get(number)
        if entry is not None:
            size += entry.size
            self.add(number, entry.client, entry.service, size, until, replied=True)

    def remove(self, number: int) -> None:
        """Forget a request. Idempotent."""
        entry = self._waiting.pop(number, None) or self._replied.pop(number, None)
        if entry is not None:
            self._count(entry.client, entry.service, -1, -entry.size)

    def expire(self, now: int) -> None:
        """Forget the requests that the store has forgotten by now."""
        for table in (self._waiting, self._replied):
            while table and next(iter(table.values())).until <= now:
                self.remove(next(iter(table)))
        self.staffed.intersection_update(self._services)

    def _count(self, client: bytes, service: str, count: int, size: int) -> None:
        _change(self._clients, client, count, size)
        _change(self._services, service, count, size)
        self.all.count += count
        self.all.size += size


def _change(table: dict[_K, _Held], key: _K, count: int, size: int) -> None:
    held = table.setdefault(key, _Held())
    held.count += count
    held.size += size
    if not held.count:
        del table[key]
