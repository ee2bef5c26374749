"""Stored jobs and their results, seen from any process that can reach the store."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from threading import Lock
from types import TracebackType
from typing import Any, Final, Self

from attrs import frozen

from wmp.actions import End, FailedAttempt
from wmp.duration import Duration, in_seconds
from wmp.errors import ConfigError
from wmp.runtime.common.checks import check_key, check_role
from wmp.runtime.submission.results import Ended, result_of, with_history
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.opening import ReadableStore, open_reader, open_writer
from wmp.store.stored_job import OPEN, StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, WriteBatch

__all__ = [
    "StoredJobHandle",
    "StoredJobStatus",
    "StoredResults",
    "newest",
    "outcome_of",
    "pauses",
    "results",
]

_PAGE: Final = 1000
"""Number of jobs that are read at once."""
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.5
"""Seconds between two looks at a job for whose end somebody waits."""

_ENDS: Final = {
    StoredJobState.OK: End.OK,
    StoredJobState.ERROR: End.ERROR,
    StoredJobState.CANCELLED: End.CANCELLED,
    StoredJobState.TIMEOUT: End.TIMEOUT,
    StoredJobState.LOST: End.LOST,
}


@frozen
class StoredJobStatus:
    """The state of a stored job at one moment. Times are seconds since 1970."""

    state: str
    """``waiting`` for other jobs, ``queued``, ``reserved`` by a manager, ``running`` at a worker,
    ``cancelling``, ``ok``, ``error``, ``cancelled``, ``timeout`` or ``lost``."""
    fraction: float | None
    """The last reported progress, 0 to 1; None if the current attempt reported none."""
    text: str | None
    """The text of that report."""
    attempts: int
    """Number of the newest attempt; 0 before the first."""
    worker: str | None
    """Label of the worker that has or had the newest attempt; None while no worker is known."""
    added: float
    """When the job was stored."""
    begun: float | None
    """When that worker got the attempt."""
    ended: float | None
    """When the job ended; None while it is open."""


class StoredJobHandle:
    """One stored job, for any process: :meth:`StoredResults.job` returns it.

    The attributes show the job as it was at the last call of a method. ``await handle`` returns the
    result in a program with an event loop, as :meth:`result` does.

    Attributes:
        id: Number of the job.
        key: Key of the job; None without one.
        role: Role of the job.
    """

    def __init__(self, results: StoredResults, job: StoredJob) -> None:
        self._results = results
        self.id, self.key, self.role = job.id, job.key, job.kind.role
        self._last = _status_of(job)

    def __repr__(self) -> str:
        return f"<StoredJobHandle {self.id} {self._last.state}>"

    @property
    def state(self) -> str:
        """The state at the last look; see :class:`StoredJobStatus`."""
        return self._last.state

    @property
    def attempts(self) -> int:
        """Number of the newest attempt at the last look; 0 before the first."""
        return self._last.attempts

    @property
    def worker(self) -> str | None:
        """Label of the worker that has or had that attempt; None while no worker is known."""
        return self._last.worker

    def done(self) -> bool:
        """Return whether the job had ended at the last look."""
        return self._last.ended is not None

    def status(self) -> StoredJobStatus:
        """Look at the job.

        A manager writes once a second which jobs its workers have and what they report, so that a
        job may run for a second while its state is ``reserved``.

        Raises:
            KeyError: The store has the job no more.
            StoreError: The store cannot be read.
        """
        self._last = _status_of(self._results.read(self.id))
        return self._last

    def wait(self, timeout: Duration | None = None) -> StoredJobStatus:
        """Wait until the job has ended, in any way; the store is looked at twice a second or more.

        Args:
            timeout: A number of seconds or a ``timedelta``; None for as long as it takes.

        Raises:
            TimeoutError: The job has not ended in time. It goes on.
            KeyError: The store has the job no more.
            StoreError: The store cannot be read.
        """
        timeout = in_seconds(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        for pause in pauses():
            if self.status().ended is not None:
                return self._last
            if until is not None:
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"job {self.id} is {self.state} after {timeout:g} s")
                pause = min(pause, left)
            time.sleep(pause)
        raise AssertionError("pauses never end")

    def result(self, timeout: Duration | None = None) -> Any:
        """Wait until the job has ended, and return its result.

        Args:
            timeout: Seconds; None for as long as it takes.

        Raises:
            JobError: The job ended without a result.
            TimeoutError: The job has not ended in time. It goes on.
            KeyError: The store has the job no more.
            StoreError: The store cannot be read.
        """
        self.wait(timeout)
        value, error = outcome_of(self._results.read(self.id, payloads=True))
        if error is not None:
            raise error
        return value

    def stop(self) -> bool:
        """Cancel the job: at once if no manager has it, else by way of its manager and worker.

        Wait for the job afterwards: a result that comes first counts.

        Returns:
            False when the job had ended already.

        Raises:
            KeyError: The store has the job no more.
            StoreError: The store cannot be written.
        """
        self._results.cancel(self.id)
        return self.status().state in ("cancelling", "cancelled")

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        # Imported here, because `wmp jobs` needs no event loop.
        import asyncio

        for pause in pauses():
            if (await asyncio.to_thread(self.status)).ended is not None:
                break
            await asyncio.sleep(pause)
        return await asyncio.to_thread(self.result)


def pauses() -> Iterator[float]:
    """Yield the seconds between two looks at a job, without end."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def _status_of(job: StoredJob) -> StoredJobStatus:
    current = job.ran == job.attempt
    return StoredJobStatus(
        job.state_name,
        job.fraction if current else None,
        job.note if current else None,
        job.attempt,
        job.worker if current or job.ended is not None else None,
        job.created / 1000,
        None if job.begun is None or not (current or job.ended) else job.begun / 1000,
        None if job.ended is None else job.ended / 1000,
    )


