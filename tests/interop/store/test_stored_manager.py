"""Managers with a store on SQLite: real sockets, files and processes."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import wmp
from tests.interop.programs.forks import ForkedProcess, forks
from tests.waiting import RUN, WAIT
from wmp.store.contract import JobFilter
from wmp.store.sqlite.sqlite_reader import SqliteReader
from wmp.store.sqlite.sqlite_store import SqliteStore
from wmp.store.stored_job import StoredJobState

"""Seconds after which a test gives up; none of them needs a second."""

State = StoredJobState


def double(payload: bytes) -> bytes:
    return 2 * payload


@contextmanager
def managed(path: Path, **settings: object) -> Iterator[wmp.Manager]:
    """Run a manager with a store that does not wait for the disk, and a worker."""
    store = SqliteStore(path, durability="process", **settings)  # type: ignore[arg-type]
    with (
        wmp.Manager(store=store) as manager,
        wmp.Worker(*manager.endpoints, handlers=double, slots=4),
    ):
        yield manager


def states(path: Path) -> Counter[str]:
    reader = SqliteReader.open(path)
    try:
        return Counter({state.name: count for state, count in reader.counts().items()})
    finally:
        reader.close()


def test_a_stored_job_has_its_result_here_and_in_the_store(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with wmp.Manager(store=path) as manager:
        job = manager.submit(b"ab", key="k")
        with wmp.results(path) as results:
            assert results.get(job.id, default="open") == "open"
            with wmp.Worker(*manager.endpoints, handlers=double):
                assert job.result(WAIT) == b"abab"
            assert results.get(key="k") == b"abab"
        again = manager.submit(b"other", key="k", unique="kept")
        assert again.result(WAIT) == b"abab"
        assert again.id == job.id


@pytest.mark.rule("STORE-12.14")
def test_another_process_sees_a_job_run_and_stops_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    stopped = threading.Event()

    def slow(payload: bytes, job: wmp.RunningJob) -> bytes:
        job.report(0.5, "half of it")
        while not job.cancelled:
            stopped.wait(0.01)
        return payload

    with (
        wmp.Manager(store=path) as manager,
        wmp.Worker(*manager.endpoints, handlers=slow, label="slow worker"),
        wmp.results(path) as results,
    ):
        manager.submit(b"x", key="k")
        job = results.job(key="k")
        until = time.monotonic() + WAIT
        while (status := job.status()).fraction is None and time.monotonic() < until:
            pass
        assert (status.state, status.worker) == ("running", "slow worker")
        assert (status.fraction, status.text, status.attempts) == (0.5, "half of it", 1)
        assert status.begun is not None
        assert job.stop()
        assert job.wait(WAIT).state == "ok"  # the handler noticed, and returned
        assert job.worker == "slow worker"


def test_many_jobs_are_stored_at_once(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with managed(path) as manager:
        jobs = manager.submit_many([b"%d" % number for number in range(300)])
        nowait = manager.submit_nowait(b"n")
        nowait.stored()
        mapped = list(manager.map([b"m"] * 20, stored=True))
        plain = list(manager.map([b"p"] * 20))

        assert [job.result(WAIT) for job in jobs] == [b"%d" % n * 2 for n in range(300)]
        assert nowait.result(WAIT) == b"nn"
    assert (mapped, plain) == ([b"mm"] * 20, [b"pp"] * 20)
    assert states(path) == {"OK": 321}


def test_an_error_and_a_cancellation_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    def fail(payload: bytes) -> bytes:
        raise ValueError("no")

    with wmp.Manager(store=path) as manager:
        cancelled = manager.submit(b"1", role="nobody")
        cancelled.stop()
        with pytest.raises(wmp.JobCancelled):
            cancelled.result(WAIT)
        with wmp.Worker(*manager.endpoints, handlers=fail):
            failed = manager.submit(b"2")
            with pytest.raises(wmp.JobFailed, match="no"):
                failed.result(WAIT)
    with wmp.results(path) as results, pytest.raises(wmp.JobFailed, match="no"):
        results.get(failed.id)
    assert states(path) == {"ERROR": 1, "CANCELLED": 1}


def test_attempts_of_a_stored_job_are_counted_and_their_failures_kept(tmp_path: Path) -> None:
    path, attempts = tmp_path / "jobs.db", []

    def fails(payload: bytes, job: wmp.RunningJob) -> bytes:
        attempts.append(job.attempt)
        raise ValueError(f"no {job.attempt}")

    retry = wmp.Retry(times=2, on=ValueError, backoff=0.01)
    began = time.time()
    with (
        wmp.Manager(store=SqliteStore(path, durability="process")) as manager,
        wmp.Worker(*manager.endpoints, handlers=fails),
        pytest.raises(wmp.JobFailed, match="no 3") as here,
    ):
        manager.submit(b"x", retry=retry).result(WAIT)
    with wmp.results(path) as results, pytest.raises(wmp.JobFailed) as there:
        results.get(1)

    assert attempts == [1, 2, 3]
    for raised in (here, there):
        assert [failure.attempt for failure in raised.value.history] == [1, 2, 3]
        assert [failure.error for failure in raised.value.history][1] == "ValueError: no 2"
        assert all(began - 1 < failure.at < time.time() + 1 for failure in raised.value.history)


def test_the_status_of_a_stored_job_states_where_the_job_waits(tmp_path: Path) -> None:
    with wmp.Manager(store=SqliteStore(tmp_path / "jobs.db", durability="process")) as manager:
        job = manager.submit(b"x")
        status = job.status()
        assert status is not None
        assert status.stored == "the job is in the store; no worker of this manager has it"
        assert manager.statistics().stored == 1
        with wmp.Worker(*manager.endpoints, handlers=double):
            assert job.result(WAIT) == b"xx"
        assert job.status() is None
        manager.submit(b"y", delay=60)
        manager.close(0)


def test_jobs_without_a_worker_stay_in_the_store_when_the_manager_closes(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    manager = wmp.Manager(store=path)
    manager.start()
    job = manager.submit(b"ab")
    manager.close(0)

    with pytest.raises(wmp.ClosedError, match=r"stays in the store; wmp\.results"):
        job.result(WAIT)
    with managed(path), wmp.results(path) as results:
        until = time.monotonic() + WAIT
        while results.get(job.id) is None and time.monotonic() < until:
            time.sleep(0.005)
        assert results.get(job.id) == b"abab"


def test_settings_for_stored_jobs_need_a_store(tmp_path: Path) -> None:
    with wmp.Manager() as manager:
        with pytest.raises(wmp.ConfigError, match="has no store"):
            manager.submit(b"x", stored=True)
        with pytest.raises(wmp.ConfigError, match="result_ttl and unique are for stored jobs"):
            manager.submit(b"x", result_ttl=5.0)
        job = manager.submit(b"x")
        with pytest.raises(wmp.ConfigError, match="is not stored"):
            job.stored()
        job.cancel()
    with wmp.Manager(store=tmp_path / "jobs.db") as manager:
        with pytest.raises(wmp.ConfigError, match="expected 'open' or 'kept'"):
            manager.submit(b"x", unique="always")  # type: ignore[arg-type]
        job = manager.submit(b"x", stored=False)
        job.cancel()


def test_a_store_that_cannot_be_opened_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database" * 100)

    with (
        pytest.raises(wmp.ConfigError, match="there is no folder"),
        wmp.Manager(store=tmp_path / "absent" / "jobs.db"),
    ):
        pass
    with pytest.raises(wmp.StoreUnusable), wmp.Manager(store=tmp_path / "text.db"):
        pass


@pytest.mark.rule("STORE-12.4")
def test_other_jobs_do_not_wait_for_a_store_that_is_away(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with managed(path) as manager:
        foreign = sqlite3.connect(path, isolation_level=None)
        foreign.execute("BEGIN IMMEDIATE")
        stored = manager.submit_nowait(b"s")

        assert manager.submit(b"p", stored=False).result(WAIT) == b"pp"
        assert not stored.done()
        foreign.execute("ROLLBACK")
        foreign.close()
        stored.stored()
        assert stored.result(WAIT) == b"ss"


def test_a_store_whose_file_was_moved_away_is_used_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, away = tmp_path / "jobs.db", tmp_path / "away.db"
    with managed(path) as manager:
        assert manager.submit(b"a").result(WAIT) == b"aa"
        os.rename(path, away)
        job = manager.submit_nowait(b"b")
        until = time.monotonic() + WAIT
        while "is gone" not in caplog.text and time.monotonic() < until:
            time.sleep(0.005)
        assert not job.done()
        os.rename(away, path)

        job.stored()
        assert job.result(WAIT) == b"bb"
    assert "Stored jobs wait until the store answers" in caplog.text
    assert "the store answers again" in caplog.text


def test_a_full_disk_is_an_error_for_new_jobs(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with managed(path, max_bytes=400_000) as manager:
        jobs: list[wmp.Job] = []

        def fill() -> None:
            while len(jobs) < 100:
                jobs.append(manager.submit(bytes(10_000)))

        with pytest.raises(wmp.StoreFull, match="maximum size"):
            fill()
        assert [job.result(WAIT) for job in jobs] == [bytes(20_000)] * len(jobs)
        assert len(jobs) > 5
    assert states(path) == {"OK": len(jobs)}


@pytest.mark.rule("STORE-12.13")
def test_the_error_of_a_full_store_has_the_jobs_that_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with managed(path, max_bytes=400_000) as manager:
        manager.wait_for_workers(1, timeout=WAIT)
        # The jobs for which the worker has capacity are added apart from the others.
        with pytest.raises(wmp.StoreFull, match="of 104 jobs are stored") as raised:
            manager.submit_many([b"x"] * 4 + [bytes(10_000)] * 100)
        stored = [job.id for job in raised.value.stored]
        assert 0 < len(stored) < 104
        for job in raised.value.stored:
            job.result(WAIT)
    reader = SqliteReader.open(path)
    assert sorted(stored) == [job.id for job in reader.list()]
    reader.close()


# -- processes that are killed -----------------------------------------------------------------

MANAGER = """
import sys, wmp
from wmp.store.sqlite.sqlite_store import SqliteStore

