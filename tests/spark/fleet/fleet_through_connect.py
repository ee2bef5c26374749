"""A fleet and rows in a session of Spark Connect, whose server runs on this machine.

Usage: ``python -m tests.spark.fleet.fleet_through_connect FOLDER``. The output is a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

import wmp
from tests.spark.clusters import OPTIONS, wait_for
from tests.spark.fleet.fleet_work import plain
from wmp.errors import ConfigError
from wmp.spark import Fleet, map_rows, ship
from wmp.spark.session.session import start_session

ROOT = Path(__file__).parents[3]

SHIPPED = """
from wmp.rows import row_handler


@row_handler("row")
def size(row):
    return {"id": row["id"], "size": len(row["text"])}


@row_handler("batch")
def note(batch):
    open(batch["mark"][0].as_py(), "a").write(f"{batch.num_rows}\\n")


roles = {"size": size, "note": note}
"""
"""A module that the server cannot import until the client has sent the file."""


def rows(spark: SparkSession, folder: Path, above: str) -> dict[str, Any]:
    """Do rows of a table and of a stream, and write rows, all through Spark Connect."""
    results: dict[str, Any] = {}
    text = F.repeat(F.lit("x"), (F.col("id") % 13).cast("int"))
    table = spark.range(0, 500, 1, 2).withColumn("text", text)
    terms = {"role": "size", "schema": "id long, size long", "through": above, "rows_per_job": 30}
    seen = Observation()
    done = table.transform(map_rows, observe=seen, **terms).collect()
    results["table"] = sorted((row.id, row.size) for row in done) == [
        (n, n % 13) for n in range(500)
    ]
    results["observed"] = seen.get

    table.write.json(str(folder / "in"))
    stream = spark.readStream.schema(table.schema).json(str(folder / "in"))
    written = str(folder / "out")
    query = (
        map_rows(stream, **terms).writeStream.format("parquet").option("path", written)
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(120)
    done = spark.read.parquet(written).collect()
    results["stream"] = sorted((row.id, row.size) for row in done) == [
        (n, n % 13) for n in range(500)
    ]

    mark = folder / "notes"
    notes = spark.range(0, 20, 1, 1).withColumn("mark", F.lit(str(mark)))
    (
        notes.write.format("wmp").mode("append").option("through", above).option("role", "note")
        .option("rowsPerJob", 5).save()
    )  # fmt: skip
    results["written"] = mark.read_text().split()
    return results


def main() -> int:
    folder = Path(sys.argv[1])
    os.environ["PYTHONPATH"] = str(ROOT)
    confs = {
        "spark.api.mode": "connect",
        "spark.driver.extraJavaOptions": OPTIONS,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    spark = start_session("local[4]", confs=confs)
    results: dict[str, object] = {"classic": hasattr(spark, "_jsparkSession")}
    worker = "tests.spark.fleet.fleet_work:work"
    with wmp.Manager("tcp://127.0.0.1:*") as manager:

        def run(numbers: range) -> bool:
            jobs = {
                n: manager.submit(json.dumps({"number": n}).encode(), max_worker_losses=9)
                for n in numbers
            }
            return all(job.result(120) == plain(n) for n, job in jobs.items())

        with Fleet(spark, worker, workers=3, slots=2, managers=manager.endpoints) as fleet:
            fleet.wait(3, 120)
            results["right"] = run(range(300))
            os.kill(fleet.members[0].beat.pid, signal.SIGKILL)
            results["after the kill"] = run(range(300))
            wait_for(lambda: fleet.members[0].life == 2 and fleet.running == 3, "the member")
            try:
                fleet.scale(4)
            except ConfigError as error:
                results["refused"] = str(error)
            fleet.scale(1)
            fleet.wait(timeout=60)
            results["after the scale"] = run(range(50))
            results["running"] = fleet.running
        results["ended"] = all(member.state.value == "ended" for member in fleet.members)
        # A worker in a job that does not drain in time is cancelled by its tag.
        with Fleet(spark, worker, workers=1, managers=manager.endpoints, drain=1.0) as fleet:
            held = manager.submit(json.dumps({"number": 1, "folder": str(folder)}).encode())
            wait_for(lambda: any(folder.glob("1.*")), "the held job")
            fleet.close(0.0)
        (folder / "open").touch()
        held.cancel()
    modules = folder / "modules"
    modules.mkdir()
    (modules / "shipped_rows.py").write_text(SHIPPED)
    sys.path.insert(0, str(modules))
    ship(spark, "shipped_rows")
    with (
        wmp.Device(bind="tcp://127.0.0.1:*", bind_managers="tcp://127.0.0.1:*") as device,
        Fleet(spark, "shipped_rows:roles", workers=2, managers=device.endpoints) as fleet,
    ):
        fleet.wait(2, 120)
        results["rows"] = rows(spark, folder, device.manager_endpoints[0])
    results["slots"] = spark.range(0, 8, 1, 8).count()  # no worker holds a slot
    spark.stop()
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
