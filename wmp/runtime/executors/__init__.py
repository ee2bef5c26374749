"""The execution of user code at a worker: executors for ``Run``, ``Recall``, ``Interrupt``.

The names are imported at their first use: a worker process needs few of these modules, and a
program that shows its log lines needs one of them.
"""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.runtime.executors.handler_calls import PoolEvent, PostEvent
    from wmp.runtime.executors.kill_deadlines import KILL_AFTER
    from wmp.runtime.executors.pool import KINDS, Pool, open_pool
    from wmp.runtime.executors.process_limits import (
        CANCEL_GRACE,
        ProcessLimits,
        make_process_limits,
    )

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

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "KILL_AFTER": "wmp.runtime.executors.kill_deadlines",
        **dict.fromkeys(("PoolEvent", "PostEvent"), "wmp.runtime.executors.handler_calls"),
        **dict.fromkeys(("KINDS", "Pool", "open_pool"), "wmp.runtime.executors.pool"),
        **dict.fromkeys(
            ("CANCEL_GRACE", "ProcessLimits", "make_process_limits"),
            "wmp.runtime.executors.process_limits",
        ),
    },
)
