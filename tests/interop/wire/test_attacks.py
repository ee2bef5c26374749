"""During each attack of ``benchmarks.attacks`` honest jobs end with their results.

No time is asserted: ``python -m benchmarks.attacks`` measures the remaining throughput.
"""

from __future__ import annotations

import contextlib
import json
import sys

import pytest

import wmp
from benchmarks.attacks.attacker import Attacker
from benchmarks.attacks.drills import DRILLS
from benchmarks.attacks.stage import MEMORY, perform
from tests.interop.programs.programs import ROOT
from tests.interop.wire.peers import SocketWorker
from tests.waiting import WAIT, wait_until
from wmp.message import Command, Outcome

pytestmark = pytest.mark.interop

PROGRAM = (sys.executable, "-m", "benchmarks.attacks")
SMALL = ("garbage",)
"""Drills of the default run."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SMALL else pytest.mark.deep) for name in DRILLS]
)
def test_honest_jobs_end_with_their_results_during_an_attack(name: str) -> None:
    figures = perform(name, 0.2 if name in SMALL else 2.0)

    assert figures.failed == ()
    assert figures.left == 0
    assert figures.memory <= MEMORY


def finish(manager: wmp.Manager, honest: SocketWorker) -> None:
    """Let an honest worker do one job."""
    job = manager.submit(b"question")
    honest.work_once(b"answer")
    honest.number += 1
    assert job.result(WAIT) == b"answer"


def test_a_result_that_is_sent_again_and_again_counts_once() -> None:
    with (
        wmp.Manager() as manager,
        SocketWorker(manager.endpoints[0], b"replay") as replay,
        SocketWorker(manager.endpoints[0]) as honest,
    ):
        job = manager.submit(b"once")
        take = replay.work_once(b"done")
        assert job.result(WAIT) == b"done"
        assert take.columns is not None
        jobs = list(zip(take.columns.ids, take.columns.attempts, strict=True))
        done = replay.compose_done(jobs, [b"other"], [Outcome.OK], number=1)
        for _ in range(200):
            replay.send(done)
        wait_until(
            lambda: manager.statistics().dropped.get("duplicate") == 200, "all copies are counted"
        )
        assert job.result() == b"done"
        finish(manager, honest)


def test_the_jobs_of_a_thief_that_leaves_with_them_are_done_by_others() -> None:
    with (
        wmp.Manager(max_worker_losses=1) as manager,
        SocketWorker(manager.endpoints[0], b"thief") as thief,
    ):
        jobs = [manager.submit(b"%d" % number) for number in range(10)]
        for epoch in range(5):
            thief.epoch += epoch
            thief.ready(credit=1)
            thief.manager = thief.receive(Command.WAKE).answer_to
            thief.send(thief.compose_give(2**40))
            thief.receive(Command.TAKE)
            thief.send(thief.compose_bye())
        with wmp.Worker(*manager.endpoints, handlers=bytes.upper):
            assert [job.result(WAIT) for job in jobs] == [b"%d" % number for number in range(10)]


def test_connections_with_half_a_greeting_do_not_keep_jobs_from_ending() -> None:
    with wmp.Manager() as manager, contextlib.ExitStack() as stack:
        for _ in range(100):
            stream = stack.enter_context(Attacker(manager.endpoints[0]).tcp())
            stream.sendall(b"\xff\0\0\0")
        with SocketWorker(manager.endpoints[0]) as honest:
            finish(manager, honest)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has such filters")
@pytest.mark.parametrize("pause", [0.01, 3600.0])
def test_connections_that_come_and_go_make_a_node_accept_none_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    monkeypatch.setattr("wmp.runtime.sockets.node_sockets.PAUSE", pause)
    with (
        wmp.Manager(transport=wmp.Transport(max_useless=1)) as manager,
        SocketWorker(manager.endpoints[0]) as honest,
    ):
        finish(manager, honest)
        attacker = Attacker(manager.endpoints[0])
        while not manager.statistics().dropped.get("useless"):
            with contextlib.suppress(TimeoutError), attacker.tcp(0.1) as stream:
                stream.sendall(b"noise")
        if pause < 1:
            with SocketWorker(manager.endpoints[0], b"late") as late:
                finish(manager, late)
        else:
            with pytest.raises(TimeoutError):
                attacker.tcp(0.1)
        finish(manager, honest)


@pytest.mark.deep
def test_the_program_prints_and_writes_each_drill(tmp_path, forks) -> None:
    path = tmp_path / "attacks.json"

    options = ["--only", "ping,fuzz", "--seconds", "0.2", "--repeats", "1", "--json", str(path)]
    process = forks.run(*PROGRAM, *options, cwd=ROOT)

    assert [row.split()[0] for row in process.stdout.splitlines()] == ["drill", "ping", "fuzz"]
    rows = json.loads(path.read_text())
    assert [row["drill"] for row in rows] == ["ping", "fuzz"]
    assert all(row["kept"] > 0 for row in rows)


def test_an_unknown_drill_is_reported_with_the_known_drills(forks) -> None:
    process = forks.run(*PROGRAM, "--only", "nonsense", cwd=ROOT)

    assert process.returncode == 2
    assert "there is no drill 'nonsense'; expected some of garbage, " in process.stderr
