"""Locks of workers, checked against the table of :mod:`wmp.core.worker.locks`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

import pyarrow
from attrs import define, field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wmp.core.worker.locks import TRANSITIONS, LockInput, LockState
from wmp.message import ErrorCode
from wmp.spark.arrow import Values, map_groups, schema_of
from wmp.spark.job_events import UNHEEDED

__all__ = ["FOUND", "lock_states", "lock_violations", "locks"]

FOUND: Final = (
    "worker string, worker_epoch bigint, lock bigint, manager string, manager_epoch bigint, "
    "roles array<string>, want bigint, hold bigint, given bigint, answered bigint, closed bigint, "
    "state string, answer string, withdrawn boolean, jobs bigint, late bigint, "
    "broken array<struct<name:string,detail:string,node:string,epoch:bigint,n:bigint,at:bigint>>, "
    "lines array<struct<node:string,epoch:bigint,n:bigint>>"
)
"""The table ``locks`` with times in µs of the worker's monotonic clock, and its violations."""

_ARROW: Final = schema_of(FOUND)
_READ: Final = (
    "node", "epoch", "lock", "n", "at", "what", "command", "peer", "peer_epoch", "role", "roles",
    "want", "hold", "more", "jobs", "session", "number", "reason",
    "step",
)  # fmt: skip


def lock_states(events: DataFrame) -> DataFrame:
    """Make the states of each lock of each worker, as ``FOUND``."""
    what, command = F.col("what"), F.col("command")
    # If NO names a lock of a forgotten session, the worker refuses the lock, but accepts the
    # message as the next one of its stream.
    ignored = [reason for reason in UNHEEDED if reason != ErrorCode.UNKNOWN]
    heeded = F.coalesce(~F.col("reason").isin(*ignored), F.lit(True))
    answer = (what == "received") & command.isin("TAKE", "NO") & heeded
    give = (what == "send") & (command == "GIVE")
    note = (what == "note") & F.col("locks").isNotNull()
    workers = events.where((what == "start") & (F.col("kind") == "worker")).select("node", "epoch")
    rows = (
        events.where(answer | give | note)
        .join(F.broadcast(workers.distinct()), ["node", "epoch"], "left_semi")
        .withColumn("lock", F.explode(F.when(note, F.col("locks")).otherwise(F.array("lock"))))
        .withColumn("peer", F.coalesce("about_peer", F.when(give, F.col("target")), "source"))
        .withColumn(
            "peer_epoch",
            F.coalesce("about_epoch", F.when(give, F.col("target_epoch")), "source_epoch"),
        )
        .withColumn("jobs", F.when(command == "TAKE", F.size("ids")))
    )
    key = ["lock", "node", "epoch"]  # the lock's number is first, because it differs most
    return (
        rows.select(*_READ)
        .repartition(*key)
        # Notes come first, because the locks of a session are lost before a message of the next
        # session counts.
        .sortWithinPartitions(*key, "step", F.col("what") != "note", "n")
        .mapInArrow(_lock_rows, FOUND)
    )


def locks(states: DataFrame) -> DataFrame:
    """Make the table ``locks`` with monotonic times."""
    return states.where(F.col("given").isNotNull()).drop("broken", "lines")


def lock_violations(states: DataFrame) -> DataFrame:
    """Return the violations in :func:`lock_states` as :data:`wmp.spark.histories.FOUND`."""
    broken = states.where(F.size("broken") > 0).select("*", F.explode("broken").alias("one"))
    none = F.lit(None)
    return broken.select(
        F.lit("violation").alias("kind"),
        none.cast("string").alias("owner"),
        none.cast("bigint").alias("owner_epoch"),
        none.cast("bigint").alias("job"),
        "one.name",
        "one.detail",
        none.cast("bigint").alias("attempt"),
        "worker",
        "worker_epoch",
        "lock",
        "one.node",
        "one.epoch",
        "one.n",
        "one.at",
        "lines",
    )


