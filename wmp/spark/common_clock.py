"""Turns monotonic times of processes into timestamps on the common clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["attempts", "conversations", "executions", "jobs", "locks", "on_common_clock", "wakes"]


def on_common_clock(
    frame: DataFrame, nodes: DataFrame, times: Mapping[str, Sequence[str]]
) -> DataFrame:
    """Turn µs of monotonic clocks into timestamps.

    Args:
        frame: A frame with processes in columns ``x`` and ``x_epoch``.
        nodes: The table ``nodes``.
        times: For each ``x`` the columns that are on its clock. Without a journal of ``x`` they
        become null.
    """
    clocks = nodes.select("node", "epoch", "clock")
    for who, names in times.items():
        clock = clocks.toDF(who, f"{who}_epoch", "_clock")
        frame = frame.join(F.broadcast(clock), [who, f"{who}_epoch"], "left")
        for name in names:
            frame = frame.withColumn(name, F.timestamp_micros(F.col(name) + F.col("_clock")))
        frame = frame.drop("_clock")
    return frame


def jobs(frame: DataFrame, nodes: DataFrame) -> DataFrame:
    """Make the table ``jobs``."""
    return on_common_clock(frame, nodes, {"owner": ("submitted", "asked", "ended")})


def attempts(frame: DataFrame, nodes: DataFrame) -> DataFrame:
    """Make the table ``attempts``; durations between two times of one clock are taken on that
    clock.
    """
    lengths = {
        "lane_wait": ("started", "received"),
        "done_wait": ("done", "finished"),
        "lease": ("accepted", "granted"),
    }
    for name, (last, first) in lengths.items():
        frame = frame.withColumn(name, F.col(last) - F.col(first))
    # A DONE may answer for a newer lease than the lease that ran; then it shows no waiting time.
    for name in ("lane_wait", "done_wait"):
        frame = frame.withColumn(name, F.when(F.col(name) >= 0, F.col(name)))
    timed = on_common_clock(
        frame,
        nodes,
        {
            "owner": ("granted", "accepted", "lost"),
            "worker": ("received", "started", "finished", "done"),
        },
    )
    trips = {"take_trip": ("received", "granted"), "done_trip": ("accepted", "done")}
    for name, (last, first) in trips.items():
        timed = timed.withColumn(name, F.unix_micros(last) - F.unix_micros(first))
    return timed


def executions(frame: DataFrame, nodes: DataFrame) -> DataFrame:
    """Make the table ``executions``."""
    return on_common_clock(frame, nodes, {"worker": ("handed", "began", "ended")})


def locks(frame: DataFrame, nodes: DataFrame) -> DataFrame:
    """Make the table ``locks``."""
    return on_common_clock(frame, nodes, {"worker": ("given", "answered", "closed")})


def wakes(frame: DataFrame, nodes: DataFrame) -> DataFrame:
    """Make the table ``wakes``."""
    return on_common_clock(frame, nodes, {"worker": ("received",)})


def conversations(frame: DataFrame, nodes: DataFrame) -> DataFrame:
    """Make the table ``conversations``."""
    return on_common_clock(
        frame, nodes, {"worker": ("ready", "woken", "given", "answered", "done")}
    )
