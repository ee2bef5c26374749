"""Lines that are looked up in the table ``events``: the stories of violations, and silences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import pyarrow.compute as pc

from wmp.spark.folds.facts import MAX_OF_A_NAME, FoldSink, KnownProcess, ProcessKey, add_count
from wmp.spark.folds.process_lines import LineNumbers
from wmp.spark.journals.tables import Tables
from wmp.spark.session.arrow import Values

_KEY, _NAME, _CERTAIN, _TIME, _EVENTS = 0, 1, 4, 14, 15
"""Places of columns in a row of ``violations``."""
_ROWS: Final = 2048
"""Number of violations of all names up to which all are kept."""
_WAITED: Final = 600_000
"""µs: a manager that ran for this long has looked at its clock. After a pause it reads messages
first, for half a second at most.
"""
_PARTED: Final = 4096
"""Number of the ends of connections that are remembered for later lines."""
_ROUNDED: Final = 2
"""Tolerance for rounded times, in µs."""
_TWICE: Final = 2048
"""Maximum number of lines of a process that are looked up because their number came twice."""
_SHOWN: Final = (
    "number", "session", "ready", "lock", "want", "count", "ends", "outcomes", "reason",
)  # fmt: skip
_COLUMNS: Final = (
    "node", "epoch", "n", "at", "what", "command", "source", "target", "ids", "attempts", *_SHOWN,
    "text",
)  # fmt: skip


def first_of_each_name(violations: Sequence[Values]) -> list[Values]:
    """Return the first violations of each name and certainty, in the order of time."""
    kept: Counter[Any] = Counter()
    first = []
    for row in sorted(violations, key=lambda row: (row[_TIME] or 0, row[_KEY])):
        kept[row[_NAME], row[_CERTAIN]] += 1
        if kept[row[_NAME], row[_CERTAIN]] <= MAX_OF_A_NAME:
            first.append(row)
    return first


def bounded(violations: list[Values]) -> list[Values]:
    """Return violations; of very many only the first of each name and certainty."""
    return violations if len(violations) <= _ROWS else first_of_each_name(violations)


def find_lines(
    tables: Tables, wanted: Mapping[ProcessKey, Sequence[int]], by: str, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the lines of processes whose column ``by`` is in the range of the given values.

    Of the column ``n`` the values themselves count, of any of the processes.
    """
    values = sorted(set(chain.from_iterable(wanted.values())))
    if not values:
        return []
    if tables.far:
        from pyspark.sql import functions as F

        field: Any = F.col
    else:
        field = pc.field
    column = field(by)
    lines = column.isin(values) if by == "n" else (column >= values[0]) & (column <= values[-1])
    lines &= field("node").isin(sorted({node for node, _ in wanted}))
    if tables.far:
        table = tables.read("events").where(lines).select(*columns).toArrow()
    else:
        table = tables.dataset("events").to_table(columns=list(columns), filter=lines)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def stories(
    violations: Sequence[Values], tables: Tables, known: Mapping[ProcessKey, KnownProcess]
) -> dict[str, list[Values]]:
    """Return the rows of ``violation_events`` for each violation: its lines in the order of time.

    Lines of one node keep their order even if the clocks disagree.
    """
    wanted: defaultdict[ProcessKey, list[int]] = defaultdict(list)
    for row in violations:
        for node, epoch, n in row[_EVENTS]:
            wanted[node, epoch].append(n)
    rows: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
    for line in find_lines(tables, wanted, "n", _COLUMNS):
        rows[line["node"], line["epoch"], line["n"]].append(line)
    events = {}
    for row in violations:
        lines = []
        for node, epoch, n in row[_EVENTS]:
            clock = known[node, epoch].clock if (node, epoch) in known else 0
            lines += [(line["at"] + clock, node, epoch, n, line) for line in rows[node, epoch, n]]
        lines.sort(key=lambda line: line[:4])
        events[row[_KEY]] = [
            (
                row[_KEY], position, node, epoch, n, time,
                line["what"], line["command"], line["source"], line["target"], line["ids"],
                line["attempts"], _text(line),
            )
            for position, (time, node, epoch, n, line) in enumerate(lines, 1)
        ]  # fmt: skip
    return events


def _text(line: Mapping[str, Any]) -> str:
    parts = []
    for name in _SHOWN:
        value = line[name]
        if value is not None:
            words = f"[{', '.join(map(str, value))}]" if isinstance(value, list) else value
            parts.append(f"{name}={words}")
    return " ".join([*parts, *([line["text"]] if line["text"] else [])])


