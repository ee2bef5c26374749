"""Jobs whose attempt failed: whether they are tried again, and when (WMP-6.25 to 6.27).

If a job has settings, the names of the error's types, which DONE contains, decide whether the job
is tried again. Without settings the worker decides, and DONE contains the time to wait. Either way
the job waits here and holds no lease meanwhile. A failure is not a worker loss, because a worker
loss is a lost lease.
"""

from __future__ import annotations

from typing import Final

from attrs import define

from wmp.actions import End
from wmp.core.manager.delayed_jobs import DelayedJobs
from wmp.core.manager.job_lifecycle import JobInput, JobRecord, JobState
from wmp.core.manager.leases import Leases, Returned
from wmp.core.manager.remote_worker import RemoteWorker
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.core.manager.stored_changes import StoredChanges
from wmp.message import Limits, Outcome, printable

_OVERRUN: Final = (
    "wmp.errors.JobTimeout",
    "builtins.TimeoutError",
    "builtins.OSError",
    "builtins.Exception",
)
"""The error names of an overrun, which are the names of ``JobTimeout``."""


@define(eq=False)
class Failures:
    """Ends jobs whose attempt failed, or lets them wait for another attempt."""

    leases: Leases
    delayed: DelayedJobs
    epoch: int
    """Epoch of the manager, which makes jitter differ from start to start."""
    changes: StoredChanges | None
    """The changes of stored jobs; None without a store."""

    def settle(self, worker: RemoteWorker, returned: Returned, now: float) -> bool:
        """Settle a job whose attempt ended as error or overrun; its lease is over.

        Returns:
            Whether the job is tried again.
        """
        job, outcome, payload, _, wait = returned
        summary, names = self._read(returned)
        job.failed += 1
        again = None
        if job.state is JobState.LEASED:
            again = self._wait(job, names, wait)
        if again is not None and self._has_time(job, now + again):
            job.record(worker.name, now, summary)
            job.step(JobInput.AGAIN)
            if self.changes is not None and job.id < FIRST_UNSTORED:
                self.changes.again(job, again)
            else:
                self.delayed.add(now + again, job)
            return True
        unfit = "" if again is not None or wait is not None else _mismatch(job, names)
        if again is not None or job.history is not None or unfit:
            job.record(worker.name, now, f"{summary}; {unfit}" if unfit else summary)
        job.step(JobInput.RESULT)
        if outcome == Outcome.OVERRUN:
            # WMP-6.22: the job ends as timed out.
            self.leases.end(job, End.TIMEOUT, summary.encode())
        else:
            worker.done += 1
            self.leases.end(job, End.ERROR, payload)
        return False

    def _wait(
        self, job: JobRecord, names: tuple[str, ...] | None, wait: int | None
    ) -> float | None:
        """Return the seconds until another attempt; None when there is none (WMP-6.26)."""
        retry = None if job.limits is None else job.limits.retry
        if retry is None:
            return None if wait is None else wait / 1000
        if job.failed > retry.times:
            return None
        if wait is not None:
            return wait / 1000
        if not retry.suits_names(names):
            return None
        return retry.wait(job.failed, self.epoch ^ job.id)

    @staticmethod
    def _has_time(job: JobRecord, due: float) -> bool:
        """Return whether an attempt may begin at ``due``."""
        return (job.deadline is None or due < job.deadline) and not job.expired(due)

    @staticmethod
    def _read(returned: Returned) -> tuple[str, tuple[str, ...] | None]:
        """Return the text of the error, and the names of its types if DONE contains them."""
        _, outcome, payload, text, _ = returned
        if outcome == Outcome.OVERRUN:
            cut = bytes(payload[: Limits.LONG_TEXT]).decode(errors="replace")
            return printable(cut, keep="\n"), _OVERRUN
        if text is None:
            return "failed", None
        summary, newline, names = text.partition("\n")
        return printable(summary[: Limits.LONG_TEXT]), tuple(names.split()) if newline else None


def _mismatch(job: JobRecord, names: tuple[str, ...] | None) -> str:
    """Return a text if a job with settings is not tried again because of the error's types."""
    retry = None if job.limits is None else job.limits.retry
    if retry is None or not names or job.failed > retry.times or retry.suits_names(names):
        return ""
    return retry.mismatch(names)
