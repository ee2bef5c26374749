"""Leases in the messages of a manager: when they are granted, when they end, and why.

The observer of the simulations derives from messages what a manager knows and may do. Here the
observer reads lines instead of events: for each manager and worker, in the order of the manager's
lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from wmp.actions import Send
from wmp.core.manager.requeue import CONNECTION_ENDED
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Received, Ticked, Undelivered
from wmp.message import Columns, Command, Field, Message, Peer
from wmp.spark.arrow import Values, map_groups, schema_of
from wmp.spark.job_events import JOB_EVENTS
from wmp.testing.invariants import History
from wmp.testing.observer import Observer

__all__ = ["leases"]

_ARROW: Final = schema_of(JOB_EVENTS)
_LINES: Final = ("received", "send", "undelivered", "note", "resolve")
_READ: Final = (
    "node", "epoch", "other", "n", "at", "what", "command", "other_epoch", "mine", "session",
    "number", "ack", "ids", "attempts", "outcomes", "expire", "reason", "step",
)  # fmt: skip
_STEP: Final = _READ.index("step")
_IDS: Final = _READ.index("ids")
_NOBODY: Final = ManagerSettings(identity=b"", epoch=0)
_WAITED: Final = 100_000
"""µs: a node that wrote no line for this long was idle."""
_SLACK: Final = 2
"""Tolerance for rounded times, in µs."""


def leases(events: DataFrame, processes: DataFrame) -> DataFrame:
    """Make the events ``granted`` and ``lost`` of jobs."""
    what = F.col("what")
    managers = processes.where(F.col("kind") == "manager").select(
        "node", "epoch", F.col("settings")["expire"].alias("expire")
    )
    other, other_epoch = (
        F.when(what.isin("send", "undelivered"), F.col(f"target{end}"))
        .when(what == "note", F.col(f"about_{'epoch' if end else 'peer'}"))
        .otherwise(F.col(f"source{end}"))
        for end in ("", "_epoch")
    )
    mine = (F.col("target") == F.col("node")) & (F.col("target_epoch") == F.col("epoch"))
    claimed = (what == "received") & F.col("reason").isin("claimed", "after goodbye")
    lines = events.where(what.isin(*_LINES) & ~F.coalesce(claimed, F.lit(False))).select(
        *(name for name in _READ if name not in ("other", "other_epoch", "mine", "expire")),
        other.alias("other"),
        other_epoch.alias("other_epoch"),
        mine.alias("mine"),
    )
    known = lines.where(F.col("other").isNotNull() & F.col("other_epoch").isNotNull())
    rows = known.join(F.broadcast(managers), ["node", "epoch"]).select(*_READ)
    return (
        rows.unionByName(_silences(events, rows), allowMissingColumns=True)
        .repartition("node", "epoch", "other")
        .sortWithinPartitions("node", "epoch", "other", "n")
        .mapInArrow(_lease_rows, JOB_EVENTS)
    )


def _silences(events: DataFrame, rows: DataFrame) -> DataFrame:
    """Return rows of kind ``tick``: moments at which a manager must have noticed a worker's
    silence.

    At such a moment the worker had been silent for ``expire``, the manager had written a line, and
    then the manager was idle. A manager that was stopped in this time would instead receive many
    messages at once when it continues.
    """
    pair = ["node", "epoch", "other", "other_epoch"]
    order = Window.partitionBy(*pair).orderBy("n")
    received = rows.where((F.col("what") == "received") & F.coalesce("mine", F.lit(True)))
    due = F.col("at") + F.coalesce("expire", F.lit(_NOBODY.expire)) * 1_000_000
    gaps = (
        received.select(*pair, "n", due.cast("bigint").alias("due"), "expire",
                     F.lead("n").over(order).alias("next_n"),
                     (F.lead("at").over(order) - _WAITED).alias("until"))
        .where(F.col("due") < F.col("until"))
        .withColumnRenamed("n", "last_n")
    )  # fmt: skip
    line = events.select("node", "epoch", "n", "at")
    between = (F.col("n") > F.col("last_n")) & (F.col("n") < F.col("next_n"))
    timely = F.col("at").between(F.col("due"), F.col("until"))
    return (
        line.join(F.broadcast(gaps), ["node", "epoch"])
        .where(between & timely)
        .groupBy(*pair, "last_n", "expire")
        .agg(F.max("n").alias("n"), F.max("at").alias("at"))
        .drop("last_n")
        .withColumn("what", F.lit("tick"))
    )


class _LeaseRecorder(History):
    """Records the facts that an observer reports to a history, and judges nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, Peer, int, int, Peer | None, int]] = []

    def granted(
        self, owner: Peer, id: int, attempt: int, worker: Peer, now: float | None = None
    ) -> None:
        self.events.append(("granted", owner, id, attempt, worker, 0))

    def lost(
        self, owner: Peer, id: int, attempt: int, *, counts: bool = True, leaving: bool = False
    ) -> None:
        value = counts * (1 + leaving)
        self.events.append(("lost", owner, id, attempt, None, value))

    def overran(self, owner: Peer, id: int) -> None:
        pass


