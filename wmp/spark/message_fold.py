"""The messages of one part, folded: both ends of each message on each connection.

A message that is received must have been sent, with the same columns. A message that was sent once
and received once is a row of ``links``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from attrs import define, field

from wmp.message import SENT_BY_MANAGERS, SENT_BY_WORKERS
from wmp.spark.facts import FoldSink, KnownProcess, Process

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

_Message = tuple[Any, ...]
"""(command, source, source_epoch, target, target_epoch, session, number, whether the number is that
of the message, whether a GIVE wants no job)."""


class _LineEnd(NamedTuple):
    """A line about a message on one connection."""

    hops: int
    """Number of devices before the connection."""
    side: int
    """0: the message was sent; 1: received."""
    node: str
    epoch: int
    n: int
    at: int
    via: tuple[str, ...] | None
    head: int
    """Checksum of the columns of the head."""
    body: int | None
    """Checksum of the columns of the jobs."""


@define(eq=False)
class MessageFold:
    """The messages whose place is in one part; a message with all its connections is in one."""

    open: defaultdict[_Message, list[tuple[Any, ...]]] = field(factory=lambda: defaultdict(list))
    """The values of all :class:`_LineEnd` of each message."""

    def add(self, lines: Iterable[tuple[Any, ...]]) -> None:
        """Add lines, as :mod:`wmp.spark.reading` packs them."""
        for line in lines:
            self.open[line[:9]].append(line[9:])

    def report(self, sink: FoldSink, *, last: bool) -> None:
        """Report and forget the messages about which no further line is expected.

        Args:
            sink: Gets the rows.
            last: Whether no further line comes at all.
        """
        nodes: defaultdict[str, list[KnownProcess]] = defaultdict(list)
        for one in sink.known.values():
            nodes[one.node].append(one)
        for key, ends in list(self.open.items()):
            if last or _is_settled(key, list(map(_LineEnd._make, ends)), sink.known, nodes):
                _report(key, ends, sink)
                del self.open[key]

    def report_open(self, sink: FoldSink) -> None:
        """Report the messages that are not settled, as far as they are known."""
        for key, ends in self.open.items():
            _report(key, ends, sink)


def _is_settled(
    key: _Message, ends: Sequence[_LineEnd],
    known: Mapping[Process, KnownProcess], nodes: Mapping[str, Sequence[KnownProcess]],
) -> bool:  # fmt: skip
    """Return whether no process writes a further line about a message.

    Args:
        key: The message.
        ends: Its lines.
        known: All processes.
        nodes: All processes by identity.
    """
    _, source, source_epoch, target, target_epoch, *_ = key
    lines, top = Counter((end.hops, end.side) for end in ends), max(end.hops for end in ends)
    whole = all(lines[hops, 1] >= lines[hops, 0] > 0 for hops in range(top + 1)) and (
        target is None or any(end.side and end.hops == top and end.node == target for end in ends)
    )
    wait = _AGAIN if whole else GONE
    times = [(known[end.node, end.epoch], end.at) for end in ends]
    late = [one for one, at in times if one.last <= at + wait]
    if any(one.end is None for one in late):
        return False
    parties: set[tuple[str | None, int | None]] = {(source, source_epoch), (target, target_epoch)}
    parties |= {(end.node, end.epoch) for end in ends}
    parties |= {(device, None) for end in ends for device in end.via or ()}
    concerned = {
        (node, epoch): [one for one in nodes.get(node, ()) if epoch in (None, one.epoch)]
        for node, epoch in parties
        if node is not None
    }
    # Each process may receive a message without a target.
    some = nodes.values() if target is None and not whole else concerned.values()
    due = max(at + one.clock for one, at in times) + wait
    for one in (process for processes in some for process in processes):
        if one.end is None and not (one.compared and one.last + one.clock > due):
            return False
    # The journal of a process that is not known may come later.
    unknown = target is None or any(
        epoch is None or not processes for (_, epoch), processes in concerned.items()
    )
    return whole or not unknown or not late


def _report(key: _Message, ends: Sequence[tuple[Any, ...]], sink: FoldSink) -> None:
    connections: defaultdict[int, tuple[list[_LineEnd], list[_LineEnd]]]
    connections = defaultdict(lambda: ([], []))
    for values in ends:
        end = _LineEnd._make(values)
        connections[end.hops][end.side].append(end)
    sent = connections[0][0]
    got = [end for _, received in connections.values() for end in received]
    heads, bodies = {end.head for end in sent}, {end.body for end in sent}
    for end in got:
        if end.head not in heads or (end.body is not None and end.body not in bodies):
            _suspect(key, sent, got, sink)
            break
    if not key[7]:
        return
    pairs = {
        hops: (sent[0], received[0])
        for hops, (sent, received) in connections.items()
        if len(sent) == 1 and len(received) == 1
    }
    for hops, (first, last) in pairs.items():
        sender, receiver = first[2:4], last[2:4]
        via = last.via or first.via
        began, ended = first.at + sink.known[sender].clock, last.at + sink.known[receiver].clock
        sink.add(
            "links",
            (
                *key[:7], hops, via, *sender, first.n, first.at, began,
                *receiver, last.n, last.at, ended, ended - began,
            ),
        )  # fmt: skip
        if not via:
            sink.sample(max(ended - began, 0), "hop", None, None)
        after = pairs.get(hops + 1)
        if after is not None and after[0][2:4] == receiver:
            direction = "up" if key[0] in _UP else "down"
            sink.sample(after[0].at - last.at, "hop", receiver[0], direction)


def _suspect(
    key: _Message, sent: Sequence[_LineEnd], got: Sequence[_LineEnd], sink: FoldSink
) -> None:
    """Report a message that was received, but not sent with the same columns.

    A process that was killed loses its last lines. A message whose source wrote no journal is left
    out.
    """
    command, source, source_epoch, _, _, session, number, numbered, _ = key
    origin = sink.known.get((source, source_epoch))
    # A receiver behind devices compares its columns with those of the source.
    last = max(got, key=lambda end: (end.hops > 0, end.n, end.at))
    receiver = (last.node, last.epoch)
    if origin is None:
        return
    when = last.at + sink.known[receiver].clock
    early = origin.compared and when < origin.last + origin.clock - _SLACK
    if not (sent or origin.end is not None or early):
        return
    what = (
        f"{command}{f' {number}' if numbered else ''}"
        f"{'' if session is None else f' of session {session}'} from {source}"
    )
    story = [(*receiver, last.n)]
    detail = f"{what} was received, but its source did not send it"
    if sent:
        story.insert(0, (source, source_epoch, max((end.n, end.at) for end in sent)[0]))
        detail = f"{what} was received with other columns than its source sent"
    sink.violation(
        "messages arrive as sent", detail, (*receiver, last.n, last.at), story,
        others=[(source, source_epoch)],
    )  # fmt: skip
