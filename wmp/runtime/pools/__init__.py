"""The execution of user code at a worker: the pools behind ``Run``, ``Recall``, ``Interrupt``."""

from __future__ import annotations

from wmp.runtime.pools.lane import PoolEvent, Post
from wmp.runtime.pools.pool import KINDS, Pool, open_pool

__all__ = ["KINDS", "Pool", "PoolEvent", "Post", "open_pool"]
