"""The state that decides a machine's future, in a form in which equal states behave the same.

An :class:`Outline` divides a state into parts. Its *shape* must be equal. Its *times* count from
now. Its *numbers* belong to series, in which only their order counts, or their distance in the
numbered streams. :func:`canonical` joins the outlines of one machine or of a whole world. In a
world the number of a lock is the same at the manager, at the worker and in a message on its way.

Two numbers must keep their values: 0 means "none" and is part of the shape; 1 begins a stream (spec
§7), so streams are moved down to 2 and not further.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field, frozen

from wmp.core.protocol.claims import Claim
from wmp.core.protocol.outbound import Stream
from wmp.core.protocol.timers import Timers
from wmp.message import (
    SENT_BY_MANAGERS,
    SENT_BY_WORKERS,
    Columns,
    Command,
    Field,
    Message,
    Peer,
)

Series = tuple[Any, ...]
"""The series of a number: its kind, and the nodes to which it belongs."""

Snapshot = tuple[Hashable, ...]
"""A canonical state: it can be compared, hashed, and read in a debugger. Its form may change."""

_FAR: Final = 1 << 50
"""Value that is added to times in microseconds to make them positive, because CPython uses the
same hash for -1 and -2.
"""

DOWN: Final = "down"
"""The kind of the series that managers number, by (manager, worker, session)."""
UP: Final = "up"
"""The kind of the series that workers number, by (manager, worker, session)."""


@frozen(eq=False)
class Outline:
    """One part of a state, taken apart."""

    shape: Hashable
    times: tuple[float, ...] = ()
    past: tuple[tuple[float, float], ...] = ()
    """(time, age): all times that are ``age`` or more in the past have the same meaning."""
    ahead: tuple[float, ...] = ()
    """Times that have no meaning once they have passed."""
    numbers: tuple[tuple[Series, tuple[int, ...]], ...] = ()


@define(eq=False)
class Pen:
    """Collects times and numbers while a shape is built, always in the same order."""

    times: list[float] = field(factory=list)
    past: list[tuple[float, float]] = field(factory=list)
    ahead: list[float] = field(factory=list)
    _numbers: dict[Series, list[int]] = field(factory=dict)

    def number(self, series: Series, number: int) -> bool:
        """Record a number; False for 0, which means "none" and belongs to the shape."""
        if number:
            self.position(series, number)
            return True
        return False

    def position(self, series: Series, number: int) -> None:
        """Record a number of a stream, in which 0 is a position like any other."""
        numbers = self._numbers.get(series)
        if numbers is None:
            self._numbers[series] = [number]
        else:
            numbers.append(number)

    def outline(self, shape: Hashable) -> Outline:
        """Return the outline of a shape and the collected times and numbers."""
        numbers = tuple([(series, tuple(held)) for series, held in self._numbers.items()])
        return Outline(shape, tuple(self.times), tuple(self.past), tuple(self.ahead), numbers)


def canonical(outlines: Sequence[Outline], now: float) -> Snapshot:
    """Join outlines: times from ``now`` on, numbers by their order.

    Args:
        outlines: Parts in a fixed order.
        now: Seconds on the clock of the outlines' times.
    """
    numbers_of: dict[Series, set[int]] = {}
    for outline in outlines:
        for series, numbers in outline.numbers:
            if series in numbers_of:
                numbers_of[series].update(numbers)
            else:
                numbers_of[series] = set(numbers)
    ranks = {series: _ranks(series, numbers) for series, numbers in numbers_of.items()}
    parts: list[Hashable] = []
    for outline in outlines:
        parts.append(outline.shape)
        # Rounded, because one moment may have been computed in different ways.
        if outline.times:
            parts.append(tuple([round((t - now) * 1e6) + _FAR for t in outline.times]))
        if outline.past:
            parts.append(tuple([round(max(t - now, -age) * 1e6) + _FAR for t, age in outline.past]))
        if outline.ahead:
            parts.append(tuple([round(max(t - now, 0.0) * 1e6) for t in outline.ahead]))
        for series, numbers in outline.numbers:
            rank = ranks[series]
            parts.append(tuple([rank[number] for number in numbers]))
    return tuple(parts)


def _ranks(series: Series, numbers: set[int]) -> dict[int, int]:
    if series[0] == DOWN or series[0] == UP:
        base = max(0, min(numbers) - 2)
        return {number: number - base for number in numbers}
    return {number: rank for rank, number in enumerate(sorted(numbers))}


# -- common parts of machines


def amounts(mapping: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return a mapping as a hashable value."""
    return tuple(sorted(mapping.items())) if len(mapping) > 1 else tuple(mapping.items())


