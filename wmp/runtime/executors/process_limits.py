"""The limits of worker processes: their jobs, their memory, and the time after a cancellation."""

from __future__ import annotations

import sys
from typing import Final

from attrs import frozen

from wmp.duration import Duration, in_seconds
from wmp.errors import ConfigError
from wmp.runtime.common.checks import check_count

CANCEL_GRACE: Final = 2.0
"""Seconds between a job's flag and SIGTERM, unless the user chooses others."""


@frozen(kw_only=True)
class ProcessLimits:
    """Limits of each worker process."""

    max_jobs: int | None = None
    """Number of jobs that a process begins before it is replaced; None for no limit."""
    memory: int | None = None
    """Bytes of data that a process may have; None for the system's own limit."""
    cancel_grace: float | None = CANCEL_GRACE
    """Seconds that a job may still run after its flag was set; None for no limit."""


def limit_memory(limit: int) -> None:
    """Limit the bytes of data of this process.

    Raises:
        OSError, ValueError: The system refuses the limit.
    """
    import resource

    # A limit of the address space would count unused memory. RLIMIT_DATA counts used memory, but
    # only on Linux.
    what = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (limit if hard < 0 else min(limit, hard), hard))


def make_process_limits(
    pool: str,
    *,
    max_jobs_per_child: int | None,
    memory_per_child: int | None,
    cancel_grace: Duration | None,
) -> ProcessLimits:
    """Check the user's settings.

    Raises:
        ConfigError: A value is wrong, or means nothing to this kind of pool.
    """
    for name, value in (
        ("max_jobs_per_child", max_jobs_per_child),
        ("memory_per_child", memory_per_child),
    ):
        if value is not None:
            check_count(name, value, 1)
            if pool != "process":
                raise ConfigError(
                    f"{name} applies to worker processes only; add pool='process', or leave "
                    f"{name} out"
                )
    if memory_per_child is not None and not _can_limit_memory():
        raise ConfigError(
            "this system cannot limit the memory of a process; leave memory_per_child out"
        )
    grace = in_seconds(cancel_grace)
    checked: object = grace  # not all callers are type-checked
    if checked is not None and not (
        isinstance(checked, int | float) and not isinstance(checked, bool) and checked >= 0
    ):
        raise ConfigError(
            f"cancel_grace is {grace!r}; expected a number of seconds, at least 0, or None for no "
            "limit"
        )
    return ProcessLimits(max_jobs=max_jobs_per_child, memory=memory_per_child, cancel_grace=grace)


def _can_limit_memory() -> bool:
    try:
        import resource
    except ImportError:
        return False
    return hasattr(resource, "RLIMIT_AS")
