"""The folds of the pipeline without Spark: from lines of journals to rows, in milliseconds.

Spark only distributes the folds. So most findings are tested here, and few tests start Spark.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from wmp.spark.folds.facts import FoldSink, KnownProcess
from wmp.spark.folds.folds import FOLDS
from wmp.spark.folds.job_fold import JobFold
from wmp.spark.folds.reading import FOLDED, peer_of
from wmp.spark.journals.lines import LineRow, steps
from wmp.spark.journals.schema import TABLES


def known(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], KnownProcess]:
    """Return the processes of lines; every clock is right."""
    by_process: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_process[row["node"], row["epoch"]].append(row)
    tables = {}
    for (node, epoch), lines in by_process.items():
        start = next((row for row in lines if row["what"] == "start"), {})
        last = lines[-1]["what"]
        numbers = {row["n"] for row in lines}
        tables[node, epoch] = KnownProcess(
            node,
            epoch,
            start.get("kind") or ("manager" if node.startswith("m") else "worker"),
            0,
            bool(start) and len(numbers) == max(numbers) + 1,
            _end(lines) if last == "stop" else None,
            lines[0]["at"],
            lines[-1]["at"],
            (start.get("settings") or {}).get("max_silence"),
            start.get("resources") or {},
            start.get("roles") or (),
            int((start.get("settings") or {}).get("upstreams", 0)),
            settings=start.get("settings") or {},
            label=start.get("label", "") if start else None,
        )
    return tables


def _end(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return how a process ended, as in ``nodes.end``."""
    if any(row["what"] == "halt" and row.get("reason") for row in lines):
        return "halt"
    return "close" if any(row["what"] == "closed" for row in lines) else "stop"


def line_of(row: Mapping[str, Any]) -> LineRow:
    """Return a line as the reading of journals hands it to a fold; it may lack columns."""
    columns = {name: value for name, value in row.items() if value is not None}
    if (last := columns.pop("last", None)) is not None:
        columns["ids"] = list(range(row["ids"][0], last + 1))
    return msgspec.convert(columns, LineRow)


def fold(texts: Iterable[str]) -> FoldSink:
    """Fold lines of journals, and return all rows and counts."""
    rows = [json.loads(text) for text in texts]
    sink = FoldSink(known(rows))
    groups: dict[Any, list[LineRow]] = defaultdict(list)
    for row in rows:
        line = line_of(row)
        process = sink.known[line.node, line.epoch]
        if line.what in FOLDED:
            other = peer_of(line) if process.kind == "manager" else None
            groups[line.node, line.epoch, other].append(line)
    for group in groups.values():
        me = sink.known[group[0].node, group[0].epoch]
        fold = FOLDS[me.kind](me, sink)
        sink.begin()
        for lines in steps([sorted(group, key=attrgetter("n"))]):
            fold.step(lines)
        fold.finish()
    for job, facts in sink.facts.items():
        JobFold(job, sorted(facts, key=attrgetter("side", "node", "epoch", "n")), sink).fold()
    return sink


def table(sink: FoldSink, name: str) -> list[dict[str, Any]]:
    """Return rows of a table by column."""
    columns = [column.name for column in TABLES[name].columns]
    return [dict(zip(columns, row, strict=False)) for row in sink.rows.get(name, [])]
