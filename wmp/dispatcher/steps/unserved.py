"""Queued jobs of types that no worker knows, and why a queued job waits (DSP-3.12, DSP-6.9)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from attrs import frozen

from wmp.core.manager.unserved import WaitingRow, listed
from wmp.dispatcher.job_document import date_text
from wmp.dispatcher.records import WorkerRecord
from wmp.dispatcher.steps.crew import CrewEntry, CrewMember, crew_of
from wmp.dispatcher.steps.placing import for_http
from wmp.message import counted
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.stored_job import StoredJobState
from wmp.store.transaction import StoreTransaction

_SHOWN: Final = 3
"""Workers whose refusals the cause of a waiting job names."""


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


def why_queued(
    store: StoreTransaction, job: StoredJob, offers: Collection[str], own: Sequence[CrewMember] = ()
) -> str | None:
    """Return why a job waits in the queue; None for a job that does not, or not for long.

    Args:
        store: The transaction.
        job: The job, with its history.
        offers: Types that the connected WMP workers know.
        own: The WMP workers that are connected here.
    """
    if job.state is not StoredJobState.QUEUED:
        return None
    if job.due > store.now:
        return f"the job is due at {date_text(job.due)}{_last_failure(job)}"
    role = job.kind.role
    crew = [entry for entry in crew_of(store, own) if role in entry.roles]
    if any(entry.free for entry in crew):
        return None
    workers = WorkerRecord.all(store) if for_http(job.kind) else []
    knowing = [worker for worker in workers if role in worker.handlers and worker.living]
    if any(worker.free(store.now) for worker in knowing):
        return None
    if knowing or crew:
        return _no_place(role, knowing, crew, store.now)
    if role in offers:
        return None
    if not for_http(job.kind):
        return "only a WMP worker can do the job, and none that knows the type is connected here"
    return _unserved(role, workers, offers)


def _last_failure(job: StoredJob) -> str:
    """Return the failure after which a job waits for its time; empty without one."""
    if not job.history or job.history[-1].attempt != job.attempt:
        return ""
    failure = job.history[-1]
    return f"; attempt {failure.attempt} ended at {failure.worker}: {failure.error}"


def _no_place(
    role: str, knowing: Sequence[WorkerRecord], crew: Sequence[CrewEntry], now: int
) -> str:
    """Return why the workers that know a type get no job now."""
    places = sum(worker.max_jobs for worker in knowing) + sum(entry.places for entry in crew)
    out = [
        worker
        for worker in knowing
        if worker.pause_until > now or worker.suspect or not worker.answered
    ]
    if len(out) == len(knowing) and not crew:
        text = f"no worker that knows the type {role!r} gets a job now"
    else:
        text = (
            f"no worker that knows the type {role!r} has a free place; they have "
            f"{counted(places, 'place')} together"
        )
    for worker in out[:_SHOWN]:
        if worker.pause_until > now:
            turn = f"is out of turn until {date_text(worker.pause_until)}"
        elif not worker.answered:
            text += f"; {worker.label} has not answered a health check since it registered"
            continue
        else:
            turn = "gets one job at a time until it completes one"
        text += f"; {worker.label} {turn}: {worker.refusal or 'it did not complete its last jobs'}"
    return text


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