def check_silences(silences: Sequence[Values], tables: Tables, sink: FoldSink) -> None:
    """Report managers that did not give up silent workers, although they could see the silence.

    A manager saw it if its clock rang after the worker had been silent for ``max_silence``, and
    before the worker's next message. It could see it if it ran for a while in this time: two
    lines, of which a `beat` may be one, show this. One line does not: a manager that was stopped
    reads the messages that wait when it continues, and looks at its clock after that.
    """
    wanted: defaultdict[ProcessKey, list[int]] = defaultdict(list)
    first = sorted(silences, key=lambda row: row[7:9])[: 2 * MAX_OF_A_NAME]
    for row in first:
        wanted[row[0], row[1]] += row[6:8]
    lines: defaultdict[ProcessKey, list[tuple[int, int, str]]] = defaultdict(list)
    for line in find_lines(tables, wanted, "at", ("node", "epoch", "n", "at", "what")):
        lines[line["node"], line["epoch"]].append((line["n"], line["at"], line["what"]))
    for node, epoch, peer, peer_epoch, job, attempt, due, at, n, silent in first:
        seen = [some for some in lines[node, epoch] if due <= some[1] and some[0] < n]
        rang = [number for number, _, what in seen if what == "ticked"]
        early = sorted((when, number) for number, when, _ in seen if when <= at - _WAITED)
        ran = early and early[-1][0] - early[0][0] >= _WAITED
        if not rang and not ran:
            continue
        shown = max(rang, default=0) or early[-1][1]
        me = (node, epoch)
        sink.violation(
            "WMP-9.3",
            f"worker {peer} was silent for {silent:.3f} s, and the manager kept its lease of job "
            f"{job}",
            (*me, n, at), [(*me, shown), (*me, n)], owner=me, job=job, attempt=attempt,
            worker=(peer, peer_epoch),
        )  # fmt: skip


def ended_connections(partings: Sequence[Values]) -> list[Values]:
    """Return the newest ends of connections: a worker may be given up because of them later."""
    return [row for row in partings if row[5] is None][-_PARTED:]


def check_partings(partings: Sequence[Values], sink: FoldSink) -> None:
    """Report managers that gave a worker up too soon after the end of its connection (WMP-9.16).

    Args:
        partings: (node, epoch, link, at, n, worker, its epoch, job, attempt): the end of a
            connection, without a worker, or the loss of its leases.
        sink: Gets the violations.
    """
    ends: defaultdict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
    for node, epoch, link, at, n, worker, *_ in partings:
        if worker is None:
            ends[node, epoch, link].append((n, at))
    for node, epoch, link, at, n, worker, worker_epoch, job, attempt in partings:
        before = [end for end in ends[node, epoch, link] if end[0] < n]
        grace = sink.known[node, epoch].settings.get("reconnect_grace")
        if worker is None or not before or grace is None:
            continue
        end, ended = max(before)
        if at - ended < grace * 1e6 - _ROUNDED:
            text = (
                f"the leases of worker {worker} were lost {(at - ended) / 1e6:.3f} s after its "
                f"connection ended; expected {grace:g} s"
            )
            me = (node, epoch)
            sink.violation(
                "WMP-9.16", text, (*me, n, at), [(*me, end), (*me, n)], owner=me, job=job,
                attempt=attempt, worker=(worker, worker_epoch),
            )  # fmt: skip


def check_twice(
    twice: Iterable[tuple[ProcessKey, Sequence[tuple[int, int]]]], tables: Tables, sink: FoldSink
) -> None:
    """Report different lines with one number, of very many only the first by their lines.

    The ranges of such numbers are found by process.
    """
    wanted, name = {}, "one line for each number"
    for key, runs in twice:
        numbers = LineNumbers(list(runs))
        numbers.tidy()
        every = chain.from_iterable(range(first, last + 1) for first, last in numbers.runs)
        wanted[key] = list(islice(every, _TWICE))
        rest = numbers.highest - numbers.missing - len(wanted[key])
        add_count(sink.counts, ("violation", name, None), (rest, 0, 0))
    times: defaultdict[tuple[str, int, int], list[int]] = defaultdict(list)
    for line in find_lines(tables, wanted, "n", ("node", "epoch", "n", "at")):
        if line["n"] in wanted.get((line["node"], line["epoch"]), ()):
            times[line["node"], line["epoch"], line["n"]].append(line["at"])
    for (node, epoch, n), ats in sorted(times.items()):
        detail = (
            f"{node}:{epoch} has {len(ats)} different lines with the number {n}: a line was "
            "changed, or two processes wrote journals under one name and epoch"
        )
        sink.violation(name, detail, (node, epoch, n, min(ats)), certain=True)
