"""The sums of a journal, for ``wmp journal stat``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from wmp.journal.reader import Line
from wmp.message import counted, printable

_NOTED: Final = frozenset(("received", "undelivered", "garbled", "drop"))
"""Kinds of lines whose ``reason`` is the cause of an ignored message."""


def in_words(counts: Mapping[str, int]) -> str:
    """Return counts as text, the most frequent first; ``none`` if there are no counts."""
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    return ", ".join(f"{name} {count}" for name, count in rows) or "none"


@define(eq=False)
class _NodeStats:
    """One epoch of one node."""

    kind: str = ""
    label: str = ""
    host: str = ""
    lines: int = 0
    first: int = 0
    """µs since 1970, as all times here."""
    last: int = 0
    seen: int = 0
    """Highest number of a line so far."""
    lost: int = 0
    """Number of lines that the node could not write, by its own count."""
    ended: str = ""
    """``stop``, ``halt``, or empty: the node was killed or still runs."""


@define(eq=False)
class JournalStats:
    """Sums over all lines.

    Args:
        segments: Number of segments.
        size: Bytes of the segments.
    """

    segments: int
    size: int
    bad: Counter[str] = field(factory=Counter, init=False)
    nodes: dict[tuple[Path, str, int], _NodeStats] = field(factory=dict, init=False)
    """Statistics by folder, node and epoch, because another folder may have the same names."""
    whats: Counter[str] = field(factory=Counter, init=False)
    sent: Counter[str] = field(factory=Counter, init=False)
    received: Counter[str] = field(factory=Counter, init=False)
    dropped: Counter[str] = field(factory=Counter, init=False)
    noted: Counter[str] = field(factory=Counter, init=False)
    """Number of leases, locks and jobs that ended, by cause."""
    submitted: int = field(default=0, init=False)
    ends: Counter[str] = field(factory=Counter, init=False)

    def add(self, line: Line, folder: Path) -> None:
        """Count one line of a segment in this folder."""
        what, wall = line["what"], line["wall"]
        self.whats[what] += 1
        node = self.nodes.setdefault((folder, line["node"], line["epoch"]), _NodeStats(first=wall))
        node.lines += 1
        node.first, node.last = min(node.first, wall), max(node.last, wall)
        node.seen = max(node.seen, line["n"])
        if what in _NOTED and "reason" in line:
            self.dropped[line["reason"]] += 1
        match what:
            case "send":
                self.sent[line["command"]] += 1
            case "received":
                self.received[line["command"]] += 1
            case "note":
                about = line.get("locks") or line.get("ids") or (None,)
                name = "locks" if "locks" in line else "jobs"
                self.noted[f"{name}: {line['reason']}"] += len(about)
            case "submitted":
                self.submitted += len(line["ids"])
            case "resolve":
                ends, count = line["ends"], len(line["ids"])
                self.ends.update(ends * count if len(ends) == 1 else ends)
            case "start":
                node.kind, node.label = line["kind"], line.get("label", "")
                node.host = line.get("host", "")
            case "beat" | "stop":
                node.lost = line["lines"]
                if what == "stop" and not node.ended:
                    node.ended = "stop"
            case "halt":
                node.ended = f"halt: {line['reason']}" if "reason" in line else "halt"

    @property
    def missing(self) -> int:
        """Number of missing lines: lost by their writers, or in segments that were not read."""
        starts = self.whats["start"]
        return sum(node.seen for node in self.nodes.values()) - (self.whats.total() - starts)

    def as_dict(self) -> dict[str, Any]:
        """Return the sums as values for JSON."""
        return {
            "segments": self.segments,
            "bytes": self.size,
            "lines": self.whats.total(),
            "bad": dict(self.bad),
            "missing": self.missing,
            "nodes": [
                {
                    "folder": str(folder),
                    "node": name,
                    "epoch": epoch,
                    "kind": node.kind,
                    "label": node.label,
                    "host": node.host,
                    "lines": node.lines,
                    "lost": node.lost,
                    "first": node.first,
                    "last": node.last,
                    "ended": node.ended,
                }
                for (folder, name, epoch), node in self.nodes.items()
            ],
            "what": dict(self.whats),
            "sent": dict(self.sent),
            "received": dict(self.received),
            "dropped": dict(self.dropped),
            "noted": dict(self.noted),
            "submitted": self.submitted,
            "ends": dict(self.ends),
        }

    def words(self) -> list[str]:
        """Return the sums as text."""
        count = self.whats.total()
        if not count:
            empty = f"the journal is empty: it has {counted(self.segments, 'segment')} and no lines"
            return [empty, *([f"unreadable    {in_words(self.bad)}"] if self.bad else [])]
        first = min(node.first for node in self.nodes.values())
        last = max(node.last for node in self.nodes.values())
        return [
            f"segments      {self.segments}, {self.size / 1e6:.1f} MB",
            f"lines         {count}, missing {self.missing}, unreadable: {in_words(self.bad)}",
            f"time          {_when(first)} to {_when(last)}, {(last - first) / 1e6:.3f} s",
            f"kinds         {in_words(self.whats)}",
            f"sent          {in_words(self.sent)}",
            f"received      {in_words(self.received)}",
            f"ignored       {in_words(self.dropped)}",
            f"lost, expired {in_words(self.noted)}",
            f"jobs          {self.submitted} submitted; ended: {in_words(self.ends)}",
            "",
            *self._table(),
        ]

    def _table(self) -> list[str]:
        """Return a line of text for each epoch of a node."""
        folders = {folder for folder, _, _ in self.nodes}
        heads = ("kind", "node", "epoch", "label", "lines", "lost", "seconds", "ended", "folder")
        rows = [
            (
                node.kind,
                name if len(name) <= 34 else f"{name[:33]}…",
                str(epoch),
                printable(node.label),
                str(node.lines),
                str(node.lost),
                f"{(node.last - node.first) / 1e6:.3f}",
                node.ended or "no",
                str(folder),
            )
            for (folder, name, epoch), node in sorted(
                self.nodes.items(), key=lambda row: (row[0][0], row[1].kind, row[0][1:])
            )
        ]
        shown = len(heads) if len(folders) > 1 else -1
        table = [heads, *rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return [
            "  ".join(
                cell.ljust(width) for cell, width in zip(row[:shown], widths[:shown], strict=True)
            ).rstrip()
            for row in table
        ]


def _when(wall: int) -> str:
    return f"{datetime.fromtimestamp(wall / 1e6, UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