path, bind, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = SqliteStore(path, durability="process", grace=0.2)
with wmp.Manager(bind, identity="m", store=store, reconnect_grace=0.2) as manager:
    print("ready", flush=True)
    for start in range(first, first + count, 100):
        numbers = range(start, min(start + 100, first + count))
        for job in manager.submit_many([b"%d" % number for number in numbers]):
            print(job.id, flush=False)
        sys.stdout.flush()
    print("all", flush=True)
    sys.stdin.read()
    manager.close(0)
"""

WORKER = """
import os, sys, wmp

log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def double(payload, job):
    os.write(log, b"%d %d\\n" % (job.id, job.attempt))
    return 2 * payload

wmp.Worker(sys.argv[1], handlers=double, slots=4).run()
"""


class Killed:
    """A manager and two workers, which are killed and started again."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.bind = f"ipc://{folder}/m"
        self.executed = folder / "executed"
        self.errors = folder / "stderr"
        self.manager: ForkedProcess | None = None
        self.workers = [self.start_worker() for _ in range(2)]

    def start_manager(self, first: int, count: int) -> None:
        arguments = [str(self.path), self.bind, str(first), str(count)]
        self.manager = self.start(MANAGER, *arguments)

    def start_worker(self) -> ForkedProcess:
        return self.start(WORKER, self.bind, str(self.executed))

    def start(self, program: str, *arguments: str) -> ForkedProcess:
        with self.errors.open("ab") as errors:
            return forks().start(sys.executable, "-c", program, *arguments, errors=errors.fileno())

    def kill_worker(self, index: int) -> None:
        self.end(self.workers[index])
        self.workers[index] = self.start_worker()

    def kill_manager(self) -> list[int]:
        """Kill the manager; return the acknowledged jobs."""
        assert self.manager is not None
        lines = self.end(self.manager).splitlines()
        self.manager = None
        return [int(line) for line in lines if line.isdigit()]

    @staticmethod
    def end(process: ForkedProcess) -> bytes:
        """Kill a process; return what the process has written and nobody has read."""
        process.kill()
        left = process.stdout.read()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        return left

    def close(self) -> None:
        for process in (*self.workers, self.manager):
            if process is not None:
                self.end(process)


