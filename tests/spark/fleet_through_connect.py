"""A fleet in a session of Spark Connect, whose server runs on this machine.

Usage: ``python -m tests.spark.fleet_through_connect FOLDER``. The output is a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import wmp
from tests.spark.clusters import OPTIONS, wait_for
from tests.spark.fleet_work import plain
from wmp.errors import ConfigError
from wmp.spark import Fleet
from wmp.spark.session import start_session

ROOT = Path(__file__).parents[2]


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
    found: dict[str, object] = {"classic": hasattr(spark, "_jsparkSession")}
    worker = "tests.spark.fleet_work:work"
    with wmp.Manager("tcp://127.0.0.1:*") as manager:

        def run(numbers: range) -> bool:
            jobs = {
                n: manager.submit(json.dumps({"number": n}).encode(), retries=9) for n in numbers
            }
            return all(job.result(120) == plain(n) for n, job in jobs.items())

        with Fleet(spark, worker, workers=3, slots=2, managers=manager.endpoints) as fleet:
            fleet.wait(3, 120)
            found["right"] = run(range(300))
            os.kill(fleet.members[0].beat.pid, signal.SIGKILL)
            found["after the kill"] = run(range(300))
            wait_for(lambda: fleet.members[0].life == 2 and fleet.running == 3, "the member")
            try:
                fleet.scale(4)
            except ConfigError as error:
                found["refused"] = str(error)
            fleet.scale(1)
            fleet.wait(timeout=60)
            found["after the scale"] = run(range(50))
            found["running"] = fleet.running
        found["ended"] = all(one.state.value == "ended" for one in fleet.members)
        # A worker in a job that does not drain in time is cancelled by its tag.
        with Fleet(spark, worker, workers=1, managers=manager.endpoints, drain=1.0) as fleet:
            held = manager.submit(json.dumps({"number": 1, "folder": str(folder)}).encode())
            wait_for(lambda: any(folder.glob("1.*")), "the held job")
            begun = time.monotonic()
            fleet.close(0.0)
            found["cancelled within"] = round(time.monotonic() - begun, 1)
        (folder / "open").touch()
        held.cancel()
        found["slots"] = spark.range(0, 8, 1, 8).count()
    spark.stop()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
