"""The first task of the pipeline: from lines to events, and to the parts of the folds.

A task parses its lines once. It writes their events, and makes parts for the folds: the lines of
each process with each of its peers, and both ends of each message. A part is packed as one value,
so Spark moves few rows, whatever their number of lines.
"""

from __future__ import annotations

import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow
from attrs import define, field

from wmp.spark.folds.facts import ProcessKey, process_number
from wmp.spark.folds.message_fold import MessageStream, parts_of_messages
from wmp.spark.folds.process_lines import ProcessLines
from wmp.spark.journals.lines import HEAD_COLUMNS, LineRow, event_table, packed_lines, parse
from wmp.spark.journals.tables import Parts, Written

ROW: Final = "kind string, process bigint, peer bigint, rank bigint, body binary"
"""Columns of a part: what it is, whose it is, its place among its like, and its content."""

Numbered = tuple[str, int, int, int, bytes]
"""A row of ``ROW``."""

_FULL: Final = 2_048
"""Number of lines of a batch; a larger batch does not fit into the processor's cache."""
_TABLES: Final = 16
"""Number of such batches that are written together."""
_EXAMPLE: Final = 200
_SAMPLED: Final = 64
"""Number of the messages of a stream by which the clocks of its ends are compared."""

FOLDED: Final = frozenset({
    "received", "send", "undelivered", "garbled", "drop", "note", "resolve", "submitted",
    "cancelled", "decline", "run", "resized", "finished", "recalled", "instancebegun", "begun",
    "recall", "interrupt", "reported", "notify", "disconnected",
    "leased", "returned",
})  # fmt: skip
"""Kinds of lines that change a state that is rebuilt."""
_ALONE: Final = ("worker", "device")
"""Kinds of nodes whose lines with all peers are folded together."""
_number: Final = attrgetter("n")
_PEERS: Final = {"send": "target", "undelivered": "target", "note": "about_peer"}

_NUMBERS: Final = {"GIVE": "lock", "READY": "ready"}
"""The numbers of messages that have no place in a numbered stream."""
_stream: Final = attrgetter(
    "command", "source_epoch", "target", "target_epoch", "session", "hops", "what", "node", "epoch"
)
"""Returns most values of :class:`wmp.spark.folds.message_fold.MessageStream`."""
_ENDS: Final = MessageStream._fields.index("what")
"""Number of the first values of a stream, which are equal at both ends of a connection."""
_head: Final = attrgetter(*HEAD_COLUMNS)
"""Columns of the head, which each receiver reads as the source sent them."""
_body: Final = attrgetter(
    "ids", "attempts", "outcomes", "left", "expires", "limits", "failed", "waits", "checksums",
    "begun", "bytes",
)  # fmt: skip
"""Columns of the jobs, which the receiver reads as the source sent them."""
_encoded: Final = msgspec.msgpack.Encoder(order="deterministic").encode
"""Returns columns as bytes, whatever the order of the entries of a map."""


@define(eq=False)
class ReadPart:
    """The findings of a task beside the parts of the folds."""

    processes: dict[ProcessKey, ProcessLines] = field(factory=dict)
    bad: dict[tuple[str, str], tuple[int, str]] = field(factory=dict)
    """(number of lines, an example) of bad lines, by file and reason."""
    samples: list[tuple[Any, ...]] = field(factory=list)
    """Both ends of the messages that compare clocks."""
    groups: set[tuple[str, int, int]] = field(factory=set)
    """(kind, process, peer) of all parts."""
    written: list[Written] = field(factory=list)

    @property
    def lines(self) -> int:
        """Number of all lines."""
        good = sum(process.lines for process in self.processes.values())
        return good + sum(count for count, _ in self.bad.values())

    def merge(self, other: ReadPart) -> None:
        """Add what another task found."""
        for key, process in other.processes.items():
            self.processes.setdefault(key, ProcessLines(*key)).merge(process)
        for name, (lines, example) in other.bad.items():
            before = self.bad.get(name, (0, example))
            self.bad[name] = before[0] + lines, min(before[1], example)
        self.samples += other.samples
        self.groups |= other.groups
        self.written += other.written


