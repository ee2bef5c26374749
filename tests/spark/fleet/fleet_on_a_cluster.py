"""A fleet of four on a standalone cluster with two executors, while processes are killed.

Usage: ``python fleet_on_a_cluster.py FOLDER``. A Python worker, an executor, the device and the
manager that dials in are killed with SIGKILL, one after another, while jobs run. The output is a
line of JSON: the kills, the wrong and the missing results, and the GPUs of the workers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import wmp
from tests.spark.clusters import CONFS, end, executors, free_port, standalone, wait_for
from tests.spark.fleet.fleet_work import plain
from wmp.spark import Fleet
from wmp.spark.session.session import start_session

ROOT = Path(__file__).parents[3]
COUNT = 2500


class Processes:
    """The device and the submitter, which are killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.lower, self.upper = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        self.results = folder / "results"
        self.log = (folder / "processes.log").open("wb")
        self.device = self.start_device()
        self.submitter = self.start_submitter()

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, stdout=self.log, stderr=self.log
        )

    def start_device(self) -> subprocess.Popen[bytes]:
        program = "from wmp_programs import device; device()"
        return self.start("-c", program, "--bind", self.lower, "--bind-managers", self.upper)

    def start_submitter(self) -> subprocess.Popen[bytes]:
        program = "tests.spark.fleet.fleet_submitter"
        return self.start("-m", program, self.upper, str(COUNT), str(self.results))

    def done(self) -> int:
        return self.results.read_bytes().count(b"\n") if self.results.exists() else 0

    def close(self) -> None:
        end(self.submitter)
        end(self.device)
        self.log.close()


def kills(processes: Processes, fleet: Fleet, application: str) -> list[str]:
    """Kill one process after each sixth of the results; return what was killed."""
    killed = []

    def python() -> None:
        os.kill(next(member.beat.pid for member in fleet.members if member.beat), signal.SIGKILL)

    def executor() -> None:
        os.kill(executors(application)[0], signal.SIGKILL)

    def device() -> None:
        processes.device.kill()
        processes.device.wait()
        processes.device = processes.start_device()

    def manager() -> None:
        processes.submitter.kill()
        processes.submitter.wait()
        processes.submitter = processes.start_submitter()

    for number, kill in enumerate((python, executor, device, manager), 1):
        part = number * COUNT // 6
        wait_for(lambda part=part: processes.done() >= part, f"result {part}", 300)
        assert processes.submitter.poll() is None, "the jobs ended before the kills"
        kill()
        killed.append(kill.__name__)
    return killed


def main() -> int:
    folder = Path(sys.argv[1])
    os.environ["PYTHONPATH"] = str(ROOT)  # the executors import the worker of the tests
    with standalone(folder) as url:
        spark = start_session(url, confs=CONFS | {"spark.local.dir": str(folder / "scratch")})
        application = spark.sparkContext.applicationId
        processes = Processes(folder)
        begun = time.monotonic()
        try:
            handlers = "tests.spark.fleet.fleet_work:both"
            managers = [processes.lower]
            with Fleet(spark, handlers, workers=4, slots=2, managers=managers) as fleet:
                fleet.wait(4, 180)
                ready = time.monotonic() - begun
                killed = kills(processes, fleet, application)
                wait_for(lambda: processes.submitter.poll() is not None, "the last result", 400)
                fleet.wait(4, 180)
                with wmp.Manager(connect=processes.upper) as manager:
                    needs = {"gpu": 1}
                    jobs = [manager.submit(b"", role="gpu", needs=needs) for _ in range(20)]
                    gpus = sorted({job.result(60).decode() for job in jobs})
                lives = [member.life for member in fleet.members]
                closing = time.monotonic()
            closed = time.monotonic() - closing
            spark.range(0, 8, 1, 8).count()  # the slots are free again
        finally:
            processes.close()
            spark.stop()
    rows = [json.loads(line) for line in processes.results.read_text().splitlines()]
    results = dict(rows)
    print(
        json.dumps({
            "killed": killed,
            "missing": sorted(set(range(COUNT)) - set(results))[:10],
            "wrong": [n for n, text in results.items() if text != plain(n).decode()][:10],
            "twice": len(rows) - len(results),
            "gpus": gpus,
            "lives": lives,
            "ready": round(ready, 1),
            "closed": round(closed, 1),
        })
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
