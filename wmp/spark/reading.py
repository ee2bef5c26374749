"""The first task of the pipeline: from lines to events, and to the parts of the folds.

A task parses its lines once. It writes their events, and makes parts for the folds: the lines of
each process with each of its peers, and both ends of each message. Parts are packed by
:mod:`marshal`, so Spark moves few rows, whatever their number of lines.
"""

from __future__ import annotations

import marshal
import pickle
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import pyarrow
from attrs import define, field

from wmp.spark import byte_ranges
from wmp.spark.arrow import schema_of
from wmp.spark.byte_ranges import ByteRange
from wmp.spark.facts import Process
from wmp.spark.line_parser import event_table, parse, text_of
from wmp.spark.process_lines import ProcessLines
from wmp.spark.tables import Parts, Written

__all__ = ["ROW", "Numbered", "ReadPart", "packed", "parsed_rows", "parsed_spans", "process_number"]

ROW: Final = "kind string, process bigint, peer bigint, rank bigint, body binary"
"""Columns of a part: what it is, whose it is, its place among its like, and its content."""

Numbered = tuple[str, int, int, int, bytes]
"""A row of ``ROW``."""

_FULL: Final = 32_768
"""Number of lines after which a task hands over parts."""
_EXAMPLE: Final = 200
_SAMPLED: Final = 64
"""Number of the messages of a stream by which the clocks of its ends are compared."""

_FOLDED: Final = frozenset({
    "received", "send", "undelivered", "garbled", "drop", "note", "resolve", "submitted",
    "cancelled", "decline", "run", "resized", "finished", "recalled", "instancebegun",
})  # fmt: skip
"""Kinds of lines that change a state that is rebuilt."""
_KEPT: Final = {
    name: sys.intern("announced" if name == "count" else name)
    for name in (
        "node", "epoch", "n", "at", "step", "what", "command", "source", "source_epoch", "target",
        "target_epoch", "session", "number", "ack", "ready", "credit", "count", "role", "lock",
        "want", "hold", "more", "owner", "owner_epoch", "unstarted", "code", "about",
        "about_number", "about_peer", "about_epoch", "reason", "lane", "priority", "retries",
        "ids", "attempts", "outcomes", "ends", "roles", "locks", "needs", "via", "resources",
        "due",
    )
}  # fmt: skip
"""Columns that the folds read, with their names there."""
_PEERS: Final = {"send": "target", "undelivered": "target", "note": "about_peer"}

_HEAD: Final = (
    "ready", "credit", "window", "roles", "resources", "count", "role", "needs", "lock", "want",
    "hold", "more", "owner", "owner_epoch", "codec", "unstarted", "expire", "code", "about",
    "about_number", "about_peer", "about_epoch", "label", "challenge", "answer",
)  # fmt: skip
"""Columns of the head that do not change when a message is sent again."""
_BODY: Final = ("ids", "attempts", "outcomes", "limits", "failed", "waits", "checksums", "bytes")
"""Columns of the jobs that do not change when a message is sent again."""
_MAPS: Final = (_HEAD.index("resources"), _HEAD.index("needs"))


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


