"""Quotas of the stored requests of Titanic: shares of clients and services, and lifetimes.

A store that is full refuses everybody. So no client and no service fills it: each may have half of
the capacity that the others leave (MDP-8.11).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeVar

from attrs import define, field, frozen

_RESERVED: Final = ("titanic.", "mmi.")
"""Beginnings of the names of services that no stored request may have (MDP-8.10)."""

_UNSERVED_SHARE: Final = 4
"""Services without workers together may have one part of this many."""

_UNSERVED_SERVICES: Final = 1000
"""Maximum number of different services without workers: each is looked up at the broker."""

NO_WORKERS: Final = "the services without workers have their share of the store"
"""Why a request is refused that would be stored if its service had a worker."""

_K = TypeVar("_K", bytes, str)


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
class _StoredShare:
    """The amounts that the requests of one client or one service take."""

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
        limit: Maximum number of stored requests, replied or not.
        limit_bytes: Maximum number of bytes of their bodies and replies.
    """

    limit: int
    limit_bytes: int
    all: _StoredShare = field(factory=_StoredShare, init=False)
    staffed: set[str] = field(factory=set, init=False)
    """The services that had a worker when they were looked up last."""
    _waiting: OrderedDict[int, _Entry] = field(factory=OrderedDict, init=False)
    """The requests without a reply, the first that is given up first."""
    _replied: OrderedDict[int, _Entry] = field(factory=OrderedDict, init=False)
    """The requests with a reply, the first that is purged first."""
    _clients: dict[bytes, _StoredShare] = field(factory=dict, init=False)
    _services: dict[str, _StoredShare] = field(factory=dict, init=False)

    def refusal(self, client: bytes, service: str, size: int) -> str:
        """Return why a request is not stored; empty if it may be.

        Args:
            client: The connection of the client; empty if the broker does not show it.
            service: The service.
            size: Bytes of the body.
        """
        total = self.all
        if total.count >= self.limit or total.size + size > self.limit_bytes:
            return "the store has its maximum number of requests or bytes"
        if client and self._over_half(self._clients.get(client), size):
            return "this client has its share of the store"
        if self._over_half(self._services.get(service), size):
            return "this service has its share of the store"
        if service not in self.staffed and self._unserved_full(service, size):
            return NO_WORKERS
        return ""

    def _over_half(self, held: _StoredShare | None, size: int) -> bool:
        """Return whether a request exceeds half of what the others leave."""
        if held is None:
            held = _StoredShare()
        total = self.all
        count = self.limit - total.count + held.count
        space = self.limit_bytes - total.size + held.size
        # The first request of a client or a service is taken while anything is left at all.
        return held.count > 0 and (2 * (held.count + 1) > count or 2 * (held.size + size) > space)

    def _unserved_full(self, service: str, size: int) -> bool:
        unserved = [held for name, held in self._services.items() if name not in self.staffed]
        count, taken = sum(held.count for held in unserved), sum(held.size for held in unserved)
        return (
            (service not in self._services and len(unserved) >= _UNSERVED_SERVICES)
            or (count + 1) * _UNSERVED_SHARE > self.limit
            or (taken + size) * _UNSERVED_SHARE > self.limit_bytes
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


def _change(table: dict[_K, _StoredShare], key: _K, count: int, size: int) -> None:
    held = table.setdefault(key, _StoredShare())
    held.count += count
    held.size += size
    if not held.count:
        del table[key]
