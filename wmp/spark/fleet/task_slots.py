"""The number of tasks that Spark runs at once, as far as its settings state it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wmp.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMES = (
    "spark.master",
    "spark.task.cpus",
    "spark.cores.max",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.dynamicAllocation.enabled",
    "spark.dynamicAllocation.maxExecutors",
)


def read_settings(spark: SparkSession) -> dict[str, str]:
    """Return the settings of a session that bound its task slots; absent ones are left out."""
    read: Callable[[str, None], Any] = spark.conf.get
    values = {name: read(name, None) for name in _NAMES}
    return {name: str(value) for name, value in values.items() if value is not None}


def max_slots(settings: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the maximum number of task slots, and the setting that bounds it.

    Returns:
        The number and the text; None if the settings have no bound.
    """
    cpus = _number(settings, "spark.task.cpus") or 1
    master = settings.get("spark.master", "")
    if match := re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master.replace(" ", "")):
        cores = os.cpu_count() or 1 if match[1] == "*" else int(match[1] or 1)
        return cores // cpus, f"spark.master={master}"
    if match := re.fullmatch(r"local-cluster\[(\d+),(\d+),\d+\]", master.replace(" ", "")):
        return int(match[1]) * (int(match[2]) // cpus), f"spark.master={master}"
    if (maximum := _number(settings, "spark.cores.max")) is not None:
        return maximum // cpus, f"spark.cores.max={maximum}"
    cores = _number(settings, "spark.executor.cores") or 0
    dynamic = settings.get("spark.dynamicAllocation.enabled", "false") == "true"
    name = "spark.dynamicAllocation.maxExecutors" if dynamic else "spark.executor.instances"
    executors = _number(settings, name)
    if executors is None or not cores:
        return None
    return executors * (cores // cpus), f"{name}={executors}, spark.executor.cores={cores}"


def check_spare(settings: Mapping[str, str], workers: int, spare: int) -> None:
    """Refuse a fleet that leaves too few task slots to other jobs (FLEET-4.1).

    Args:
        settings: The settings of the session.
        workers: The members that are wanted.
        spare: Task slots for other jobs.

    Raises:
        ConfigError: Spark cannot have so many task slots.
    """
    bound = max_slots(settings)
    if bound is not None and workers + spare > bound[0]:
        maximum = max(0, bound[0] - spare)
        lower = f"set workers={maximum} or less, or " if maximum else ""
        raise ConfigError(
            f"a fleet of {workers} workers and spare={spare} for other jobs need {workers + spare} "
            f"task slots, and Spark has {bound[0]} ({bound[1]}); {lower}give Spark more slots "
            "(local[N], spark.executor.instances, spark.executor.cores, spark.cores.max); without "
            "spare slots, jobs that need the fleet would wait for ever"
        )


def _number(settings: Mapping[str, str], name: str) -> int | None:
    text = settings.get(name, "")
    return int(text) if text.isdecimal() else None
