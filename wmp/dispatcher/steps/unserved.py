"""Queued jobs of types that no worker knows, and why a queued job waits (DSP-3.12, DSP-6.9)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import frozen

from wmp.core.manager.unserved import WaitingRow, listed
from wmp.dispatcher.job_document import date_text
from wmp.dispatcher.records import WorkerRecord
from wmp.dispatcher.steps.placing import for_http
from wmp.message import counted
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.stored_job import StoredJobState
from wmp.store.transaction import StoreTransaction


@frozen
class LookForUnserved:
    """Finds the types of queued jobs that no worker knows.

    A type of which a job runs has a worker, perhaps a WMP worker at another dispatcher.
    """

    offers: Collection[str] = ()
    """Types that the connected WMP workers know."""

    def run(self, store: StoreTransaction) -> Sequence[WaitingRow]:
        """Run the step."""
        workers = WorkerRecord.all(store)
        rows = []
        for queued in store.queued(counted=True):
            kind = queued.kind
            if queued.wait or not for_http(kind):
                continue
            cause = _unserved(kind.role, workers, self.offers)
            if cause and not _runs(store, kind.role):
                count = queued.count or 0
                rows.append(WaitingRow(kind.role, dict(kind.needs), kind.codec, count, cause))
        return rows


def why_queued(store: StoreTransaction, job: StoredJob, offers: Collection[str]) -> str | None:
    """Return why a job waits in the queue; None for a job that does not, or not for long.

    Args:
        store: The transaction.
        job: The job.
        offers: Types that the connected WMP workers know.
    """
    if job.state is not StoredJobState.QUEUED:
        return None
    if job.due > store.now:
        return f"the job is due at {date_text(job.due)}"
    role = job.kind.role
    if role in offers:
        return None
    if not for_http(job.kind):
        return "only a WMP worker can do the job, and none that knows the type is connected here"
    workers = WorkerRecord.all(store)
    cause = _unserved(role, workers, offers)
    if cause:
        return cause
    knowing = [worker for worker in workers if role in worker.handlers and worker.living]
    if any(worker.free(store.now) for worker in knowing):
        return None
    places = counted(sum(worker.max_jobs for worker in knowing), "place")
    return f"no worker that knows the type {role!r} has a free place; they have {places} together"


def _unserved(role: str, workers: Sequence[WorkerRecord], offers: Collection[str]) -> str:
    """Return why no worker can do jobs of a type; empty if one can."""
    if role in offers:
        return ""
    knowing = [worker for worker in workers if role in worker.handlers]
    if any(worker.living for worker in knowing):
        return ""
    if knowing:
        return f"the workers that know the type {role!r} are dead or have resigned"
    known = {name for worker in workers if worker.living for name in worker.handlers} | set(offers)
    if not known:
        return "no worker is registered or connected"
    return f"no worker knows the type {role!r}; the workers know {listed(role, known)}"


def _runs(store: StoreTransaction, role: str) -> bool:
    """Return whether a job of a type runs."""
    where = JobFilter(role=role, states=[StoredJobState.RESERVED])
    return bool(store.jobs(where, after=0, limit=1))