@define(eq=False)
class ReadTask:
    """The work of one task: lines become events, and parts of the folds."""

    parts: Parts
    buckets: int
    """Number of the parts into which messages are divided."""
    result: ReadPart = field(factory=ReadPart)
    _events: list[pyarrow.Table] = field(factory=list)
    _messages: defaultdict[tuple[Any, ...], array[int]] = field(
        factory=lambda: defaultdict(lambda: array("q"))
    )
    """The values of :mod:`wmp.spark.folds.message_fold`, by stream."""

    def read(self, lines: Iterable[tuple[str, bytes]]) -> Iterator[list[Numbered]]:
        """Read (file, line), and yield parts; after the last, ``result`` is complete."""
        left = iter(lines)
        while some := list(islice(left, _FULL)):
            yield self._parts(*zip(*some, strict=True))
            if len(self._events) >= _TABLES:
                yield self._write()
        yield self._write()
        self.result.written = self.parts.close()

    def _write(self) -> list[Numbered]:
        """Write the events so far, and return the parts of their messages."""
        if self._events:
            self.parts.write("events", pyarrow.concat_tables(self._events))
            self._events.clear()
        parts = parts_of_messages(self._messages.items(), self.buckets)
        rows: list[Numbered] = [("message", bucket, 0, 0, ends) for bucket, ends in parts]
        self._messages.clear()
        self.result.groups |= {row[:3] for row in rows}
        return rows

    def _parts(self, files: Sequence[str], texts: Sequence[bytes]) -> list[Numbered]:
        """Return the lines of each process as parts."""
        lines, names = [], []
        for line, file, text in zip(parse(texts, files), files, texts, strict=True):
            if not isinstance(line, str):
                lines.append(line)
                names.append(file)
            elif text.strip():
                words = text.decode(errors="replace")[:_EXAMPLE]
                count, example = self.result.bad.get((file, line), (0, words))
                self.result.bad[file, line] = count + 1, min(example, words)
        if lines:
            self._events.append(event_table(lines, names))
        own: defaultdict[ProcessKey, list[LineRow]] = defaultdict(list)
        for line in lines:
            own[line.node, line.epoch].append(line)
        rows: list[Numbered] = []
        for key, some in own.items():
            process = self.result.processes.setdefault(key, ProcessLines(*key))
            process.add(some)
            peers: defaultdict[str | None, list[LineRow]] = defaultdict(list)
            kind = None if process.start is None else process.kind
            for line in some:
                if line.what in FOLDED:
                    peers[None if kind in _ALONE else peer_of(line)].append(line)
                # No journal has the end at which a beat is sent: another process sends it.
                if line.what in ("send", "received") and not line.beat:
                    self._add_message(line)
            for peer, part in peers.items():
                part.sort(key=_number)
                group = ("line", process_number(*key), process_number(peer))
                rows.append((*group, part[0].n, packed_lines(part)))
        self.result.groups |= {row[:3] for row in rows}
        return rows

    def _add_message(self, line: LineRow) -> None:
        """Add an end of a message to its stream."""
        number = line.number
        if number is None:
            number = getattr(line, _NUMBERS.get(line.command, "number"))
        head = zlib.crc32(_encoded(_head(line)))
        body = -1 if line.ids is None else zlib.crc32(_encoded(_body(line)))
        withdrawn, via = line.want == 0, line.via or None
        stream = (line.source or "", number is not None, withdrawn, *_stream(line), via)
        if number is None:
            self._messages[stream].extend((head, line.n, line.at, head, body))
            if line.text is None or line.reason is not None:
                return  # a line about an ignored message has the reason in `text`
            number = head = zlib.crc32(line.text.encode(errors="replace"), head)
        elif number <= _SAMPLED:
            side, process = int(line.what == "received"), (line.node, line.epoch)
            self.result.samples.append(((stream[:_ENDS], number), side, process, line.at))
        self._messages[stream].extend((number, line.n, line.at, head, body))


def peer_of(line: LineRow) -> str | None:
    """Return the identity of the peer with which a manager's line is folded."""
    peer: str | None = getattr(line, _PEERS.get(line.what, "source"))
    return peer
