"""The snapshot of a machine: a hashable value, equal for states that behave the same."""

from __future__ import annotations

from typing import assert_never

from wmp.checks.canonical import Outline, Snapshot, canonical
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.worker.machine import WorkerMachine
from wmp.testing.state.manager_state import outline_manager
from wmp.testing.state.worker_state import outline_worker

Machine = ManagerMachine | WorkerMachine | DeviceMachine


def outline_of(machine: Machine) -> Outline:
    """Return the state that decides the future of ``machine``, without its settings."""
    match machine:
        case ManagerMachine():
            return outline_manager(machine)
        case WorkerMachine():
            return outline_worker(machine)
        case DeviceMachine():
            return Outline(
                (machine._me, machine._halted, tuple(machine._managers)),
                times=tuple(machine._managers.values()),
            )
        case _:
            assert_never(machine)


def snapshot(machine: Machine, now: float) -> Snapshot:
    """Return a value that is equal for two states that behave the same from ``now`` on.

    Args:
        machine: The machine; its settings are not part of the value.
        now: Seconds on the machine's clock.
    """
    return canonical([outline_of(machine)], now)
