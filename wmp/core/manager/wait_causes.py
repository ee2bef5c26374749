"""Why a job waited until its time had passed, as far as its manager knows."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from attrs import define, field

from wmp.core.manager.job_lifecycle import JobRecord, JobState
from wmp.core.manager.leases import Leases
from wmp.core.manager.remote_worker import RemoteWorker, fits
from wmp.core.manager.unserved import reason_of
from wmp.message import Kind, counted

_SHOWN = 3
"""Maximum number of workers that a text names."""


@define(eq=False)
class WaitCauses:
    """Makes the texts. Thousands of jobs may end in one step, so each text of a step is kept."""

    leases: Leases
    _at: float = -inf
    _texts: dict[Kind, str] = field(factory=dict)

    def ended(self, job: JobRecord, was: JobState, how: str, now: float) -> bytes:
        """Return the text of the end of a job that waited.

        Args:
            job: The job.
            was: Its state before this end: QUEUED or DELAYED.
            how: "timed out" or "expired".
            now: Seconds.
        """
        if was is JobState.DELAYED:
            tries = counted(job.failed, "failed attempt")
            why = f"the job waited to be tried again after {tries}"
        else:
            why = self._of(job.kind, now)
            if job.attempt:
                why += f"; {counted(job.attempt, 'earlier attempt')} ended without a result"
        return f"{how} before a worker took the job: {why}".encode(errors="replace")

    def _of(self, kind: Kind, now: float) -> str:
        if now != self._at:
            self._at = now
            self._texts.clear()
        text = self._texts.get(kind)
        if text is None:
            text = self._texts[kind] = _why(kind, self.leases.workers.values())
        return text


def _why(kind: Kind, workers: Collection[RemoteWorker]) -> str:
    text = reason_of(kind, workers)
    if text:
        return text
    needs = dict(kind.needs)
    suited = [
        worker for worker in workers if kind.role in worker.roles and fits(needs, worker.resources)
    ]
    if not any(worker.link is not None for worker in suited):
        return f"the connection to {_names(suited)} is lost"
    if any(worker.has_capacity or worker.woken.get(kind) for worker in suited):
        return f"{_names(suited)} had capacity, and had not taken the job yet"
    return f"{_names(suited)} had no free capacity"


def _names(workers: Collection[RemoteWorker]) -> str:
    shown = ", ".join(worker.name for worker in list(workers)[:_SHOWN])
    more = f" and {len(workers) - _SHOWN} more" if len(workers) > _SHOWN else ""
    return f"worker {shown}" if len(workers) == 1 else f"all workers of the role ({shown}{more})"
