"""The first task of the pipeline: from lines to events, and to the parts of the folds.

A task parses its lines once. It writes their events, and makes parts for the folds: the lines of
each process with each of its peers, and both ends of each message. Parts are packed by
:mod:`marshal`, so Spark moves few rows, whatever their number of lines.
"""

from __future__ import annotations

import marshal
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final

import pyarrow
from attrs import define, field, frozen

from wmp.spark.arrow import schema_of
from wmp.spark.facts import Process
from wmp.spark.line_parser import event_table, parse
from wmp.spark.lines import LineRow
from wmp.spark.process_lines import ProcessLines
from wmp.spark.tables import Parts, Written

__all__ = ["ROW", "Numbered", "ReadPart", "ReadTask", "packed", "process_number"]

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
_NAMES: Final = {
    "count" if name == "announced" else name: sys.intern(name) for name in LineRow.__annotations__
}
"""Columns that the folds read, with their names there."""
_PEERS: Final = {"send": "target", "undelivered": "target", "note": "about_peer"}

_HEAD: Final = (
    "ready", "credit", "window", "roles", "resources", "count", "role", "needs", "lock", "want",
    "hold", "more", "owner", "owner_epoch", "codec", "unstarted", "expire", "code", "about",
    "about_number", "about_peer", "about_epoch", "label", "challenge", "answer", "standby",
)  # fmt: skip
"""Columns of the head that do not change when a message is sent again."""
_BODY: Final = ("ids", "attempts", "outcomes", "limits", "failed", "waits", "checksums", "bytes")
"""Columns of the jobs that do not change when a message is sent again."""
_MAPS: Final = frozenset({"resources", "needs"})


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


@define(eq=False)
class ReadTask:
    """The work of one task: lines become events, and parts of the folds."""

    parts: Parts
    buckets: int
    """Number of the parts into which messages are divided."""
    found: ReadPart = field(factory=ReadPart)
    _events: list[dict[str, Any]] = field(factory=list)
    _groups: defaultdict[tuple[Process, str | None], list[dict[str, Any]]] = field(
        factory=lambda: defaultdict(list)
    )
    _messages: defaultdict[int, list[tuple[Any, ...]]] = field(factory=lambda: defaultdict(list))

    def read(self, lines: Iterable[tuple[str, str]]) -> Iterator[list[Numbered]]:
        """Read (file, line), and yield parts; after the last, ``found`` is complete."""
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
                yield self._flush()
        yield self._flush()
        self.found.written = self.parts.close()

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
        picked = _picked(tuple(line))
        if what in ("send", "received"):
            self._message(line, what, process, picked)
        columns = dict(zip(picked.names, picked.kept(line), strict=True))
        if what == "submitted":
            _add_due(line, columns)
        self._groups[key, line.get(_PEERS.get(what, "source"))].append(columns)

    def _message(
        self, line: dict[str, Any], what: str, process: ProcessLines, picked: _Picked
    ) -> None:
        get, command = line.get, line["command"]
        number, session = get("number"), get("session")
        if number is None:
            number = (
                get("lock") if command == "GIVE" else get("ready") if command == "READY" else None
            )
        head = marshal.dumps(picked.head(line), 2)
        body = None
        if "ids" in line:
            body = zlib.crc32(marshal.dumps([get(name) for name in _BODY], 2))
        numbered = number is not None
        if number is None:
            number = process_number(picked.start, head)
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
            None if via is None else tuple(via), zlib.crc32(head, picked.start), body,
        ))  # fmt: skip
        if numbered and number <= _SAMPLED:
            self.found.samples.append(((*key, hops), side, process.key, at))

    def _flush(self) -> list[Numbered]:
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
        return rows


def _number(line: dict[str, Any]) -> int:
    n: int = line["n"]
    return n


def _add_due(line: dict[str, Any], columns: dict[str, Any]) -> None:
    """Add the µs on the manager's clock before which no submitted job may time out.

    Times count from the start time. An attempt that exceeds a run limit may end a job at any time.
    """
    bounds = [line[name] for name in ("timeout", "expires_in") if name in line]
    if bounds or "run_limit" in line:
        bound = 0 if "run_limit" in line else min(bounds)
        columns["due"] = line["at"] + line.get("delay", 0) + bound


@frozen
class _Picked:
    """The columns that are picked from lines with the same columns."""

    kept: Callable[[dict[str, Any]], tuple[Any, ...]]
    """Returns the values that folds read."""
    names: tuple[str, ...]
    """The names of these values in folds."""
    head: Callable[[dict[str, Any]], Any]
    """Returns the values of the head that do not change when a message is sent again."""
    start: int
    """A checksum of the names of the head."""


@lru_cache(4096)
def _picked(columns: tuple[str, ...]) -> _Picked:
    kept = [name for name in columns if name in _NAMES]
    names = [name for name in _HEAD if name in columns]
    head: Callable[[dict[str, Any]], Any] = itemgetter(*names, "command")
    if not _MAPS.isdisjoint(names):
        plain = [name for name in names if name not in _MAPS]
        some, maps = itemgetter(*plain, "command"), [name for name in names if name in _MAPS]

        def head(line: dict[str, Any]) -> Any:
            return some(line), [sorted(line[name].items()) for name in maps]

    start = zlib.crc32(" ".join(names).encode())
    return _Picked(itemgetter(*kept), tuple(_NAMES[name] for name in kept), head, start)
