"""The clients' half of a Majordomo broker: requests become jobs, and their ends replies.

The role of a job is the name of its service. The manager of the gateway has the queues. This half
knows the requests in progress, and bounds them for each service and each connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from attrs import define, field, frozen

from wmp.actions import Drop, End
from wmp.core.protocol.timers import Timers
from wmp.events import Cancelled, Submitted
from wmp.foreign import Emit, Frames
from wmp.gateways.common.body import (
    FRAMES_CODEC,
    MAX_FRAMES,
    read_payload,
    size_of,
    to_payload,
)
from wmp.gateways.common.client_shares import ClientShares
from wmp.gateways.common.job_end import UNREADABLE, explain_end, no_reply
from wmp.gateways.majordomo.wire import ClientRequest, role_of, write_reply
from wmp.message import Frame, Kind, Limits, counted, named

_KEPT: Final = 1024
"""Number of services that are kept without requests: most get the next request soon."""

_REQUEST: Final = 512
"""Bytes that a request takes in addition to its frames."""

_SERVICE: Final = 4096
"""Bytes that the first request of a service takes in addition."""


@frozen
class ServiceTerms:
    """The terms of the requests for a service, or for all services whose names begin alike."""

    name: str
    """The name of a service. A name that ends with ``*`` is a beginning of names."""
    needs: tuple[tuple[str, int], ...]
    priority: int
    max_worker_losses: int
    """Number of lost workers that a request survives. With 0 no request runs twice."""
    timeout: float | None
    """Seconds within which a request must end; None for no limit."""
    unserved: float | None
    """Seconds that a request waits for a service without workers; None for no limit."""
    limit: int
    """Maximum number of requests in progress."""
    join: bool
    """Whether a request with the body of a request in progress waits for the same job."""
    as_list: bool
    """Whether a body of one frame is a list for the handler, too."""


class _UnservedTimer(NamedTuple):
    """Requests may have waited too long for a service without workers."""

    service: bytes


@define(eq=False)
class _ServiceRequests:
    """A service with requests in progress."""

    name: bytes
    role: str
    terms: ServiceTerms
    kinds: dict[str, Kind]
    """The kinds of the jobs, by codec: one object for each, which a manager compares quickly."""
    shares: ClientShares
    """The requests in progress by connection."""
    requests: dict[int, _ServiceRequest] = field(factory=dict)
    """The requests in progress, the oldest first."""
    joined: dict[Frames, int] = field(factory=dict)
    arrived: dict[tuple[str, int], tuple[list[int], list[Frame]]] = field(factory=dict)
    """Numbers and payloads that were not handed over yet, by codec and level."""


@define(eq=False)
class _ServiceRequest:
    port: int
    peer: bytes
    envelope: Frames
    service: _ServiceRequests
    codec: str
    size: int
    at: float
    body: Frames | None
    """The body, for requests that join the job; None if no request may join it."""
    gone: bool = False
    """Whether the client left: then a later request with this body may still get the reply."""


@define(eq=False)
class MajordomoRequests:
    """The requests in progress at one door.

    Args:
        numbers: Gives the numbers of the jobs; doors of one manager share it.
        terms: The terms of services, the longest matching name counts. One of them is ``*``.
        limit_bytes: Maximum number of bytes of all requests (MDP-3.2).
        client_limit: Maximum number of requests of one connection.
        served: Returns whether a service has workers.
    """

    numbers: Iterator[int]
    terms: Sequence[ServiceTerms]
    limit_bytes: int
    client_limit: int
    served: Callable[[str], bool]
    timers: Timers[_UnservedTimer] = field(factory=Timers, init=False)
    count: int = field(default=0, init=False)
    """Number of requests so far."""
    replies: int = field(default=0, init=False)
    unanswered: Counter[str] = field(factory=Counter, init=False)
    dropped: Counter[str] = field(factory=Counter, init=False)
    _askers: dict[int, _ServiceRequest] = field(factory=dict, init=False)
    _services: dict[bytes, _ServiceRequests] = field(factory=dict, init=False)
    _of_peer: dict[bytes, dict[int, None]] = field(factory=dict, init=False)
    _fresh: dict[bytes, _ServiceRequests] = field(factory=dict, init=False)
    """Services with requests that were not handed over yet."""
    _bytes: ClientShares = field(init=False)
    """The bytes of the requests by connection."""

    def __attrs_post_init__(self) -> None:
        self._bytes = ClientShares(self.limit_bytes)

    def __len__(self) -> int:
        return len(self._askers)

    @property
    def waiting(self) -> Mapping[str, int]:
        """Number of requests in progress by service."""
        services = self._services.values()
        return {service.role: len(service.requests) for service in services if service.requests}

    def take(
        self, port: int, peer: bytes, request: ClientRequest, now: float
    ) -> list[Drop | Cancelled]:
        """Take a request; return why it was dropped, or which request makes way (MDP-3.8)."""
        service = self._services.get(request.service) or self._service(request.service)
        if service is None:
            name = request.service
            text = (
                f"dropped a request of {named(peer)} for the service "
                f"{name[: Limits.TEXT]!r} of {len(name)} bytes; expected a name whose role has 1 "
                f"to {Limits.TEXT} bytes"
            )
            return [self._drop("unusable service", text)]
        terms, body = service.terms, request.body
        size = size_of(body) + _size_without_body(request.envelope)
        if not service.requests:
            size += _SERVICE
        own = self._of_peer.get(peer)
        if terms.join:
            body = tuple(map(bytes, body))
            joined = service.joined.get(body)
            if joined is not None:
                self.count += 1
                self._answer_also(joined, port, peer, request.envelope)
                return []
        actions: list[Drop | Cancelled] = []
        full = ""
        if own is not None and len(own) >= self.client_limit:
            full = "client_limit"
        elif not self._make_way(service.shares, service, peer, 1, actions):
            full = "limit"
        elif not self._make_way(self._bytes, None, peer, size, actions):
            full = "limit_bytes"
        if full:
            self._retire(service)
            text = f"a request for the service {service.role!r} exceeds {full}"
            return [*actions, self._drop("limit", text)]
        self.count += 1
        number = next(self.numbers)
        codec, payload = to_payload(body, as_list=terms.as_list)
        known = body if terms.join else None
        asker = _ServiceRequest(port, peer, request.envelope, service, codec, size, now, known)
        self._askers[number] = service.requests[number] = asker
        level = service.shares.level(peer)
        service.shares.add(peer, 1)
        self._bytes.add(peer, size)
        self._of_peer.setdefault(peer, {})[number] = None
        if known is not None:
            service.joined[known] = number
        if len(service.requests) == 1 and terms.unserved is not None:
            self.timers.arm(_UnservedTimer(service.name), now + terms.unserved)
        waiting = service.arrived.get((codec, level))
        if waiting is None:
            waiting = service.arrived[codec, level] = ([], [])
            self._fresh[service.name] = service
        waiting[0].append(number)
        waiting[1].append(payload)
        return actions

    def _make_way(
        self,
        shares: ClientShares,
        service: _ServiceRequests | None,
        peer: bytes,
        amount: int,
        actions: list[Drop | Cancelled],
    ) -> bool:
        """Return whether a request fits a limit, after requests of other clients made way.

        Args:
            shares: The shares under the limit.
            service: The service of the requests that may make way; None for all services.
            peer: The client of the request.
            amount: The amount that the request takes.
            actions: Gets what follows for the requests that make way.
        """
        while shares.full(amount):
            other = shares.makes_way(peer, amount)
            if other is None:
                return False
            number = next(
                number
                for number in reversed(self._of_peer[other])
                if service is None or self._askers[number].service is service
            )
            role = self._askers[number].service.role
            actions.append(
                self._drop("share", f"a request for the service {role!r} makes way for another one")
            )
            withdrawn = self._withdraw([number])
            if withdrawn is not None:
                actions.append(withdrawn)
        return True

    def _service(self, name: bytes) -> _ServiceRequests | None:
        role = role_of(name)
        if role is None:
            return None
        terms = self._terms_of(role)
        kinds = {codec: Kind(role, terms.needs, codec) for codec in ("", FRAMES_CODEC)}
        service = self._services[name] = _ServiceRequests(
            name, role, terms, kinds, ClientShares(terms.limit)
        )
        return service

    def _terms_of(self, role: str) -> ServiceTerms:
        """Return the terms with the longest name that matches."""
        best = None
        length = -1
        for terms in self.terms:
            if terms.name == role:
                return terms
            start = terms.name[:-1]
            if terms.name.endswith("*") and role.startswith(start) and len(start) > length:
                best, length = terms, len(start)
        assert best is not None  # the terms of "*" match every name
        return best

    def client_of(self, number: int) -> bytes:
        """Return the connection that waits for the reply to a request; empty for no such one."""
        asker = self._askers.get(number)
        return b"" if asker is None else asker.peer

    def hand_over(self) -> list[Submitted]:
        """Return the requests that arrived since the last call, one event for each kind."""
        if not self._fresh:
            return []
        fresh, self._fresh = self._fresh, {}
        batches = []
        for service in fresh.values():
            terms, arrived = service.terms, service.arrived
            service.arrived = {}
            batches += [
                Submitted(
                    ids=ids,
                    payloads=payloads,
                    kind=service.kinds[codec],
                    priority=terms.priority - level,
                    timeout=terms.timeout,
                    max_worker_losses=terms.max_worker_losses,
                )
                for (codec, level), (ids, payloads) in arrived.items()
            ]
        return batches

    def end(self, number: int, end: End, payload: Frame, codec: str | None) -> Emit | Drop | None:
        """End a request; return its reply, or why there is none."""
        asker = self._forget(number)
        if asker is None:
            return None  # The client left, or the job is another door's.
        if asker.gone:
            self.dropped["client left"] += 1
            return None
        if end is not End.OK:
            return self._fail(asker, end.value, explain_end(end, payload))
        body = read_payload(asker.codec if codec is None else codec, payload)
        if body is None:
            return self._fail(asker, "unreadable", UNREADABLE)
        frames = write_reply(asker.envelope, asker.service.name, body)
        if len(frames) > MAX_FRAMES:
            why = f"the reply has {len(frames)} frames; expected {MAX_FRAMES} at most"
            return self._fail(asker, "too many frames", why)
        self.replies += 1
        return Emit(asker.port, asker.peer, frames)

    def _fail(self, asker: _ServiceRequest, reason: str, why: str) -> Drop:
        """Count a request without a reply (MDP-2.2)."""
        self.unanswered[reason] += 1
        return no_reply(f"a request for the service {asker.service.role!r}", why)

    def leave(self, peer: bytes) -> Cancelled | None:
        """Withdraw the requests of a connection that ended (MDP-3.7)."""
        numbers = []
        for number in self._of_peer.get(peer, ()):
            asker = self._askers[number]
            asker.gone = True
            if asker.body is None:
                numbers.append(number)
        if not numbers:
            return None
        self.dropped["client left"] += len(numbers)
        return self._withdraw(numbers)

    def ring(self, timer: _UnservedTimer, now: float) -> list[Drop | Cancelled]:
        """Withdraw requests that have waited too long for a service without workers (MDP-3.5)."""
        service = self._services.get(timer.service)
        if service is None or service.terms.unserved is None or not service.requests:
            return []
        patience = service.terms.unserved
        if self.served(service.role):
            self.timers.set(timer, now + patience)
            return []
        late = []
        for number, asker in service.requests.items():
            if asker.at + patience > now:
                self.timers.set(timer, asker.at + patience)
                break
            late.append(number)
        if not late:
            return []
        self.unanswered["unserved"] += len(late)
        dropped = no_reply(
            f"{counted(len(late), 'request')} for the service {service.role!r}",
            f"no worker came within {patience:g} s; start a worker of this service",
        )
        withdrawn = self._withdraw(late)
        return [dropped] if withdrawn is None else [dropped, withdrawn]

    def _withdraw(self, numbers: list[int]) -> Cancelled | None:
        """Forget requests; return those whose jobs must be cancelled."""
        askers = [(number, self._forget(number)) for number in numbers]
        fresh = self._withhold((n, asker.service) for n, asker in askers if asker is not None)
        rest = [number for number in numbers if number not in fresh]
        return Cancelled(rest, unstarted=True) if rest else None

    def _withhold(self, requests: Iterable[tuple[int, _ServiceRequests]]) -> set[int]:
        """Take requests back that were not handed over yet; return their numbers."""
        taken: set[int] = set()
        by_service: dict[bytes, set[int]] = {}
        for number, service in requests:
            if service.name in self._fresh:
                by_service.setdefault(service.name, set()).add(number)
        for name, gone in by_service.items():
            service = self._fresh[name]
            for key, (ids, payloads) in list(service.arrived.items()):
                kept = [
                    (id, payload)
                    for id, payload in zip(ids, payloads, strict=True)
                    if id not in gone
                ]
                taken |= gone.intersection(ids)
                service.arrived[key] = ([id for id, _ in kept], [payload for _, payload in kept])
                if not kept:
                    del service.arrived[key]
            if not service.arrived:
                del self._fresh[name]
        return taken

    def _answer_also(self, number: int, port: int, peer: bytes, envelope: Frames) -> None:
        """Let the newest asker of a job have its reply: the others ask no longer."""
        asker = self._askers[number]
        shares = asker.service.shares
        shares.remove(asker.peer, 1)
        shares.add(peer, 1)
        self._bytes.remove(asker.peer, asker.size)
        asker.size += _size_without_body(envelope) - _size_without_body(asker.envelope)
        self._bytes.add(peer, asker.size)
        self._unlist(number, asker.peer)
        self._of_peer.setdefault(peer, {})[number] = None
        asker.port, asker.peer, asker.envelope, asker.gone = port, peer, envelope, False

    def _forget(self, number: int) -> _ServiceRequest | None:
        asker = self._askers.pop(number, None)
        if asker is not None:
            service = asker.service
            self._bytes.remove(asker.peer, asker.size)
            service.shares.remove(asker.peer, 1)
            self._unlist(number, asker.peer)
            del service.requests[number]
            if asker.body is not None:
                del service.joined[asker.body]
            self._retire(service)
        return asker

    def _retire(self, service: _ServiceRequests) -> None:
        """Forget a service without requests, unless there are few services (MDP-3.6)."""
        if len(self._services) > _KEPT and not service.requests:
            del self._services[service.name]
            self.timers.clear(_UnservedTimer(service.name))

    def _unlist(self, number: int, peer: bytes) -> None:
        """Take a request from the requests of a connection."""
        numbers = self._of_peer[peer]
        del numbers[number]
        if not numbers:
            del self._of_peer[peer]

    def _drop(self, reason: str, detail: str = "") -> Drop:
        self.dropped[reason] += 1
        return Drop(reason, detail=detail)


def _size_without_body(envelope: Frames) -> int:
    return _REQUEST if len(envelope) == 1 else _REQUEST + sum(map(len, envelope))
