"""The number of ready workers, for programs that wait for workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.statistics import WorkerRow
from wmp.errors import ClosedError
from wmp.message import counted
from wmp.runtime.node.node import Node


async def wait_for_workers(
    machine: ManagerMachine, node: Node, count: int, role: str | None, timeout: float | None
) -> None:
    """Wait until workers are ready; see :meth:`wmp.aio.Manager.wait_for_workers`."""
    until = None if timeout is None else time.monotonic() + timeout
    pause = 0.005
    while True:
        if not node.running:
            node.raise_error()
            raise ClosedError("the manager was closed during wait_for_workers()")
        # A worker counts after its first READY, because its roles are unknown before.
        workers = [row for row in machine.statistics().workers if row.roles]
        if len(with_role(workers, role)) >= count:
            return
        if until is not None and time.monotonic() >= until:
            raise too_few(workers, count, role, timeout, node.addresses)
        left = pause if until is None else min(pause, max(0.0, until - time.monotonic()))
        await asyncio.sleep(left)
        pause = min(2 * pause, 0.05)


def with_role(workers: Sequence[WorkerRow], role: str | None) -> list[WorkerRow]:
    """Return the workers that offer a role; None stands for any role."""
    return [row for row in workers if role is None or role in row.roles]


def too_few(
    workers: Sequence[WorkerRow],
    expected: int,
    role: str | None,
    timeout: float | None,
    endpoints: Sequence[str],
) -> TimeoutError:
    """Return the error for too few workers, with their number and roles.

    Args:
        workers: The workers that are ready.
        expected: Number of workers for which the program waited.
        role: Role that they should offer; None for any.
        timeout: Seconds for which the program waited.
        endpoints: Addresses of the manager.
    """
    seen = counted(len(with_role(workers, role)), "worker was", "workers were")
    seen += f" ready after {timeout} s; expected {expected}"
    if role is not None:
        offered = sorted({offer for row in workers for offer in row.roles})
        seen += f" with role {role!r}; "
        seen += counted(len(workers), "connected worker offers", "connected workers offer")
        seen += f" {offered}"
    return TimeoutError(f"{seen}; check that the workers connect to {', '.join(endpoints)}")
