"""Many hostile peers on real sockets: honest jobs still end with their results."""

from __future__ import annotations

import subprocess
import sys

import pytest

import wmp
from tests.interop.programs import ENVIRON, ROOT

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("peers", "messages"), [(10, 100), pytest.param(200, 10_000, marks=pytest.mark.deep)]
)
def test_honest_jobs_end_among_hostile_peers(peers: int, messages: int) -> None:
    with (
        wmp.Manager(retries=1_000_000) as manager,
        wmp.Worker(
            *manager.endpoints, handlers={"honest": bytes.upper, "shared": bytes.upper}, slots=2
        ),
    ):
        manager.wait_for_workers(1, timeout=60)
        command = [sys.executable, "-m", "tests.interop.hostile_process", manager.endpoints[0]]
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
            while attack.poll() is None:
                job = manager.submit(b"honest job", role="honest")
                shared.append(manager.submit(b"shared job", role="shared"))
                assert job.result(120) == b"HONEST JOB"
            assert int(attack.stdout.readline()) == peers * messages
        assert manager.submit(b"afterwards", role="honest").result(60) == b"AFTERWARDS"
        # The jobs of a hostile worker go to other workers when the hostile worker is silent.
        for job in shared:
            assert job.exception(120) is None or isinstance(job.exception(), wmp.JobError)
