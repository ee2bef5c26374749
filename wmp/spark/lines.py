"""The lines that are folded in Python: their columns, and the groups in which they are folded.

A group has the lines of one worker, or the lines of one manager with one worker. The latter bounds
the share of one task: a manager writes about half of all lines of its fleet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from wmp.message import Command
from wmp.spark.links import process_hash

__all__ = ["LineRow", "lines", "parsed", "steps"]


class LineRow(NamedTuple):
    """A line of a worker or manager; the names are those of the journal's columns."""

    key: int
    """Number of the group."""
    node: str
    epoch: int
    n: int
    at: int
    step: int
    what: str
    command: str | None = None
    source: str | None = None
    source_epoch: int | None = None
    target: str | None = None
    target_epoch: int | None = None
    session: int | None = None
    number: int | None = None
    ack: int | None = None
    ready: int | None = None
    credit: int | None = None
    announced: int | None = None
    """The column ``count``."""
    role: str | None = None
    lock: int | None = None
    want: int | None = None
    hold: int | None = None
    more: bool | None = None
    owner: str | None = None
    owner_epoch: int | None = None
    unstarted: bool | None = None
    code: str | None = None
    about: str | None = None
    about_number: int | None = None
    about_peer: str | None = None
    about_epoch: int | None = None
    reason: str | None = None
    lane: int | None = None
    priority: int | None = None
    retries: int | None = None
    ids: list[int] | None = None
    attempts: list[int] | None = None
    outcomes: list[int] | None = None
    ends: list[str] | None = None
    roles: list[str] | None = None
    locks: list[int] | None = None
    needs: str | None = None
    """As JSON; of ``resized`` the column ``resources``."""
    via: str | None = None
    """As JSON."""
    due: int | None = None
    """µs on the manager's clock before which no submitted job may time out."""

    def each(self, values: list[Any] | None) -> list[Any]:
        """Return the column with one entry for each job; a single entry stands for all jobs."""
        size = len(self.ids or ())
        if values is None:
            return [None] * size
        return values if len(values) == size else values[:1] * size


_FOLDED: Final = (
    "received", "send", "undelivered", "garbled", "drop", "note", "resolve", "submitted",
    "cancelled", "decline", "run", "resized", "finished", "recalled", "instancebegun",
)  # fmt: skip
"""Kinds of lines that change a state that is rebuilt."""
_ALIVE: Final = (Command.PING.name, Command.PONG.name)
"""Commands that change nothing at a worker; a manager knows by them that the worker lives."""


def lines(events: DataFrame, managers: Collection[int], devices: Collection[int]) -> DataFrame:
    """Return the lines to fold as the columns of :class:`LineRow`, in groups and in order.

    Args:
        events: The table ``events``.
        managers: The hashes of all managers (:func:`wmp.spark.links.process_hash`).
        devices: The hashes of all devices. A device has no state, so only its drops count.
    """
    what, process = F.col("what"), F.col("_process")
    manager, device = process.isin(*managers), process.isin(*devices)
    peer = (
        F.when(what.isin("send", "undelivered"), F.col("target"))
        .when(what == "note", F.col("about_peer"))
        .otherwise(F.col("source"))
    )
    idle = F.coalesce(F.col("command").isin(*_ALIVE), F.lit(False)) & ~manager
    known = events.where(what.isin(*_FOLDED)).withColumn("_process", process_hash())
    made = {
        "key": F.when(manager, F.xxhash64(process, peer)).otherwise(process),
        "announced": F.col("count"),
        "needs": F.to_json(F.when(what == "resized", F.col("resources")).otherwise(F.col("needs"))),
        "via": F.to_json("via"),
        "due": F.when(what == "submitted", F.col("at") + _earliest_timeout()),
    }
    return (
        known.where(F.col("reason").isNotNull() | ~(idle | device))
        .select(*(made[name].alias(name) if name in made else name for name in LineRow._fields))
        .repartition("key")
        .sortWithinPartitions("key", "n")
    )


def _earliest_timeout() -> Column:
    """Return the µs after which submitted jobs may time out.

    Times count from the start time. An attempt that exceeds a run limit may end a job at any time.
    """
    begin = F.coalesce("delay", F.lit(0))
    bound = F.least("timeout", "expires_in")
    return begin + F.when(F.col("run_limit").isNotNull(), 0).otherwise(bound)


def steps(group: Iterator[LineRow]) -> Iterator[list[LineRow]]:
    """Return the lines of each step."""
    for _, some in groupby(group, attrgetter("step")):
        yield list(some)


@lru_cache(4096)
def parsed(text: str | None) -> Any:
    """Return the value of JSON; None for None. The result must not be changed."""
    return None if text is None else json.loads(text)