def packed(rows: Sequence[Numbered]) -> pyarrow.RecordBatch:
    """Return parts as a batch of ``ROW``."""
    schema = schema_of(ROW)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pyarrow.array(c, k.type) for c, k in zip(columns, schema, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def parsed_spans(
    tasks: Sequence[Sequence[ByteRange]], parts: Parts, buckets: int, *, torn: bool
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Return a function for Spark, which reads the ranges of the task with each number."""

    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        def lines() -> Iterator[tuple[str, str]]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for span in tasks[number]:
                        name = span.path.rpartition("/")[2]
                        for line in byte_ranges.read(span, torn=torn):
                            yield name, text_of(line)

        return _ReadTask(parts, buckets).read(lines())

    return read


def parsed_rows(
    parts: Parts, buckets: int
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Return a function for Spark, which reads rows of (file, line)."""

    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        rows = (
            row
            for batch in batches
            for row in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        )
        return _ReadTask(parts, buckets).read(rows)

    return read


@define(eq=False)
class _ReadTask:
    """The work of one task."""

    parts: Parts
    buckets: int
    """Number of the parts into which messages are divided."""
    found: ReadPart = field(factory=ReadPart)
    _events: list[dict[str, Any]] = field(factory=list)
    _groups: defaultdict[tuple[Process, str | None], list[dict[str, Any]]] = field(
        factory=lambda: defaultdict(list)
    )
    _messages: defaultdict[int, list[tuple[Any, ...]]] = field(factory=lambda: defaultdict(list))

    def read(self, lines: Iterable[tuple[str, str]]) -> Iterator[pyarrow.RecordBatch]:
        """Read (file, line), and yield parts."""
        for file, text in lines:
            line = parse(text, file)
            if isinstance(line, str):
                if text.strip():
                    count, example = self.found.bad.get((file, line), (0, text))
                    self.found.bad[file, line] = (
                        count + 1, min(example, text)[:_EXAMPLE]
                    )  # fmt: skip
                continue
            self._add(line)
            if len(self._events) >= _FULL:
                yield from self._flush()
        yield from self._flush()
        self.found.written = self.parts.close()
        yield packed([("found", 0, 0, 0, pickle.dumps(self.found))])

    def _add(self, line: dict[str, Any]) -> None:
        what = line["what"]
        self._events.append(line)
        key = (line["node"], line["epoch"])
        process = self.found.processes.get(key)
        if process is None:
            process = self.found.processes[key] = ProcessLines(sys.intern(key[0]), key[1])
        process.add(line, what)
        if what not in _FOLDED:
            return
        if what in ("send", "received"):
            self._message(line, what, process)
        if what == "submitted":
            _add_due(line)
        peer = line.get(_PEERS.get(what, "source"))
        self._groups[key, peer].append({_KEPT[k]: v for k, v in line.items() if k in _KEPT})

    def _message(self, line: dict[str, Any], what: str, process: ProcessLines) -> None:
        get, command = line.get, line["command"]
        number, session = get("number"), get("session")
        if number is None:
            number = (
                get("lock") if command == "GIVE" else get("ready") if command == "READY" else None
            )
        values: list[Any] = [get(name) for name in _HEAD]
        for place in _MAPS:
            if values[place]:
                values[place] = sorted(values[place].items())
        head = marshal.dumps(values, 2)
        body = None
        if "ids" in line:
            body = zlib.crc32(marshal.dumps([get(name) for name in _BODY], 2))
        numbered = number is not None
        if number is None:
            number = process_number(head)
        source, target = get("source") or "", get("target")
        key = (
            sys.intern(command), sys.intern(source), get("source_epoch"),
            None if target is None else sys.intern(target), get("target_epoch"), session, number,
            numbered, get("want") == 0,
        )  # fmt: skip
        bucket = zlib.crc32(f"{source} {target} {session} {number}".encode()) % self.buckets
        side, hops, at = int(what == "received"), line["hops"], line["at"]
        via = get("via")
        self._messages[bucket].append((
            *key, hops, side, process.node, process.epoch, line["n"], at,
            None if via is None else tuple(via), zlib.crc32(head), body,
        ))  # fmt: skip
        if numbered and number <= _SAMPLED:
            self.found.samples.append(((*key, hops), side, process.key, at))

    def _flush(self) -> Iterator[pyarrow.RecordBatch]:
        if self._events:
            self.parts.write("events", event_table(self._events))
        rows: list[Numbered] = []
        for (process, peer), lines in self._groups.items():
            lines.sort(key=_number)
            who, whom = process_number(*process), process_number(peer)
            self.found.groups.add(("line", who, whom))
            rows.append(("line", who, whom, lines[0]["n"], marshal.dumps(lines)))
        for bucket, ends in self._messages.items():
            self.found.groups.add(("message", bucket, 0))
            rows.append(("message", bucket, 0, 0, marshal.dumps(ends)))
        self._events, self._groups = [], defaultdict(list)
        self._messages = defaultdict(list)
        if rows:
            yield packed(rows)


def _number(line: dict[str, Any]) -> int:
    n: int = line["n"]
    return n


def _add_due(line: dict[str, Any]) -> None:
    """Add the µs on the manager's clock before which no submitted job may time out.

    Times count from the start time. An attempt that exceeds a run limit may end a job at any time.
    """
    bounds = [line[name] for name in ("timeout", "expires_in") if name in line]
    if bounds or "run_limit" in line:
        bound = 0 if "run_limit" in line else min(bounds)
        line["due"] = line["at"] + line.get("delay", 0) + bound
