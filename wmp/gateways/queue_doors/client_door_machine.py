"""A front door as a machine: requests of foreign clients become jobs, and their ends replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from attrs import define, evolve, field, frozen

from wmp.actions import Drop, End, Halt, Resolve
from wmp.events import Cancelled, Closed, Drained, Submitted
from wmp.foreign import Arrived, Emit, Frames, Left, Settled, Unsent
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.common.body import (
    FRAMES_CODEC,
    explain_invalid,
    read_payload,
    size_of,
    to_payload,
)
from wmp.gateways.common.client_shares import ClientShares
from wmp.gateways.common.job_end import UNREADABLE, explain_end, no_reply
from wmp.gateways.common.reply_memory import ReplyMemory
from wmp.gateways.queue_doors.settings import Service
from wmp.message import Frame, Kind

FrontDoorEvent = Arrived | Unsent | Left | Settled | Resolve | Drained | Closed
FrontDoorAction = Emit | Submitted | Cancelled | Drop | Halt


@frozen
class FrontDoorStatistics:
    """Counts of a front door; a snapshot."""

    requests: int
    replies: int
    waiting: int
    """Number of requests in progress."""
    unanswered: Mapping[str, int]
    """Number of requests without a reply, by the end of their jobs."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""


@define(eq=False)
class _Asker:
    port: int
    peer: bytes
    envelope: Frames
    codec: str
    size: int
    body: Frames | None
    """The body, for requests that join the job; None if no request may join it."""
    gone: bool = False
    """Whether the client left: then a later request with this body may still get the reply."""

    @property
    def key(self) -> tuple[int, bytes, Frames]:
        """Return what a repetition of the request has in common with it."""
        return self.port, self.peer, self.envelope


