"""Submits the pieces of a partition and passes their results on (ROWS-2, ROWS-4)."""

from __future__ import annotations

import logging
import queue
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow

from wmp.blocking import Job, Manager
from wmp.errors import (
    ClosedError,
    ConfigError,
    JobFailed,
    NoWorkers,
    QueueFull,
    RowsFailed,
    WMPError,
)
from wmp.rows.payloads import CODEC, ResultRequest, encode, with_request
from wmp.rows.pieces import Piece, TablePartition, cut, key_of
from wmp.rows.result_tables import failed_rows, fit
from wmp.rows.row_terms import RowTerms

logger = logging.getLogger("wmp.rows")

_LOOK: Final = 1.0
"""Seconds between two checks while no piece ends."""

_SILENT: Final = 60.0
"""Seconds without an end of a piece after which a line is logged (ROWS-4.6)."""

_PAUSE: Final = 0.01
"""Seconds between two tries to submit to a manager that is full."""

_ROW: Final = re.compile(r"^in row (\d+) of the \d+ rows of the job$", re.MULTILINE)


def run_rows(
    manager: Manager,
    batches: Iterable[pyarrow.RecordBatch],
    schema: pyarrow.Schema | None,
    terms: RowTerms,
    partition: TablePartition,
) -> Iterator[pyarrow.RecordBatch]:
    """Have workers do the rows of a partition, and yield the results.

    Args:
        manager: A manager that runs, with the codec ``arrow``.
        batches: The record batches of the partition. They are read as results are taken.
        schema: The result schema, without the error column; None to accept any result, and to
            yield nothing.
        terms: How to cut, and what to do with errors.
        partition: Query, batch and partition.

    Raises:
        RowsFailed: A piece failed, and ``terms.errors`` is ``"raise"``.
        NoWorkers: For ``terms.unserved`` seconds no connected worker could do a waiting piece.
        ClosedError: The manager was closed.
    """
    run = _Partition(manager, schema, terms, partition)
    pieces = cut(batches, terms.rows_per_job, terms.max_bytes)
    try:
        for piece in pieces:
            run.add(piece)
            while run.is_full():
                yield from run.wait()
            yield from run.take_ended()
        while run.under_way:
            yield from run.wait()
    finally:
        run.stop()


