"""Rows in workers beside rows in the task: ``python -m benchmarks.rows [--plot FILE]``.

Each case does the same rows twice: with ``mapInPandas``, in the tasks of Spark, and with
``wmp.spark.map_rows``, in the workers of a fleet. The two runs alternate. Both have four rows under
way: four tasks, or four workers of one slot. A handler waits, so the figures hold for rows that
wait for a GPU or a service. Every row is compared with the expected row.

Spark runs on this machine. On a machine with other load read the ratios, which are of runs one
after the other.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

import wmp
from wmp.rows import row_handler

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ATONCE: Final = 4
"""Rows under way on both sides."""
CHUNK: Final = 20
"""Rows of a job."""
LONGEST: Final = 1.0
"""Seconds of the longest uneven row."""
LOAD: Final = 1.0
"""Seconds that a process needs to load the model of the scarce resource."""
TABLES: Final = 3
"""Tables for the scarce resource, one after the other."""
SCHEMA: Final = "id long, double long"


@frozen
class Case:
    """Rows, and the seconds that each takes."""

    name: str
    what: str
    seconds: tuple[float, ...]
    rows_per_job: int = CHUNK
    scarce: bool = False
    """Whether only one process may do rows. The process has to load a model first."""

    @property
    def tables(self) -> int:
        """Tables of these rows, one after the other."""
        return TABLES if self.scarce else 1


def cases(part: float) -> list[Case]:
    """Return the cases, with this part of their rows."""

    def some(count: int) -> int:
        return max(ATONCE, round(count * part))

    draw = Random(1)
    uneven = (min(LONGEST, 0.002 * draw.paretovariate(1.1)) for _ in range(some(1000)))
    return [
        Case("rows of 1 ms", "rows of 1 ms", (0.001,) * some(8000), rows_per_job=50),
        Case("rows of 10 ms", "rows of 10 ms", (0.01,) * some(800)),
        Case("uneven rows", "uneven rows (Pareto, 2 ms to 1 s)", tuple(uneven), rows_per_job=2),
        Case(
            "one scarce resource", "3 tables, rows of 5 ms, one process, 1 s to load its model",
            (0.005,) * some(100), scarce=True,
        ),
    ]  # fmt: skip


def _do(row: Mapping[str, Any]) -> dict[str, Any]:
    time.sleep(row["seconds"])
    return {"id": row["id"], "double": 2 * row["id"]}


@functools.cache
def _load() -> None:
    time.sleep(LOAD)


def _with_model(row: Mapping[str, Any]) -> dict[str, Any]:
    _load()
    return _do(row)


HANDLERS = {"rows": row_handler("row")(_do)}
SCARCE = {"rows": row_handler("row")(_with_model)}


def rows_of(spark: SparkSession, case: Case) -> DataFrame:
    """Return the rows of a case, in as many partitions as tasks run at once."""
    rows = list(enumerate(case.seconds))
    return spark.createDataFrame(
        spark.sparkContext.parallelize(rows, ATONCE), "id long, seconds double"
    )


def in_task(frames: Iterator[Any]) -> Iterator[Any]:
    """Do rows in the task."""
    import pandas as pd

    for frame in frames:
        yield pd.DataFrame([_do(row) for row in frame.to_dict("records")])


def in_one_task(frames: Iterator[Any]) -> Iterator[Any]:
    """Do rows in the task. A process that kept the model would hold the resource for ever."""
    time.sleep(LOAD)
    yield from in_task(frames)


def with_pandas(rows: DataFrame, case: Case) -> list[Any]:
    """Do the rows in the tasks. Only one task may use the scarce resource."""
    if case.scarce:
        return rows.coalesce(1).mapInPandas(in_one_task, SCHEMA).collect()
    return rows.mapInPandas(in_task, SCHEMA).collect()


def with_workers(rows: DataFrame, case: Case, through: Mapping[bool, str]) -> list[Any]:
    """Do the rows in workers. One worker has the scarce resource."""
    done = rows.transform(
        wmp.spark.map_rows, role="rows", schema=SCHEMA, through=through[case.scarce],
        rows_per_job=case.rows_per_job,
    )  # fmt: skip
    return done.collect()


def measure(
    case: Case, rows: DataFrame, through: Mapping[bool, str], repeats: int
) -> dict[str, Any]:
    """Run both sides in turn; return the seconds of each, and the ratios of their rates."""
    wanted = [(n, 2 * n) for n in range(len(case.seconds))]
    took: dict[str, list[float]] = {"mapInPandas": [], "map_rows": []}
    for repeat in range(repeats + 1):
        for name, done in (
            ("mapInPandas", lambda: with_pandas(rows, case)),
            ("map_rows", lambda: with_workers(rows, case, through)),
        ):
            begin = time.perf_counter()
            tables = [done() for _ in range(case.tables)]
            seconds = time.perf_counter() - begin
            if any(sorted((row.id, row.double) for row in table) != wanted for table in tables):
                raise SystemExit(f"{case.name}: {name} returned wrong rows")
            if repeat:  # the first runs warm up
                took[name].append(seconds)
    ratios = [theirs / ours for theirs, ours in zip(*took.values(), strict=True)]
    return {
        "case": case.name,
        "what": case.what,
        "rows": len(case.seconds) * case.tables,
        **{name: median(seconds) for name, seconds in took.items()},
        "ratio": median(ratios),
        "ratio_minimum": min(ratios),
        "ratio_maximum": max(ratios),
    }


def markdown(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the figures."""
    lines = [
        "| case | rows | `mapInPandas`, rows/s | `map_rows`, rows/s | ratio (lowest to highest) |",
        "|---|---|---|---|---|",
    ]
    for result in figures:
        rates = [f"{result['rows'] / result[name]:.0f}" for name in ("mapInPandas", "map_rows")]
        span = f"{result['ratio_minimum']:.2f} to {result['ratio_maximum']:.2f}"
        cells = [result["what"], str(result["rows"]), *rates, f"{result['ratio']:.2f} ({span})"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(figures: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the ratios as bars."""
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise SystemExit("a plot needs matplotlib: pip install -e '.[bench]'") from error

    figure, axis = pyplot.subplots(figsize=(8, 2.6), layout="constrained")
    shown = list(reversed(figures))
    ratios = [result["ratio"] for result in shown]
    spread = [
        [result["ratio"] - result["ratio_minimum"] for result in shown],
        [result["ratio_maximum"] - result["ratio"] for result in shown],
    ]
    bars = axis.barh([result["case"] for result in shown], ratios, xerr=spread, color="#4477aa")
    axis.bar_label(bars, [f"{ratio:.2f}" for ratio in ratios], padding=4, label_type="center")
    axis.axvline(1, color="#222222", linewidth=1)
    axis.set_xlabel("rows/s of map_rows ÷ rows/s of mapInPandas")
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all cases, and print their table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rows", description=__doc__)
    parser.add_argument("--part", type=float, default=1.0, help="part of the rows of each case")
    parser.add_argument("--only", metavar="CASE", help="measure only the case of this name")
    parser.add_argument("--repeats", type=int, default=3, help="measured runs of each side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios into FILE")
    options = parser.parse_args(arguments)

    from wmp.spark import Fleet
    from wmp.spark.session.session import start_session

    home = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([home, os.environ.get("PYTHONPATH", "")])
    # The tasks, the workers, and the one worker with the scarce resource.
    spark = start_session(f"local[{2 * ATONCE + 1}]")
    anywhere = "tcp://127.0.0.1:*"
    module = "benchmarks.rows"
    figures = []
    try:
        with (
            wmp.Device(bind=anywhere, bind_managers=anywhere) as device,
            wmp.Device(bind=anywhere, bind_managers=anywhere) as scarce,
            Fleet(
                spark, f"{module}:HANDLERS", workers=ATONCE, managers=device.endpoints, spare=ATONCE
            ) as many,
            Fleet(
                spark, f"{module}:SCARCE", managers=scarce.endpoints, spare=ATONCE
            ) as scarce_fleet,
        ):
            many.wait(ATONCE)
            scarce_fleet.wait(1)
            through = {False: device.manager_endpoints[0], True: scarce.manager_endpoints[0]}
            for case in cases(options.part):
                if options.only not in (None, case.name):
                    continue
                figures.append(measure(case, rows_of(spark, case), through, options.repeats))
                print(f"{case.name}: {figures[-1]['ratio']:.2f}", file=sys.stderr, flush=True)
    finally:
        spark.stop()
    load = os.getloadavg()[0]
    print(markdown(figures))
    print(f"\n{os.cpu_count()} cores, load {load:.1f} at the end")
    if options.json is not None:
        options.json.write_text(json.dumps({"load": load, "figures": figures}, indent=1))
    if options.plot is not None:
        draw(figures, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
