"""Pairs the two lines of a message: one in the sender's journal, one in the receiver's journal."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["links", "pairs", "process_hash"]

_MESSAGE = ("command", "source", "source_epoch", "target", "target_epoch", "session", "number")


def process_hash() -> Column:
    """Return a process as a number, which is cheaper to aggregate than text.

    Two processes almost surely have different numbers.
    """
    return F.xxhash64("node", "epoch")


def _way() -> Column:
    """Return the number of devices that the message passed; null if it passed none."""
    return F.when(F.size("via") > 0, F.xxhash64("via"))


def pairs(events: DataFrame) -> DataFrame:
    """Pair the lines of messages that were sent once and received once on a connection.

    A message is identified by its place in a stream, its lock (GIVE) or its own number (READY).
    Other messages have no identification that both ends know. Messages that were sent again,
    repeated on the way or sent to several peers are left out: their lines cannot be paired.
    """
    key = F.coalesce(
        "number",
        F.when(F.col("command") == "GIVE", F.col("lock")),
        F.when(F.col("command") == "READY", F.col("ready")),
    )
    sent = F.col("what") == "send"
    numbered = events.where(F.col("what").isin("send", "received") & key.isNotNull()).select(
        *(key.alias(name) if name == "number" else name for name in _MESSAGE),
        "hops",
        # GIVE with want 0, which withdraws a lock.
        (F.coalesce("want", F.lit(-1)) == 0).alias("again"),
        "what", "n", "at",
        # Only numbers are aggregated: Spark would sort to aggregate other types.
        process_hash().alias("process"), _way().alias("way"),
    )  # fmt: skip
    ways = events.where(F.size("via") > 0).select(_way().alias("way"), "via").distinct()
    ends = [("sent", sent), ("received", ~sent)]
    once = [F.count(F.when(side, 1)).alias(f"{name}_lines") for name, side in ends]
    lines = [
        F.max(F.when(side, F.col(column))).alias(f"{name}_{column}")
        for name, side in ends
        for column in ("process", "n", "at")
    ]
    return (
        numbered.groupBy(*_MESSAGE, "hops", "again")
        .agg(*once, *lines, F.max("way").alias("way"))
        .where((F.col("sent_lines") == 1) & (F.col("received_lines") == 1))
        .join(F.broadcast(ways), "way", "left")
        .drop("sent_lines", "received_lines", "again", "way")
    )


def links(pairs: DataFrame, nodes: DataFrame) -> DataFrame:
    """Make the table ``links``: pairs with the names of both ends, on the common clock."""
    known = nodes.select(process_hash().alias("process"), "node", "epoch", "clock")
    named = pairs
    for end, role in (("sent", "sender"), ("received", "receiver")):
        side = known.select(
            F.col("process").alias(f"{end}_process"),
            F.col("node").alias(role),
            F.col("epoch").alias(f"{role}_epoch"),
            (F.col("clock")).alias(f"{end}_clock"),
        )
        named = named.join(F.broadcast(side), f"{end}_process")
    sent = F.col("sent_at") + F.col("sent_clock")
    received = F.col("received_at") + F.col("received_clock")
    return named.select(
        *_MESSAGE,
        "hops",
        "via",
        "sender",
        "sender_epoch",
        "sent_n",
        "sent_at",
        F.timestamp_micros(sent).alias("sent"),
        "receiver",
        "receiver_epoch",
        "received_n",
        "received_at",
        F.timestamp_micros(received).alias("received"),
        (received - sent).alias("trip"),
    )
