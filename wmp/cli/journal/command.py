"""``wmp journal``: prints journals."""

from __future__ import annotations

import heapq
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from wmp.cli.common.entry_point import complain
from wmp.cli.common.options import ProgramCommand
from wmp.cli.common.progress import ProgressBar
from wmp.cli.journal.stats import JournalStats, in_words
from wmp.journal.reader import Line, Reader, find_segments, strands
from wmp.journal.schema import COLUMNS, LINES
from wmp.message import counted, printable

_PROGRAM: Final = "wmp"
_MERGED: Final = 256
"""Maximum number of journals whose lines are merged; all of them are open at the same time."""
_SHOWN: Final = 12
"""Maximum number of jobs that are shown for a line."""
_ELSEWHERE: Final = frozenset(
    (
        *("v", "node", "epoch", "n", "step", "at", "wall", "what", "command", "source"),
        *("source_epoch", "target", "target_epoch", "hops", "via", "reason", "text", "ids"),
    )
)
"""Columns that are not shown as NAME=VALUE."""
_OTHERS: Final = tuple(column.name for column in COLUMNS if column.name not in _ELSEWHERE)

_PATHS: Final = click.argument("paths", metavar="PATH…", nargs=-1, required=True)


@click.group(
    short_help="Read the journals of nodes.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def journal() -> None:
    """Read the journals of nodes that ran with --journal or journal=.

    A journal records the messages and decisions of a node.
    """


@journal.command(
    name="cat",
    cls=ProgramCommand,
    short_help="Print the lines of journals.",
    epilog="""
    wmp journal cat journal
    wmp journal cat journal --job 17 --node worker-3
    wmp journal cat journal --command DONE --json
    """,
)
@_PATHS
@click.option(
    "--node",
    "nodes",
    metavar="TEXT",
    multiple=True,
    help="Print only lines of nodes with this name.",
)
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    help="Print only lines of nodes of this kind: manager, worker or device.",
)
@click.option(
    "--command",
    "commands",
    metavar="NAME",
    multiple=True,
    help="Print only lines with this message.",
)
@click.option(
    "--what",
    "whats",
    metavar="WHAT",
    multiple=True,
    help="Print only lines of this kind: send, run, …",
)
@click.option(
    "--job",
    "jobs",
    metavar="NUMBER",
    type=int,
    multiple=True,
    help="Print only lines about this job.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the lines as JSON.")
def _cat(
    paths: tuple[str, ...],
    nodes: tuple[str, ...],
    kinds: tuple[str, ...],
    commands: tuple[str, ...],
    whats: tuple[str, ...],
    jobs: tuple[int, ...],
    as_json: bool,
) -> int:
    """Print the lines of journals (folders or files) in the order of the wall clocks.

    A line must match every kind of filter that is given. For a filter that is given several
    times, the line must match one of the values. TEXT is the beginning of a node's identity or
    label. Unfinished segments, of running or killed nodes, are read as well.
    """
    for what in whats:
        if what not in LINES:
            raise click.UsageError(f"--what is {what!r}; expected one of {', '.join(LINES)}")
    upper = {command.upper() for command in commands}
    reader = Reader()
    crew = _NodeNames()
    shown = False
    for line in _merged(reader, find_segments(paths)):
        crew.meet(line)
        if (
            (not whats or line["what"] in whats)
            and (not upper or line.get("command") in upper)
            and (not jobs or not set(jobs).isdisjoint(line.get("ids", ())))
            and (not nodes or crew.is_called(line, nodes))
            and (not kinds or crew.kind(line) in kinds)
        ):
            shown = True
            print(json.dumps(line, separators=(",", ":")) if as_json else crew.words(line))
    sys.stdout.flush()
    if not reader.lines:
        complain(_PROGRAM, "the journal is empty: it contains no lines")
    elif not shown:
        complain(_PROGRAM, f"none of {counted(reader.lines, 'line')} matches the filters")
    if reader.bad:
        complain(
            _PROGRAM,
            "these lines are not valid lines of a journal and were skipped: "
            f"{in_words(reader.bad)}",
        )
    return 0