def ranks(numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the order of private numbers; equal numbers stay equal, and 0 stays 0."""
    order = {number: rank for rank, number in enumerate(sorted({0, *numbers}))}
    return tuple([order[number] for number in numbers])


def value_shape(value: Any) -> Hashable:
    """Return a field's value in a hashable form."""
    if isinstance(value, Mapping):
        return tuple([(key, value_shape(value[key])) for key in sorted(value, key=str)])
    if isinstance(value, (list, tuple)):
        return tuple([value_shape(item) for item in value])
    return bytes(value) if isinstance(value, memoryview) else value


def stream_shape(
    pen: Pen, stream: Stream, manager: Peer, worker: Peer, *, at_manager: bool
) -> Hashable:
    """Return both streams of a session, as one of its ends sees them."""
    session = stream.session
    pen.number(("session", manager), session)
    out, back = (DOWN, UP) if at_manager else (UP, DOWN)
    outward, inward = (out, manager, worker, session), (back, manager, worker, session)
    pen.position(outward, stream.sent)
    pen.position(outward, stream.acked)
    pen.position(inward, stream.received)
    kept = []
    for message in stream.kept:
        pen.times.append(message.sent_at)
        fields, columns = message.fields, message.columns
        shape = _fields_shape(pen, message.command, fields, manager, worker, session)
        # The number of sendings of a message matters to a manager's counters, but not at a worker.
        sends = message.sends if at_manager and message.command is Command.TAKE else 0
        columned = columns and _columns_shape(columns)
        kept.append((message.command, shape, columned, sends, message.replaced))
    # A gap that was reported before the last message in order no longer matters.
    return tuple(kept), stream._requested == stream.received + 1, stream.unacked_bytes


def claim_shape(
    pen: Pen, claim: Claim | None, confirmed_at: float, me: Peer, patience: float
) -> Hashable:
    """Return the claim to an identity, and the age of its holder's last answer to a challenge."""
    pen.past.append((confirmed_at, patience / 4))
    if claim is None:
        return None
    pen.number(("challenge", me), claim.number)
    return claim.link, claim.path, claim.command, claim.forgetful


def timer_names(pen: Pen, timers: Timers[Any], lock: Mapping[bytes, Series]) -> Hashable:
    """Return the timers in the order in which they fire.

    Args:
        lock: The series of the locks of each peer, by its identity.
    """
    names: list[Hashable] = []
    for name, (when, _) in sorted(timers._at.items(), key=_by_time):
        pen.times.append(when)
        if (number := getattr(name, "lock", None)) is not None:
            pen.number(lock[name.identity], number)
            name = name._replace(lock=0)
        names.append(name)
    return tuple(names)


def _by_time(item: tuple[Hashable, tuple[float, int]]) -> tuple[float, int]:
    return item[1]


# -- messages

_BY_WORKERS: Final = SENT_BY_WORKERS - SENT_BY_MANAGERS


def outline_message(message: Message) -> Outline:
    """Outline a message on its way. Its numbers belong to the pair of its two end nodes."""
    pen = Pen()
    other: Peer = (message.to[-1], message.to[-2]) if message.to else (b"", 0)  # type: ignore[assignment]
    manager, worker = message.sender, other
    if message.command in _BY_WORKERS:
        manager, worker = worker, manager
    session = message.fields.get(Field.SESSION, 0)
    fields = _fields_shape(pen, message.command, message.fields, manager, worker, session)
    columns = message.columns
    shape = (
        message.command,
        message.to,
        message.source,
        fields,
        columns and _columns_shape(columns),
        tuple(map(bytes, message.frames)),
    )
    return pen.outline(shape)


def _fields_shape(
    pen: Pen,
    command: Command,
    fields: Mapping[int | str, Any],
    manager: Peer,
    worker: Peer,
    session: int,
) -> Hashable:
    """Return the shape of the fields; the pen records the numbers that belong to a series."""
    rest: list[Hashable] = []
    mine, theirs = (UP, DOWN) if command in _BY_WORKERS else (DOWN, UP)
    sender = worker if command in _BY_WORKERS else manager
    about_lock = fields.get(Field.ABOUT) == Command.GIVE
    for key, value in fields.items():  # the fields of one command are always built in one order
        if key == Field.NUMBER:
            pen.position((mine, manager, worker, session), value)
        elif key == Field.ACK and session:
            pen.position((theirs, manager, worker, session), value)
        elif key == Field.SESSION:
            pen.number(("session", manager), value)
        elif key == Field.READY:
            pen.number(("ready", worker), value)
        elif key == Field.LOCK or (key == Field.ABOUT_NUMBER and about_lock):
            pen.number(("lock", worker), value)
        elif key == Field.CHALLENGE:
            pen.number(("challenge", sender), value)
        elif key == Field.ANSWER:
            pen.number(("challenge", worker if sender == manager else manager), value)
        elif key == Field.ABOUT_NUMBER:
            continue  # text for people has no effect
        else:
            rest.append((key, value_shape(value)))
            continue
        rest.append(key)
    return tuple(rest)


def _columns_shape(columns: Columns) -> Hashable:
    return tuple(
        [
            value_shape(column)
            for column in (
                columns.ids,
                columns.attempts,
                columns.left_ms,
                columns.outcomes,
                columns.payloads,
                columns.fractions,
                columns.texts,
                columns.expires_ms,
                columns.limits_ms,
                columns.failed,
                columns.begun,
                columns.waits_ms,
            )
        ]
    )
