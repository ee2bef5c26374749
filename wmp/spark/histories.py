"""The history of each job, checked against the invariants of histories and against tables.

The invariants are those of the simulations, checked by the same code
(:mod:`wmp.testing.invariants`). The tables are those that the machines consult
(:mod:`wmp.core.manager.job_lifecycle`, :mod:`wmp.core.worker.execution_lifecycle`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pyarrow
from attrs import define, field
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from wmp.actions import End
from wmp.core.manager import job_lifecycle
from wmp.core.manager.job_lifecycle import JobInput, JobState
from wmp.core.protocol.outbound import MOST_RESENDS
from wmp.core.worker import execution_lifecycle
from wmp.core.worker.execution_lifecycle import ExecutionInput, ExecutionState
from wmp.message import Outcome, Peer
from wmp.spark.arrow import Values, map_groups, schema_of
from wmp.spark.job_events import COLUMNS, REPLACED
from wmp.testing.invariants import History, Violation

__all__ = ["FOUND", "histories"]

FOUND: Final = (
    "kind string, owner string, owner_epoch bigint, job bigint, name string, detail string, "
    "attempt bigint, worker string, worker_epoch bigint, lock bigint, node string, epoch bigint, "
    "n bigint, at bigint, lines array<struct<node:string,epoch:bigint,n:bigint>>"
)
"""Columns of the result. In a row of kind ``state``, ``name`` is the last state of a job or lock.
In a row of kind ``violation`` it is the broken rule or invariant; the row names the line that shows
the violation."""

_ARROW: Final = schema_of(FOUND)
_MOST_LINES: Final = 200
_ROUNDED: Final = 2
"""Tolerance for rounded times, in µs."""
_ANY: Final = {End.OK: b"", End.ERROR: b""}
"""The payload of every result here, because a journal holds no results of handlers."""


def histories(job_events: DataFrame, processes: DataFrame) -> DataFrame:
    """Check the history of each job; return ``FOUND``.

    Args:
        job_events: The events of all jobs and leases.
        processes: From :func:`wmp.spark.processes.processes`.
    """
    ends = processes.select(
        F.col("node").alias("owner"),
        F.col("epoch").alias("owner_epoch"),
        F.col("end").alias("over"),
    )
    rows = job_events.join(F.broadcast(ends), ["owner", "owner_epoch"], "left")
    # The number comes first, because a comparison of texts takes longer, and most texts are equal.
    key = ["job", "owner", "owner_epoch"]
    return (
        rows.select(*COLUMNS, "over")
        .repartition(*key)
        .sortWithinPartitions(*key, "side", "node", "epoch", "n", "event")
        .mapInArrow(_verdict_rows, FOUND)
    )


def _verdict_rows(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    return map_groups(batches, _verdicts, _ARROW)


def _verdicts(rows: Iterator[Values]) -> list[Values]:
    """Return the state of a job and its violations, from all events of the job."""
    return _JobHistory(list(rows)).judge()


@define(eq=False)
class _HeldAttempt:
    """A job at one process of a worker."""

    state: ExecutionState = ExecutionState.ABSENT
    attempt: int = 0
    due: int = 0
    """Number of DONE entries still to be sent."""
    answers: Counter[tuple[int, int]] = field(factory=Counter)
    """Number of times that a DONE was sent, by its session and number."""


@define(eq=False)
class _JobHistory:
    """A job with all its events: first the manager's events, then each worker's."""

    rows: list[Values]
    history: History = field(factory=History)
    state: JobState = JobState.QUEUED
    accepted: bool = False
    _broken: list[tuple[str, str, Values]] = field(factory=list)
    _held: dict[tuple[str, int], _HeldAttempt] = field(factory=dict)

    def judge(self) -> list[Values]:
        """Return the rows of the job."""
        first = self.rows[0]
        owner, self.accepted = (first[0].encode(), first[1]), first[8] == "accepted"
        over, job = first[16], first[2]
        if not self.accepted:
            # The journal of the manager is missing, so only the lines of workers can be checked.
            self.history.accepted(owner, job, _ANY)
        history: History | None = self.history
        alive = over == "stop"
        for row in self.rows:
            if row[3] == 1 and not (alive and self.accepted):
                self.history.died(owner)  # the manager's journal may lack its last lines
            if history is not None:
                try:
                    self._record(history, owner, row)
                except Violation as violation:
                    self._broken.append((violation.name, violation.detail, row))
                    history = None  # later violations follow from this one
            wrong = None
            if row[3] == 1:
                wrong = self._at_worker(row)
            elif history is not None and self.accepted:
                wrong = self._at_manager(row)
            if wrong is not None:
                self._broken.append((*wrong, row))
        if history is not None and alive:
            try:
                history.finish()
            except Violation as violation:
                self._broken.append((violation.name, violation.detail, self.rows[-1]))
        return self._report()

    def _record(self, history: History, owner: Peer, row: Values) -> None:
        """Record an event of the job in its history."""
        job, (_, node, epoch, _, at, event, attempt, peer, peer_epoch, value) = row[2], row[3:13]
        match event:
            case "accepted":
                history.accepted(owner, job, _ANY, value)
                if row[14] is not None:
                    history.limited(owner, job, row[14] - _ROUNDED)
            case "asked":
                history.asked(owner, job)
            case "granted" if self.accepted:
                history.granted(owner, job, attempt, (peer.encode(), peer_epoch))
            case "lost" if self.accepted:
                history.lost(owner, job, attempt, counts=value > 0, leaving=value > 1)
            case "resolved" if self.accepted:
                by = None if peer is None else (peer.encode(), peer_epoch)
                history.resolved(owner, job, End(row[15]), b"", attempt, by, at)
            case "run":
                history.begun((node.encode(), epoch), owner, job, attempt)
            case "answered":
                history.answered((node.encode(), epoch), owner, job, attempt, value)

    def _at_manager(self, row: Values) -> tuple[str, str] | None:
        """Make a step in the table of jobs; return the violation if the table has no such step."""
        event, value = row[8], row[12]
        match event:
            case "granted":
                return self._step(JobInput.GRANT)
            case "lost" if self.state in (JobState.LEASED, JobState.CANCELLING):
                known = self.history.jobs[row[0].encode(), row[1]][row[2]]
                if not value:
                    return self._step(JobInput.RETURN)
                return self._step(JobInput.SPEND if known.spent > known.retries else JobInput.LOSE)
            case "asked" if (self.state, JobInput.CANCEL) in job_lifecycle.TRANSITIONS:
                return self._step(JobInput.CANCEL)
            case "resolved":
                end = End(row[15])
                if end in (End.OK, End.ERROR):
                    return self._step(JobInput.RESULT)
                if end is End.TIMEOUT:
                    return self._step(JobInput.EXPIRE)
                if self.state is not JobState.ENDED:
                    return (
                        "WMP-6.1",
                        f"the job ended as {end.value} in the state {self.state.name.lower()}",
                    )
        return None

    def _step(self, what: JobInput) -> tuple[str, str] | None:
        state = job_lifecycle.TRANSITIONS.get((self.state, what))
        if state is None:
            return (
                "WMP-6.1",
                f"the input {what.name.lower()} came in the state {self.state.name.lower()}",
            )
        self.state = state
        return None

    def _at_worker(self, row: Values) -> tuple[str, str] | None:
        """Make a step in the worker's table; return the violation if the table has no such step."""
        (_, node, epoch, _, _, event, attempt, _, _, value, session, number) = row[3:15]
        held = self._held.setdefault((node, epoch), _HeldAttempt())
        match event:
            case "taken":
                if held.state is ExecutionState.ABSENT:
                    held.due += 1
                    held.attempt = attempt
                held.attempt = max(held.attempt, attempt)
                held.state = execution_lifecycle.TRANSITIONS[held.state, ExecutionInput.TAKE]
            case "run":
                state = execution_lifecycle.TRANSITIONS.get((held.state, ExecutionInput.START))
                if state is None:
                    return (
                        "WMP-6.6",
                        f"the job was handed to a lane in the state {held.state.name.lower()}",
                    )
                held.state = state
            case "finished" | "recalled":
                what = ExecutionInput.FINISH if event == "finished" else ExecutionInput.RECALLED
                held.state = execution_lifecycle.TRANSITIONS.get((held.state, what), held.state)
            case "cancel":
                if held.state is ExecutionState.ABSENT or held.attempt != attempt:
                    held.due += 1  # the worker does not hold the job, and answers at once
                else:
                    what = ExecutionInput.UNSTARTED if value else ExecutionInput.CANCEL
                    held.state = execution_lifecycle.TRANSITIONS.get((held.state, what), held.state)
            case "forgotten":
                held.state, held.due = ExecutionState.ABSENT, 0
            case "answered":
                if row[15] != REPLACED:
                    held.answers[session, number] += 1
                    sends = held.answers[session, number]
                    if sends == MOST_RESENDS:
                        held.due += 1  # another DONE may replace this one (WMP-7.12)
                    if sends > 1:
                        return None  # the same DONE, sent again
                    held.due -= 1
                if held.state is ExecutionState.PARKED and held.attempt == attempt:
                    held.state = ExecutionState.ABSENT  # refused, expired or handed back
                if held.due < 0:
                    outcome = Outcome(value).name.lower()
                    return (
                        "WMP-6.6",
                        f"attempt {attempt} was answered as {outcome}; no manager waits for it",
                    )
        return None

    def _report(self) -> list[Values]:
        out: list[Values] = []
        owner, epoch, job = self.rows[0][:3]
        none = (None,) * 10
        if self.accepted:
            out.append(("state", owner, epoch, job, self.state.name.lower(), *none))
        if not self._broken:
            return out
        seen = {(row[4], row[5], row[6]): None for row in self.rows[-_MOST_LINES:]}
        lines = [{"node": node, "epoch": e, "n": n} for node, e, n in seen]
        for name, detail, row in self._broken:
            if row[3] == 1:
                worker, worker_epoch = row[4], row[5]
            else:
                worker, worker_epoch = row[10], row[11]
            out.append(
                (
                    "violation", owner, epoch, job, name, detail, row[9], worker, worker_epoch,
                    None, row[4], row[5], row[6], row[7], lines,
                )
            )  # fmt: skip
        return out
