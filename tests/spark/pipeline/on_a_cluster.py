"""A program that runs the pipeline on two executors and kills one of them during the run.

Usage: ``python on_a_cluster.py JOURNAL OUT``. The output is the number of killed executors.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from wmp.spark.journals.journals import Source, find_segments
from wmp.spark.journals.tables import Tables
from wmp.spark.pipeline.engines import OnSpark
from wmp.spark.pipeline.run import build_tables
from wmp.spark.session.session import start_session

KILL_AT = "jobs"
"""The step that runs the most Python code."""


def executors(driver: int) -> list[int]:
    """Return the executor processes that this driver has started."""
    addresses = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            if parent == driver and b"CoarseGrainedExecutorBackend" in command:
                addresses.append(int(entry))
    return sorted(addresses)


def main() -> int:
    journal, out = sys.argv[1:]
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    confs = {
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": options,
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": f"{out}-scratch",
    }
    spark = start_session("local-cluster[2,1,1024]", confs=confs)
    context = spark.sparkContext
    driver = context._gateway.proc.pid
    killed: list[int] = []

    def kill() -> None:
        """Kill one executor as soon as tasks run on both."""
        status = context.statusTracker()
        while not killed:
            stages = [status.getStageInfo(stage) for stage in status.getActiveStageIds()]
            running = sum(stage.numActiveTasks for stage in stages if stage is not None)
            before = executors(driver)
            if running and len(before) == 2:
                os.kill(before[0], signal.SIGKILL)
                killed.append(before[0])
            time.sleep(0.02)

    def progress(name: str, done: int, count: int) -> None:
        if name == KILL_AT:
            threading.Thread(target=kill, daemon=True).start()

    source, tables = Source.of(find_segments([journal])), Tables(lambda: spark, str(out))
    result = build_tables(tables, OnSpark(spark), source, progress)
    deadline = time.monotonic() + 60
    while not executors(driver) and time.monotonic() < deadline:
        time.sleep(0.1)
    print(f"killed {len(killed)}, left {len(set(executors(driver)) - set(killed))}, "
          f"violations {result.violations}")  # fmt: skip
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
