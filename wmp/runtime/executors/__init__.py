"""The execution of user code at a worker: executors for ``Run``, ``Recall``, ``Interrupt``."""

from __future__ import annotations

from wmp.runtime.executors.kill_deadlines import KILL_AFTER
from wmp.runtime.executors.lane import PoolEvent, PostEvent
from wmp.runtime.executors.pool import KINDS, Pool, open_pool
from wmp.runtime.executors.process_limits import CANCEL_GRACE, ProcessLimits, make_process_limits

__all__ = [
    "CANCEL_GRACE",
    "KILL_AFTER",
    "KINDS",
    "Pool",
    "PoolEvent",
    "PostEvent",
    "ProcessLimits",
    "make_process_limits",
    "open_pool",
]
