"""Changes of stored jobs that are not written, for the objects that end leases and jobs.

:mod:`wmp.core.manager.store_link` writes them, and acts on the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from attrs import define, field

from wmp.core.manager.job_lifecycle import JobRecord
from wmp.core.manager.leases import Leases
from wmp.core.manager.store_writes import (
    FIRST_UNSTORED,
    NewStoredJobs,
    PendingWrites,
    WriteUnderWay,
)
from wmp.core.manager.stored_records import failure_of, wait_after_refusals
from wmp.store.stored_job import StoredJobInput
from wmp.store.write_batch import Reservation, WriteBatch

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

    def repeat(self, job: JobRecord, cost: int, unbegun: int) -> None:
        """Ask for another attempt of a job whose lease ended without an outcome."""
        self.leases.forget(job)
        self.repeating[job.id] = job
        failure = failure_of(job.history, job.attempt)
        self.pending.of(_In.REPEAT).add(
            job.id, job.attempt, cost=cost, unbegun=unbegun, job=job, failure=failure
        )

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

    def freeze(self, jobs: Iterable[JobRecord]) -> None:
        """Keep reserved jobs from being granted until ``thaw``."""
        self.frozen = [*(self.frozen or ()), *jobs]

    def thaw(self) -> list[JobRecord]:
        """Let jobs be granted again; return those that waited for this."""
        jobs, self.frozen = self.frozen or [], None
        return jobs

    def release_frozen(self) -> None:
        """Give the frozen jobs back; no other job may be granted from now on."""
        jobs, self.frozen = self.frozen or [], []
        self.release(jobs)

    # -- writes

    def verify(self) -> None:
        """Have the next answer contain the jobs that this instance has reserved."""
        self.pending.verify = True

    def take(
        self,
        step: int,
        now: float,
        *,
        sweep: bool,
        reservations: Sequence[Reservation],
        look: Sequence[int],
        whole: bool,
    ) -> tuple[WriteBatch, bool]:
        """Take out the next batch, which is under way from now on.

        The arguments are those of :meth:`PendingWrites.take`.

        Returns:
            The batch, and whether the answer must contain the jobs that the instance has reserved.
        """
        verify, self.pending.verify = self.pending.verify, False
        self.under_way, batch = self.pending.take(
            step, now, sweep=sweep, reservations=reservations, look=look, whole=whole
        )
        return batch, verify

    def answered(self, step: int) -> WriteUnderWay | None:
        """Return the write whose answer has come; None if another write is under way."""
        under_way = self.under_way
        if under_way is None or under_way.step != step:
            return None
        self.under_way = None
        return under_way

    def refuse_adds(self, step: int) -> list[NewStoredJobs]:
        """Take out the new jobs for which the store has no space: those of a step, and later."""
        refused, under_way = self.pending.refuse_adds(), self.under_way
        if under_way is not None and under_way.step == step:
            refused += under_way.adds
            under_way.adds = ()
        return refused

    def lose_write(self) -> WriteUnderWay | None:
        """Return the write under way, whose answer will not come; None if there is none."""
        under_way, self.under_way = self.under_way, None
        return under_way

    def begin_anew(self, lost: WriteUnderWay | None) -> None:
        """Prepare the first write of a new instance, to which no reserved job belongs yet.

        Args:
            lost: The write of the old instance whose answer will not come.
        """
        self.pending.begin_anew(lost)
        self.repeating.clear()
        self.frozen = []

    def changing(self) -> set[int]:
        """Return the numbers of the jobs with changes that wait for the store."""
        ids = self.pending.changed()
        if self.under_way is not None:
            for _, columns in self.under_way.changes:
                ids.update(columns.ids)
        return ids
