"""A fleet on a cluster that starts executors on demand and removes idle ones.

Usage: ``python -m tests.spark.fleet.fleet_on_demand FOLDER``. The output is a line of JSON: the
numbers of executors as the fleet grows and shrinks, and whether all results are right.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import wmp
from tests.spark.clusters import CONFS, CORES, executors, standalone, wait_for
from tests.spark.fleet.fleet_work import plain
from wmp.spark import Fleet
from wmp.spark.session.session import start_session

ROOT = Path(__file__).parents[3]
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}


def main() -> int:
    folder = Path(sys.argv[1])
    os.environ["PYTHONPATH"] = str(ROOT)  # the executors import the worker of the tests
    counts: list[int] = []
    right: list[bool] = []
    with standalone(folder) as url, wmp.Manager("tcp://127.0.0.1:*") as manager:
        confs = CONFS | DYNAMIC | {"spark.local.dir": str(folder / "scratch")}
        spark = start_session(url, confs=confs)
        application = spark.sparkContext.applicationId

        def has(number: int) -> None:
            wait_for(lambda: len(executors(application)) == number, f"{number} executors")
            counts.append(number)
            jobs = {n: manager.submit(json.dumps({"number": n}).encode()) for n in range(100)}
            right.append(all(job.result(120) == plain(n) for n, job in jobs.items()))

        worker = "tests.spark.fleet.fleet_work:work"
        # Members that live long: only `scale` gives executors back here.
        with Fleet(spark, worker, managers=manager.endpoints, admission=120) as fleet:
            has(1)
            fleet.scale(CORES + 2)
            fleet.wait(timeout=180)
            has(2)
            fleet.scale(1)
            fleet.wait(timeout=180)
            has(1)
            fleet.scale(CORES + 1)
            fleet.wait(timeout=180)
            has(2)
            lives = [member.life for member in fleet.members]
        wait_for(lambda: not executors(application), "the end of all executors")
        spark.stop()
    print(json.dumps({"executors": counts, "right": right, "lives": lives}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
