"""The first task of the pipeline: from lines to events, and to the parts of the folds.

A task parses its lines once. It writes their events, and makes parts for the folds: the lines of
each process with each of its peers, and both ends of each message. A part is packed as one value,
so Spark moves few rows, whatever their number of lines.
"""

from __future__ import annotations

import marshal
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Final

import pyarrow
from attrs import define, field

from wmp.spark.facts import Process
from wmp.spark.lines import LineRow, event_table, packed_lines, parse
from wmp.spark.process_lines import ProcessLines
from wmp.spark.tables import Parts, Written

__all__ = [
    "FOLDED", "ROW", "Numbered", "ReadPart", "ReadTask", "part_of_message", "peer_of",
    "process_number",
]  # fmt: skip

ROW: Final = "kind string, process bigint, peer bigint, rank bigint, body binary"
"""Columns of a part: what it is, whose it is, its place among its like, and its content."""

Numbered = tuple[str, int, int, int, bytes]
"""A row of ``ROW``."""

_FULL: Final = 4_096
"""Number of lines of a batch; a larger batch does not fit into the processor's cache."""
_TABLES: Final = 8
"""Number of such batches that are written together."""
_EXAMPLE: Final = 200
_SAMPLED: Final = 64
"""Number of the messages of a stream by which the clocks of its ends are compared."""

FOLDED: Final = frozenset({
    "received", "send", "undelivered", "garbled", "drop", "note", "resolve", "submitted",
    "cancelled", "decline", "run", "resized", "finished", "recalled", "instancebegun",
})  # fmt: skip
"""Kinds of lines that change a state that is rebuilt."""
_number: Final = attrgetter("n")
_PEERS: Final = {"send": "target", "undelivered": "target", "note": "about_peer"}

_head: Final = attrgetter(
    "command", "ready", "credit", "window", "roles", "count", "role", "lock", "want", "hold",
    "more", "owner", "owner_epoch", "codec", "unstarted", "expire", "code", "about",
    "about_number", "about_peer", "about_epoch", "label", "challenge", "answer", "standby",
)  # fmt: skip
"""Columns of the head that do not change when a message is sent again, beside the maps."""
_maps: Final[Callable[[LineRow], tuple[Any, ...]]] = attrgetter("resources", "needs")
_body: Final = attrgetter(
    "ids", "attempts", "outcomes", "limits", "failed", "waits", "checksums", "bytes"
)
"""Columns of the jobs that do not change when a message is sent again."""


_Messages = defaultdict[int, defaultdict[tuple[Any, ...], "array[int]"]]
"""The values of :mod:`wmp.spark.message_fold`, by stream, by part."""


@define(eq=False)
class ReadPart:
    """The findings of a task beside the parts of the folds."""

    processes: dict[Process, ProcessLines] = field(factory=dict)
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
        good = sum(one.lines for one in self.processes.values())
        return good + sum(count for count, _ in self.bad.values())

    def merge(self, other: ReadPart) -> None:
        """Add what another task found."""
        for key, process in other.processes.items():
            if key in self.processes:
                self.processes[key].merge(process)
            else:
                self.processes[key] = process
        for name, (lines, example) in other.bad.items():
            before = self.bad.get(name, (0, example))
            self.bad[name] = before[0] + lines, min(before[1], example)
        self.samples += other.samples
        self.groups |= other.groups
        self.written += other.written