@define(eq=False)
class _LockHistory:
    """The history of one lock number of one process."""

    key: Values
    state: LockState = LockState.UNUSED
    give: Values | None = None
    answered: int | None = None
    closed: int | None = None
    answer: str | None = None
    withdrawn: bool = False
    left: int = 0
    """Number of jobs that may still come."""
    jobs: int = 0
    late: int = 0
    lines: list[tuple[str, int, int]] = field(factory=list)
    broken: list[tuple[str, str, int, int]] = field(factory=list)
    _seen: set[tuple[int, int]] = field(factory=set)

    def see(self, row: Values) -> None:
        """Apply one line about the lock."""
        n, at, what, command = row[3:7]
        self.lines.append((row[0], row[1], n))
        if what == "note":
            self._step(LockInput(row[17]), at)
        elif command == "GIVE":
            self._given(row)
        else:
            if (row[15], row[16]) in self._seen:
                return  # the message was sent again
            self._seen.add((row[15], row[16]))
            if self.answered is None:
                self.answered = at
            if self.state is LockState.UNUSED:
                self._break("WMP-4.13", f"{command} names a lock for which no GIVE was sent", n, at)
            elif command == "NO":
                self._step(LockInput.NO, at)
            else:
                self._taken(row)

    def _given(self, row: Values) -> None:
        n, at, want, hold = row[3], row[4], row[11], row[12]
        if want == 0:
            self.withdrawn = True
            self._step(LockInput.WITHDRAW, at)
            return
        what = LockInput.HOLD if hold else LockInput.GIVE
        if (self.state, what) not in TRANSITIONS:
            self._break("WMP-4.1", "two GIVEs have the same lock number", n, at)
            return
        self.give, self.left = row, want
        self._step(what, at)

    def _taken(self, row: Values) -> None:
        n, at, role, more, jobs = row[3], row[4], row[9], row[13], row[14]
        give = self.give
        assert give is not None
        if role not in give[10]:
            self._break(
                "WMP-4.6", f"TAKE has role {role}; the GIVE named {', '.join(give[10])}", n, at
            )
        if self.state is LockState.CLOSED:
            self.late += jobs
        self.jobs += jobs
        self.left -= jobs
        if self.left < 0:
            wanted = f"TAKE brought {self.jobs} jobs in all; the GIVE wanted {give[11]}"
            self._break("WMP-4.6", wanted, n, at)
        self._step(LockInput.MORE if more else LockInput.TAKE, at)

    def _step(self, what: LockInput, at: int) -> None:
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            return
        self.state = state
        if what in (LockInput.TAKE, LockInput.MORE):
            self.answer = "TAKE"
        if state is LockState.CLOSED:
            self.closed = at
            if self.answer is None:
                self.answer = "NO" if what is LockInput.NO else what.value

    def _break(self, name: str, detail: str, n: int, at: int) -> None:
        self.broken.append((name, detail, n, at))

    def report(self) -> Values:
        """Return the row of the lock."""
        node, epoch, number = self.key
        give = self.give
        who = (give[7], give[8], give[10], give[11], give[12] or 0, give[4]) if give else _NOBODY
        broken = [
            {"name": name, "detail": detail, "node": node, "epoch": epoch, "n": n, "at": at}
            for name, detail, n, at in self.broken
        ]
        lines = [{"node": a, "epoch": b, "n": c} for a, b, c in self.lines] if broken else []
        return (
            node, epoch, number, *who, self.answered, self.closed, self.state.value, self.answer,
            self.withdrawn, self.jobs, self.late, broken, lines,
        )  # fmt: skip


_NOBODY: Final = (None,) * 6


def _lock_rows(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    return map_groups(batches, _lock_row, _ARROW)


def _lock_row(lines: Iterator[Values]) -> Iterator[Values]:
    """Make the row of a lock from the lines about it."""
    first = next(lines)
    lock = _LockHistory(first[:3])
    for line in chain([first], lines):
        lock.see(line)
    yield lock.report()
