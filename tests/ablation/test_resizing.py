"""The safeguards of a worker whose resources become less are switched off: jobs wait in vain."""

from __future__ import annotations

import pytest

from tests.unit.core.manager.managers import make as make_manager
from tests.unit.core.worker.workers import make
from wmp.core.worker.locks import Locks
from wmp.core.worker.machine import WorkerMachine
from wmp.core.worker.run_queue import RunQueue
from wmp.events import Resized
from wmp.testing.simulator.network import Network


def fleet(**options) -> tuple[Network, WorkerMachine]:
    """Return a manager with one worker of two slots, which are connected."""
    network = Network()
    network.add("m", make_manager())
    worker = make(resources={"slots": 2}, **options)
    network.add("w", worker, ["m"])
    network.connect("w")
    network.settle()
    return network, worker


def deliver_all(network: Network) -> None:
    """Deliver all messages; no job ends."""
    while pipes := network.busy():
        network.deliver(pipes[0])


@pytest.mark.parametrize("withdraws", [True, False])
def test_a_held_give_above_the_rest_brings_jobs_that_cannot_start(withdraws, monkeypatch):
    if not withdraws:
        monkeypatch.setattr(Locks, "withdraw", lambda *_: None)
    network, worker = fleet(hold=5.0, window=0)
    network.happen("w", Resized({"slots": 1}))
    network.settle()

    network.submit("m", [b"a", b"b"])
    deliver_all(network)

    assert worker.statistics().parked == (0 if withdraws else 1)


@pytest.mark.parametrize("hands_back", [True, False])
def test_a_job_that_can_never_start_stays_at_the_worker(hands_back, monkeypatch):
    if not hands_back:
        monkeypatch.setattr(RunQueue, "unfit", ())
    network, worker = fleet(hold=0.0, window=2)
    network.submit("m", [b"job"] * 4)
    deliver_all(network)
    assert worker.statistics().parked == 2

    network.happen("w", Resized({"slots": 0}))
    network.settle()

    assert worker.statistics().parked == (0 if hands_back else 2)
