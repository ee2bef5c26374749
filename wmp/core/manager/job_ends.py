"""Ends of jobs that no result causes: cancellations, deadlines, and ends in the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import define, field

from wmp.actions import End
from wmp.core.manager.delayed_jobs import DelayedJobs
from wmp.core.manager.job_lifecycle import JobInput, JobRecord, JobState
from wmp.core.manager.leases import Leases
from wmp.core.manager.ownership import Ownership
from wmp.core.manager.queues import Queues
from wmp.core.manager.remote_worker import ManagerOutbound, RemoteWorker
from wmp.core.manager.stored_changes import StoredChanges
from wmp.core.manager.timers import ManagerTimers
from wmp.core.manager.wait_causes import WaitCauses
from wmp.message import Columns, Command, Field, Limits


@define(eq=False)
class JobEnds:
    """Ends jobs, wherever they are: in a queue, until their time comes, or at a worker."""

    outbound: ManagerOutbound
    leases: Leases
    queues: Queues
    timers: ManagerTimers
    delayed: DelayedJobs
    ownership: Ownership
    changes: StoredChanges | None
    """The changes of stored jobs; None without a store."""
    causes: WaitCauses = field(init=False)
    """Texts about jobs that waited until their time had passed."""

    def __attrs_post_init__(self) -> None:
        self.causes = WaitCauses(self.leases)

    def find(self, id: int) -> JobRecord | None:
        """Return the record of a job; make a record for a job that was never granted."""
        return self.leases.record(id) or self.queues.batches.find(id)

    def cancel(
        self, ids: Iterable[int], now: float, *, unstarted: bool = False, waiting: bool = False
    ) -> None:
        """End jobs that wait; send CANCEL for leased jobs (WMP-6.10, 6.12).

        ``unstarted``: jobs that their workers have begun go on, and end with their results.
        ``waiting``: so do jobs that a worker has.
        """
        leased: dict[bytes, list[JobRecord]] = {}
        for id in ids:
            job = self.find(id)
            if job is None:
                if self.changes is not None:
                    self.changes.cancel(id)
                continue
            was = job.state
            if waiting and job.holder is not None:
                continue
            # A recall has left a begun job alone. Now the manager above does not want its result.
            again = bool(job.number) and was is JobState.CANCELLING and not unstarted
            if not job.step(JobInput.CANCEL) and not again:
                continue
            if was is JobState.QUEUED or was is JobState.DELAYED:
                self._leave_queue(job, was)
                self.leases.end(job, End.CANCELLED, b"")
            elif job.holder is not None:
                leased.setdefault(job.holder, []).append(job)
                if self.changes is not None:
                    self.changes.cancel(id)
        for holder, jobs in leased.items():
            self._send_cancel(self.leases.workers[holder], jobs, now, unstarted=unstarted)

    def expire(self, id: int, now: float) -> None:
        """End a job whose deadline (WMP-6.8) or expiry (WMP-6.20) passed."""
        job = self.find(id)
        if job is None:
            return
        due = job.deadline is not None and job.deadline <= now
        if not due and self.leases.is_leased(id):
            # Only the worker knows whether it has begun the job. A job without a lease ends here.
            if job.deadline is not None:
                self.timers.set(id, job.deadline)
            return
        was = job.state
        job.step(JobInput.EXPIRE)
        if was is JobState.QUEUED or was is JobState.DELAYED:
            self._leave_queue(job, was)
            text = self.causes.ended(job, was, "timed out" if due else "expired", now)
            self.leases.end(job, End.TIMEOUT, text)
        elif job.holder is not None:
            worker = self.leases.workers[job.holder]
            if was is JobState.LEASED:
                self._send_cancel(worker, [job], now)
            self.leases.release(worker, job)
            where = f"timed out at worker {worker.name}"
            lost = "" if worker.link is not None else "; the connection to this worker is lost"
            self.leases.end(job, End.TIMEOUT, f"{where}{lost}".encode())

    def withdraw(self, id: int, now: float) -> None:
        """Forget a stored job that ended elsewhere; its worker need not do it."""
        job = self.find(id)
        if job is None:
            return
        was = job.state
        job.step(JobInput.EXPIRE)
        if job.holder is None:
            self._leave_queue(job, was)
        else:
            worker = self.leases.workers[job.holder]
            if was is JobState.LEASED:
                self._send_cancel(worker, [job], now)
            self.leases.release(worker, job)
        self.leases.forget(job)

    def _send_cancel(
        self,
        worker: RemoteWorker,
        jobs: Sequence[JobRecord],
        now: float,
        *,
        unstarted: bool = False,
    ) -> None:
        """Send CANCEL for these jobs to the worker that holds them."""
        for owner, mine in self.ownership.groups(jobs):
            for start in range(0, len(mine), Limits.JOBS):
                some = mine[start : start + Limits.JOBS]
                columns = Columns([job.wire_id for job in some], [job.attempt for job in some])
                fields: dict[int | str, Any] = {Field.MANAGER: owner}
                if unstarted:
                    fields[Field.UNSTARTED] = True
                self.outbound.push(worker, Command.CANCEL, fields, columns, now)

    def _leave_queue(self, job: JobRecord, was: JobState) -> None:
        """Count a job that ended while it waited, in its queue or for its start time."""
        if was is JobState.DELAYED:
            self.delayed.count_out(job)
            return
        queue = self.queues.get(job.kind)
        queue.count_out(job)
        self.queues.tidy(queue)
