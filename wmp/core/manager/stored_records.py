"""Records of stored jobs, built from rows of the store, and the failures that go back into it."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from wmp.actions import FailedAttempt
from wmp.core.manager.job_lifecycle import JobLimits, JobRecord
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.events import Submitted
from wmp.message import Frame, Kind
from wmp.store.contract import StoredJob
from wmp.store.job_terms import StoredTerms
from wmp.store.write_batch import ReservedJobs, StoredFailure

_LONGEST_WAIT: Final = 32_000
"""Limit of the milliseconds for which a job waits that workers refused."""


def is_stored(job: JobRecord) -> bool:
    """Return whether a job is in the store."""
    return job.id < FIRST_UNSTORED


def records_of(kind: Kind, reserved: ReservedJobs, store_now: int, now: float) -> list[JobRecord]:
    """Make the records of jobs that a reservation brought."""
    records = []
    for (
        id,
        attempt,
        payload,
        priority,
        lost,
        failed,
        unbegun,
        terms,
        deadline_ms,
        expires_at_ms,
    ) in zip(
        reserved.ids,
        reserved.attempts,
        reserved.payloads,
        reserved.priorities,
        reserved.lost,
        reserved.failed,
        reserved.unbegun,
        reserved.terms,
        reserved.deadlines_ms,
        reserved.expires_at_ms,
        strict=True,
    ):
        times = (_later(deadline_ms, store_now, now), _later(expires_at_ms, store_now, now))
        job = _record(id, payload, kind, priority, terms, *times)
        job.attempt, job.lost, job.failed, job.unbegun = attempt, lost, failed, unbegun
        if id in reserved.histories:
            job.history = history_of(reserved.histories[id], store_now, now)
        records.append(job)
    return records


def record_of(row: StoredJob, store_now: int, now: float) -> JobRecord:
    """Make the record of a job that this instance has reserved."""
    times = (_later(row.deadline_ms, store_now, now), _later(row.expires_at_ms, store_now, now))
    job = _record(row.id, row.payload or b"", row.kind, row.priority, row.terms, *times)
    job.attempt, job.lost, job.failed = row.attempt, row.lost, row.failed
    job.unbegun = row.unbegun
    if row.history:
        job.history = history_of(row.history, store_now, now)
    return job


def _record(
    id: int,
    payload: Frame,
    kind: Kind,
    priority: int,
    terms: StoredTerms,
    deadline: float | None,
    expires_at: float | None,
) -> JobRecord:
    limits = None
    if expires_at is not None or terms.run_limit is not None or terms.retry is not None:
        limits = JobLimits(expires_at, terms.run_limit, terms.retry)
    return JobRecord(
        id, payload, kind, priority, terms.max_worker_losses, deadline, limits=limits, reserved=True
    )


def limits_of(event: Submitted, now: float) -> JobLimits | None:
    """Return the limits of jobs that were just stored."""
    if event.expires is None and event.run_limit is None and event.retry is None:
        return None
    expires_at = None if event.expires is None else now + event.expires
    return JobLimits(expires_at, event.run_limit, event.retry)


def wait_after_refusals(job: JobRecord) -> int:
    """Return the milliseconds for which a job waits that workers here refused.

    Otherwise this manager would reserve the job again at once.
    """
    if job.refused is None:
        return 0
    times = max(1, job.attempt - job.lost - job.failed - 1)
    return min(_LONGEST_WAIT, 1000 << min(times - 1, 5))


def failure_of(history: Sequence[FailedAttempt] | None, attempt: int) -> StoredFailure | None:
    """Return the newest failure of a history if an attempt caused it."""
    if not history or history[-1].attempt != attempt:
        return None
    return StoredFailure(attempt, history[-1].worker, history[-1].error)


def history_of(
    failures: Sequence[StoredFailure], store_now: int, now: float
) -> list[FailedAttempt]:
    """Return stored failures with times on the clock of ``now``."""
    return [
        FailedAttempt(
            failure.attempt, failure.worker, now + (failure.at - store_now) / 1000, failure.error
        )
        for failure in failures
    ]


def milliseconds(seconds: float | None) -> int | None:
    """Return a duration in milliseconds, rounded up."""
    return None if seconds is None else ceil(seconds * 1000)


def _later(at: int | None, store_now: int, now: float) -> float | None:
    """Return a time of the store on the clock of ``now``."""
    return None if at is None else now + (at - store_now) / 1000
