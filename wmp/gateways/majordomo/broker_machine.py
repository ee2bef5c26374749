"""A Majordomo broker as a machine: clients and workers of 7/MDP at one address, and 8/MMI.

The halves do the work: :mod:`wmp.gateways.majordomo.broker_clients` for clients,
:mod:`wmp.gateways.majordomo.broker_workers` for workers. A door may have one of them alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, Halt, Resolve
from wmp.events import Cancelled, Closed, Drained, Submitted, Ticked
from wmp.foreign import (
    Arrived,
    Emit,
    ForeignDoorEvent,
    Frames,
    Left,
    Of,
    Settled,
    Unsent,
)
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.common.body import MAX_FRAMES, explain_invalid
from wmp.gateways.majordomo.broker_clients import MajordomoRequests, ServiceTerms
from wmp.gateways.majordomo.broker_terms import WorkersTerms
from wmp.gateways.majordomo.broker_workers import (
    MMI,
    MajordomoWorkers,
    WorkersAction,
)
from wmp.gateways.majordomo.wire import (
    CLIENT,
    MAX_BODY,
    WORKER,
    ClientRequest,
    find_header,
    read_client,
    read_worker,
    role_of,
    write_reply,
)
from wmp.message import Limits

MajordomoDoorAction = WorkersAction | Submitted | Cancelled | Halt

_LOOKUP: Final = b"mmi.service"
_MMI: Final = MMI.encode()


@frozen(kw_only=True)
class MajordomoDoorSettings:
    """Settings of a broker. The door checks them and has their defaults."""

    clients: bool
    """Whether the door takes clients."""
    workers: bool
    """Whether the door takes workers."""
    services: Sequence[ServiceTerms]
    limit_bytes: int
    """Maximum number of bytes of all requests in progress (MDP-3.2)."""
    client_limit: int
    """Maximum number of requests of one connection."""
    of_workers: WorkersTerms


@frozen
class MajordomoDoorStatistics:
    """Counts of a broker; a snapshot."""

    requests: int
    replies: int
    waiting: int
    """Number of requests in progress."""
    services: Mapping[str, int]
    """Number of requests in progress by service, where there are any."""
    workers: Mapping[str, int]
    """Number of workers by state."""
    staff: Mapping[str, int]
    """Number of workers by service."""
    given: int
    """Number of requests that workers got."""
    lost: int
    """Number of these that ended with their workers."""
    disconnected: int
    """Number of connections that got DISCONNECT."""
    unanswered: Mapping[str, int]
    """Number of requests without a reply, by the end of their jobs."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""
    tolerated: Mapping[str, int]
    """Number of messages that were taken although they differ from the specification, by habit."""


def _nobody(role: str) -> bool:
    return False


