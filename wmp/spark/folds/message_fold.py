"""The messages of one part, folded: both ends of each message on each connection.

A message that is received must have been sent, with the same columns. A message that was sent once
and received once is a row of ``links``. A part has thousands of messages, so they are compared as
arrays.
"""

from __future__ import annotations

import marshal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow
from attrs import define, field

from wmp.message import SENT_BY_MANAGERS, SENT_BY_WORKERS
from wmp.spark.folds.facts import FoldSink, KnownProcess, ProcessKey, process_number
from wmp.spark.folds.process_lines import LineNumbers
from wmp.spark.journals.schema import ddl
from wmp.spark.session.arrow import schema_of

_UP: Final = frozenset(command.name for command in SENT_BY_WORKERS - SENT_BY_MANAGERS)
"""Commands that only workers send, so that their direction is up."""
_AGAIN: Final = 60_000_000
"""µs after which a message that was received is not sent again."""
GONE: Final = 300_000_000
"""µs after which no line about a message that one end lacks is expected; a journal that comes later
makes all tables stale."""
_HOPS: Final = 8
"""Number of the values of a stream that belong to the message, and not to a connection."""
_LINKS: Final = schema_of(ddl("links"))

_Array = np.ndarray[Any, Any]


class MessageStream(NamedTuple):
    """The common values of the lines of one process about the messages of one stream."""

    source: str
    numbered: bool
    """Whether the number is that of the message, and no checksum."""
    withdrawn: bool
    """Whether a GIVE wants no job."""
    command: str
    source_epoch: int | None
    target: str | None
    target_epoch: int | None
    session: int | None
    hops: int
    """Number of devices before the connection."""
    what: str
    """The kind of the lines: send or received."""
    node: str
    epoch: int
    via: tuple[str, ...] | None

    @property
    def process(self) -> ProcessKey:
        """The process that wrote the lines."""
        return self.node, self.epoch

    @property
    def side(self) -> int:
        """0: the messages were sent; 1: received."""
        return int(self.what == "received")


class _MessageLine(NamedTuple):
    """The values of one line."""

    number: int
    n: int
    at: int
    head: int
    """Checksum of the columns of the head."""
    body: int
    """Checksum of the columns of the jobs, -1 without jobs."""


_End = tuple[MessageStream, _MessageLine]


@define(eq=False)
class MessageFold:
    """The messages whose place is in one part; a message with all its connections is in one."""

    _lines: defaultdict[tuple[Any, ...], list[bytes]] = field(factory=lambda: defaultdict(list))
    """The values of all lines as 64-bit numbers, by stream."""

    def add(self, part: bytes) -> None:
        """Add (stream, lines) as :mod:`wmp.spark.folds.reading` packs them, or as :attr:`state`."""
        for stream, lines in marshal.loads(part):
            self._lines[stream].append(lines)

    @property
    def state(self) -> bytes:
        """The messages that were not reported, for :meth:`add`; empty without a message."""
        some = [(stream, b"".join(lines)) for stream, lines in self._lines.items()]
        return marshal.dumps(some) if some else b""

    def report(self, sink: FoldSink, *, last: bool) -> dict[tuple[Any, ...], LineNumbers]:
        """Report and forget the messages about which no further line is expected.

        Args:
            sink: Gets the rows.
            last: Whether no further line comes at all.

        Returns:
            The numbers of the forgotten messages without a target, by message.
        """
        ends = _Ends.of(self._lines)
        self._lines.clear()
        if last:
            ends.report(sink)
            return {}
        done = ends.settled(sink.known)
        ends.only(done).report(sink)
        closed: defaultdict[tuple[Any, ...], LineNumbers] = defaultdict(LineNumbers)
        for stream, line in ends.only(done & (ends.each(lambda stream: stream.target is None) > 0)):
            closed[stream[:_HOPS]].add(line.number)
        rest = ends.only(~done)
        order = np.argsort(rest.stream, kind="stable")
        streams, starts = np.unique(rest.stream[order], return_index=True)
        for number, lines in zip(streams, np.split(rest.lines[order], starts[1:]), strict=False):
            self._lines[tuple(ends.streams[number])].append(lines.tobytes())
        return closed

    def report_open(self, sink: FoldSink) -> None:
        """Report the messages that are not settled, as far as they are known."""
        _Ends.of(self._lines).report(sink)


def parts_of_messages(
    messages: Iterable[tuple[tuple[Any, ...], Any]], buckets: int
) -> Iterator[tuple[int, bytes]]:
    """Yield (part, packed messages) for :meth:`MessageFold.add`.

    Neighbours in a stream are in one part, so a part has few streams.

    Args:
        messages: (stream, lines) of any number of lines.
        buckets: Number of the parts.
    """
    parts: defaultdict[int, list[tuple[tuple[Any, ...], bytes]]] = defaultdict(list)
    for stream, packed in messages:
        fields, lines = MessageStream(*stream), _values(packed)
        blocks = lines[:, 0] >> 8 if fields.numbered else lines[:, 0] & 7
        first = process_number(fields.source, fields.target, fields.session) % buckets
        places = (first + blocks) % buckets
        for part in np.unique(places).tolist():
            parts[part].append((stream, lines[places == part].tobytes()))
    for part, ends in parts.items():
        yield part, marshal.dumps(ends)