class StoredResults:
    """The jobs in a store, and their results. Jobs are read when they are asked for.

    Only :meth:`StoredJobHandle.stop` changes the store. Use it with ``with``, or call
    :meth:`close`. Any thread may call the methods.
    """

    def __init__(self, reader: ReadableStore, address: str | os.PathLike[str]) -> None:
        self._reader = reader
        self._address = address
        self._lock = Lock()

    def job(
        self, id: int | None = None, *, key: str | None = None, role: str | None = None
    ) -> StoredJobHandle:
        """Return a handle of a job: its state, progress, attempts and worker, and its end.

        Args:
            id: Number of the job.
            key: Key of the job, in place of the number. If several jobs had the key, the open job
                counts, else the job that ended last.
            role: Role of the job, for a key that jobs of several roles have.

        Raises:
            KeyError: The store has no such job: it was never stored, or its time to live passed.
            ConfigError: Neither number nor key is given, or both; or jobs of several roles have the
                key, and no role is given.
            StoreError: The store cannot be read.
        """
        return StoredJobHandle(self, self._find("job", id, key, role, payloads=False))

    def read(self, id: int, *, payloads: bool = False) -> StoredJob:
        """Return a job as the store has it now.

        Raises:
            KeyError: The store has the job no more.
        """
        return self._find("job", id, None, None, payloads=payloads)

    def cancel(self, id: int) -> None:
        """Cancel a job in the store."""
        store = open_writer(self._address)
        try:
            me = store.begin(b"wmp.results", "wmp.results")
            change = JobChanges(StoredJobInput.CANCEL, [id])
            store.apply(me, 1, WriteBatch(changes=[change]))
            store.end(me)
        finally:
            store.close()

    def get(
        self,
        id: int | None = None,
        *,
        key: str | None = None,
        role: str | None = None,
        default: Any = None,
    ) -> Any:
        """Return the result of a job.

        Args:
            id: Number of the job.
            key: Key of the job, in place of the number. If several jobs had the key, the open job
                counts, else the job that ended last.
            role: Role of the job, for a key that jobs of several roles have.
            default: Returned while the job has not ended.

        Raises:
            KeyError: The store has no such job: it was never stored, or its time to live passed.
            JobError: The job ended without a result.
            ConfigError: Neither number nor key is given, or both; or jobs of several roles have the
                key, and no role is given.
            StoreError: The store cannot be read.
        """
        job = self._find("get", id, key, role, payloads=True)
        if job.state in OPEN:
            return default
        value, error = outcome_of(job)
        if error is not None:
            raise error
        return value

    def _find(
        self, method: str, id: int | None, key: str | None, role: str | None, *, payloads: bool
    ) -> StoredJob:
        if (id is None) == (key is None):
            raise ConfigError(f"{method}() needs the number or the key of a job, and not both")
        if key is not None:
            check_key(key)
        if role is not None:
            check_role(role)
        with self._lock:
            if id is None:
                id = self._newest(JobFilter(key=key, role=role))
            jobs = [] if id is None else self._read(id, payloads)
        job = next(iter(jobs), None)
        if job is None:
            name = f"job {id}" if key is None else f"job with the key {key!r}"
            raise KeyError(
                f"the store {self._reader.name} has no {name}: it was never stored, or it was "
                "purged after its time to live"
            )
        return job

    def _newest(self, where: JobFilter) -> int | None:
        """Return the number of the job that counts; None without one."""
        after, job = -1, None
        while page := self._reader.list(where, after=after, limit=_PAGE):
            job = newest(page if job is None else [job, *page])
            after = page[-1].id
        return None if job is None else job.id

    def _read(self, id: int, payloads: bool) -> list[StoredJob]:
        return self._reader.list(JobFilter(ids=[id]), after=id - 1, payloads=payloads)

    def close(self) -> None:
        """Release all resources. Idempotent."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def results(path: str | os.PathLike[str]) -> StoredResults:
    """Open the jobs of a store: from any process of its host, or of any host with PostgreSQL.

    Args:
        path: The path of the file, or ``postgresql://…``.

    Raises:
        ConfigError: There is no store at the path.
        StoreError: The store cannot be read.
    """
    return StoredResults(open_reader(path), path)


def newest(jobs: list[StoredJob]) -> StoredJob | None:
    """Return the open job of several jobs with one key, else the one that ended last.

    Raises:
        ConfigError: The jobs are of several roles.
    """
    roles = sorted({job.kind.role for job in jobs})
    if len(roles) > 1:
        raise ConfigError(
            f"jobs of several roles have the key {jobs[0].key!r}: {', '.join(map(repr, roles))}; "
            "name the role of the job too"
        )
    return max(jobs, key=lambda job: (job.state in OPEN, job.ended or 0, job.id), default=None)


def outcome_of(job: StoredJob) -> tuple[Any, Exception | None]:
    """Return (value, None) or (None, error) for an ended job read with payloads."""
    row: Ended = (job.id, _ENDS[job.state], job.result or b"", job.attempt)
    if job.history and job.state is not StoredJobState.OK:
        history = [
            FailedAttempt(failure.attempt, failure.worker, failure.at / 1000, failure.error)
            for failure in job.history
        ]
        row = with_history(row, history, 0.0)
    return result_of(job.id, row, job.kind.codec)
