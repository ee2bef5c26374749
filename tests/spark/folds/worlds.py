"""Journals of simulated worlds, and the facts that the worlds themselves recorded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow.dataset
import pytest
from attrs import frozen
from pyspark.sql import SparkSession

from wmp.checks.job_history import Violation
from wmp.spark.journals.journals import Source, find_segments
from wmp.spark.journals.schema import TABLES
from wmp.spark.journals.tables import Tables
from wmp.spark.pipeline.engines import OnSpark
from wmp.spark.pipeline.publishing import PipelineResult
from wmp.spark.pipeline.run import Progress, build_tables
from wmp.testing.simulator.journals import Journals
from wmp.testing.worlds.world import World

Switch = Callable[[pytest.MonkeyPatch], None]

_NAMES = ("node", "source", "target", "owner", "about_peer")


@frozen
class Played:
    """A world that was played."""

    name: str
    """First characters of every identity in the journal of the world."""
    violation: Violation | None
    lines: list[str]
    world: World


def build(
    spark: SparkSession, journals: Sequence[Path], out: Path, progress: Progress | None = None
) -> PipelineResult:
    """Make all tables of journals by Spark, without the page."""
    tables = Tables(lambda: spark, str(out))
    return build_tables(tables, OnSpark(spark), Source.of(find_segments(journals)), progress)


def play(
    seed: int, folder: Path, *switches: Switch, name: str | None = None, **kind: bool
) -> Played:
    """Play the world of a seed without these safeguards, and read its journals.

    The nodes of all worlds have the same names. So the names of each world are changed, and many
    worlds can make one journal. ``kind`` has further arguments of ``World``, such as ``paired``.
    """
    name = name or f"s{seed}"
    world = World(seed=seed, **kind, journals=Journals(folder / name))
    with pytest.MonkeyPatch.context() as patch:
        for switch in switches:
            switch(patch)
        violation = world.play().violation
    lines = [
        renamed(line, f"{name}.")
        for path in sorted((folder / name).iterdir())
        for line in path.read_text(encoding="ascii").splitlines()
    ]
    if violation is not None and violation.name not in (
        "every job ends",
        "one process for each identity",
    ):
        # The violation ended the world in the middle, so no node was closed.
        lines = [line for line in lines if '"what":"stop"' not in line]
    return Played(name, violation, lines, world)


def renamed(line: str, prefix: str) -> str:
    """Return a line with other names of nodes."""
    row = json.loads(line)
    for column in _NAMES:
        if column in row:
            row[column] = prefix + row[column]
    if "via" in row:
        row["via"] = [prefix + device for device in row["via"]]
    return json.dumps(row, separators=(",", ":"))


def write(played: Iterable[Played], folder: Path, segments: int = 2) -> Path:
    """Write one journal of all worlds in a few segments: Spark runs one task for each file."""
    folder.mkdir(parents=True)
    parts: list[list[str]] = [[] for _ in range(segments)]
    for number, play in enumerate(played):
        parts[number % segments] += play.lines
    for number, part in enumerate(parts):
        save(folder / f"part-{number}.jsonl", part)
    return folder


def save(path: Path, lines: Sequence[str]) -> Path:
    """Write a segment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return path


def rows_of(where: Path, table: str) -> Counter[str]:
    """Return a table without the order of its rows and of the entries of maps."""
    whole = pyarrow.dataset.dataset(where / table, format="parquet").to_table()
    return Counter(
        repr([sorted(v) if c.startswith("map") else v for c, v in zip(columns, row, strict=True)])
        for columns in [[column.type for column in TABLES[table].columns]]
        for row in (
            [
                [] if c.startswith("map") and value is None else value
                for c, value in zip(columns, each.values(), strict=True)
            ]
            for each in whole.to_pylist()
        )
    )