class _Partition:
    """The pieces of one partition that are under way."""

    def __init__(
        self,
        manager: Manager,
        schema: pyarrow.Schema | None,
        terms: RowTerms,
        partition: TablePartition,
    ) -> None:
        self._manager = manager
        self._terms = terms
        self._partition = partition
        self._request = _request(schema, terms)
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.under_way: dict[int, tuple[Piece, Job | Exception]] = {}
        """The pieces by their numbers, with their jobs, or the errors of their submission."""
        self._ready: dict[int, pyarrow.RecordBatch | None] = {}
        """Results that wait for an earlier result; only with ``ordered``."""
        self._submitted = self._passed = 0

    def is_full(self) -> bool:
        return len(self.under_way) + len(self._ready) >= self._terms.in_flight

    def add(self, piece: Piece) -> None:
        """Submit a piece."""
        number = self._submitted
        self._submitted += 1
        try:
            job: Job | Exception = self._submit(piece)
        except ConfigError as error:  # for example a row above the limit of the manager
            job = error
        self.under_way[number] = piece, job
        if isinstance(job, Exception):
            self._ended.put(number)
        else:
            job.add_done_callback(lambda _: self._ended.put(number))

    def _submit(self, piece: Piece) -> Job:
        terms = self._terms
        payload = encode(with_request(piece.rows, self._request))
        unique: dict[str, Any] = {}
        if terms.store is not None:
            # Without a store, a copy of this task in this process would share the jobs, and an end
            # of one of the two tasks would cancel the jobs of the other.
            key = key_of(self._partition, piece.first, terms.role, payload)
            unique = {"key": key, "unique": "kept"}
        while True:
            try:
                return self._manager.submit_nowait(
                    payload,
                    role=terms.role,
                    needs=terms.needs,
                    priority=terms.priority,
                    run_limit=terms.run_limit,
                    max_worker_losses=terms.max_worker_losses,
                    **unique,
                )
            except QueueFull:
                # Other tasks of this process fill the manager. Its own limit bounds this wait.
                time.sleep(_PAUSE)

    def take_ended(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield the results that are there, without waiting."""
        while True:
            try:
                number = self._ended.get_nowait()
            except queue.Empty:
                return
            yield from self._end(number)

    def wait(self) -> Iterator[pyarrow.RecordBatch]:
        """Wait for the end of a piece, and yield the results that are there."""
        yield from self._end(self._next())
        yield from self.take_ended()

    def _next(self) -> int:
        """Return the number of a piece that ended; watch over the pieces until then."""
        since = time.monotonic()
        unserved_since: float | None = None
        logged = 0
        while True:
            try:
                return self._ended.get(timeout=_LOOK)
            except queue.Empty:
                pass
            now = time.monotonic()
            cause = self._unserved()
            unserved_since = None if not cause else unserved_since or now
            if unserved_since is not None and now - unserved_since >= self._terms.unserved - _LOOK:
                raise self._no_workers(cause)
            if now - since >= _SILENT * (logged + 1):
                logged += 1
                self._log(now - since)

    def _unserved(self) -> str:
        """Return why no connected worker can do the pieces that wait; empty if one can."""
        needs = dict(self._terms.needs or {"slots": 1})
        for row in self._manager.statistics().waiting:
            if row.role == self._terms.role and row.codec == CODEC and row.needs == needs:
                return row.unserved
        return ""

    def _no_workers(self, cause: str) -> NoWorkers:
        where = ", ".join(self._terms.through)
        return NoWorkers(
            f"no worker for role {self._terms.role!r} of {self._partition} within "
            f"{self._terms.unserved:g} s through {where}: {cause}; start one with `wmp worker`, "
            "check that the address is one that a device binds for managers (--bind-managers), and "
            "if the workers are tasks of the same Spark, leave slots for them, or raise unserved"
        )

    def _log(self, seconds: float) -> None:
        now = self._manager.statistics()
        logger.warning(
            "%s: no job of role %r ended for %.0f s; this manager has %d waiting and %d running "
            "jobs, and %d workers",
            self._partition, self._terms.role, seconds, now.queued, now.leased, len(now.workers),
        )  # fmt: skip

    def _end(self, number: int) -> Iterator[pyarrow.RecordBatch]:
        """Pass the result of a piece on, or keep it until its turn."""
        piece, job = self.under_way.pop(number)
        result = self._result(piece, job)
        if not self._terms.ordered:
            if result is not None:
                yield result
            return
        self._ready[number] = result
        while self._passed in self._ready:
            result = self._ready.pop(self._passed)
            self._passed += 1
            if result is not None:
                yield result

    def _result(self, piece: Piece, job: Job | Exception) -> pyarrow.RecordBatch | None:
        schema = self._request.schema
        try:
            if isinstance(job, Exception):
                raise job
            result = job.result()
            return None if schema is None else fit(result, schema)
        except ClosedError:
            raise  # an end of the manager is not an error of the rows
        except (WMPError, ValueError, TypeError, AttributeError) as error:
            failed = self._failed(piece, error)
            if self._request.error is None or schema is None:
                raise failed from error
            texts = [str(failed)] * piece.rows.num_rows
            return failed_rows(piece.rows, schema, self._request.error, texts)

    def _failed(self, piece: Piece, error: Exception) -> RowsFailed:
        row = ""
        if isinstance(error, JobFailed) and (indices := _ROW.findall(error.remote_traceback)):
            row = f" in row {piece.first + int(indices[-1])}"
        kind = "" if isinstance(error, JobFailed) else f"{type(error).__name__}: "
        return RowsFailed(
            f"{piece} of {self._partition} failed at role {self._terms.role!r}{row}: {kind}{error}",
            partition=self._partition.partition,
            first_row=piece.first,
            rows=piece.rows.num_rows,
        )

    def stop(self) -> None:
        """Cancel the pieces that are under way, unless a store keeps them (ROWS-4.2)."""
        if self._terms.store is not None:
            self.under_way.clear()
            return
        for _, job in self.under_way.values():
            if not isinstance(job, Exception):
                try:
                    job.stop()
                except ClosedError:
                    return
        self.under_way.clear()


def _request(schema: pyarrow.Schema | None, terms: RowTerms) -> ResultRequest:
    """Return the request of all pieces.

    Raises:
        ConfigError: The result schema has a column with the name of the error column.
    """
    if schema is None or terms.errors == "raise":
        return ResultRequest(schema)
    if terms.error_column in schema.names:
        raise ConfigError(
            f"the result schema has a column {terms.error_column!r}, which is the name of the "
            "error column too; set error_column to another name"
        )
    column: Any = pyarrow.field(terms.error_column, pyarrow.string())
    return ResultRequest(schema.append(column), terms.error_column)
