"""Ends of dispatches: what follows for the job, for the record and for the worker's entry."""

from __future__ import annotations

from typing import Final

import attrs
from attrs import frozen

from wmp.dispatcher.records import DispatchRecord, WorkerRecord
from wmp.dispatcher.settings import DispatcherSettings
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.transaction import StoreTransaction
from wmp.store.write_batch import JobChanges, StoredFailure

_MAX_CREDIT: Final = 100_000


@frozen
class LostDispatch:
    """A lease of a worker that ended without a result."""

    id: int
    attempt: int
    worker: WorkerRecord | None
    """None if the worker is forgotten."""
    cause: str


def close_dispatch(
    store: StoreTransaction,
    dispatch: DispatchRecord,
    *,
    completed: bool = False,
    lost: bool = False,
) -> None:
    """Make a dispatch history, and free the place at its worker (DSP-4.4).

    Args:
        store: The transaction.
        dispatch: The dispatch.
        completed: Whether the worker has completed the job, so that it is no longer suspect.
        lost: Whether the worker has lost or refused the job, which costs half of its credit.
    """
    attrs.evolve(dispatch, closed=True).write(store)
    worker = None if dispatch.worker is None else WorkerRecord.read(store, dispatch.worker)
    if worker is None:
        return
    after = worker.without(dispatch.id)
    if completed:
        after = attrs.evolve(after, suspect=False)
    if not worker.trusted and (completed or lost):
        credit = min(worker.credit + 1, _MAX_CREDIT) if completed else worker.credit // 2
        after = attrs.evolve(after, credit=credit)
    if after != worker:
        after.write(store)


def give_up_dispatching(store: StoreTransaction, dispatch: DispatchRecord) -> None:
    """Queue a job again that no worker got, at no cost (DSP-3.5); a cancelled one ends."""
    store.change(JobChanges(StoredJobInput.RELEASE, [dispatch.id], [dispatch.attempt]))
    if dispatch.refusals:
        attrs.evolve(dispatch, closed=True).write(store)
    else:
        store.remove(DispatchRecord.SORT, dispatch.id)


def current_dispatch(
    store: StoreTransaction, id: int, attempt: int
) -> tuple[DispatchRecord, StoredJob] | None:
    """Return an open dispatch of this dispatcher and its job."""
    dispatch = DispatchRecord.read(store, id)
    if dispatch is None or not dispatch.open or dispatch.attempt != attempt:
        return None
    jobs = store.jobs(JobFilter(ids=[id]), after=id - 1, limit=1)
    if not jobs or (jobs[0].attempt, jobs[0].instance) != (attempt, store.me):
        return None
    reserved = jobs[0].state in (StoredJobState.RESERVED, StoredJobState.CANCELLING)
    return (dispatch, jobs[0]) if reserved else None


def take_back(
    store: StoreTransaction,
    dispatch: DispatchRecord,
    job: StoredJob,
    cause: str,
    *,
    cost: int,
    noted: bool = False,
    begun: bool = False,
    wait: int = 0,
) -> None:
    """Queue a job again that a worker has lost or refused; a cancelled one ends.

    Args:
        store: The transaction.
        dispatch: The dispatch, of this dispatcher.
        job: The job in the same attempt.
        cause: Why, for people.
        cost: Worker losses to count, 0 or 1.
        noted: Whether the history names the attempt, as it does with a cost.
        begun: Whether the worker may have begun although there is no cost.
        wait: Milliseconds until the job is due again.
    """
    worker = None if dispatch.worker is None else WorkerRecord.read(store, dispatch.worker)
    name = "a worker" if worker is None else worker.label
    ids, attempts = [dispatch.id], [dispatch.attempt]
    failures = [StoredFailure(dispatch.attempt, name, cause)] if cost or noted else None
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
                unbegun=[0 if cost or begun else 1],
            )
        )
        store.change(
            JobChanges(
                StoredJobInput.RELEASE,
                ids,
                [dispatch.attempt + 1],
                waits_ms=[wait] if wait else None,
            )
        )
    close_dispatch(store, dispatch, lost=bool(cost or noted))


def put_out_of_turn(
    store: StoreTransaction,
    settings: DispatcherSettings,
    id: int,
    cause: str,
    *,
    suspect: bool,
    doubled: bool = True,
) -> int | None:
    """Give a worker no job for a while (DSP-3.15).

    Args:
        store: The transaction.
        settings: The settings.
        id: Number of the worker.
        cause: Why, for people.
        suspect: Whether the worker gets one job at a time afterwards.
        doubled: Whether the next pause is twice as long.

    Returns:
        Milliseconds; None if the worker is gone, or was out of turn already.
    """
    worker = WorkerRecord.read(store, id)
    if worker is None:
        return None
    out = worker.out_of_turn(store.now, settings.pause, cause, suspect=suspect, doubled=doubled)
    out.write(store)
    longer = out.pause_until > max(worker.pause_until, store.now)
    return out.pause_until - store.now if longer else None
