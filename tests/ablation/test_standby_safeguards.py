"""Safeguards around managers on standby: without each, a job waits longer or a pair never settles.

Each measure is one of virtual time, so the numbers are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from attrs import define

from wmp.checks.job_history import History
from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.ownership import Ownership
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.capacity import Capacity
from wmp.core.worker.locks import Locks
from wmp.core.worker.remote_manager import RemoteManager
from wmp.gateways.binary_star import machine as star
from wmp.gateways.binary_star.election import TRANSITIONS, StarInput, StarState
from wmp.message import Kind
from wmp.testing.simulator.lane_runner import TaskHandlers
from wmp.testing.simulator.simulated_pair import SimulatedPair
from wmp.testing.simulator.topology import TimerSettings, Topology
from wmp.testing.simulator.trace import Trace
from wmp.testing.simulator.workload import SimulatedTask, SubmitBatch
from wmp.testing.worlds.simulation import Simulation
from wmp.testing.worlds.workload_driver import WorkloadDriver
from wmp.testing.worlds.world import World

Patch = pytest.MonkeyPatch
Switch = Callable[[Patch], None]

LATENCY = 0.05
"""Seconds of each message."""
TIMERS = TimerSettings(
    max_silence=6.0,
    ping=1.0,
    wake_timeout=0.25,
    lock_timeout=5.0,
    hold=5.0,
    resend=3.0,
    backoff=2.0,
    latency=LATENCY,
)


@define
class Office:
    """A pair of managers and one worker of one slot, without faults."""

    simulation: Simulation
    pair: SimulatedPair
    driver: WorkloadDriver

    def run(self, seconds: float) -> None:
        self.simulation.run(self.simulation.now + seconds)

    def time_of_job(self, name: str) -> float:
        """Return the seconds from the submission of a job to its start."""
        runner, network = self.simulation.runner, self.simulation.network
        before, began = runner.begun.total(), network.now
        task = SimulatedTask(f"{name} {began}".encode(), 0.01, fails=False, heeds=True)
        self.driver.offer(SubmitBatch(began, name, Kind(), (task,)))
        while runner.begun.total() == before:
            assert network.now < began + 60, "the job never begins"
            self.run(0.005)
        return network.now - began


def make_office() -> Office:
    worker = WorkerSettings(
        identity=b"w1",
        epoch=0,
        label="w1",
        roles=("default",),
        resources={"slots": 1},
        window=0,
        hold=TIMERS.hold,
        lock_timeout=TIMERS.lock_timeout,
        ping=TIMERS.ping,
    )
    names = ("m1", "m2")
    topology = Topology(TIMERS, names, {"w1": names}, {"w1": worker}, None, pair=names)
    simulation = Simulation(1, topology, Trace(30), History())
    network, agenda, fleet = simulation.network, simulation.agenda, simulation.fleet
    driver = WorkloadDriver(network, agenda, fleet, simulation.history)
    pair = SimulatedPair(network, agenda, fleet, simulation.trace, names)
    network.watchers.append(pair.handled)
    driver.choose = pair.choose
    simulation.runner.handlers = TaskHandlers(
        simulation.runner, driver.tasks, simulation.injector.job_begun
    )
    simulation.checks.accepted = driver.accepted
    pair.begin(0.0, Random(3))
    for name, uplinks in {"m1": (), "m2": (), "w1": names}.items():
        fleet.add(name, uplinks)
        fleet.start(name)
        simulation.connections.latency[name] = LATENCY
    office = Office(simulation, pair, driver)
    office.run(10)
    assert pair.choose("m2") == "m1"
    return office


def at_the_active_manager() -> float:
    """Return the time of a job at the active manager while the other one is on standby."""
    office = make_office()
    office.time_of_job("m1")
    office.run(1.0)
    return office.time_of_job("m1")


def after_a_takeover() -> float:
    """Return the time of a job right after the takeover, when the first host is gone silently."""
    office = make_office()
    office.time_of_job("m1")
    office.run(1.0)
    office.simulation.fleet.kill("m1", silently=True)
    while office.pair.choose("m1") != "m2":
        office.run(0.005)
    return office.time_of_job("m2")


def counting(patch: Patch) -> None:
    """WMP-17.3: a worker counts managers on standby."""
    sole = Capacity._sole

    def among_all(self: Capacity, now: float) -> RemoteManager | None:
        return sole(self, now) if len(self.outbound.links.managers) == 1 else None

    patch.setattr(Capacity, "_sole", among_all)


def telling(patch: Patch) -> None:
    """WMP-17.1: the PONGs of a manager on standby do not report it."""
    patch.setattr(Ownership, "fields_of_pong", lambda self: {})


def pong(patch: Patch) -> None:
    """WMP-17.2: the end of a standby is not reported at once."""

    def relieve(self: ManagerMachine, now: float) -> None:
        self._scheduler.ownership.standby = False

    patch.setattr(ManagerMachine, "_relieve", relieve)


def release(patch: Patch) -> None:
    """WMP-17.4: the places of held GIVEs at the other manager wait for its answer."""
    patch.setattr(Locks, "take_back", Locks.withdraw)


@pytest.mark.rule("WMP-17.1", "WMP-17.3")
@pytest.mark.parametrize("switch", [counting, telling])
def test_a_manager_on_standby_costs_no_trip(monkeypatch: Patch, switch: Switch) -> None:
    quick = at_the_active_manager()
    assert quick < 1.5 * LATENCY
    switch(monkeypatch)
    assert at_the_active_manager() > 1.8 * quick


@pytest.mark.rule("WMP-17.2", "WMP-17.4")
@pytest.mark.parametrize("switch", [pong, release])
def test_a_job_after_a_takeover_does_not_wait_for_the_ended_manager(
    monkeypatch: Patch, switch: Switch
) -> None:
    quick = after_a_takeover()
    assert quick < 6 * LATENCY
    switch(monkeypatch)
    assert after_a_takeover() > 2 * quick


def drawn() -> str:
    """Return the invariant that worlds of pairs break; empty for none."""
    for seed in range(40):
        violation = World(seed=seed, paired=True).play().violation
        if violation is not None:
            return violation.name
    return ""


@pytest.mark.rule("STAR-2.4", "STAR-4.5")
def test_worlds_notice_two_active_managers_that_do_not_end(monkeypatch: Patch) -> None:
    pair = (StarState.ACTIVE, StarInput.PEER_ACTIVE)
    monkeypatch.setattr(star, "TRANSITIONS", {**TRANSITIONS, pair: StarState.ACTIVE})
    assert drawn() == "a pair serves"


@pytest.mark.rule("WMP-17.1")
def test_worlds_notice_a_manager_on_standby_that_grants(monkeypatch: Patch) -> None:
    # Applications submit to the manager on standby, and the manager does not refuse.
    monkeypatch.setattr(SimulatedPair, "choose", lambda _, name: name)
    post_init = ManagerMachine.__attrs_post_init__

    def serve(self: ManagerMachine) -> None:
        self.standby = False
        post_init(self)

    monkeypatch.setattr(ManagerMachine, "__attrs_post_init__", serve)
    assert drawn() == "standby is kept"
