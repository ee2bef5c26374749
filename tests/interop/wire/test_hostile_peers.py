"""Many hostile peers on real sockets: honest jobs still end with their results."""

from __future__ import annotations

import subprocess
import sys

import pytest

import wmp
from tests.interop.programs.programs import ENVIRON, ROOT
from tests.waiting import WAIT

pytestmark = pytest.mark.interop

MANY = [pytest.mark.deep, pytest.mark.timeout(2700)]


def result(job: wmp.Job, *nodes: wmp.Manager | wmp.Worker) -> object:
    """Return the result of a job; if the job does not end, the failure shows the nodes' state."""
    try:
        return job.result(WAIT)
    except TimeoutError:
        shown = "\n".join(str(node.statistics()) for node in nodes)
        pytest.fail(f"the job has not ended after {WAIT:g} s: {job.status()}\n{shown}")


@pytest.mark.parametrize(("peers", "messages"), [(10, 100), pytest.param(200, 10_000, marks=MANY)])
def test_honest_jobs_end_among_hostile_peers(peers: int, messages: int) -> None:
    with (
        wmp.Manager(max_worker_losses=1_000_000) as manager,
        wmp.Worker(
            *manager.endpoints, handlers={"honest": bytes.upper, "shared": bytes.upper}, slots=2
        ) as worker,
    ):
        manager.wait_for_workers(1, timeout=WAIT)
        command = [sys.executable, "-m", "tests.interop.wire.hostile_process", manager.endpoints[0]]
        with subprocess.Popen(
            [*command, str(peers), str(messages), "14"],
            cwd=ROOT,
            env=ENVIRON,
            stdout=subprocess.PIPE,
            text=True,
        ) as attack:
            assert attack.stdout is not None
            assert attack.stdout.readline() == "begun\n"
            shared = []
            try:
                while attack.poll() is None:
                    job = manager.submit(b"honest job", role="honest")
                    shared.append(manager.submit(b"shared job", role="shared"))
                    assert result(job, manager, worker) == b"HONEST JOB"
            finally:
                attack.kill()
            assert int(attack.stdout.readline()) == peers * messages
        assert manager.submit(b"afterwards", role="honest").result(WAIT) == b"AFTERWARDS"
        # The jobs of a hostile worker go to other workers when the hostile worker is silent.
        for job in shared:
            assert job.exception(WAIT) is None or isinstance(job.exception(), wmp.JobError)
