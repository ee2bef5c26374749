"""The words of the specification: commands, fields, paths, columns, messages.

This module holds values only. :mod:`wmp.codec` turns them into frames, and :mod:`wmp.core` acts
on them. Section numbers are those of ``specs/wmp.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from wmp.vocabulary import (
    DEFAULT_NEEDS,
    DEFAULT_ROLE,
    ERROR_CODES,
    FIELD_NAMES,
    NUMBERED_BY_MANAGERS,
    NUMBERED_BY_WORKERS,
    SENT_BY_MANAGERS,
    SENT_BY_WORKERS,
    VERSION,
    Command,
    ErrorCode,
    Field,
    Frame,
    Limits,
    Link,
    Outcome,
    Path,
    Peer,
)

__all__ = [
    "DEFAULT_NEEDS",
    "DEFAULT_ROLE",
    "ERROR_CODES",
    "FIELD_NAMES",
    "NUMBERED_BY_MANAGERS",
    "NUMBERED_BY_WORKERS",
    "SENT_BY_MANAGERS",
    "SENT_BY_WORKERS",
    "VERSION",
    "Columns",
    "Command",
    "ErrorCode",
    "Field",
    "ForwardedKind",
    "Frame",
    "Kind",
    "Limits",
    "Link",
    "Message",
    "Outcome",
    "Path",
    "Peer",
    "counted",
    "hops",
    "named",
    "printable",
]


@frozen(cache_hash=True)
class Kind:
    """Role, needs and codec of a job; jobs of one kind share a TAKE."""

    role: str = DEFAULT_ROLE
    needs: tuple[tuple[str, int], ...] = DEFAULT_NEEDS
    """Amounts by resource, sorted by name; an amount is never 0."""
    codec: str = ""
    """How the payload is encoded; empty means bytes."""
    checksum: bool = False
    """Whether payloads and results travel with a checksum."""


@frozen(cache_hash=True)
class ForwardedKind(Kind):
    """The kind of jobs that a forwarding manager gets or hands on (section 19).

    Jobs of different owners, or with different ways, are of different kinds, so that no TAKE mixes
    them.
    """

    owner: Peer = (b"", 0)
    """Owner of the jobs."""
    passed: tuple[bytes, ...] = ()
    """Identities of the forwarding managers that the jobs have passed, in their order."""


@frozen
class Columns:
    """The jobs of one message: one sequence for each property, all with the same length."""

    ids: Sequence[int]
    """Numbers of the jobs at their owner."""
    attempts: Sequence[int]
    """Number of the lease of each job, from 1."""
    left_ms: Sequence[int | None] | None = None
    """Milliseconds until the job's deadline, None for no deadline (TAKE)."""
    outcomes: Sequence[int] | None = None
    """Outcome of each attempt, an :class:`Outcome` (DONE)."""
    payloads: Sequence[Frame] | None = None
    """The job's payload (TAKE) or its result (DONE)."""
    fractions: Sequence[float | None] | None = None
    """Progress from 0 to 1 (STATUS)."""
    texts: Sequence[str | None] | None = None
    """Text about the progress, for people (STATUS); text of a job that failed, or that was
    cancelled after it had begun (DONE)."""
    expires_ms: Sequence[int | None] | None = None
    """Milliseconds within which the job may be begun; None for any time (TAKE)."""
    limits_ms: Sequence[int | None] | None = None
    """Milliseconds for which the attempt may run; None for no limit (TAKE)."""
    failed: Sequence[int | None] | None = None
    """Number of failed attempts; None: the job's own settings name the errors that are tried again
    (TAKE).
    """
    waits_ms: Sequence[int | None] | None = None
    """Milliseconds after which the job should be tried again after its error; None for no such
    request (DONE).
    """
    checksums: Sequence[int | None] | None = None
    """CRC-32 of each payload, None for none (TAKE, DONE)."""
    begun: Sequence[int | None] | None = None
    """Number of earlier runs of each job that began or may have begun; None: all earlier leases
    (TAKE)."""


@frozen
class Message:
    """One message between two neighbours.

    ``frames`` holds the undecoded frames after the head. :func:`wmp.codec.peek` sets them for
    devices; they are empty when ``columns`` was decoded.
    """

    command: Command
    to: Path = ()
    source: Path = ()
    fields: Mapping[int | str, Any] = field(factory=dict)
    columns: Columns | None = None
    frames: tuple[Frame, ...] = ()

    @property
    def sender(self) -> Peer:
        """(identity, epoch) of the end node that made the message."""
        return self.source[0], self.source[1]  # type: ignore[return-value]

    @property
    def receiver(self) -> bytes | None:
        """Identity of the end node that ``to`` names last, None for a message without ``to``."""
        return self.to[-1] if self.to else None  # type: ignore[return-value]

    @property
    def answer_to(self) -> Path:
        """The ``to`` of an answer."""
        return self.source[::-1]

    @property
    def hops(self) -> int:
        """Number of devices that the message has passed."""
        return hops(self.source)


def hops(source: Path) -> int:
    """Return the number of devices in a ``from``: each has three elements; 0 for no path."""
    return max(0, (len(source) - 2) // 3)


def printable(text: str, keep: str = "") -> str:
    """Return a peer's text with escapes for all characters that would control a terminal.

    Args:
        text: A label, the text of an ERROR, an exception's text.
        keep: Characters that stay although they are not printable, such as a line's end.
    """
    if text.isprintable():
        return text
    shown = [c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text]
    return "".join(shown)


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, for people: ``1 job``, ``2 jobs``.

    Args:
        count: The number.
        singular: The words after the number 1.
        plural: The words after any other number; by default ``singular`` with an ``s``.
    """
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def named(identity: bytes) -> str:
    """Return an identity for people: its text if it is printable, else hex."""
    try:
        text = identity.decode()
    except UnicodeDecodeError:
        return identity.hex()
    return text if text.isprintable() else identity.hex()
