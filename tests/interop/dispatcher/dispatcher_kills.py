"""Dispatchers and workers of both kinds that are killed in turn, while clients create jobs.

::

    python -m tests.interop.dispatcher.dispatcher_kills --jobs 20000 --rounds 3
    python -m tests.interop.dispatcher.dispatcher_kills --postgres  # a new server, killed too
    python -m tests.interop.dispatcher.dispatcher_kills --store postgresql:///wmp  # empty

It prints how many jobs ended, and how often handlers ran.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import httpx

from tests.interop.programs.programs import ENVIRON, WMP
from tests.postgres.server import PostgresServer
from tests.waiting import WAIT

__all__ = ["KillRun", "KilledServer"]

_WORK: Final = """
import os
def count(job):
    with open({log!r}, "ab", buffering=0) as log:
        log.write(b"%d\\n" % job["payload"])
    return job["payload"]
handlers = {{"count": count}}
"""
_SETTINGS: Final = (
    "workers.ping_interval=1000",
    "workers.dead_worker_ping_interval=1000",
    "workers.dead_worker_max_failed_checks=60",
    "jobs.post_timeout=2000",
    "jobs.job_verification_interval=1000",
    "jobs.max_worker_losses=1000",
)


class _KilledProgram:
    """A program that is started again after each kill, at the same ports."""

    def __init__(self, argv: Sequence[str], folder: Path, name: str, ready: str) -> None:
        self.argv = list(argv)
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.ready = ready
        self.process: subprocess.Popen[bytes] | None = None
        self.begin = 0

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.begin = log.tell()
            self.process = subprocess.Popen(
                (*WMP, *self.argv), cwd=self.folder, env=ENVIRON, stdout=log, stderr=log
            )

    def wait_ready(self) -> str:
        """Return the log when the program is ready."""
        until = time.monotonic() + WAIT
        while time.monotonic() < until:
            text = self.log.read_bytes()[self.begin :].decode()
            if self.ready in text:
                return text
            if self.process is None or self.process.poll() is not None:
                self.start()  # A worker ends when it reaches no dispatcher
            time.sleep(0.05)
        raise AssertionError(f"{self.argv} is not ready: {self.log.read_text()}")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class KilledServer(Protocol):
    """The server of the database, which keeps its address and its files when it is killed."""

    def kill(self) -> None:
        """Kill it by SIGKILL."""

    def start(self) -> None:
        """Start it again; it answers when this returns."""


class KillRun:
    """See the module."""

    def __init__(
        self,
        folder: Path,
        jobs: int,
        dispatchers: int,
        http_workers: int,
        wmp_workers: int,
        store: str = "jobs.db",
        rounds: int = 1,
        server: KilledServer | None = None,
    ) -> None:
        self.folder, self.jobs, self.store, self.server = folder, jobs, store, server
        self.wanted_kills = rounds * (
            dispatchers + http_workers + wmp_workers + (server is not None)
        )
        self.changed = threading.Condition()
        self.executed = folder / "executed"
        self.executed.touch()
        (folder / "killed_work.py").write_text(_WORK.format(log=str(self.executed)))
        self.counts = (dispatchers, http_workers, wmp_workers)
        self.dispatchers: list[_KilledProgram] = []
        self.workers: list[_KilledProgram] = []
        self.urls: list[str] = []
        self.ids: dict[int, str] = {}
        self.kills = 0
        self.documents: dict[int, dict[str, Any]] = {}

    # -- programs -------------------------------------------------------------------------------

    def _start(self) -> None:
        dispatchers, http_workers, wmp_workers = self.counts
        settings = [part for setting in _SETTINGS for part in ("--set", setting)]
        base = ("dispatcher", "--store", self.store, *settings)
        endpoints = []
        for index in range(dispatchers):
            first = ("--http", "127.0.0.1:0", "--bind", "tcp://127.0.0.1:*")
            setting = _KilledProgram(
                (*base, *first), self.folder, f"dispatcher{index}", "WMP workers connect to"
            )
            setting.start()
            text = setting.wait_ready()
            url = text.split(" serves ")[1].split()[0]
            endpoint = text.split("WMP workers connect to ")[1].split()[0]
            # The next start has the same ports.
            setting.argv = [*base, "--http", url.removeprefix("http://"), "--bind", endpoint]
            self.dispatchers.append(setting)
            self.urls.append(url)
            endpoints.append(endpoint)
        work = ("worker", "killed_work:handlers", "--slots", "4")
        to_http = [part for url in self.urls for part in ("--dispatcher", url)]
        to_wmp = [part for setting in endpoints for part in ("--connect", setting)]
        for index in range(http_workers):
            argv = (*work, *to_http, "--http", "127.0.0.1:0")
            setting = _KilledProgram(argv, self.folder, f"http{index}", "worker serves ")
            setting.start()
            port = setting.wait_ready().split("worker serves http://")[1].split()[0]
            setting.argv = [*work, *to_http, "--http", port]
            self.workers.append(setting)
        for index in range(wmp_workers):
            setting = _KilledProgram((*work, *to_wmp), self.folder, f"wmp{index}", "connected to")
            setting.start()
            self.workers.append(setting)

    def run(self, timeout: float = 3600.0) -> None:
        """Create all jobs, kill everything in turn, and wait until all jobs have ended.

        Jobs and kills wait for each other: between two kills clients create an equal part.
        """
        try:
            self._start()
            threads = [
                threading.Thread(target=self._create, args=(range(index, self.jobs, 8),))
                for index in range(8)
            ]
            threads.append(threading.Thread(target=self._kill_all))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self._wait_ended(time.monotonic() + timeout)
        finally:
            for program in (*self.workers, *self.dispatchers):
                program.kill()

    def _kill_all(self) -> None:
        servers = () if self.server is None else (self.server,)
        programs = itertools.cycle((*self.dispatchers, *servers, *self.workers))
        for index, program in enumerate(itertools.islice(programs, self.wanted_kills)):
            with self.changed:
                enough = (index + 0.5) * self.jobs / self.wanted_kills
                self.changed.wait_for(lambda enough=enough: len(self.ids) >= enough)  # type: ignore[misc]
            program.kill()
            with self.changed:
                self.kills += 1
                self.changed.notify_all()
            program.start()
            for other in (*self.dispatchers, *self.workers):
                other.wait_ready()

    # -- clients --------------------------------------------------------------------------------

    def _ask(self, client: httpx.Client, method: str, path: str, **more: Any) -> Any:
        """Send a request to any dispatcher, until one answers."""
        while True:
            url = random.choice(self.urls)
            try:
                answer = client.request(method, url + path, **more)
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code < 500:
                return answer.json()
            time.sleep(0.05)

    def _create(self, numbers: range) -> None:
        with httpx.Client(timeout=WAIT, trust_env=False) as client:
            for number in numbers:
                with self.changed:
                    self.changed.wait_for(
                        lambda number=number: (  # type: ignore[misc]
                            self.kills >= number * self.wanted_kills // self.jobs
                        )
                    )
                job = {"type": "count", "payload": number}
                key = {"Idempotency-Key": f"job-{number}"}
                document = self._ask(client, "POST", "/dispatcher/jobs/", json=job, headers=key)
                with self.changed:
                    self.ids[number] = document["_id"]
                    self.changed.notify_all()

    def _wait_ended(self, until: float) -> None:
        """Read the documents of all acknowledged jobs when all have ended, or time is over."""
        with httpx.Client(timeout=WAIT, trust_env=False) as client:
            while time.monotonic() < until:
                pages = [
                    self._ask(client, "GET", f"/dispatcher/jobs/?status={letter}&limit=1")
                    for letter in "qdrk"
                ]
                if not any(page["jobs"] for page in pages):
                    self._read(client)
                    # A job that was queued again between two of these requests was in no list.
                    if all(document["status"] in "sfx" for document in self.documents.values()):
                        return
                for page in self.workers:
                    if page.process is not None and page.process.poll() is not None:
                        page.start()  # A worker ends when it reaches no dispatcher
                time.sleep(0.2)
            self._read(client)

    def _read(self, client: httpx.Client) -> None:
        """Read the documents of all acknowledged jobs, page by page."""
        numbers = {id: number for number, id in self.ids.items()}
        after = "0" * 24
        while after is not None:
            page = self._ask(client, "GET", f"/dispatcher/jobs/?limit=1000&after={after}")
            for job in page["jobs"]:
                # A create without an answer was sent again with its key: one job.
                self.documents[numbers[job["_id"]]] = job
            after = page["next"]

    def report(self) -> dict[str, Any]:
        """Return what came of the jobs."""
        letters = Counter(document["status"] for document in self.documents.values())
        runs = Counter(map(int, self.executed.read_bytes().split()))
        ended = sum(letters[letter] for letter in "sfx")
        wrong = sum(
            document["status"] != "s" or document["result"] != number
            for number, document in self.documents.items()
        )
        return {
            "jobs": len(self.ids),
            "status": dict(letters),
            "open": len(self.documents) - ended,
            "lost": self.jobs - len(self.documents),
            "wrong": wrong,
            "kills": self.kills,
            "executions": sum(runs.values()),
            "never executed": sum(number not in runs for number in self.ids),
        }


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--store", default="jobs.db")
    parser.add_argument("--postgres", action="store_true", help="start a server of PostgreSQL")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="kills of each program")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="wmp-kills-"))
    folder.mkdir(exist_ok=True)
    server = PostgresServer() if given.postgres else None
    store = given.store if server is None else server.url
    run = KillRun(folder, given.jobs, 3, 4, 4, store, given.rounds, server)
    begun = time.monotonic()
    try:
        run.run()
    finally:
        if server is not None:
            server.stop()
    report = {**run.report(), "seconds": round(time.monotonic() - begun, 1)}
    print(json.dumps(report))
    wrong = ("open", "lost", "wrong", "never executed")
    return int(any(report[name] for name in wrong))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(Path(__file__).resolve().parents[3])
    sys.exit(main())
