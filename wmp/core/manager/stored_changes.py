"""Changes of stored jobs that are not written, for the objects that end leases and jobs.

:mod:`wmp.core.manager.store_link` writes them, and acts on the answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from attrs import define, field

from wmp.core.manager.job_lifecycle import JobRecord
from wmp.core.manager.leases import Leases
from wmp.core.manager.store_writes import FIRST_UNSTORED, PendingWrites, WriteUnderWay
from wmp.core.manager.stored_records import failure_of, wait_after_refusals
from wmp.store.stored_job import StoredJobInput

_In = StoredJobInput


@define(eq=False)
class StoredChanges:
    """The changes that wait for the store.

    Args:
        leases: All jobs that are leased or have a record.
    """

    leases: Leases
    pending: PendingWrites = field(factory=PendingWrites)
    """The content of the next write."""
    under_way: WriteUnderWay | None = None
    """The write whose answer has not come."""
    repeating: dict[int, JobRecord] = field(factory=dict)
    """Jobs that wait for the answer to REPEAT, by number."""
    cancelled: set[int] = field(factory=set)
    """Jobs whose cancellation waits for its answer."""
    frozen: list[JobRecord] | None = None
    """Reserved jobs that may not be granted, because the validity was not renewed in time; None
    while jobs may be granted."""

    def cancel(self, id: int) -> None:
        """Cancel a job in the store, unless that is under way."""
        if id < FIRST_UNSTORED and id not in self.cancelled:
            self.cancelled.add(id)
            self.pending.of(_In.CANCEL).add(id, 0)
            for job in self.frozen or ():
                if job.id == id:
                    self.frozen = [other for other in self.frozen or () if other is not job]
                    self.release([job])

    def repeat(self, job: JobRecord, cost: int) -> None:
        """Ask for another attempt of a job whose lease ended without an outcome."""
        self.leases.forget(job)
        self.repeating[job.id] = job
        failure = failure_of(job.history, job.attempt)
        self.pending.of(_In.REPEAT).add(job.id, job.attempt, cost=cost, job=job, failure=failure)

    def again(self, job: JobRecord, wait: float) -> None:
        """Queue a job whose attempt failed in the store, until its time comes."""
        self.leases.forget(job)
        failure = failure_of(job.history, job.attempt)
        self.pending.of(_In.AGAIN).add(
            job.id, job.attempt, wait_ms=ceil(wait * 1000), job=job, failure=failure
        )

    def release(self, jobs: Iterable[JobRecord]) -> None:
        """Give jobs back that no worker has."""
        columns = self.pending.of(_In.RELEASE)
        for job in jobs:
            columns.add(job.id, job.attempt, wait_ms=wait_after_refusals(job), job=job)

    def changing(self) -> set[int]:
        """Return the numbers of the jobs with changes that wait for the store."""
        ids = self.pending.changed()
        if self.under_way is not None:
            for _, columns in self.under_way.changes:
                ids.update(columns.ids)
        return ids
