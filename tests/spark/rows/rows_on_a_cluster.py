"""Rows of a table on a standalone cluster with two executors, while processes are killed.

Usage: ``python -m tests.spark.rows.rows_on_a_cluster FOLDER [STORE]``. A fleet of four does the
rows. Two tasks of Spark are the managers that dial in. A Python process of the fleet, an executor,
the device and a manager are killed with SIGKILL, one after another, while rows are done. With a
STORE, a file, the managers keep their jobs there. The output is a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import wmp
from tests.spark.clusters import CONFS, end, executors, free_port, standalone, wait_for
from wmp.spark import Fleet, map_rows
from wmp.spark.session.session import start_session

ROOT = Path(__file__).parents[3]
ROWS = 12_000
EACH = 20
"""Rows of a job."""
TASKS = 2


class Device:
    """The program ``wmp-device``, which is killed and started again at the same addresses."""

    def __init__(self, folder: Path) -> None:
        self.lower, self.upper = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        self.log = (folder / "device.log").open("wb")
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        program = "from wmp_programs import device; device()"
        command = [sys.executable, "-c", program, "--bind", self.lower]
        return subprocess.Popen(
            [*command, "--bind-managers", self.upper], cwd=ROOT, stdout=self.log, stderr=self.log
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self.start()

    def close(self) -> None:
        end(self.process)
        self.log.close()


class Write(threading.Thread):
    """Writes a table on a thread of its own."""

    def __init__(self, table: DataFrame, out: Path) -> None:
        super().__init__()
        self.table, self.out = table, out
        self.error: BaseException | None = None

    def run(self) -> None:
        self.table.sparkSession.sparkContext.setJobGroup("rows", "the rows of the test")
        try:
            self.table.write.parquet(str(self.out))
        except BaseException as error:
            self.error = error


def managers(watch: wmp.Worker) -> list[int]:
    """Return the processes of the managers that a worker meets: tasks name theirs in a label."""
    labels = [manager.label.split() for manager in watch.statistics().managers]
    numbers = [int(label[-1]) for label in labels if label[:1] == ["rows"]]
    return [pid for pid in numbers if Path(f"/proc/{pid}").exists()]


def kills(write: Write, fleet: Fleet, device: Device, watch: wmp.Worker, calls: Path) -> list[str]:
    """Kill one process after each sixth of the calls; return what was killed."""
    context = write.table.sparkSession.sparkContext

    def python() -> None:
        os.kill(next(member.beat.pid for member in fleet.members if member.beat), signal.SIGKILL)

    def executor() -> None:
        os.kill(executors(context.applicationId)[0], signal.SIGKILL)

    def manager() -> None:
        failed = failures(context)
        wait_for(lambda: managers(watch), "a manager")
        os.kill(managers(watch)[0], signal.SIGKILL)
        wait_for(lambda: failures(context) > failed or not write.is_alive(), "the failed task")

    killed = []
    for number, kill in enumerate((python, executor, device.kill, manager), 1):
        part = number * ROWS // EACH // 6
        wait_for(
            lambda part=part: len(os.listdir(calls)) >= part or not write.is_alive(),
            f"call {part}", 300,
        )  # fmt: skip
        assert write.is_alive(), f"the rows ended before the kills: {write.error}"
        kill()
        killed.append("device" if kill == device.kill else kill.__name__)
    return killed


def failures(context: Any) -> int:
    """Return the number of failed tasks of the write."""
    status = context.statusTracker()
    jobs = [status.getJobInfo(job) for job in status.getJobIdsForGroup("rows")]
    stages = [status.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage)


def main() -> int:
    folder, store = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    os.environ["PYTHONPATH"] = str(ROOT)  # the executors import the worker of the tests
    calls, out = folder / "calls", folder / "out"
    calls.mkdir()
    confs = CONFS | {"spark.local.dir": str(folder / "scratch"), "spark.task.maxFailures": "20"}
    with standalone(folder / "cluster") as url:
        spark = start_session(url, confs=confs)
        device = Device(folder)
        try:
            text = F.repeat(F.lit("x"), (F.col("id") % 13).cast("int"))
            rows = spark.range(0, ROWS, 1, TASKS).withColumn("text", text)
            done = rows.withColumn("mark", F.lit(str(calls))).transform(
                map_rows, role="slow", schema="id long, size long", through=device.upper,
                rows_per_job=EACH, in_flight=8, max_worker_losses=50, unserved=120, store=store,
            )  # fmt: skip
            handlers = "tests.spark.rows.served_rows:SLOW"
            with (
                Fleet(spark, handlers, workers=4, managers=[device.lower], admission=60) as fleet,
                wmp.Worker(device.lower, handlers={"watch": bytes}) as watch,
            ):
                fleet.wait(4, 180)
                write = Write(done, out)
                write.start()
                killed = kills(write, fleet, device, watch, calls)
                write.join(400)
                ended = not write.is_alive()
                failed = failures(spark.sparkContext)
                lives = [member.life for member in fleet.members]
        finally:
            device.close()
            spark.stop()
    if write.error is not None:
        raise write.error
    table = pyarrow.parquet.read_table(out).to_pydict()
    pairs = sorted(zip(table["id"], table["size"], strict=True))
    print(
        json.dumps({
            "killed": killed,
            "ended": ended,
            "rows": len(pairs),
            "equal": pairs == [(n, n % 13) for n in range(ROWS)],
            "failed": failed,
            "calls": len(os.listdir(calls)),
            "lives": lives,
        })
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
