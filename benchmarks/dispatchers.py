"""``python -m benchmarks.dispatchers [--store STORE] [--jobs N] [--rounds N]``: 1 to 4 dispatchers.

In each round, 1, 2, 3 and 4 dispatchers in turn share one new store. Each time, two HTTP workers
and two workers of WMP with 8 places each register at all dispatchers, and 16 clients create jobs of
100 bytes, each over one connection to one of the dispatchers. Then the clients read every job until
it has ended. Each result is compared.

Three rates are measured: jobs that were created in a second, jobs that were created, done and read
in a second, and requests in a second that read no store (``/healthz``), which shows what HTTP alone
costs. All rounds use the one database of ``--store``.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.process import ROOT, TIMEOUT

__all__ = ["main"]

_CLIENTS: Final = 16
_PLACES: Final = "8"
_MAX: Final = 4
"""The maximum number of dispatchers."""
_PAYLOAD: Final = "x" * 100
_WORK: Final = "handlers = {'echo': lambda job: job['payload']}\n"


class _Logged:
    """A program whose errors go to a file, in which its address stands."""

    def __init__(self, folder: Path, name: str, *argv: str) -> None:
        self.path = folder / f"{name}.log"
        with self.path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "wmp", *argv],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )

    def read(self, words: str) -> str:
        """Return the words behind some words, when they are written."""
        until = time.monotonic() + TIMEOUT
        while time.monotonic() < until and self.process.poll() is None:
            text = self.path.read_text(encoding="utf-8")
            if words in text:
                return text.split(words)[1].split()[0]
            time.sleep(0.05)
        raise RuntimeError(f"{words!r} did not appear: {self.path.read_text(encoding='utf-8')}")

    def end(self) -> None:
        """End the program."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class _Clients:
    """Clients of HTTP, each with one connection to one of several dispatchers."""

    def __init__(self, urls: Sequence[str]) -> None:
        hosts = [url.removeprefix("http://") for url in urls]
        self.connections = [
            http.client.HTTPConnection(hosts[client % len(hosts)], timeout=TIMEOUT)
            for client in range(_CLIENTS)
        ]

    def run(self, count: int, act: Callable[[http.client.HTTPConnection, int], object]) -> float:
        """Have the clients act on all numbers below a count; return how many in a second."""
        errors: list[BaseException] = []

        def work(client: int) -> None:
            # A server closes connections that are idle between two runs.
            self.connections[client].close()
            try:
                for number in range(client, count, _CLIENTS):
                    act(self.connections[client], number)
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(client,)) for client in range(_CLIENTS)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return count / (time.perf_counter() - begun)


def _ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None
) -> dict[str, Any]:
    """Send a request; return the document of the answer."""
    while True:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        if answer.status < 300:
            document: dict[str, Any] = json.loads(text)
            return document
        if answer.status != 503:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:200]!r}")


@contextlib.contextmanager
def _network(folder: Path, store: str, count: int) -> Iterator[_Clients]:
    """Run dispatchers and workers; yield clients."""
    (folder / "dispatched_work.py").write_text(_WORK, encoding="utf-8")
    with contextlib.ExitStack() as stack:

        def start(name: str, *argv: str) -> _Logged:
            process = _Logged(folder, name, *argv)
            stack.callback(process.end)
            return process

        ports = ("--http", "127.0.0.1:0", "--bind", "tcp://127.0.0.1:*")
        dispatchers = [
            start(f"dispatcher{index}", "dispatcher", "--store", store, *ports)
            for index in range(count)
        ]
        urls = [dispatcher.read(" serves ") for dispatcher in dispatchers]
        ends = [dispatcher.read("WMP workers connect to ") for dispatcher in dispatchers]
        work = ("worker", "dispatched_work:handlers", "--slots", _PLACES)
        over_http = [part for url in urls for part in ("--dispatcher", url)]
        over_wmp = [part for end in ends for part in ("--connect", end)]
        workers = [
            start(f"http{index}", *work, *over_http, "--http", "127.0.0.1:0") for index in range(2)
        ]
        others = [start(f"wmp{index}", *work, *over_wmp) for index in range(2)]
        for worker in workers:
            worker.read("registered as ")
        for worker in others:
            worker.read("connected to manager ")
        yield _Clients(urls)


def _round(folder: Path, store: str, count: int, jobs: int) -> dict[str, float]:
    """Measure a number of dispatchers once."""
    with _network(folder, store, count) as clients:
        ids: list[str] = [""] * jobs

        def create(connection: http.client.HTTPConnection, number: int) -> None:
            body = {"type": "echo", "payload": [number, _PAYLOAD]}
            ids[number] = _ask(connection, "POST", "/dispatcher/jobs/", body)["_id"]

        def read(connection: http.client.HTTPConnection, number: int) -> None:
            while True:
                document = _ask(connection, "GET", f"/dispatcher/jobs/{ids[number]}")
                if document["execution"]["ended"] is not None:
                    break
                time.sleep(0.01)
            if document["result"] != [number, _PAYLOAD]:
                raise RuntimeError(f"job {number} has the result {document['result']!r}")

        def ping(connection: http.client.HTTPConnection, number: int) -> None:
            _ask(connection, "GET", "/healthz")

        clients.run(_CLIENTS, ping)
        pinged = clients.run(jobs, ping)
        begun = time.perf_counter()
        created = clients.run(jobs, create)
        clients.run(jobs, read)
        done = jobs / (time.perf_counter() - begun)
    return {"created": created, "done": done, "without a store": pinged}


def measure(stores: Callable[[Path], str], jobs: int, rounds: int) -> dict[str, Any]:
    """Return the medians for 1 to 4 dispatchers, and the ratios to one dispatcher of the round."""
    samples: dict[int, list[dict[str, float]]] = {count: [] for count in range(1, _MAX + 1)}
    for round_, count in itertools.product(range(rounds), samples):
        with tempfile.TemporaryDirectory(prefix="wmp-dispatchers-") as name:
            sample = _round(Path(name), stores(Path(name)), count, jobs)
        samples[count].append(sample)
        rates = ", ".join(f"{name} {rate:.0f}/s" for name, rate in sample.items())
        print(f"round {round_ + 1}, {count} dispatchers: {rates}", file=sys.stderr)
    rows = {}
    for count, some in samples.items():
        rows[str(count)] = {
            name: {
                "median": round(median(sample[name] for sample in some), 1),
                "ratio": round(
                    median(
                        sample[name] / unit[name]
                        for sample, unit in zip(some, samples[1], strict=True)
                    ),
                    2,
                ),
                "minimum": round(min(sample[name] for sample in some), 1),
                "maximum": round(max(sample[name] for sample in some), 1),
            }
            for name in some[0]
        }
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dispatchers", description=__doc__)
    parser.add_argument("--store", help="a store of several hosts; default: a new file of SQLite")
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="show that the benchmark runs")
    given = parser.parse_args(arguments)
    if given.tiny:
        given.jobs, given.rounds = 32, 1

    def store(folder: Path) -> str:
        return given.store or str(folder / "jobs.db")

    print(json.dumps(measure(store, given.jobs, given.rounds), indent=1))


if __name__ == "__main__":
    main()