@lru_cache(65_536)
def process_number(*who: Any) -> int:
    """Return a process, or another tuple, as a number; two almost surely have different numbers."""
    digest = blake2b(repr(who).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def part_of_message(message: Sequence[Any], number: Any, buckets: int) -> Any:
    """Return the part of a message: neighbours in a stream are in one, so a part has few streams.

    Args:
        message: The first values of :class:`wmp.spark.message_fold.MessageStream`.
        number: The number of the message, or an array of numbers.
        buckets: Number of the parts.
    """
    _, source, _, target, _, session, numbered, *_ = message
    block = number >> 8 if numbered else number & 7
    return (process_number(source, target, session) % buckets + block) % buckets


@define(eq=False)
class ReadTask:
    """The work of one task: lines become events, and parts of the folds."""

    parts: Parts
    buckets: int
    """Number of the parts into which messages are divided."""
    found: ReadPart = field(factory=ReadPart)
    _lines: list[LineRow] = field(factory=list)
    _files: list[str] = field(factory=list)
    """The segment of each line."""
    _events: list[pyarrow.Table] = field(factory=list)

    def read(self, lines: Iterable[tuple[str, bytes]]) -> Iterator[list[Numbered]]:
        """Read (file, line), and yield parts; after the last, ``found`` is complete."""
        for file, text in lines:
            line = parse(text, file)
            if not isinstance(line, str):
                self._lines.append(line)
                self._files.append(file)
                if len(self._lines) >= _FULL:
                    yield self._flush()
            elif text.strip():
                words = text.decode(errors="replace")[:_EXAMPLE]
                count, example = self.found.bad.get((file, line), (0, words))
                self.found.bad[file, line] = count + 1, min(example, words)
        yield self._flush()
        self._write()
        self.found.written = self.parts.close()

    def _write(self) -> None:
        if self._events:
            self.parts.write("events", pyarrow.concat_tables(self._events))
            self._events.clear()

    def _flush(self) -> list[Numbered]:
        """Write the events of the lines so far, and return their parts."""
        lines, files, self._lines, self._files = self._lines, self._files, [], []
        if not lines:
            return []
        self._events.append(event_table(lines, files))
        if len(self._events) >= _TABLES:
            self._write()
        own: defaultdict[Process, list[LineRow]] = defaultdict(list)
        for line in lines:
            own[line.node, line.epoch].append(line)
        rows: list[Numbered] = []
        messages: _Messages = defaultdict(lambda: defaultdict(lambda: array("q")))
        for key, some in own.items():
            process = self.found.processes.get(key)
            if process is None:
                process = self.found.processes[key] = ProcessLines(*key)
            process.add(some)
            peers: defaultdict[str | None, list[LineRow]] = defaultdict(list)
            is_device = process.start is not None and process.kind == "device"
            for line in some:
                if line.what in FOLDED and not is_device:
                    peers[peer_of(line)].append(line)
                if line.what in ("send", "received"):
                    self._message(line, key, messages)
            for peer, part in peers.items():
                part.sort(key=_number)
                group = ("line", process_number(*key), process_number(peer))
                rows.append((*group, part[0].n, packed_lines(part)))
        for bucket, streams in messages.items():
            ends = [(stream, values.tobytes()) for stream, values in streams.items()]
            rows.append(("message", bucket, 0, 0, marshal.dumps(ends)))
        self.found.groups |= {row[:3] for row in rows}
        return rows

    def _message(self, line: LineRow, process: Process, messages: _Messages) -> None:
        """Add an end of a message to the part of its message."""
        command, number = line.command, line.number
        if number is None:
            number = {"GIVE": line.lock, "READY": line.ready}.get(command)
        amounts = _maps(line)
        if amounts != (None, None):
            amounts = tuple(some and sorted(some.items()) for some in amounts)
        head = marshal.dumps(_head(line) + amounts, 2)
        body = -1 if line.ids is None else zlib.crc32(marshal.dumps(_body(line), 2))
        numbered = number is not None
        if number is None:
            number = int.from_bytes(blake2b(head, digest_size=8).digest(), "big", signed=True)
        side, via = int(line.what == "received"), tuple(line.via) if line.via else None
        message = (
            command, line.source or "", line.source_epoch, line.target, line.target_epoch,
            line.session, numbered, line.want == 0,
        )  # fmt: skip
        bucket = part_of_message(message, number, self.buckets)
        ends = messages[bucket][*message, line.hops, side, *process, via]
        ends.extend((number, line.n, line.at, zlib.crc32(head), body))
        if numbered and number <= _SAMPLED:
            self.found.samples.append(((*message, number, line.hops), side, process, line.at))


def peer_of(line: LineRow) -> str | None:
    """Return the identity of the peer with which a manager's line is folded."""
    peer: str | None = getattr(line, _PEERS.get(line.what, "source"))
    return peer