def _lease_rows(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    return map_groups(batches, _lease_events, _ARROW)


def _lease_events(rows: Iterator[Values]) -> Iterator[Values]:
    """Return the events between a manager and a worker from the manager's lines."""
    recorder = _LeaseRecorder()
    observer = Observer(recorder)
    settings: ManagerSettings | None = None
    for row, ended in _with_ends(rows):
        node, epoch, _, n, at = row[:5]
        if settings is None:
            expire = (row[15] or _NOBODY.expire) * 1e6 - _SLACK
            settings = ManagerSettings(
                identity=node.encode(), epoch=epoch, expire=expire, reconnect_grace=None
            )
        observer.ended = ended
        _observe(observer, settings, row)
        for event, _, job, attempt, worker, counts in recorder.events:
            peer, peer_epoch = worker or (None, None)
            yield (
                node, epoch, job, 0, node, epoch, n, at, event, attempt,
                peer and peer.decode(), peer_epoch, counts, None, row[10], None,
            )  # fmt: skip
        recorder.events.clear()


def _with_ends(rows: Iterator[Values]) -> Iterator[tuple[Values, frozenset[int]]]:
    """Return each line with the jobs that end in its step: their errors are not tried again."""
    for _, group in groupby(rows, key=itemgetter(_STEP)):
        lines = list(group)
        ends = (row[_IDS] for row in lines if row[5] == "resolve")
        ended = frozenset(chain.from_iterable(ends))
        for row in lines:
            yield row, ended


def _observe(observer: Observer, settings: ManagerSettings, row: tuple[Any, ...]) -> None:
    """Pass one line to the observer."""
    (_, _, other, _, at, what, command, other_epoch, mine, session, number, ack, ids, attempts,
     outcomes, _, reason, _) = row  # fmt: skip
    me: Peer = (settings.identity, settings.epoch)
    if what == "note" and reason == CONNECTION_ENDED:
        # The line `disconnected` names a link, but no worker.
        observer.gave_up(me, other.encode())
        return
    if what == "note" or what == "tick":
        # A note names the cause of ended leases. Only silence ends leases without a message or
        # note; the observer finds silence by the clock.
        observer.manager_did(settings, Ticked(), (), at)
        return
    peer: Peer = (other.encode(), other_epoch)
    if what == "resolve":
        observer.settled(me, peer[0], ids)
        return
    columns = None
    if ids is not None:
        columns = Columns(ids, _all(attempts, ids) or (), outcomes=_all(outcomes, ids))
    fields: dict[int | str, Any] = {}
    for key, value in ((Field.SESSION, session), (Field.NUMBER, number), (Field.ACK, ack)):
        if value is not None:
            fields[key] = value
    known = Command[command]
    if what == "send" or what == "undelivered":
        message = Message(known, (peer[1], peer[0]), me, fields, columns)
        if what == "send":
            observer.manager_did(settings, None, (Send(0, message),), at)
        else:
            observer.manager_did(settings, Undelivered(0, message), (), at)
    elif mine is not False:  # None: the message is for all
        message = Message(known, me[::-1] if mine else (), peer, fields, columns)
        observer.manager_did(settings, Received(0, message), (), at)


def _all(values: list[int] | None, ids: list[int]) -> list[int] | None:
    """Return the column with one entry for each job; a single entry stands for all jobs."""
    if values is None:
        return None
    return values if len(values) == len(ids) else values * len(ids)