@define(eq=False)
class _Ends:
    """Lines about messages, sorted by message, connection and side."""

    streams: Sequence[MessageStream]
    stream: _Array
    """The place of each line's stream."""
    lines: _Array
    """A row for each line, as :class:`_MessageLine`."""
    message: _Array
    """The number of each line's message in this object."""

    @classmethod
    def of(cls, lines: Mapping[tuple[Any, ...], Sequence[bytes]]) -> _Ends:
        """Sort lines."""
        packed = list(map(b"".join, lines.values()))
        values, sizes = _values(b"".join(packed)), [len(_values(part)) for part in packed]
        stream = np.repeat(np.arange(len(sizes)), sizes)
        ends = cls(list(map(MessageStream._make, lines)), stream, values, stream)
        numbers: defaultdict[tuple[Any, ...], int] = defaultdict(lambda: len(numbers))
        family = ends.each(lambda key: numbers[key[:_HOPS]])
        order = np.lexsort((ends.side, ends.hops, values[:, 0], family))
        return cls(
            ends.streams, stream[order], values[order],
            _runs(family[order], values[order, 0]),
        )  # fmt: skip

    def only(self, chosen: Any) -> _Ends:
        """Return some of the lines."""
        return _Ends(self.streams, self.stream[chosen], self.lines[chosen], self.message[chosen])

    def each(self, value: Callable[[MessageStream], int]) -> _Array:
        """Return a number of the stream of each line."""
        return np.array(list(map(value, self.streams)), np.int64)[self.stream]

    @property
    def hops(self) -> _Array:
        """The number of devices before each line's connection."""
        return self.each(attrgetter("hops"))

    @property
    def side(self) -> _Array:
        """0 for sent, 1 for received."""
        return self.each(attrgetter("side"))

    def times(self, known: Mapping[ProcessKey, KnownProcess]) -> _Array:
        """Return the time of each line on the common clock."""
        return self.lines[:, 2] + self.each(lambda stream: known[stream.process].clock)

    def __iter__(self) -> Iterator[_End]:
        lines = map(_MessageLine._make, self.lines.tolist())
        return zip(map(self.streams.__getitem__, self.stream.tolist()), lines, strict=True)

    def settled(self, known: Mapping[ProcessKey, KnownProcess]) -> _Array:
        """Return for each line whether no process writes a further line about its message."""
        nodes: defaultdict[str, list[KnownProcess]] = defaultdict(list)
        for process in known.values():
            nodes[process.node].append(process)
        messages: defaultdict[int, list[_End]] = defaultdict(list)
        for number, end in zip(self.message.tolist(), self, strict=True):
            messages[number].append(end)
        settled = [_is_settled(ends, known, nodes) for ends in messages.values()]
        return np.repeat(np.array(settled, bool), list(map(len, messages.values())))

    def report(self, sink: FoldSink) -> None:
        """Add the rows and violations of all messages."""
        self._compare(sink)
        cells = _runs(self.message, self.hops, self.side)
        start = np.flatnonzero(np.diff(cells, prepend=-1))
        alone = np.diff(start, append=len(cells)) == 1
        first, last = self.only(start[:-1]), self.only(start[1:])
        pairs = alone[:-1] & alone[1:] & (first.side < last.side)
        pairs &= (first.message == last.message) & (first.hops == last.hops)
        pairs &= first.each(attrgetter("numbered")) > 0
        first, last = first.only(pairs), last.only(pairs)
        _add_links(first, last, sink)
        numbers: defaultdict[ProcessKey, int] = defaultdict(lambda: len(numbers))
        device = lambda stream: numbers[stream.process]  # noqa: E731
        before, after = slice(None, -1), slice(1, None)
        here = last.only(before).each(device) == first.only(after).each(device)
        _count_hops(first.only(before), last.only(after), here, sink)

    def _compare(self, sink: FoldSink) -> None:
        """Report the messages that were received, but not sent with the same columns.

        Each receiver is compared with the source, and with the node at the other end of the
        connection, whose line also has the same devices on the route.
        """
        received = self.side == 1
        sent = ~received & (self.hops == 0)
        head, body = (self.message << 32 | self.lines[:, column] for column in (3, 4))
        from_source = np.isin(head, head[sent]) & (
            (self.lines[:, 4] < 0) | np.isin(body, body[sent])
        )
        routes: defaultdict[Any, int] = defaultdict(lambda: len(routes))
        route = self.each(lambda stream: routes[stream.via])
        # A message to a receiver names its whole route from the start.
        on_route = self.message << 32 | route
        from_source &= np.isin(on_route, on_route[sent]) | (
            self.each(lambda stream: stream.target is None) > 0
        )
        from_source |= (
            self.each(lambda stream: (stream.source, stream.source_epoch) in sink.known) == 0
        )
        on_link = _runs(self.message, self.hops) * (len(routes) + 1) + route << 32
        on_link |= self.lines[:, 3]
        passed = np.isin(on_link, on_link[~received])
        wrong = received & ~(from_source & passed & (self.each(_is_misplaced) == 0))
        places = np.flatnonzero(wrong)
        order = np.argsort(self.only(places).times(sink.known), kind="stable")
        nodes: defaultdict[str, list[KnownProcess]] = defaultdict(list)
        if len(places):
            for process in sink.known.values():
                nodes[process.node].append(process)
        for number in dict.fromkeys(self.message[places[order]].tolist()):  # the first are shown
            begin, end = np.searchsorted(self.message, [number, number + 1])
            whole = list(self.only(slice(begin, end)))
            flags = zip(wrong[begin:end].tolist(), from_source[begin:end].tolist(), strict=True)
            received_wrong = [
                (receiver, line, _witnesses(receiver, own, sink.known, nodes))
                for (receiver, line), (bad, own) in zip(whole, flags, strict=True)
                if bad
            ]
            _suspect(whole, received_wrong, sink)


