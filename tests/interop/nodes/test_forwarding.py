"""Forwarding managers over real sockets: jobs, cancellations, errors, the end, and kills."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from pathlib import Path

import pytest

import wmp
from tests.interop.programs.programs import WMP, Program
from tests.waiting import RUN, WAIT, wait_until
from wmp import aio

pytestmark = pytest.mark.interop

SEED = int(os.environ.get("WMP_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def reverse(payload: bytes) -> bytes:
    return bytes(payload)[::-1]


@pytest.fixture
def top():
    with wmp.Manager(identity="top", max_silence=2.0) as manager:
        yield manager


@pytest.fixture
def middle(top):
    with wmp.Manager(forward=top.endpoints, identity="middle") as manager:
        yield manager


def test_jobs_of_a_manager_are_done_by_workers_of_a_forwarding_manager(top, middle):
    owners = set()

    def handler(payload, job):
        owners.add((job.manager, job.attempt))
        return reverse(payload)

    with wmp.Worker(*middle.endpoints, handlers=handler, slots=2):
        results = list(top.map([b"%d" % n for n in range(1000)]))
        own = middle.submit(b"own").result(WAIT)

    assert results == [(b"%d" % n)[::-1] for n in range(1000)]
    assert own == b"nwo"
    assert owners == {(b"top", 1), (b"middle", 1)}


def test_roles_and_resources_of_the_workers_are_offered_above(top, middle):
    handlers = {"cook": reverse}
    with wmp.Worker(*middle.endpoints, handlers=handlers, slots=3, resources={"gpu": 2}):
        top.wait_for_workers(role="cook", timeout=WAIT)
        (row,) = top.statistics().workers
        assert (row.roles, dict(row.resources)) == (("cook",), {"gpu": 2, "slots": 3})

        job = top.submit(b"x", role="cook", needs={"gpu": 2, "slots": 1})
        assert job.result(WAIT) == b"x"
    wait_until(lambda: not any(top.statistics().workers[0].resources.values()), "no capacity")


def test_errors_retries_progress_and_time_limits_pass(top, middle):
    seen = []

    def handler(payload, job):
        job.report(0.5, "half")
        if job.attempt < 3:
            raise ConnectionError("again")
        return b"attempt %d" % job.attempt

    with wmp.Worker(*middle.endpoints, handlers=handler):
        job = top.submit(
            b"x",
            retry=wmp.Retry(times=3, on=ConnectionError, backoff=0.01),
            on_status=seen.append,
        )
        assert job.result(WAIT) == b"attempt 3"
        failing = top.submit(b"y", retry=wmp.Retry(times=0))
        with pytest.raises(wmp.JobFailed, match="again"):
            failing.result(WAIT)
    assert [(status.fraction, status.text) for status in seen][:1] == [(0.5, "half")]


def test_a_running_job_can_be_stopped(top, middle):
    begun, stopped = threading.Event(), threading.Event()

    def handler(payload, job):
        begun.set()
        wait_until(lambda: job.cancelled)
        stopped.set()
        raise wmp.JobCancelled("stopped")

    with wmp.Worker(*middle.endpoints, handlers=handler):
        job = top.submit(b"x")
        assert begun.wait(WAIT)
        job.stop()
        with pytest.raises(wmp.JobCancelled):
            job.result(WAIT)
        assert stopped.wait(WAIT)


def test_the_end_of_the_manager_above_stops_its_jobs():
    begun, stopped = threading.Event(), threading.Event()

    def handler(payload, job):
        begun.set()
        wait_until(lambda: job.cancelled)
        stopped.set()

    with (
        wmp.Manager(max_silence=0.5) as top,
        wmp.Manager(forward=top.endpoints) as middle,
        wmp.Worker(*middle.endpoints, handlers=handler),
    ):
        top.submit(b"x")
        assert begun.wait(WAIT)
        top.close(0.0)
        assert stopped.wait(WAIT)


def test_a_forwarding_manager_that_closes_finishes_its_jobs(top):
    begun, go_on = threading.Event(), threading.Event()

    def handler(payload):
        begun.set()
        go_on.wait(WAIT)
        return reverse(payload)

    middle = wmp.Manager(forward=top.endpoints)
    with middle, wmp.Worker(*middle.endpoints, handlers=handler):
        job = top.submit(b"live")
        assert begun.wait(WAIT)
        threading.Timer(0.2, go_on.set).start()
        middle.close(WAIT)
        assert job.result(WAIT) == b"evil"
    wait_until(lambda: not top.statistics().workers, "BYE")


def test_the_api_for_asyncio():
    async def forward() -> bytes:
        async with (
            aio.Manager() as top,
            aio.Manager(forward=top.endpoints) as middle,
            aio.Worker(*middle.endpoints, handlers=reverse),
        ):
            return await (await top.submit(b"live"))

    assert asyncio.run(forward()) == b"evil"


def test_an_identity_without_space_for_the_worker_side_is_refused(top):
    with pytest.raises(wmp.ConfigError, match="identity has 255 bytes; a manager with forward="):
        wmp.Manager(forward=top.endpoints, identity=b"x" * 255)


# -- kills

WORKER = (
    *WMP, "worker", "tests.interop.nodes.test_forwarding:reverse", "--slots", "2",
)  # fmt: skip


class Fleet:
    """A forwarding manager and its workers, as processes that are killed and started again."""

    def __init__(self, above: str, folder: Path) -> None:
        self.address = f"ipc://{folder}/below"
        self._forward = (*WMP, "forward", "--connect", above, "--bind", self.address)
        self.draw = random.Random(SEED)
        self.kills = {"forwarder": 0, "worker": 0}
        self.forwarder = Program(*self._forward)
        self.workers = [self._worker(), self._worker()]
        self.forwarder.wait_for_line("forwarding the jobs of")

    def _worker(self) -> Program:
        return Program(*WORKER, "--connect", self.address)

    def kill(self) -> None:
        """Kill one process, and start another in its place."""
        if self.draw.random() < 0.4:
            self.kills["forwarder"] += 1
            self.forwarder.__exit__(None, None, None)
            self.forwarder = Program(*self._forward)
            self.forwarder.wait_for_line("forwarding the jobs of")
        else:
            self.kills["worker"] += 1
            index = self.draw.randrange(2)
            self.workers[index].__exit__(None, None, None)
            self.workers[index] = self._worker()

    def close(self) -> None:
        for program in (self.forwarder, *self.workers):
            program.__exit__(None, None, None)


def wait_for(jobs: list[wmp.Job], count: int) -> None:
    """Wait until so many of the jobs have ended."""
    wait_until(lambda: sum(job.done() for job in jobs) >= count, f"{count} ended jobs")


def kill_under_load(folder: Path, jobs: int, kills: int) -> None:
    """Do jobs while the forwarding manager and its workers are killed; compare every result."""
    print(f"WMP_SEED={SEED}")
    with wmp.Manager(max_worker_losses=1000, max_silence=2.0) as top:
        fleet = Fleet(top.endpoints[0], folder)
        try:
            top.wait_for_workers(timeout=WAIT)
            payloads = [b"%d" % n for n in range(jobs)]
            results: list[bytes] = []
            submitted: list[wmp.Job] = []
            for part in range(kills):
                more = payloads[part * jobs // kills : (part + 1) * jobs // kills]
                submitted += [top.submit(payload) for payload in more]
                done = len(submitted) - len(more) // 2
                wait_for(submitted, done)
                fleet.kill()
            results = [job.result(RUN) for job in submitted]
        finally:
            fleet.close()
        assert results == [payload[::-1] for payload in payloads]
        assert min(fleet.kills.values()) > 0, fleet.kills
        assert top.statistics().queued == top.statistics().leased == 0


def test_no_job_is_lost_while_forwarding_manager_and_workers_are_killed(tmp_path_factory):
    kill_under_load(tmp_path_factory.mktemp("f"), jobs=1000, kills=6)


@pytest.mark.deep
def test_five_thousand_jobs_and_many_kills(tmp_path_factory):
    kill_under_load(tmp_path_factory.mktemp("f"), jobs=5000, kills=40)


def test_the_program_drains_at_a_signal(top, tmp_path):
    address = f"ipc://{tmp_path}/below"
    with Program(*WMP, "forward", "--connect", top.endpoints[0], "--bind", address) as program:
        program.wait_for_line("forwarding the jobs of")
        with wmp.Worker(address, handlers=reverse):
            assert top.submit(b"live").result(WAIT) == b"evil"
            program.process.terminate()
            assert program.ends() == 0
    wait_until(lambda: not top.statistics().workers, "BYE")


def test_the_program_refuses_its_own_address():
    with Program(
        sys.executable, "-m", "wmp", "forward", "--connect", "tcp://127.0.0.1:5571"
    ) as program:
        assert program.ends() == 2
        assert "is the address of this manager" in program.stderr
