"""The size of each table of a machine, by name, and the bounds of these sizes.

This module reads private tables on purpose, because nothing else shows a leak.
"""

from __future__ import annotations

from wmp.checks.job_history import Violation
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.testing.simulator.topology import KINDS


def sizes(machine: ManagerMachine | WorkerMachine) -> dict[str, int]:
    """Return the number of entries of each table of a machine."""
    if isinstance(machine, ManagerMachine):
        scheduler = machine._scheduler
        workers = list(machine._workers.values())
        return {
            "jobs": len(scheduler.leases),
            "queued": scheduler.queues.waiting + scheduler.delayed.waiting,
            "delayed heap": len(scheduler.delayed._heap),
            "queues": len(list(scheduler.queues)),
            "leases": sum(w.leased for w in workers),
            "workers": len(workers),
            "open gives": sum(len(w.gives) for w in workers),
            "wakes": sum(len(w.woken) for w in workers),
            "kept": sum(len(w.stream.kept) for w in workers),
            "kept bytes": sum(w.stream.size for w in workers),
            "profiles": len(scheduler.selection.profiles._all),
            "timers": len(machine._timers),
            "heap": len(machine._timers._heap),
        }
    outbound, executions = machine._outbound, machine._executions
    managers = machine._links.managers
    return {
        "held": executions.jobs.check(),
        "parked": executions.parked,
        "lanes": len(list(executions.lanes)),
        "managers": len(managers),
        "locks": sum(len(machine._locks.of(identity)) for identity in managers),
        "kept": sum(len(m.stream.kept) for m in managers.values() if m.stream is not None),
        "kept bytes": outbound.kept_bytes,
        "timers": len(outbound.timers),
        "heap": len(outbound.timers._heap),
        "answers": len(executions._answers) + len(executions._remarks),
    }


def check_tables(name: str, machine: ManagerMachine | WorkerMachine, jobs: int, peers: int) -> None:
    """Check the sizes of a machine's tables against their bounds.

    Args:
        name: The name of the node.
        machine: The machine of the node.
        jobs: Number of jobs that the machine may have: accepted and not ended, at all its managers.
        peers: Number of identities that the machine may know.

    Raises:
        Violation: "tables are bounded".
    """
    table = sizes(machine)
    if isinstance(machine, ManagerMachine):
        bounds = {
            "jobs": jobs,
            "leases": jobs,
            "workers": peers,
            "profiles": peers,
            # Two timers for each worker, one for each open GIVE, one for each job with a deadline,
            # and one for each kind, which stays until it fires even without its queue. One more
            # timer is for all delayed jobs.
            "timers": 2 * peers + table["open gives"] + jobs + len(KINDS) + 1,
            "delayed heap": 2 * jobs + 130,
            "queues": jobs + table["wakes"],
        }
    else:
        bounds = {
            "managers": peers,
            "answers": 0,
            # Three timers for each manager, one for each lock, one for each job; and the timers of
            # links, READY and draining.
            "timers": 3 * peers + table["locks"] + table["held"] + machine.count + 2,
        }
    bounds["heap"] = 64 + 4 * table["timers"]
    for what, bound in bounds.items():
        if table[what] > bound:
            raise Violation(
                "tables are bounded", f"{name} has {table[what]} {what}; expected at most {bound}"
            )