def run_and_kill(tmp_path: Path, jobs: int, kills: int, seed: int) -> None:
    """Kill everything in turn; check that each acknowledged job ended once with its result."""
    draw, path = random.Random(seed), tmp_path / "jobs.db"
    killed = Killed(path, tmp_path)
    acknowledged: list[int] = []
    part = -(-jobs // (kills + 1))
    try:
        for turn in range(kills + 1):
            killed.start_manager(turn * part, part)
            assert killed.manager is not None
            assert killed.manager.stdout.readline() == b"ready\n"
            if turn < kills:
                time.sleep(draw.uniform(0.0, 0.4))  # until a moment that nobody chose
                if turn % 2:
                    killed.kill_worker(turn // 2 % 2)
                acknowledged += killed.kill_manager()
        last = []
        for line in killed.manager.stdout:
            if line == b"all\n":
                break
            last.append(int(line))
        acknowledged += last
        until = time.monotonic() + RUN
        while not states(path).keys() <= {"OK"} and time.monotonic() < until:
            time.sleep(0.05)
        killed.kill_manager()
    finally:
        killed.close()
    reader = SqliteReader.open(path)
    rows, after = {}, 0
    while page := reader.list(JobFilter(), after=after, payloads=True):
        rows.update({row.id: row for row in page})
        after = page[-1].id
    reader.close()
    assert set(acknowledged) <= rows.keys()
    assert {row.state for row in rows.values()} == {State.OK}
    assert all(row.result == 2 * (row.payload or b"") for row in rows.values())
    assert len(acknowledged) >= part
    executed = [tuple(map(int, line.split())) for line in killed.executed.read_text().splitlines()]
    assert len(set(executed)) == len(executed), "an attempt was executed twice"
    times = Counter(id for id, _ in executed)
    assert all(1 <= times[id] <= row.attempt for id, row in rows.items())


def test_a_manager_that_comes_back_goes_on_with_the_stored_jobs(tmp_path: Path) -> None:
    run_and_kill(tmp_path, jobs=800, kills=3, seed=1)


@pytest.mark.deep
def test_twenty_thousand_stored_jobs_survive_fifty_kills(tmp_path: Path) -> None:
    run_and_kill(tmp_path, jobs=20_000, kills=50, seed=2)


@pytest.mark.rule("STORE-12.11")
@pytest.mark.parametrize("delay", [None, 60])
def test_a_cancelled_key_is_free_at_once(tmp_path: Path, delay: float | None) -> None:
    with wmp.Manager(store=SqliteStore(tmp_path / "jobs.db", durability="process")) as manager:
        jobs = []
        for number in range(20):
            key = f"k{number}"
            old = manager.submit(b"old", key=key, delay=delay)
            assert old.cancel()
            jobs.append((old, manager.submit(b"new", key=key, delay=delay)))
        assert [old.id for old, new in jobs if new.id == old.id or new.done()] == []
        manager.close(0)


@pytest.mark.rule("STORE-12.11")
def test_the_answer_to_a_cancellation_is_that_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with wmp.Manager(store=path) as first, wmp.Manager(store=path) as other:
        begun, go_on = threading.Event(), threading.Event()

        def wait(payload: bytes) -> bytes:
            begun.set()
            assert go_on.wait(WAIT)
            return payload

        with wmp.Worker(*other.endpoints, handlers=wait):
            job = first.submit(b"x", key="k")
            assert begun.wait(WAIT)
            # The worker of the other manager has the job, which this manager cannot know.
            assert not job.cancel()
            go_on.set()
            with contextlib.suppress(wmp.JobCancelled):
                assert job.result(WAIT) == b"x"


@pytest.mark.rule("STORE-12.12")
def test_a_manager_whose_store_is_replaced_ends_and_leaves_the_log(tmp_path: Path) -> None:
    path, copy = tmp_path / "jobs.db", tmp_path / "copy.db"
    manager = wmp.Manager(store=SqliteStore(path, durability="process"))
    manager.start()
    manager.submit(b"before")
    reader = SqliteReader.open(path)
    reader.backup(copy)
    reader.close()
    os.replace(path, tmp_path / "away.db")
    os.replace(copy, path)
    waiting = manager.submit_nowait(b"after")
    with pytest.raises(wmp.ClosedError, match="was replaced while this process used it"):
        waiting.result(WAIT)
    with pytest.raises(wmp.WMPError, match="start the process again"):
        manager.submit(b"more")
    manager.close(0)
    os.replace(tmp_path / "away.db", path)
    assert states(path) == {"QUEUED": 1}


@pytest.mark.rule("STORE-12.7")
def test_close_waits_for_no_stored_job(tmp_path: Path) -> None:
    go = threading.Event()

    def slow(payload: bytes) -> bytes:
        go.wait(WAIT)
        return payload

    path = tmp_path / "jobs.db"
    manager = wmp.Manager(store=path)
    manager.start()
    with wmp.Worker(*manager.endpoints, handlers=slow):
        try:
            running = manager.submit(b"running")
            while not running.running():
                time.sleep(0.01)
            waiting = manager.submit_nowait(b"waiting", role="nobody")
            manager.close(RUN)  # would last as long, and longer than the test may
            for job in (running, waiting):
                with pytest.raises(wmp.ClosedError, match="stays in the store"):
                    job.result(0)
        finally:
            go.set()
    assert sum(states(path)[name] for name in ("QUEUED", "RESERVED")) == 2


@pytest.mark.rule("STORE-12.7")
def test_close_waits_for_jobs_that_are_not_stored(tmp_path: Path) -> None:
    with (
        wmp.Manager(store=tmp_path / "jobs.db") as manager,
        wmp.Worker(*manager.endpoints, handlers=double),
    ):
        job = manager.submit(b"x", stored=False)
        manager.close(WAIT)
        assert job.result(0) == b"xx"