def _is_misplaced(stream: MessageStream) -> bool:
    """Return whether the receiver of a message is not at the end of the route."""
    return stream.node == stream.target and len(stream.via or ()) != stream.hops


def _witnesses(
    receiver: MessageStream, from_source: bool, known: Mapping[ProcessKey, KnownProcess],
    nodes: Mapping[str, Sequence[KnownProcess]],
) -> list[KnownProcess]:  # fmt: skip
    """Return the processes of which one should have a line that sent a received message.

    Args:
        receiver: The stream of the receiver's line.
        from_source: Whether the source sent the message, so that only the connection is in doubt.
        known: All processes.
        nodes: All processes by identity.
    """
    if _is_misplaced(receiver) or (from_source and len(receiver.via or ()) < receiver.hops):
        return [known[receiver.process]]  # its own line contradicts itself
    if not from_source or receiver.hops == 0:
        origin = known.get((receiver.source, receiver.source_epoch or 0))
        return [] if origin is None else [origin]
    return list(nodes.get(receiver.via[receiver.hops - 1], ()))  # type: ignore[index]


def _values(packed: Any) -> _Array:
    """Return packed lines as rows of :class:`_MessageLine`."""
    return np.frombuffer(packed, np.int64).reshape(-1, len(_MessageLine._fields))


def _runs(*columns: _Array) -> _Array:
    """Number the rows; neighbours with equal values have one number."""
    changed = np.zeros(len(columns[0]), bool)
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.cumsum(changed)


def _add_links(first: _Ends, last: _Ends, sink: FoldSink) -> None:
    """Add a row of ``links`` for each pair of a sent and a received line."""
    if not len(first.stream):
        return
    began, ended = first.times(sink.known), last.times(sink.known)
    # The receiver is mostly farther on the route, so its line names more devices.
    via = np.where(last.each(lambda stream: bool(stream.via)), last.stream, first.stream)
    columns = {
        **{name: (name, first.stream) for name in MessageStream._fields[:_HOPS]},
        "via": ("via", via),
        "sender": ("node", first.stream), "sender_epoch": ("epoch", first.stream),
        "receiver": ("node", last.stream), "receiver_epoch": ("epoch", last.stream),
    }  # fmt: skip
    numbers = {
        "number": first.lines[:, 0], "hops": first.hops, "sent_n": first.lines[:, 1],
        "sent_at": first.lines[:, 2], "sent": began, "received_n": last.lines[:, 1],
        "received_at": last.lines[:, 2], "received": ended, "trip": ended - began,
    }  # fmt: skip
    arrays = []
    for column in _LINKS:
        if column.name in numbers:
            arrays.append(pyarrow.array(numbers[column.name]).cast(column.type))
            continue
        name, streams = columns[column.name]
        values = pyarrow.array([getattr(stream, name) for stream in first.streams], column.type)
        arrays.append(values.take(pyarrow.array(streams)))
    sink.tables["links"].append(pyarrow.Table.from_arrays(arrays, schema=_LINKS))
    direct = np.array([not stream.via for stream in first.streams])[via]
    sink.samples(np.maximum(ended - began, 0)[direct].tolist(), "hop", None, None)


