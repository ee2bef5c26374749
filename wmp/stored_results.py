"""Results of stored jobs, read from any process of the store's host."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Final, Self

from wmp.actions import End, FailedAttempt
from wmp.errors import ConfigError
from wmp.runtime.common.checks import check_key, check_role
from wmp.runtime.submission.results import Ended, result_of, with_history
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.opening import ReadableStore, open_reader
from wmp.store.stored_job import OPEN, StoredJobState

__all__ = ["StoredResults", "newest", "outcome_of", "results"]

_ENDS: Final = {
    StoredJobState.OK: End.OK,
    StoredJobState.ERROR: End.ERROR,
    StoredJobState.CANCELLED: End.CANCELLED,
    StoredJobState.TIMEOUT: End.TIMEOUT,
    StoredJobState.LOST: End.LOST,
}


class StoredResults:
    """The results in a store. Jobs are read when they are asked for, and nothing is changed.

    Use it with ``with``, or call :meth:`close`.
    """

    def __init__(self, reader: ReadableStore) -> None:
        self._reader = reader

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
        if (id is None) == (key is None):
            raise ConfigError("get() needs the number or the key of a job, and not both")
        if key is not None:
            check_key(key)
        if role is not None:
            check_role(role)
        where = JobFilter(key=key, role=role) if id is None else JobFilter(ids=[id])
        job = newest(self._reader.list(where, payloads=True))
        if job is None:
            name = f"job {id}" if key is None else f"job with the key {key!r}"
            raise KeyError(
                f"the store {self._reader.place} has no {name}: it was never stored, or it was "
                "purged after its time to live"
            )
        if job.state in OPEN:
            return default
        value, error = outcome_of(job)
        if error is not None:
            raise error
        return value

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
    """Open the results of a store: from any process of its host, or of any host with PostgreSQL.

    Args:
        path: The path of the file, or ``postgresql://…``.

    Raises:
        ConfigError: There is no store at the path.
        StoreError: The store cannot be read.
    """
    return StoredResults(open_reader(path))


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
            FailedAttempt(one.attempt, one.worker, one.at / 1000, one.error) for one in job.history
        ]
        row = with_history(row, history, 0.0)
    return result_of(job.id, row, job.kind.codec)
