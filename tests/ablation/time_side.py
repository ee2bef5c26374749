"""Switches of the safeguards around start times, expiries and further attempts.

See :mod:`tests.ablation.manager_side`.
"""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from wmp.core.manager.delayed_jobs import DelayedJobs
from wmp.core.manager.failures import Failures
from wmp.core.manager.job_ends import JobEnds
from wmp.core.manager.job_lifecycle import JobLimits, JobRecord
from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.scheduler import Scheduler
from wmp.core.worker.job_times import JobTimes

Patch = pytest.MonkeyPatch


def start_times(patch: Patch) -> None:
    """WMP-6.24: a job is queued at once, whatever its start time is."""
    submit = Scheduler.submit

    def hurry(self: Scheduler, event: Any, now: float) -> None:
        submit(self, evolve(event, delay=0.0), now)

    patch.setattr(Scheduler, "submit", hurry)


def release(patch: Patch) -> None:
    """WMP-6.24: a job whose time has come stays where it is."""
    patch.setattr(DelayedJobs, "release", lambda self, now: iter(()))


def waits(patch: Patch) -> None:
    """WMP-6.27: a job is tried again at once."""
    wait = Failures._wait

    def hurry(self: Failures, *arguments: Any) -> float | None:
        return None if wait(self, *arguments) is None else 0.0

    patch.setattr(Failures, "_wait", hurry)


def tries(patch: Patch) -> None:
    """WMP-6.26: a job is tried again for ever."""
    wait = Failures._wait

    def forget(self: Failures, job: JobRecord, *arguments: Any) -> float | None:
        job.failed = min(job.failed, 1)
        if job.limits is not None and job.limits.retry is not None:
            job.limits = evolve(job.limits, retry=evolve(job.limits.retry, times=1000))
        return wait(self, job, *arguments)

    patch.setattr(Failures, "_wait", forget)


def further_attempts(patch: Patch) -> None:
    """WMP-6.26: no job is tried again."""
    patch.setattr(Failures, "_wait", lambda *arguments: None)


def expiry_in_the_queue(patch: Patch) -> None:
    """WMP-6.20: a job that waits does not end at its expiry, and is granted after it."""
    patch.setattr(JobLimits, "expired", lambda self, now: False)
    max_silence = JobEnds.expire

    def wait(self: JobEnds, id: int, now: float) -> None:
        job = self.find(id)
        if job is None or (job.deadline is not None and job.deadline <= now):
            max_silence(self, id, now)

    patch.setattr(JobEnds, "expire", wait)
    patch.setattr(ManagerMachine, "check_invariants", lambda self: None)


def expiry_of_returned_jobs(patch: Patch) -> None:
    """WMP-6.20: a job that comes back after its expiry is queued and granted again."""
    patch.setattr(JobLimits, "expired", lambda self, now: False)
    patch.setattr(ManagerMachine, "check_invariants", lambda self: None)


def expiry_at_the_worker(patch: Patch) -> None:
    """WMP-6.19: a worker begins a job after its expiry."""
    of = JobTimes.of

    def late(*arguments: Any) -> JobTimes:
        times = of(*arguments)
        times.begin_by = None
        return times

    patch.setattr(JobTimes, "of", staticmethod(late))