@journal.command(
    name="stat",
    cls=ProgramCommand,
    short_help="Print a summary of journals.",
    epilog="""
    wmp journal stat journal
    wmp journal stat journal --json
    """,
)
@_PATHS
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
def _stat(paths: tuple[str, ...], as_json: bool, quiet: bool) -> int:
    """Print a summary: nodes, time, messages, jobs, ignored messages, lost lines."""
    segments = find_segments(paths)
    total = sum(_size(segment) for segment in segments)
    totals = JournalStats(len(segments), total)
    with ProgressBar(_PROGRAM, total >> 10, shown=not quiet) as bar:
        reader = Reader(lambda size: bar.advance(size >> 10, "KiB"))
        for segment in segments:
            for line in reader.read(segment):
                totals.add(line, segment.parent)
    totals.bad = reader.bad
    if as_json:
        print(json.dumps(totals.as_dict(), indent=2))
    else:
        print("\n".join(totals.words()))
    return 0


def _size(segment: Path) -> int:
    try:
        return segment.stat().st_size
    except OSError:  # the segment was finished, and thus renamed, since it was found
        return 0


def _merged(reader: Reader, segments: Sequence[Path]) -> Iterable[Line]:
    """Yield all lines; lines of a few nodes are merged in the order of their wall clocks."""
    groups = strands(segments)
    if len(groups) > _MERGED:
        complain(
            _PROGRAM,
            f"{len(groups)} nodes are too many to merge; their lines are printed node after node",
        )
        return (line for segment in segments for line in reader.read(segment))
    return heapq.merge(*(_strand(reader, group) for group in groups), key=lambda line: line["wall"])


def _strand(reader: Reader, segments: Sequence[Path]) -> Iterator[Line]:
    for segment in segments:
        yield from reader.read(segment)


class _NodeNames:
    """The nodes of the lines, and their names."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[str, str]] = {}
        """(kind, label) of each node, by (identity, epoch)."""

    def meet(self, line: Line) -> None:
        """Read the names of nodes from ``start`` lines."""
        if line["what"] == "start":
            self._known[line["node"], line["epoch"]] = (line["kind"], line.get("label", ""))

    def kind(self, line: Line) -> str:
        """Return the kind of the node that wrote a line."""
        return self._known.get((line["node"], line["epoch"]), ("", ""))[0]

    def is_called(self, line: Line, names: tuple[str, ...]) -> bool:
        """Return whether the identity or label of a line's node begins with one of these texts."""
        label = self._known.get((line["node"], line["epoch"]), ("", ""))[1]
        return line["node"].startswith(names) or label.startswith(names)

    def words(self, line: Line) -> str:
        """Return a line as text; texts of peers have escapes for control characters."""
        when = datetime.fromtimestamp(line["wall"] / 1e6, UTC)
        parts = [f"{when:%m-%d %H:%M:%S.%f}", f"{_short(line['node']):<10}", line["what"]]
        if "command" in line:
            parts.append(_message(line))
        elif "source" in line:
            parts.append(f"by {_short(line['source'])}")
        if "ids" in line:
            parts.append(_jobs(line))
        parts += [f"{name}={_value(line[name])}" for name in _OTHERS if name in line]
        for name in ("reason", "text"):
            if name in line:
                parts.append(f"{name}={line[name]!r}")
        return printable(" ".join(parts))


def _message(line: Line) -> str:
    parts = [line["command"]]
    if "source" in line:
        parts.append(f"of {_short(line['source'])}")
    if "via" in line:
        parts.append(f"via {', '.join(map(_short, line['via']))}")
    if "target" in line:
        parts.append(f"to {_short(line['target'])}")
    return " ".join(parts)


def _jobs(line: Line) -> str:
    ids = line["ids"]
    text = " ".join(map(str, ids[:_SHOWN]))
    return f"[{text}{f' … {len(ids)} jobs' if len(ids) > _SHOWN else ''}]"


def _short(name: str) -> str:
    return name if len(name) <= 20 else name[:10]


def _value(value: Any) -> str:
    match value:
        case dict():
            return ",".join(f"{name}:{amount}" for name, amount in value.items())
        case list():
            text = ",".join("-" if entry is None else str(entry) for entry in value[:_SHOWN])
            return f"{text},…" if len(value) > _SHOWN else text
        case True:
            return "yes"
    return str(value)