@define(eq=False)
class MajordomoDoorMachine:
    """Sans-I/O Majordomo broker.

    Args:
        settings: Times, terms and limits.
        numbers: Gives the numbers of the jobs; doors of one manager share it.
        offered: Returns whether any worker of the gateway's manager does jobs of a role.
    """

    settings: MajordomoDoorSettings
    numbers: Iterator[int]
    offered: Callable[[str], bool] = _nobody
    workers: MajordomoWorkers = field(init=False)
    requests: MajordomoRequests = field(init=False)
    _draining: bool = field(default=False, init=False)
    _leaving: bool = field(default=False, init=False)
    """Whether the door ends with the last job of its workers."""
    _halted: bool = field(default=False, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self.workers = MajordomoWorkers(
            settings.of_workers, lambda number: self.requests.client_of(number)
        )
        self.requests = MajordomoRequests(
            self.numbers,
            settings.services,
            settings.limit_bytes,
            settings.client_limit,
            self._served,
        )

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        if self._halted:
            return None
        first, second = self.workers.timers.next(), self.requests.timers.next()
        if first is None or second is None:
            return first if second is None else second
        return min(first, second)

    def handle(self, event: ForeignDoorEvent, now: float) -> list[MajordomoDoorAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[MajordomoDoorAction] = []
        of_workers: list[WorkersAction] = []
        match event:
            case Arrived(port, peer, frames):
                self._arrived(port, peer, frames, now, actions, of_workers)
            case Settled():
                actions.extend(self.requests.hand_over())
            case Of(group, what):
                self.workers.order(group, what, now, of_workers)
            case Resolve(ids, ends, payloads):
                codecs = event.codecs
                for id, end, payload in zip(ids, ends, payloads, strict=True):
                    codec = None if codecs is None else codecs.get(id)
                    reply = self.requests.end(id, end, payload, codec)
                    if reply is not None:
                        actions.append(reply)
            case Left(_, peer):
                self.workers.left(peer, "its connection ended", now, of_workers)
                withdrawn = self.requests.leave(peer)
                if withdrawn is not None:
                    actions.append(withdrawn)
            case Unsent(_, peer):
                actions.append(self._drop("not sent"))
                self.workers.left(peer, "the worker cannot be reached", now, of_workers)
            case Ticked():
                self._ticked(now, actions, of_workers)
            case Drained():
                # The first one of two is for the clients alone.
                self._leaving = self._draining or not self.settings.clients
                self._draining = True
            case Closed():
                self.workers.dismiss(of_workers)
                actions.extend(of_workers)
                self._halt(actions)
                return actions
            case _:
                assert_never(event)
        self.workers.report(now, of_workers)
        actions.extend(of_workers)
        if self._leaving and not len(self.requests) and not self.workers.busy:
            farewell: list[WorkersAction] = []
            self.workers.dismiss(farewell)
            actions.extend(farewell)
            self._halt(actions)
        return actions

    @property
    def dismisses(self) -> bool:
        """False: an operator cannot end a Majordomo worker."""
        return False

    def open_requests(self) -> int:
        """Return the number of requests of clients in progress."""
        return len(self.requests)

    def statistics(self) -> MajordomoDoorStatistics:
        """Return a snapshot for people and programs."""
        requests, workers = self.requests, self.workers
        return MajordomoDoorStatistics(
            requests.count,
            requests.replies,
            len(requests),
            requests.waiting,
            workers.states(),
            workers.services(),
            workers.lanes.given,
            workers.lanes.lost,
            workers.disconnected,
            dict(requests.unanswered),
            dict(requests.dropped + workers.dropped + self._dropped),
            dict(workers.tolerated),
        )

    def _served(self, role: str) -> bool:
        return self.workers.serves(role) or self.offered(role)

    # -- messages

    def _arrived(
        self,
        port: int,
        peer: bytes,
        frames: Frames,
        now: float,
        actions: list[MajordomoDoorAction],
        of_workers: list[WorkersAction],
    ) -> None:
        header = find_header(frames)
        name = bytes(frames[header]) if header else b""
        if name == CLIENT and self.settings.clients:
            request = read_client(frames, header)
            if request is None:
                actions.append(self._invalid(peer, frames, header))
            elif request.service.startswith(_MMI):
                actions.append(self._inform(port, peer, request))
            elif self._draining:
                actions.append(self._drop("draining"))
            else:
                actions += self.requests.take(port, peer, request, now)
        elif name == WORKER and self.settings.workers:
            if self._leaving and not self.workers.knows(peer):
                actions.append(self._drop("draining"))
            else:
                long = len(frames) > MAX_FRAMES
                if long:
                    actions.append(self._invalid(peer, frames, 0))
                if not long or self.workers.knows(peer):
                    self.workers.arrived(port, peer, read_worker(frames), now, of_workers)
        elif self.workers.knows(peer):
            self.workers.arrived(port, peer, read_worker(()), now, of_workers)
        else:
            actions.append(self._invalid(peer, frames, 0))

    def _invalid(self, peer: bytes, frames: Frames, header: int) -> Drop:
        """Return why a message is of no use; for a long request with the name of its service."""
        limit = min(MAX_FRAMES, MAX_BODY + header + 2) if header else MAX_FRAMES
        reason, text = explain_invalid(frames, peer, limit)
        if text and header:
            text += f", for the service {bytes(frames[header + 1])[: Limits.TEXT]!r}"
        return self._drop(reason, text)

    def _inform(self, port: int, peer: bytes, request: ClientRequest) -> Emit:
        """Return the reply of a service of the broker itself, 8/MMI."""
        if request.service == _LOOKUP:
            requested = role_of(request.body[0]) if len(request.body) == 1 else None
            known = requested is not None and self._served(requested)
            code = b"200" if known else b"404"
        else:
            code = b"501"
        return Emit(port, peer, write_reply(request.envelope, request.service, (code,)))

    # -- time and end

    def _ticked(
        self, now: float, actions: list[MajordomoDoorAction], of_workers: list[WorkersAction]
    ) -> None:
        for timer in self.workers.timers.due(now):
            self.workers.ring(timer, now, of_workers)
        for late in self.requests.timers.due(now):
            actions.extend(self.requests.ring(late, now))

    def attendances(self) -> dict[str, dict[bytes, Attendance]]:
        """Return the states of the workers by routing id, by group."""
        return self.workers.attendances()

    def _halt(self, actions: list[MajordomoDoorAction]) -> None:
        self._halted = True
        actions.append(Halt(None))

    def _drop(self, reason: str, detail: str = "") -> Drop:
        self._dropped[reason] += 1
        return Drop(reason, detail=detail)
