"""Ends of dispatches: what follows for the job, for the record and for the worker's entry."""

from __future__ import annotations

import attrs

from wmp.dispatcher.records import DispatchRecord, WorkerRecord
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.transaction import StoreTransaction
from wmp.store.write_batch import JobChanges, StoredFailure


def dispatched_job(store: StoreTransaction, dispatch: DispatchRecord) -> StoredJob | None:
    """Return the job of a dispatch, if the dispatch is of its current attempt and it is open."""
    jobs = store.jobs(JobFilter(ids=[dispatch.id]), after=dispatch.id - 1, limit=1)
    if not jobs or jobs[0].attempt != dispatch.attempt:
        return None
    reserved = jobs[0].state in (StoredJobState.RESERVED, StoredJobState.CANCELLING)
    return jobs[0] if reserved else None


def close_dispatch(store: StoreTransaction, dispatch: DispatchRecord) -> None:
    """Make a dispatch history, and free the place at its worker (DSP-4.4)."""
    attrs.evolve(dispatch, closed=True).write(store)
    if dispatch.worker is not None:
        worker = WorkerRecord.read(store, dispatch.worker)
        if worker is not None and dispatch.id in worker.jobs:
            worker.without(dispatch.id).write(store)


def give_up_dispatching(store: StoreTransaction, dispatch: DispatchRecord) -> None:
    """Queue a job again that no worker got, at no cost (DSP-3.5); a cancelled one ends."""
    store.change(JobChanges(StoredJobInput.RELEASE, [dispatch.id], [dispatch.attempt]))
    store.remove(DispatchRecord.SORT, dispatch.id)


def take_back(
    store: StoreTransaction, dispatch: DispatchRecord, job: StoredJob, cause: str, *, cost: int
) -> None:
    """Queue a job again that a worker has lost or refused; a cancelled one ends.

    Args:
        store: The transaction.
        dispatch: The dispatch, of this dispatcher.
        job: The job in the same attempt.
        cause: Why, for people.
        cost: Worker losses to count, 0 or 1.
    """
    worker = None if dispatch.worker is None else WorkerRecord.read(store, dispatch.worker)
    name = "a worker" if worker is None else f"{worker.hostname}:{worker.port}"
    ids, attempts = [dispatch.id], [dispatch.attempt]
    failures = [StoredFailure(dispatch.attempt, name, cause)] if cost else None
    if job.state is StoredJobState.RESERVED and job.lost + cost > job.terms.max_worker_losses:
        text = f"{name}\n{cause}".encode()
        store.change(
            JobChanges(StoredJobInput.SPEND, ids, attempts, [text], [cost], failures=failures)
        )
    else:
        # REPEAT ends the attempt, which the worker may still have. RELEASE gives back the next one,
        # which nobody has (STORE-12.9).
        store.change(
            JobChanges(
                StoredJobInput.REPEAT,
                ids,
                attempts,
                costs=[cost],
                failures=failures,
                unbegun=[1 - cost],
            )
        )
        store.change(JobChanges(StoredJobInput.RELEASE, ids, [dispatch.attempt + 1]))
    close_dispatch(store, dispatch)
