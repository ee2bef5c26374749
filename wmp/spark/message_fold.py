"""The messages of one part, folded: both ends of each message on each connection.

A message that is received must have been sent, with the same columns. A message that was sent once
and received once is a row of ``links``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from attrs import define, field

from wmp.message import SENT_BY_MANAGERS, SENT_BY_WORKERS
from wmp.spark.facts import FoldSink, Process, rounded

__all__ = ["MessageFold"]

_UP: Final = frozenset(command.name for command in SENT_BY_WORKERS - SENT_BY_MANAGERS)
"""Commands that only workers send, so that their direction is up."""
_SLACK: Final = 1_000_000
"""µs before the last line of a killed process within which its last lines may be lost."""
_AGAIN: Final = 60_000_000
"""µs after which a message that was received is not sent again."""
_GONE: Final = 300_000_000
"""µs after which no line about a message that one end lacks is expected."""

_End = tuple[Process, int, int]
"""(process, line number, time on its clock)."""


@define(eq=False)
class _Ends:
    """The lines of one message on one connection."""

    sent_lines: int = 0
    received_lines: int = 0
    arrived_lines: int = 0
    """Lines of a receiver behind devices, which compares its columns with those of the source."""
    sent: _End | None = None
    received: _End | None = None
    arrived: _End | None = None
    via: tuple[str, ...] | None = None
    contents: tuple[set[tuple[int, int]], set[tuple[int, int]]] = field(
        factory=lambda: (set(), set())
    )
    """(part, checksum) of head and body, as sent and as received."""

    def add(self, side: int, end: _End, head: int, body: int | None) -> None:
        """Add a line: of the sender (0), the receiver (1) or a receiver behind devices (2)."""
        if side == 0:
            self.sent_lines += 1
            self.sent = max(self.sent or end, end, key=_line)
        elif side == 1:
            self.received_lines += 1
            self.received = max(self.received or end, end, key=_line)
        else:
            self.arrived_lines += 1
            self.arrived = max(self.arrived or end, end, key=_line)
        contents = self.contents[side > 0]
        contents.add((0, head))
        if body is not None:
            contents.add((1, body))

    @property
    def lasts(self) -> list[_End]:
        """The last line of each end."""
        return [end for end in (self.sent, self.received, self.arrived) if end is not None]


def _line(end: _End) -> tuple[int, int]:
    return end[1], end[2]


@define(eq=False)
class MessageFold:
    """The messages whose place is in one part; a message with all its connections is in one."""

    open: dict[tuple[Any, ...], dict[int, _Ends]] = field(factory=dict)
    """The connections by the number of devices before, by message."""

    def add(self, lines: Iterable[tuple[Any, ...]]) -> None:
        """Add lines, as :mod:`wmp.spark.reading` packs them."""
        for line in lines:
            hops, side, node, epoch, n, at, via, head, body = line[9:]
            hopped = self.open.setdefault(line[:9], {})
            end = ((node, epoch), n, at)
            ends = hopped.get(hops)
            if ends is None:
                ends = hopped[hops] = _Ends()
            ends.add(side, end, head, body)
            if via:
                ends.via = via
            if side and hops:
                if 0 not in hopped:
                    hopped[0] = _Ends()
                hopped[0].add(2, end, head, body)

    def report(self, sink: FoldSink, *, last: bool) -> None:
        """Report and forget the messages about which no further line is expected.

        Args:
            sink: Gets the rows.
            last: Whether no further line comes at all.
        """
        for key, hopped in list(self.open.items()):
            if last or all(_is_settled(ends, sink) for ends in hopped.values()):
                _report(key, hopped, sink)
                del self.open[key]

    def report_open(self, sink: FoldSink) -> None:
        """Report the messages that are not settled, as far as they are known."""
        for key, hopped in self.open.items():
            _report(key, hopped, sink)


def _is_settled(ends: _Ends, sink: FoldSink) -> bool:
    whole = ends.sent is not None and (ends.received or ends.arrived) is not None
    wait = _AGAIN if whole else _GONE
    known = sink.known
    for process, _, at in ends.lasts:
        one = known.get(process)
        if one is not None and one.end is None and one.last <= at + wait:
            return False
    return True


def _report(key: tuple[Any, ...], hopped: dict[int, _Ends], sink: FoldSink) -> None:
    numbered = key[7]
    if _is_suspect(hopped[0]) if 0 in hopped else False:
        _suspect(key, hopped[0], sink)
    if not numbered:
        return
    pairs = {
        hops: ends
        for hops, ends in hopped.items()
        if ends.sent_lines == 1 and ends.received_lines == 1
    }
    for hops, ends in pairs.items():
        (sender, sent_n, sent_at), (receiver, received_n, received_at) = ends.sent, ends.received  # type: ignore[misc]
        sent, received = sink.time(sender, sent_at), sink.time(receiver, received_at)
        trip = None if sent is None or received is None else received - sent
        sink.add(
            "links",
            (
                *key[:7], hops, None if ends.via is None else list(ends.via), *sender, sent_n,
                sent_at, sent, *receiver, received_n, received_at, received, trip,
            ),
        )  # fmt: skip
        if not ends.via and trip is not None:
            sink.count(trip, "hop", None, None, rounded(max(trip, 0)))
        after = pairs.get(hops + 1)
        if after is not None and after.sent is not None and after.sent[0] == receiver:
            took = after.sent[2] - received_at
            direction = "up" if key[0] in _UP else "down"
            sink.count(took, "hop", receiver[0], direction, rounded(took))


def _is_suspect(ends: _Ends) -> bool:
    """Return whether a message was received, but not sent with the same columns."""
    if not ends.received_lines + ends.arrived_lines:
        return False
    sent, got = ends.contents
    return not ends.sent_lines or not got <= sent


def _suspect(key: tuple[Any, ...], ends: _Ends, sink: FoldSink) -> None:
    """Report a message.

    A process that was killed loses its last lines. A message whose source wrote no journal is left
    out.
    """
    command, source, source_epoch, _, _, session, number, numbered, _ = key
    origin = sink.known.get((source, source_epoch))
    got = ends.arrived or ends.received
    assert got is not None
    receiver, n, at = got
    if origin is None or receiver not in sink.known:
        return
    when = at + sink.known[receiver].clock
    early = when < origin.last + origin.clock - _SLACK
    if not (ends.sent_lines or origin.end is not None or early):
        return
    what = (
        f"{command}{f' {number}' if numbered else ''}"
        f"{'' if session is None else f' of session {session}'} from {source}"
    )
    story = [(*receiver, n)]
    detail = f"{what} was received, but its source did not send it"
    if ends.sent is not None:
        story.insert(0, (source, source_epoch, ends.sent[1]))
        detail = f"{what} was received with other columns than its source sent"
    sink.violation(
        "messages arrive as sent", detail, (*receiver, n, at), story,
        others=[(source, source_epoch)],
    )  # fmt: skip
