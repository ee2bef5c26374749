"""The differences between clocks, computed from the messages between them, and one common clock.

Two processes send each other messages. In one direction the least difference of the times is the
offset of the clocks plus the fastest transfer. In the other direction the least difference is the
fastest transfer minus the offset. If the fastest transfers take equally long, half of the
difference of these two values is the offset. In any case half of their sum bounds the error.
"""

from __future__ import annotations

import heapq
from collections import defaultdict

from attrs import frozen
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wmp.spark.links import process_hash

__all__ = ["Clock", "JournalProcess", "Offset", "clocks", "offsets"]


def offsets(pairs: DataFrame, processes: DataFrame) -> DataFrame:
    """Make the table ``offsets``, from :func:`wmp.spark.links.pairs`."""
    one_way = pairs.groupBy("sent_process", "received_process").agg(
        F.min(F.col("received_at") - F.col("sent_at")).alias("least"),
        F.count("*").alias("messages"),
    )
    named = processes.select(process_hash().alias("process"), "node", "epoch")
    sender = named.toDF("sent_process", "node", "epoch")
    receiver = named.toDF("received_process", "peer", "peer_epoch")
    both = one_way.join(F.broadcast(sender), "sent_process").join(
        F.broadcast(receiver), "received_process"
    )
    way = both.select("node", "epoch", "peer", "peer_epoch", "least", "messages")
    back = way.toDF("peer", "peer_epoch", "node", "epoch", "backward", "answers")
    half = F.lit(2)
    return (
        way.withColumnRenamed("least", "forward")
        .join(back, ["node", "epoch", "peer", "peer_epoch"])
        .where(F.struct("node", "epoch") < F.struct("peer", "peer_epoch"))
        .select(
            "node",
            "epoch",
            "peer",
            "peer_epoch",
            "forward",
            "backward",
            (F.col("messages") + F.col("answers")).alias("messages"),
            F.floor((F.col("forward") - F.col("backward")) / half).alias("offset"),
            F.ceil((F.col("forward") + F.col("backward")) / half).alias("error"),
        )
    )


@frozen
class JournalProcess:
    """The facts of a process that the comparison of clocks needs."""

    key: tuple[str, int]
    """(identity, epoch)."""
    host: str | None
    wall: int
    """µs from its monotonic clock to its wall clock."""


@frozen
class Offset:
    """A row of ``offsets``."""

    node: tuple[str, int]
    peer: tuple[str, int]
    offset: int
    error: int
    messages: int


@frozen
class Clock:
    """The conversion of a process's monotonic clock to the common clock."""

    clock: int
    """µs that are added to the monotonic clock."""
    error: int | None
    """µs by which the common time may be wrong; None for a clock that was compared with no other
    clock.
    """


def clocks(found: list[JournalProcess], pairs: list[Offset]) -> dict[tuple[str, int], Clock]:
    """Return a common clock: the shortest paths from the process with the most messages.

    Args:
        found: All processes that wrote journals.
        pairs: The table ``offsets``.

    Returns:
        The clock of each process.
    """
    messages: dict[tuple[str, int], int] = defaultdict(int)
    near: dict[tuple[str, int], list[tuple[tuple[str, int], int, int]]] = defaultdict(list)
    hosts = {process.key: process.host for process in found}
    walls = {process.key: process.wall for process in found}
    for pair in pairs:
        if pair.node not in walls or pair.peer not in walls:
            continue
        offset, error = pair.offset, max(pair.error, 0)
        same = hosts[pair.node] is not None and hosts[pair.node] == hosts[pair.peer]
        if same and abs(offset) <= error:
            offset = error = 0  # all processes of one machine share a monotonic clock
        messages[pair.node] += pair.messages
        messages[pair.peer] += pair.messages
        near[pair.node].append((pair.peer, offset, error))
        near[pair.peer].append((pair.node, -offset, error))
    known: dict[tuple[str, int], Clock] = {}
    # A process without a path to the first process starts a new search, from its own wall clock.
    for beginning in sorted(walls, key=lambda process: (-messages[process], process)):
        if beginning in known:
            continue
        reach = [(0, beginning, walls[beginning])]
        while reach:
            error, process, clock = heapq.heappop(reach)
            if process in known:
                continue
            alone = process == beginning and known
            known[process] = Clock(clock, None if alone else error)
            for peer, offset, more in near[process]:
                if peer not in known:
                    heapq.heappush(reach, (error + more, peer, clock - offset))
    return known