@define(eq=False)
class FrontDoorMachine:
    """Sans-I/O front door.

    ``Settled`` hands over the requests that arrived since the last one, as one ``Submitted`` for
    each kind of job.

    Args:
        service: Terms of the jobs.
        numbers: Gives the numbers of the jobs; doors of one manager share it.
    """

    service: Service
    numbers: Iterator[int]
    settings: None = field(default=None, init=False)
    _askers: dict[int, _Asker] = field(factory=dict, init=False)
    """The asker of each job in progress."""
    _of_peer: dict[bytes, dict[int, None]] = field(factory=dict, init=False)
    """The numbers of each client, the oldest first."""
    _joined: dict[Frames, int] = field(factory=dict, init=False)
    _arrived: dict[tuple[str, int], tuple[list[int], list[Frame]]] = field(factory=dict, init=False)
    """Numbers and payloads that ``Settled`` hands over, by codec and level."""
    _memory: ReplyMemory | None = field(init=False)
    _kinds: dict[str, Kind] = field(init=False)
    """The kinds of the jobs, by codec: one object for each, which a manager compares quickly."""
    _counts: ClientShares = field(init=False)
    """The requests in progress by client."""
    _bytes: ClientShares = field(init=False)
    """The bytes of their bodies by client."""
    _draining: bool = field(default=False, init=False)
    _halted: bool = field(default=False, init=False)
    _requests: int = field(default=0, init=False)
    _replies: int = field(default=0, init=False)
    _unanswered: Counter[str] = field(factory=Counter, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        service = self.service
        kind = service.kind
        self._counts = ClientShares(service.limit)
        self._bytes = ClientShares(service.limit_bytes)
        self._memory = ReplyMemory(service.remember) if service.wire.repeats else None
        self._kinds = {codec: evolve(kind, codec=codec) for codec in ("", FRAMES_CODEC)}

    def deadline(self) -> float | None:
        """None: the manager has the times of the jobs."""
        return None

    def handle(self, event: FrontDoorEvent, now: float) -> list[FrontDoorAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        actions: list[FrontDoorAction] = []
        match event:
            case Arrived():
                self._take(event.port, event.peer, event.frames, now, actions)
            case Settled():
                return self._hand_over()
            case Resolve(ids, ends, payloads):
                codecs = event.codecs or {}
                for id, end, payload in zip(ids, ends, payloads, strict=True):
                    self._end(id, end, payload, codecs.get(id), now, actions)
            case Left(_, peer):
                self._left(peer, actions)
            case Unsent():
                actions.append(self._drop("not sent"))
            case Drained():
                self._draining = True
            case Closed():
                self._halted = True
                actions.append(Halt(None))
                return actions
            case _:
                assert_never(event)
        if self._draining and not self._askers:
            self._halted = True
            actions.append(Halt(None))
        return actions

    def _hand_over(self) -> list[FrontDoorAction]:
        """Return the requests that arrived since the last call."""
        if not self._arrived:
            return []
        service, arrived = self.service, self._arrived
        self._arrived = {}
        return [
            Submitted(
                ids=ids,
                payloads=payloads,
                kind=self._kinds[codec],
                priority=service.priority - level,
                timeout=service.timeout,
                max_worker_losses=service.max_worker_losses,
            )
            for (codec, level), (ids, payloads) in arrived.items()
        ]

    @property
    def dismisses(self) -> bool:
        """False: the door has no workers."""
        return False

    def attendances(self) -> dict[str, dict[bytes, Attendance]]:
        """Return nothing: the door has no workers."""
        return {}

    def open_requests(self) -> int:
        """Return the number of requests in progress."""
        return len(self._askers)

    def statistics(self) -> FrontDoorStatistics:
        """Return a snapshot for people and programs."""
        return FrontDoorStatistics(
            self._requests,
            self._replies,
            len(self._askers),
            dict(self._unanswered),
            dict(self._dropped),
        )

    def _take(
        self,
        port: int,
        peer: bytes,
        frames: Frames,
        now: float,
        actions: list[FrontDoorAction],
    ) -> None:
        service = self.service
        parts = service.wire.split(frames)
        if parts is None:
            answer = service.wire.answer(frames)
            actions.append(
                self._drop(*explain_invalid(frames, peer))
                if answer is None
                else Emit(port, peer, answer)
            )
            return
        envelope, body = parts
        if self._memory is not None:
            known_reply = self._memory.known((port, peer, envelope), now)
            if known_reply is not None:
                self._dropped["repeated"] += 1
                actions.append(Drop("repeated"))
                if known_reply:
                    actions.append(Emit(port, peer, known_reply))
                return
        if service.forbidden and len(body) == 1 and bytes(body[0]) in service.forbidden:
            actions.append(self._drop("control word"))
            return
        if self._draining:
            actions.append(self._drop("draining"))
            return
        size = size_of(body)
        if service.join:
            body = tuple(map(bytes, body))
        joined = self._joined.get(body) if service.join else None
        if joined is not None:
            self._requests += 1
            self._answer_also(joined, port, peer, envelope)
            return
        if (
            len(self._of_peer.get(peer, ())) >= service.client_limit
            or not self._make_way(self._counts, peer, 1, actions)
            or not self._make_way(self._bytes, peer, size, actions)
        ):
            actions.append(self._drop("limit"))
            if service.full is not None:
                actions.append(Emit(port, peer, (*envelope, service.full)))
            return
        self._requests += 1
        if self._memory is not None:
            self._memory.begin((port, peer, envelope))
        number = next(self.numbers)
        codec, payload = to_payload(body, as_list=service.as_list)
        known = body if service.join else None
        self._askers[number] = _Asker(port, peer, envelope, codec, size, known)
        level = self._counts.level(peer)
        self._counts.add(peer, 1)
        self._bytes.add(peer, size)
        self._of_peer.setdefault(peer, {})[number] = None
        if known is not None:
            self._joined[known] = number
        ids, payloads = self._arrived.setdefault((codec, level), ([], []))
        ids.append(number)
        payloads.append(payload)

    def _make_way(
        self, shares: ClientShares, peer: bytes, amount: int, actions: list[FrontDoorAction]
    ) -> bool:
        """Return whether a request fits a limit, after requests of other clients made way
        (PIRATE-7.11).
        """
        while shares.full(amount):
            other = shares.makes_way(peer, amount)
            if other is None:
                return False
            number = next(reversed(self._of_peer[other]))
            asker = self._forget(number)
            assert asker is not None
            actions.append(self._drop("share"))
            if self._memory is not None:
                self._memory.leave((asker.key,))
            if self.service.full is not None and not asker.gone:
                actions.append(Emit(asker.port, asker.peer, (*asker.envelope, self.service.full)))
            if number not in self._withhold([number]):
                actions.append(Cancelled([number], unstarted=True))
        return True

    def _answer_also(self, number: int, port: int, peer: bytes, envelope: Frames) -> None:
        """Let the newest asker of a job have its reply: the others ask no longer."""
        asker = self._askers[number]
        self._unlist(number, asker.peer)
        self._of_peer.setdefault(peer, {})[number] = None
        for shares, amount in ((self._counts, 1), (self._bytes, asker.size)):
            shares.remove(asker.peer, amount)
            shares.add(peer, amount)
        newest = evolve(asker, port=port, peer=peer, envelope=envelope, gone=False)
        self._askers[number] = newest
        if self._memory is not None:
            self._memory.leave((asker.key,))
            self._memory.begin(newest.key)

    def _end(
        self,
        number: int,
        end: End,
        payload: Frame,
        codec: str | None,
        now: float,
        actions: list[FrontDoorAction],
    ) -> None:
        asker = self._forget(number)
        if asker is None:
            return  # The client left, or the job is another door's.
        reply: Frames | None = None
        body = read_payload(asker.codec if codec is None else codec, payload)
        if asker.gone:
            self._dropped["client left"] += 1
        elif end is not End.OK:
            actions.append(self._unanswer(end.value, explain_end(end, payload)))
        elif body is None:
            actions.append(self._unanswer("unreadable", UNREADABLE))
        else:
            self._replies += 1
            reply = (*asker.envelope, *body)
            actions.append(Emit(asker.port, asker.peer, reply))
        if self._memory is not None:
            self._memory.end(asker.key, reply, now)

    def _unanswer(self, reason: str, why: str) -> Drop:
        """Count a request without a reply (PIRATE-7.9)."""
        self._unanswered[reason] += 1
        return no_reply(f"a request for the role {self.service.kind.role!r}", why)

    def _left(self, peer: bytes, actions: list[FrontDoorAction]) -> None:
        """Cancel the requests of a connection that ended (PIRATE-7.8).

        A request that others may join goes on: its client may send it again (PIRATE-7.10).
        """
        numbers = sorted(self._of_peer.get(peer, ()))
        if not numbers:
            return
        if self.service.join:
            for number in numbers:
                left = self._askers[number]
                left.gone = True
                if self._memory is not None:
                    self._memory.leave((left.key,))
            return
        for number in numbers:
            asker = self._forget(number)
            if asker is not None and self._memory is not None:
                self._memory.leave((asker.key,))
        self._dropped["client left"] += len(numbers)
        fresh = self._withhold(numbers)
        if rest := [number for number in numbers if number not in fresh]:
            actions.append(Cancelled(rest, unstarted=True))

    def _withhold(self, numbers: Iterable[int]) -> set[int]:
        """Take requests back that were not handed over yet; return their numbers."""
        gone = set(numbers)
        taken: set[int] = set()
        for key, (ids, payloads) in list(self._arrived.items()):
            kept = [
                (id, payload) for id, payload in zip(ids, payloads, strict=True) if id not in gone
            ]
            taken |= gone.intersection(ids)
            if kept:
                self._arrived[key] = ([id for id, _ in kept], [payload for _, payload in kept])
            else:
                del self._arrived[key]
        return taken

    def _forget(self, number: int) -> _Asker | None:
        asker = self._askers.pop(number, None)
        if asker is not None:
            self._counts.remove(asker.peer, 1)
            self._bytes.remove(asker.peer, asker.size)
            self._unlist(number, asker.peer)
            if asker.body is not None:
                del self._joined[asker.body]
        return asker

    def _unlist(self, number: int, peer: bytes) -> None:
        """Take a request from the requests of a connection."""
        numbers = self._of_peer[peer]
        del numbers[number]
        if not numbers:
            del self._of_peer[peer]

    def _drop(self, reason: str, detail: str = "") -> Drop:
        self._dropped[reason] += 1
        return Drop(reason, detail=detail)
