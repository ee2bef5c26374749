"""The check that an idle worker gets a waiting job in bounded time.

The check runs at intervals once the faults are over and all nodes are connected. A pair of a queued
job and a worker that could do it, but has begun no job, must not last.
"""

from __future__ import annotations

from attrs import define, field

from wmp.checks.job_history import Violation
from wmp.core.manager.job_lifecycle import JobState
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.testing.simulator.lane_runner import LaneRunner
from wmp.testing.simulator.topology import Topology, can
from wmp.testing.state.manager_state import all_jobs

_Pair = tuple[str, int, str]
"""(manager, job, worker) of each pair that should meet."""


@define(eq=False)
class StarvationCheck:
    """Pairs of an idle worker and a job that wait for each other.

    Args:
        runner: Knows the idle workers, and the number of jobs that each has begun.
    """

    runner: LaneRunner
    longest: float = field(default=0.0, init=False)
    """The longest wait of a pair in seconds."""
    _since: dict[_Pair, tuple[float, int]] = field(factory=dict, init=False)
    """Time at which a pair was first seen, and number of jobs that the worker had begun before."""

    @staticmethod
    def bound(topology: Topology) -> float:
        """Return the longest allowed wait in seconds.

        A worker that its manager has forgotten sends READY after the next PONG. A lock that another
        manager does not answer is free after its timeout.
        """
        timers = topology.timers
        held = timers.hold + timers.lock_timeout if len(topology.managers) > 1 else 0.0
        return 1.05 * (3 * timers.ping + 4 * timers.wake_timeout + 2 * timers.trip + held) + 0.5

    def look(self) -> None:
        """Check all pairs.

        Raises:
            Violation: "they meet".
        """
        network, topology = self.runner.network, self.runner.fleet.topology
        now, bound = network.now, self.bound(topology)
        before, self._since = self._since, {}
        idle = [
            name
            for name, node in network.nodes.items()
            if isinstance(node, WorkerMachine) and network.alive(name) and not network.lanes[name]
        ]
        for name, node in network.nodes.items():
            if not idle or not isinstance(node, ManagerMachine) or not network.alive(name):
                continue
            waiting = [j for j in all_jobs(node).values() if j.state is JobState.QUEUED]
            for worker in idle if waiting else ():
                settings = topology.workers[worker]
                if name not in topology.above(worker):
                    continue
                for job in waiting:
                    avoided = {**(job.refused or {}), **(job.left or {})}
                    if settings.identity in avoided or not can(settings, job.kind):
                        continue  # the worker must send READY first, perhaps after a backoff
                    pair, begun = (name, job.id, worker), self.runner.begun[worker]
                    since, count = before.get(pair, (now, begun))
                    if count != begun:
                        since = now
                    self._since[pair] = since, begun
                    self.longest = max(self.longest, now - since)
                    if now - since > bound:
                        detail = (
                            f"job {job.id} of {name} and idle {worker} have waited "
                            f"{now - since:.2f} s"
                        )
                        raise Violation("they meet", f"{detail}; expected at most {bound:.2f} s")
