"""The execution of user code at a worker: the pools behind ``Run``, ``Recall``, ``Interrupt``."""

from __future__ import annotations

from wmp.runtime.pools.lane import PoolEvent, Post
from wmp.runtime.pools.pool import KINDS, Pool, open_pool
from wmp.runtime.pools.upkeep import CANCEL_GRACE, KILL_AFTER, Upkeep, make_upkeep

__all__ = [
    "CANCEL_GRACE",
    "KILL_AFTER",
    "KINDS",
    "Pool",
    "PoolEvent",
    "Post",
    "Upkeep",
    "make_upkeep",
    "open_pool",
]
