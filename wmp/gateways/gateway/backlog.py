"""The work for which a gateway waits at its end, in words for the log."""

from __future__ import annotations

from collections.abc import Sequence

from wmp.gateways.gateway.machine import GatewayMachine
from wmp.message import counted

_SHOWN = 5
"""Maximum number of kinds of requests that a text lists."""


def describe_backlog(machine: GatewayMachine, doors: Sequence[Sequence[str]]) -> str:
    """Return what is in progress; empty if nothing is.

    Args:
        machine: The machine of the gateway.
        doors: The addresses of each door.
    """
    parts = [
        f"{counted(count, 'request')} at the door {', '.join(doors[number])}"
        for number in machine.fronts
        if (count := machine.doors[number].open_requests())
    ]
    own = machine.terms.identity
    jobs = sum(
        manager.held
        for group in machine.groups.values()
        for manager in group.worker.statistics().managers
        if manager.identity != own
    )
    if jobs:
        parts.append(f"{counted(jobs, 'job')} of other managers")
    return ", ".join(parts)


def describe_wait(machine: GatewayMachine) -> str:
    """Return why no connected worker can do requests that wait; empty if a worker can do each."""
    rows = [] if machine.manager is None else machine.manager.waiting()
    causes = [
        f"{counted(row.count, 'request')} of the role {row.role!r}: {row.unserved}"
        for row in rows
        if row.unserved
    ]
    more = f"; and {counted(len(causes) - _SHOWN, 'more role')}" if len(causes) > _SHOWN else ""
    return "; ".join(causes[:_SHOWN]) + more