def _count_hops(sent: _Ends, received: _Ends, here: _Array, sink: FoldSink) -> None:
    """Count the time from one neighbour of a device to the other.

    The lines of the device itself show no time: it receives and sends a message in one step.

    Args:
        sent: The lines of neighbours that sent a message.
        received: The line after each on the same route, or of another message.
        here: Whether one device received the message from the former and sent it to the latter.
        sink: Gets the counts.
    """
    passed = here & (received.message == sent.message) & (sent.hops + 1 == received.hops)
    took = np.maximum(received.times(sink.known) - sent.times(sink.known), 0)[passed]
    streams = received.stream[passed]
    for number in np.unique(streams):
        stream = received.streams[number]
        direction = "up" if stream.command in _UP else "down"
        device = (stream.via or ("",))[min(stream.hops, len(stream.via or ("",))) - 1]
        sink.samples(took[streams == number].tolist(), "hop", device, direction)


def _is_settled(
    ends: Sequence[_End], known: Mapping[ProcessKey, KnownProcess],
    nodes: Mapping[str, Sequence[KnownProcess]],
) -> bool:  # fmt: skip
    """Return whether no process writes a further line about a message.

    Args:
        ends: The lines of the message.
        known: All processes.
        nodes: All processes by identity.
    """
    first = ends[0][0]
    target = first.target
    lines = Counter((stream.hops, stream.side) for stream, _ in ends)
    top = max(stream.hops for stream, _ in ends)
    whole = all(lines[hops, 1] >= lines[hops, 0] > 0 for hops in range(top + 1)) and (
        target is None or any(s.side and s.hops == top and s.node == target for s, _ in ends)
    )
    wait = _AGAIN if whole else GONE
    times = [(known[stream.process], line.at) for stream, line in ends]
    late = [process for process, at in times if process.last <= at + wait]
    if any(process.end is None for process in late):
        return False
    parties: set[tuple[str | None, int | None]] = {
        (first.source, first.source_epoch), (target, first.target_epoch if whole else None)
    }  # fmt: skip
    parties |= {stream.process for stream, _ in ends}
    parties |= {(device, None) for stream, _ in ends for device in stream.via or ()}
    concerned = {
        (node, epoch): [
            process for process in nodes.get(node, ()) if epoch in (None, process.epoch)
        ]
        for node, epoch in parties
        if node is not None
    }
    # Each process may receive a message without a target.
    some = nodes.values() if target is None and not whole else concerned.values()
    due = max(at + process.clock for process, at in times) + wait
    for process in chain.from_iterable(some):
        if process.end is None and not (process.compared and process.last + process.clock > due):
            return False
    # The journal of a process that is not known may come later.
    unknown = target is None or any(
        epoch is None or not processes for (_, epoch), processes in concerned.items()
    )
    return whole or not unknown or not late


def _suspect(
    ends: Sequence[_End],
    wrong: Sequence[tuple[MessageStream, _MessageLine, Sequence[KnownProcess]]],
    sink: FoldSink,
) -> None:
    """Report a message that was received, but not sent with the same columns.

    A process that was killed loses its last lines. Another line about a message of the same number
    or head does not show that the line of the received message is there: a message is sent again
    with other columns, and PINGs have no number. So only a message that arrived before the last
    line of its sender was certainly sent by a line that is there.

    Args:
        ends: All lines about the message.
        wrong: The lines of receivers that no line of a sender explains, with the processes that
            may have sent the message.
        sink: Gets the violation.
    """
    stream, (number, *_) = ends[0]
    source = (stream.source, stream.source_epoch or 0)
    sent = [end[1].n for end in ends if (end[0].side, end[0].hops) == (0, 0)]
    if not sent and number in sink.closed.get(stream[:_HOPS], LineNumbers()):
        sink.late += 1  # only the message without a target may have receivers beside the first
        return
    proved = []
    for receiver, line, senders in wrong:
        me = sink.known[receiver.process]
        ran = [sender for sender in senders if not sender.begins_after(me, line.at)]
        if ran and all(sender.has_lines_until(me, line.at) for sender in ran):
            proved.append((receiver, line, ran))
    if not proved:
        return
    # A receiver behind devices compares its columns with those of the source.
    got, last, senders = max(proved, key=lambda end: (end[0].hops > 0, end[1].n, end[1].at))
    what = (
        f"{stream.command}{f' {number}' if stream.numbered else ''}"
        f"{'' if stream.session is None else f' of session {stream.session}'} from {source[0]}"
    )
    story = [(*got.process, last.n)]
    detail = f"{what} was received, but {senders[-1].node} did not send it"
    if sent and source in sink.known:
        story.insert(0, (*source, max(sent)))
        detail = f"{what} was received with other columns than {senders[-1].node} sent"
    others = [(sender.node, sender.epoch) for sender in senders]
    sink.violation(
        "messages arrive as sent", detail, (*got.process, last.n, last.at), story, others=others
    )
