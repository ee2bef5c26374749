"""One seed, one world: the machines of a small fleet in virtual time, with faults.

A :class:`World` draws a topology, faults and a workload from its seed, plays them in a
:class:`~wmp.testing.worlds.simulation.Simulation` and reports the outcome.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from attrs import define, evolve, field, frozen

from wmp.checks.job_history import History, Violation
from wmp.testing.simulator.faults import Faults, draw_faults
from wmp.testing.simulator.forwarder_life import ForwarderLife
from wmp.testing.simulator.journals import Journals
from wmp.testing.simulator.lane_runner import TaskHandlers
from wmp.testing.simulator.simulated_pair import SimulatedPair
from wmp.testing.simulator.topology import (
    Topology,
    draw_dials,
    draw_topology,
    with_forwarder,
    with_pair,
)
from wmp.testing.simulator.trace import Trace
from wmp.testing.simulator.workload import SubmitBatch, Workload, draw_times, draw_workload
from wmp.testing.worlds.simulation import Simulation
from wmp.testing.worlds.workload_driver import WorkloadDriver


@frozen
class WorldReport:
    """The outcome of a world."""

    seed: int
    violation: Violation | None
    digest: str
    hours: float
    """Virtual time that passed."""
    steps: int
    messages: int
    """Number of messages put on a connection, by any node."""
    jobs: int
    begun: int
    """Number of executions."""
    ends: dict[str, int]
    faults: dict[str, int]
    """The number of strikes of each fault."""
    met: float
    """The longest time, in seconds, that a job and an idle worker waited for each other after the
    faults.
    """
    timed: bool = False
    """Whether jobs had start times, expiries, run limits and failures."""
    dialed: bool = False
    """Whether managers dialed in to devices."""
    paired: bool = False
    """Whether the managers were a pair."""
    forwarded: bool = False
    """Whether there was a forwarding manager."""
    trace: tuple[str, ...] = ()
    """The last steps (after a violation) or all steps (on request), in words."""


@define(eq=False, kw_only=True)
class World:
    """A seeded world.

    Args:
        seed: Decides the whole world.
        timed: Whether jobs have start times, expiries, run limits, and fail and are tried again.
        dialed: Whether managers dial in to devices.
        paired: Whether the managers are a pair, one of which is on standby.
        forwarded: Whether there is a forwarding manager between managers and workers.
        keep: The number of trace steps that are kept; None for all.
        journals: The journals of the nodes; None for none.
        history: Records the facts about jobs, and checks the invariants.
    """

    seed: int
    timed: bool = False
    dialed: bool = False
    paired: bool = False
    forwarded: bool = False
    keep: int | None = 30
    journals: Journals | None = None
    history: History = field(factory=History)
    topology: Topology = field(init=False)
    faults: Faults = field(init=False)
    workload: Workload = field(init=False)
    simulation: Simulation = field(init=False)
    driver: WorkloadDriver = field(init=False)
    handlers: TaskHandlers = field(init=False)
    pair: SimulatedPair | None = field(default=None, init=False)
    _probes: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        def stream(name: str) -> Random:
            return Random(f"{self.seed}:{name}")

        self.topology = draw_topology(stream("topology"))
        if self.paired:
            self.topology = with_pair(self.topology)
        if self.dialed:
            self.topology = draw_dials(self.topology, stream("dials"))
        if self.forwarded:
            self.topology = with_forwarder(self.topology, stream("forwarder"))
        names = [*self.topology.managers, *self.topology.uplinks]
        self.faults = draw_faults(names, stream("faults"))
        if self.topology.forwarder is not None:
            lower, upper = self.topology.forwarder  # one process has one clock
            skew = {name: clock for name, clock in self.faults.skew.items() if name != upper}
            skew |= {upper: skew[lower]} if lower in skew else {}
            self.faults = evolve(self.faults, skew=skew)
        self.workload = draw_workload(self.topology, self.faults.until, stream("workload"))
        self._probes = stream("probes")
        if self.timed:
            self.workload = draw_times(self.workload, stream("times"))
            self.topology = evolve(
                self.topology,
                workers={
                    name: evolve(worker, overrun_grace=0.5)
                    for name, worker in self.topology.workers.items()
                },
            )
        self.simulation = simulation = Simulation(
            self.seed, self.topology, Trace(self.keep), self.history, self.journals
        )
        self.driver = driver = WorkloadDriver(
            simulation.network, simulation.agenda, simulation.fleet, simulation.history
        )
        injector, runner = simulation.injector, simulation.runner
        runner.handlers = self.handlers = TaskHandlers(runner, driver.tasks, injector.job_begun)
        if self.topology.forwarder is not None:
            life = ForwarderLife(simulation.network, simulation.fleet, self.topology.forwarder)
            life.begin()
            simulation.network.watchers.append(life.handled)
        if self.topology.pair:
            self.pair = SimulatedPair(
                simulation.network,
                simulation.agenda,
                simulation.fleet,
                simulation.trace,
                self.topology.pair,
            )
            simulation.network.watchers.append(self.pair.handled)
            driver.choose = self.pair.choose
        simulation.checks.accepted, injector.offer = driver.accepted, driver.offer

    def play(self) -> WorldReport:
        """Run the world to its end."""
        violation = None
        try:
            self._play()
        except Violation as error:
            violation = error
        except Exception as error:  # noqa: BLE001 - any exception is a defect of a machine
            violation = Violation("no crash", f"{type(error).__name__}: {error}")
            violation.__cause__ = error
        if self.journals is not None:
            self.journals.close(self._has_journal)
        return self._report(violation)

    def _has_journal(self, name: str) -> bool:
        """Return whether the process whose journal is open lives.

        A process that was started and handled nothing yet has no journal: the open journal is that
        of the killed process before it.
        """
        network, journals = self.simulation.network, self.journals
        assert journals is not None
        return network.alive(name) and network.nodes[name].settings.epoch == journals.epoch(name)

    def open(self) -> None:
        """Add the nodes; schedule their starts, the workload and the faults."""
        simulation, fleet = self.simulation, self.simulation.fleet
        simulation.begin_faults(self.faults)
        if self.pair is not None:
            self.pair.begin(self.faults.until, simulation.stream("pair"))
        dials = {name: self.topology.dials.get(name, ()) for name in self.topology.managers}
        nodes = {**dials, **self.topology.uplinks}
        for name, uplinks in nodes.items():
            fleet.add(name, uplinks)
        for name in nodes:
            if not name.endswith("+"):
                fleet.start_soon(name)
        self.driver.plan(self.workload)
        for blow in self.faults.strikes:
            simulation.agenda.at(blow.at, simulation.injector.strike, blow)

    def _play(self) -> None:
        simulation = self.simulation
        self.open()
        simulation.run(self.faults.until)
        simulation.mend()
        self._wait()
        if self.pair is not None:
            self.pair.check()
        if self._probes.random() < 0.1:
            # Then the probes' jobs must start within the tight time.
            simulation.run(simulation.calm)
        self.driver.probe(self._probes)
        self._wait()
        self.history.finish()
        simulation.checks.look()

    def _wait(self) -> None:
        """Wait until all jobs have ended, even if they run one by one and READY is backed off."""
        simulation = self.simulation
        work = sum(batch.tasks[0].takes * len(batch.tasks) for batch in self.workload.batches)
        slow = max(0.0, simulation.agenda.latest(self.handlers.end) - simulation.now)
        timers = self.topology.timers
        patience = 2 * work + slow + 10.0 + 2 * timers.backoff
        patience += len(self.driver.tasks) * timers.trip
        if self.timed:
            patience += sum(map(_patience_of, self.workload.batches))
        pair = self.pair
        simulation.wait(patience, lambda: simulation.settled and (pair is None or pair.settled))

    def _report(self, violation: Violation | None) -> WorldReport:
        simulation = self.simulation
        trace, counts = simulation.trace, simulation.injector.counts
        shows = violation is not None or self.keep is None
        return WorldReport(
            seed=self.seed,
            violation=violation,
            digest=trace.digest(),
            hours=simulation.now / 3600,
            steps=trace.steps,
            messages=simulation.network.sent.total(),
            jobs=len(self.driver.tasks),
            begun=simulation.runner.begun.total(),
            ends={end.value: count for end, count in simulation.checks.ends.items()},
            faults={fault.value: count for fault, count in counts.items()},
            met=simulation.starvation.longest,
            timed=self.timed,
            dialed=self.dialed,
            paired=self.paired,
            forwarded=self.forwarded,
            trace=tuple(trace.lines()) if shows else (),
        )


def _patience_of(batch: SubmitBatch) -> float:
    """Return the seconds that a batch's jobs may wait for their start and for further attempts."""
    maximum = max(task.fails_first for task in batch.tasks)
    wait = max((task.later or 0.0 for task in batch.tasks), default=0.0)
    if batch.retry is not None:
        wait += batch.retry.backoff.maximum
    takes = sum(task.takes for task in batch.tasks)
    return batch.delay + maximum * (wait + 2 * takes + 1.0)


def simulate(
    seed: int,
    *,
    timed: bool = False,
    dialed: bool = False,
    paired: bool = False,
    forwarded: bool = False,
    keep: int | None = 30,
    journal: Path | None = None,
) -> WorldReport:
    """Play the world of a seed. Its journals go into a folder of their own in ``journal``."""
    kinds = ["timed"] * timed + ["dialed"] * dialed + ["paired"] * paired
    kinds += ["forwarded"] * forwarded
    name = "-".join([*(kinds or ["seed"]), str(seed)])
    journals = None if journal is None else Journals(journal / name)
    world = World(
        seed=seed,
        timed=timed,
        dialed=dialed,
        paired=paired,
        forwarded=forwarded,
        keep=keep,
        journals=journals,
    )
    return world.play()
