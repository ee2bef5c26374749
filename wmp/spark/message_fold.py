"""The messages of one part, folded: both ends of each message on each connection.

A message that is received must have been sent, with the same columns. A message that was sent once
and received once is a row of ``links``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field

from wmp.message import SENT_BY_MANAGERS, SENT_BY_WORKERS
from wmp.spark.facts import FoldSink, KnownProcess, Process, rounded

__all__ = ["GONE", "MessageFold"]

_UP: Final = frozenset(command.name for command in SENT_BY_WORKERS - SENT_BY_MANAGERS)
"""Commands that only workers send, so that their direction is up."""
_SLACK: Final = 1_000_000
"""µs before the last line of a killed process within which its last lines may be lost."""
_AGAIN: Final = 60_000_000
"""µs after which a message that was received is not sent again."""
GONE: Final = 300_000_000
"""µs after which no line about a message that one end lacks is expected; a journal that comes later
makes all tables stale."""

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
        nodes: defaultdict[str, list[KnownProcess]] = defaultdict(list)
        for one in sink.known.values():
            nodes[one.node].append(one)
        for key, hopped in list(self.open.items()):
            if last or _is_settled(key, hopped, sink.known, nodes):
                _report(key, hopped, sink)
                del self.open[key]

    def report_open(self, sink: FoldSink) -> None:
        """Report the messages that are not settled, as far as they are known."""
        for key, hopped in self.open.items():
            _report(key, hopped, sink)


def _is_settled(
    key: tuple[Any, ...], hopped: Mapping[int, _Ends],
    known: Mapping[Process, KnownProcess], nodes: Mapping[str, Sequence[KnownProcess]],
) -> bool:  # fmt: skip
    """Return whether no process writes a further line about a message.

    Args:
        key: The message.
        hopped: Its lines.
        known: All processes.
        nodes: All processes by identity.
    """
    lasts = [end for ends in hopped.values() for end in ends.lasts]
    if any(known[who].end is None and known[who].last <= at + _AGAIN for who, _, at in lasts):
        return False
    top = max(hopped)
    last = hopped[top].received
    whole = all(
        place in hopped and hopped[place].received_lines >= hopped[place].sent_lines > 0
        for place in range(top + 1)
    ) and (key[3] is None or (last is not None and last[0][0] == key[3]))
    ends = {process for process, _, _ in lasts} | {key[1:3], key[3:5]}
    ends |= {(device, None) for one in hopped.values() for device in one.via or ()}
    concerned = {
        end: [one for one in nodes.get(end[0], ()) if end[1] in (None, one.epoch)]
        for end in ends
        if end[0] is not None
    }
    some = {(one.node, one.epoch): one for found in concerned.values() for one in found}
    if key[3] is None and not whole:  # each process may receive the message
        some = {(one.node, one.epoch): one for found in nodes.values() for one in found}
    wait = _AGAIN if whole else GONE
    late = [who for who, _, at in lasts if known[who].last <= at + wait]
    if any(known[who].end is None for who in late):
        return False
    due = max(at + known[who].clock for who, _, at in lasts) + wait
    for one in some.values():
        if one.end is None and not (one.compared and one.last + one.clock > due):
            return False
    # The journal of a process that is not known may come later.
    unknown = key[3] is None or any(
        epoch is None or not concerned[node, epoch] for node, epoch in concerned
    )
    return whole or not unknown or not late


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
    early = origin.compared and when < origin.last + origin.clock - _SLACK
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
