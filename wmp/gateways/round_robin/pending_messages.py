"""The messages of the clients of round robin: from their arrival to the ends of their jobs."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from wmp.codec import pack_frames
from wmp.events import Submitted
from wmp.foreign import Frames
from wmp.gateways.common.body import FRAMES_CODEC
from wmp.gateways.round_robin.terms import RoundRobinDoorSettings
from wmp.gateways.round_robin.wire import LmqMessage, LmqType
from wmp.message import Frame, Kind

_OVERHEAD = 512
"""Bytes that a message in progress takes in addition to its frames."""

_KEPT = _OVERHEAD + 128
"""Maximum size of a message whose arguments are kept beside the payload of its job."""


def size_of(frames: Frames) -> int:
    """Return the bytes that a message counts towards ``limit_bytes`` (RR-5.3)."""
    return sum(map(len, frames)) + _OVERHEAD


@define(eq=False)
class ClientMessage:
    """A message of a client in progress."""

    port: int
    peer: bytes
    hops: Frames
    role: str
    type: LmqType
    id: bytes
    size: int
    arguments: Frames | None
    """Command and arguments, if they are few bytes: the payload of the job has them, too."""
    answer: tuple[Frame, Frames, bytes] | None = None
    """The answer of a worker of round robin: payload, frames, and address of the worker."""


@define(eq=False)
class ClientMessages:
    """The messages of clients, by the numbers of their jobs.

    Args:
        terms: Roles and limits.
        numbers: Gives the numbers of the jobs.
    """

    terms: RoundRobinDoorSettings
    numbers: Iterator[int]
    size: int = field(default=0, init=False)
    """Bytes of all messages."""
    _by_number: dict[int, ClientMessage] = field(factory=dict, init=False)
    _of_peer: dict[bytes, set[int]] = field(factory=dict, init=False)
    _left: set[int] = field(factory=set, init=False)
    """Jobs without a client that have not ended."""
    _arrived: dict[str, tuple[list[int], list[Frame]]] = field(factory=dict, init=False)
    """Numbers and payloads that are not jobs yet, by role."""

    def __len__(self) -> int:
        return len(self._by_number)

    def get(self, number: int) -> ClientMessage | None:
        """Return the message of a job; None for a job of another door, or without a client."""
        return self._by_number.get(number)

    def add(self, port: int, peer: bytes, message: LmqMessage, size: int) -> None:
        """Take a message; ``hand_over`` makes a job of it."""
        number = next(self.numbers)
        role = self.terms.roles.get(message.command, self.terms.role)
        kept = message.arguments if size <= _KEPT else None
        self._by_number[number] = ClientMessage(
            port, peer, message.hops, role, message.type, message.id, size, kept
        )
        self.size += size
        self._of_peer.setdefault(peer, set()).add(number)
        ids, payloads = self._arrived.setdefault(role, ([], []))
        ids.append(number)
        payloads.append(pack_frames(message.arguments))

    def hand_over(self) -> list[Submitted]:
        """Return the jobs of the messages that arrived since the last call."""
        arrived = self._arrived
        if not arrived:
            return []
        self._arrived = {}
        terms = self.terms
        return [
            Submitted(
                ids=ids,
                payloads=payloads,
                kind=Kind(role, codec=FRAMES_CODEC),
                priority=terms.priority,
                timeout=terms.timeout,
                max_worker_losses=terms.max_worker_losses,
            )
            for role, (ids, payloads) in arrived.items()
        ]

    def left(self, number: int) -> bool:
        """Return whether a job has lost its client."""
        return number in self._left

    def forget(self, number: int) -> ClientMessage | None:
        """Remove a message, with the end of its job; None if there is none of this number."""
        self._left.discard(number)
        asker = self._by_number.pop(number, None)
        if asker is not None:
            self.size -= asker.size
            numbers = self._of_peer[asker.peer]
            numbers.discard(number)
            if not numbers:
                del self._of_peer[asker.peer]
        return asker

    def forget_all(self, peer: bytes) -> tuple[int, list[int]]:
        """Remove the messages of a client.

        Returns:
            Their number, and the numbers of those that are jobs already.
        """
        gone = set(self._of_peer.get(peer, ()))
        jobs = set(gone)
        for number in gone:
            self.forget(number)
        for role, (ids, payloads) in list(self._arrived.items() if gone else ()):
            kept = [
                (id, payload) for id, payload in zip(ids, payloads, strict=True) if id not in gone
            ]
            jobs.difference_update(ids)
            self._arrived[role] = ([id for id, _ in kept], [payload for _, payload in kept])
            if not kept:
                del self._arrived[role]
        self._left |= jobs
        return len(gone), sorted(jobs)
