"""One seed makes the same world in every process, and its random streams are independent."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from wmp.testing.simulator.faults import Fault, Faults, draw_faults
from wmp.testing.simulator.topology import KINDS, can, draw_topology
from wmp.testing.simulator.workload import draw_workload
from wmp.testing.worlds import world as world_module
from wmp.testing.worlds.simulation import BUDGET
from wmp.testing.worlds.world import World, simulate

SEEDS = [1, 2, 3, 5]


def digests(hash_seed: str) -> str:
    """Return the hashes of the traces of some worlds, played in a new process."""
    program = (
        "from wmp.testing.worlds.world import simulate;"
        f"print(' '.join(simulate(seed).digest for seed in {SEEDS}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return done.stdout.strip()


def test_equal_seeds_have_equal_traces_in_any_process():
    first, two = digests("1"), digests("2")
    assert first == two == " ".join(simulate(seed).digest for seed in SEEDS)
    assert len(set(first.split())) == len(SEEDS)


def test_telling_everything_changes_nothing():
    assert simulate(3, keep=None).digest == simulate(3).digest


def test_one_stream_does_not_disturb_another(monkeypatch):
    """One more draw for the faults leaves topology, workload and latencies unchanged."""

    def draw_more(names: list[str], draw: Random) -> Faults:
        draw.random()
        return draw_faults(names, draw)

    before = World(seed=7)
    monkeypatch.setattr(world_module, "draw_faults", draw_more)
    after = World(seed=7)
    assert after.faults != before.faults
    assert after.topology == before.topology
    # The time of the faults sets the times of the jobs, so only the scale of the workload differs.
    assert [b.tasks for b in after.workload.batches] == [b.tasks for b in before.workload.batches]


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_every_manager_has_a_worker_for_each_of_its_jobs(seed):
    topology = draw_topology(Random(f"{seed}:topology"))
    workload = draw_workload(topology, 5.0, Random(f"{seed}:workload"))
    for name in topology.managers:
        assert topology.kinds(name)
    for batch in workload.batches:
        assert any(
            batch.manager in topology.above(name) and can(settings, batch.kind)
            for name, settings in topology.workers.items()
        )
    payloads = [task.payload for batch in workload.batches for task in batch.tasks]
    assert len(payloads) == len(set(payloads))


def test_worlds_differ_in_everything_that_matters():
    topologies = [draw_topology(Random(f"{seed}:topology")) for seed in range(300)]
    assert {len(t.workers) for t in topologies} >= {1, 2, 3, 4}
    assert {len(t.managers) for t in topologies} >= {1, 2, 3}
    devices = [[n for n in t.uplinks if n.startswith("d")] for t in topologies]
    assert {len(names) for names in devices} == {0, 1, 2}
    assert any("d1" in t.uplinks.get("d2", ()) for t in topologies), "no chain"
    assert {t.timers.max_silence for t in topologies} == {1.5, 3.0, 6.0}
    assert {s.window for t in topologies for s in t.workers.values()} == {None, 0, 1, 3}
    assert {k for t in topologies for m in t.managers for k in t.kinds(m)} == set(KINDS)


def test_without_faults_a_world_does_each_job_once():
    for seed in range(10):
        world = World(seed=seed)
        world.faults = Faults(until=world.faults.until)
        report = world.play()
        assert report.violation is None, (seed, report.violation)
        assert not sum(report.faults.values())
        assert report.steps < BUDGET / 5
        assert set(report.ends) <= {"ok", "error", "cancelled", "timeout"}
        # Each job was begun exactly once, except jobs that their submitter or deadline ended.
        assert report.ends.get("ok", 0) + report.ends.get("error", 0) <= report.begun <= report.jobs


def test_a_clock_that_is_wrong_stays_wrong_in_the_same_way():
    simulation = World(seed=0).simulation
    skew = {"m1": (100.0, 1.5)}
    simulation.begin_faults(Faults(until=1.0, kinds=frozenset({Fault.CLOCK_SKEW}), skew=skew))
    network = simulation.network
    assert network.local("m1") == 100.0
    network.now = 2.0
    assert network.local("m1") == 103.0
    assert network.local("w1") == 2.0
