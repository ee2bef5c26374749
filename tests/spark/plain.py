"""The folds of the pipeline without Spark: from lines of journals to rows, in milliseconds.

Spark only distributes the folds. So most findings are tested here, and few tests start Spark.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from wmp.spark.facts import Fact, FoldSink, KnownProcess
from wmp.spark.folds import fold_group
from wmp.spark.job_fold import JobFold
from wmp.spark.lines import LineRow
from wmp.spark.schema import TABLES

FOLDED = {
    "received", "send", "undelivered", "garbled", "drop", "note", "resolve", "submitted",
    "cancelled", "decline", "run", "resized", "finished", "recalled", "instancebegun",
}  # fmt: skip


def known(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], KnownProcess]:
    """Return the processes of lines; every clock is right."""
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["node"], row["epoch"]].append(row)
    made = {}
    for (node, epoch), lines in found.items():
        start = next((row for row in lines if row["what"] == "start"), {})
        last = lines[-1]["what"]
        numbers = {row["n"] for row in lines}
        made[node, epoch] = KnownProcess(
            node,
            epoch,
            start.get("kind") or ("manager" if node.startswith("m") else "worker"),
            0,
            bool(start) and len(numbers) == max(numbers) + 1,
            "stop" if last == "stop" else None,
            lines[0]["at"],
            lines[-1]["at"],
            (start.get("settings") or {}).get("expire"),
            start.get("resources") or {},
        )
    return made


def line_of(row: Mapping[str, Any], process: KnownProcess) -> LineRow:
    """Return a line as Spark would hand it to a fold."""
    values = {name: row.get(name) for name in LineRow._fields}
    last = row.get("last")
    if last is not None:
        values["ids"] = list(range(row["ids"][0], last + 1))
    values["announced"] = row.get("count")
    for name in ("needs", "via"):
        values[name] = None if row.get(name) is None else json.dumps(row[name])
    if row["what"] == "resized":
        values["needs"] = json.dumps(row["resources"])
    peer = {"send": "target", "undelivered": "target", "note": "about_peer"}
    manager = process.kind == "manager"
    other = row.get(peer.get(row["what"], "source")) if manager else None
    values["key"] = hash((row["node"], row["epoch"], other))
    if row["what"] == "submitted":
        bounds = [row[name] for name in ("timeout", "expires_in") if name in row]
        if bounds or "run_limit" in row:
            bound = 0 if "run_limit" in row else min(bounds)
            values["due"] = row["at"] + row.get("delay", 0) + bound
    return LineRow(**values)


def fold(texts: Iterable[str]) -> FoldSink:
    """Fold lines of journals, and return all rows and counts."""
    rows = [json.loads(text) for text in texts]
    sink = FoldSink(known(rows))
    groups: dict[int, list[LineRow]] = defaultdict(list)
    for row in rows:
        process = sink.known[row["node"], row["epoch"]]
        alive = row.get("command") in ("PING", "PONG") and process.kind != "manager"
        if row["what"] in FOLDED and ("reason" in row or not (alive or process.kind == "device")):
            line = line_of(row, process)
            groups[line.key].append(line)
    for group in groups.values():
        for _ in fold_group(iter(sorted(group, key=attrgetter("n"))), sink):
            pass
    jobs: dict[tuple[Any, ...], list[Fact]] = defaultdict(list)
    for fact in sink.rows.get("fact", []):
        jobs[fact.owner, fact.owner_epoch, fact.job].append(fact)
    for facts in jobs.values():
        order = attrgetter("side", "node", "epoch", "n")
        sink.begin()
        JobFold(sorted(facts, key=lambda f: (order(f), f.event == "granted")), sink).fold()
    return sink


def table(sink: FoldSink, name: str) -> list[dict[str, Any]]:
    """Return rows of a table by column."""
    columns = [column.name for column in TABLES[name].columns]
    return [dict(zip(columns, row, strict=True)) for row in sink.rows.get(name, [])]
