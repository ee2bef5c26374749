"""A manager that is killed while a worker runs its stored jobs: the next one takes them over."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

import wmp
from tests.interop.programs.programs import ENVIRON
from tests.waiting import WAIT
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.sqlite.sqlite_reader import SqliteReader
from wmp.store.stored_job import StoredJobState

"""Seconds after which a test gives up; none of them needs two seconds."""

MANAGER = """
import sys, wmp
path, bind, identity, jobs = sys.argv[1:]
with wmp.Manager(bind, store=path, identity=identity or None) as manager:
    for number in range(int(jobs)):
        manager.submit(b"%d" % number)
    print(*manager.endpoints, flush=True)
    sys.stdin.read()
"""


@contextmanager
def started(
    path: Path, bind: str, identity: str, jobs: int
) -> Iterator[tuple[str, Callable[[], int]]]:
    """Run a manager in a process; yield its endpoint and a function that kills it."""
    arguments = [str(path), bind, identity, str(jobs)]
    process = subprocess.Popen(
        [sys.executable, "-c", MANAGER, *arguments],
        env=ENVIRON,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def kill() -> int:
        process.kill()
        return process.wait(WAIT)

    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), kill
    finally:
        kill()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def rows(path: Path) -> list[StoredJob]:
    reader = SqliteReader.open(path)
    try:
        return list(reader.list(JobFilter(), limit=100, payloads=True))
    finally:
        reader.close()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.01)


@pytest.mark.interop
@pytest.mark.rule("WMP-14.5", "WMP-14.6", "WMP-14.7", "WMP-14.8")
@pytest.mark.deep
@pytest.mark.parametrize(
    ("identity", "late"),
    [("", True), ("m", False)],
    ids=["another identity, the job runs", "the same identity, the job has ended"],
)
def test_the_next_manager_gets_the_result_of_the_same_execution(
    tmp_path: Path, identity: str, late: bool
) -> None:
    """The job runs until the next manager has taken it over, or ends while there is no manager."""
    path, begun, release = tmp_path / "jobs.db", Event(), Event()
    runs: list[bytes] = []

    def handler(payload: bytes) -> bytes:
        runs.append(payload)
        begun.set()
        release.wait(WAIT)
        return b"result " + payload

    with (
        started(path, "tcp://127.0.0.1:*", identity, jobs=1) as (endpoint, kill),
        wmp.Worker(endpoint, handlers=handler) as worker,
    ):
        assert begun.wait(WAIT)
        kill()
        (before,) = rows(path)
        if not late:
            release.set()
        with started(path, endpoint, identity, jobs=0):
            if late:
                wait_for(
                    lambda: rows(path)[0].instance not in (None, before.instance),
                    "the next manager did not take the job over",
                )
                release.set()
            wait_for(lambda: rows(path)[0].state is StoredJobState.OK, "the job did not end")
            worker.close()

    (row,) = rows(path)
    assert (row.result, row.attempt) == (b"result 0", 1)
    assert runs == [b"0"]
