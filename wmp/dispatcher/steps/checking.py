"""Checks of what runs, and of what waits to run (DSP-4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from attrs import frozen

from wmp.dispatcher.records import CrewRecord, DispatchRecord, WorkerRecord
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.taking_back import (
    LostDispatch,
    close_dispatch,
    current_dispatch,
    give_up_dispatching,
    put_out_of_turn,
    take_back,
)
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.transaction import StoreTransaction
from wmp.store.write_batch import JobChanges

_RESERVED: Final = (StoredJobState.RESERVED, StoredJobState.CANCELLING)
_TIMEOUT: Final = b"execution.expiry passed"

_UNKNOWN: Final = 2
"""Health checks running without the job after which the job is queued (DSP-4.3)."""


@frozen
class Cancellation:
    """A cancellation to send to a worker."""

    worker: WorkerRecord
    id: int
    attempt: int
    awaited: bool
    """Whether the job ends when the worker has answered."""


@frozen
class Checked:
    """What a check did."""

    cancellations: Sequence[Cancellation]
    changed: bool
    """Whether jobs or places became free."""
    lost: Sequence[LostDispatch] = ()
    """Leases that ended without a result."""


@frozen
class Check:
    """Checks all open dispatches."""

    settings: DispatcherSettings

    def run(self, store: StoreTransaction) -> Checked:
        """Run the step."""
        dispatches = DispatchRecord.all(store)
        living = store.living()
        jobs = {job.id: job for job in _jobs_of(store, dispatches)}
        cancellations: list[Cancellation] = []
        lost: list[LostDispatch] = []
        changed = False
        for dispatch in dispatches:
            worker = None
            if dispatch.worker is not None:
                worker = WorkerRecord.read(store, dispatch.worker)
            job = self._own(store, dispatch, jobs.get(dispatch.id), living)
            if job is None:
                # The job ended elsewhere, or a later attempt of it runs (DSP-4.4).
                close_dispatch(store, dispatch)
                if worker is not None:
                    cancellations.append(_cancellation(worker, dispatch, awaited=False))
                changed = True
            elif job.instance == store.me:
                adopted = dispatch.instance != store.me
                if adopted:
                    dispatch = attrs.evolve(dispatch, instance=store.me)
                    dispatch.write(store)
                if dispatch.worker is None:
                    changed |= self._check_dispatching(store, dispatch, job, adopted=adopted)
                else:
                    changed |= self._check_running(
                        store, dispatch, job, worker, cancellations, lost
                    )
        self._check_entries(store)
        for crew in CrewRecord.all(store):
            if crew.id not in living:
                store.remove(CrewRecord.SORT, crew.id)
        return Checked(cancellations, changed, lost)

    def _own(
        self,
        store: StoreTransaction,
        dispatch: DispatchRecord,
        job: StoredJob | None,
        living: set[int],
    ) -> StoredJob | None:
        """Return the job of a dispatch, taken over if its dispatcher ended; None if it is over."""
        if job is None or job.attempt != dispatch.attempt:
            return None
        lapsed = job.state is StoredJobState.QUEUED
        if lapsed or (job.state in _RESERVED and job.instance not in living):
            adopt = JobChanges(StoredJobInput.ADOPT, [job.id], [job.attempt])
            if store.change(adopt).states[0] in _RESERVED:
                return store.jobs(JobFilter(ids=[job.id]), after=job.id - 1, limit=1)[0]
        return job if job.state in _RESERVED else None

    def _check_dispatching(
        self, store: StoreTransaction, dispatch: DispatchRecord, job: StoredJob, *, adopted: bool
    ) -> bool:
        """Check a job in `d` of this dispatcher; return whether it is queued again (DSP-3.6)."""
        late = dispatch.since + self.settings.dispatch_timeout <= store.now
        if late or adopted or job.state is StoredJobState.CANCELLING:
            give_up_dispatching(store, dispatch)
            return True
        return False

    def _check_running(
        self,
        store: StoreTransaction,
        dispatch: DispatchRecord,
        job: StoredJob,
        worker: WorkerRecord | None,
        cancellations: list[Cancellation],
        lost: list[LostDispatch],
    ) -> bool:
        """Check a running job of this dispatcher; return whether its dispatch is over."""
        if dispatch.expiry is not None and dispatch.expiry <= store.now:
            change = JobChanges(
                StoredJobInput.OVERRUN, [dispatch.id], [dispatch.attempt], [_TIMEOUT]
            )
            store.change(change)
            close_dispatch(store, dispatch, lost=True)
            if worker is not None:
                cancellations.append(_cancellation(worker, dispatch, awaited=False))
            return True
        cause, cost, recalled = None, 1, False
        if worker is None or worker.dead:
            cause = "the worker is dead"
        elif worker.resigned:
            cause, cost, recalled = "the worker resigned", 0, True
        elif dispatch.unknown >= _UNKNOWN:
            cause = "the worker does not know the job"
        elif self._is_forgotten(store, dispatch, worker):
            cause, recalled = (
                (
                    f"no completion came in {self.settings.unnamed_timeout / 1000:g} s "
                    "(jobs.unnamed_timeout), and the health checks of the worker name no jobs"
                ),
                True,
            )
        if cause is not None:
            take_back(store, dispatch, job, cause, cost=cost)
            lost.append(LostDispatch(dispatch.id, dispatch.attempt, worker, cause))
            if worker is not None and recalled:
                cancellations.append(_cancellation(worker, dispatch, awaited=False))
                if not worker.resigned:
                    put_out_of_turn(store, self.settings, worker.id, cause, suspect=True)
            return True
        if worker is not None and job.state is StoredJobState.CANCELLING:
            cancellations.append(_cancellation(worker, dispatch, awaited=True))
        return False

    def _is_forgotten(
        self, store: StoreTransaction, dispatch: DispatchRecord, worker: WorkerRecord
    ) -> bool:
        """Return whether a worker that names no jobs has had one for too long (DSP-4.8)."""
        until = (dispatch.started or 0) + self.settings.unnamed_timeout
        return worker.unnamed and not dispatch.listed and until <= store.now

    def _check_entries(self, store: StoreTransaction) -> None:
        """Remove the entries of workers that are not running jobs of theirs (DSP-4.4)."""
        running = {
            (dispatch.worker, dispatch.id)
            for dispatch in DispatchRecord.all(store)
            if dispatch.worker is not None
        }
        for worker in WorkerRecord.all(store):
            jobs = tuple(id for id in worker.jobs if (worker.id, id) in running)
            if jobs != worker.jobs:
                attrs.evolve(worker, jobs=jobs).write(store)


def _jobs_of(store: StoreTransaction, dispatches: Sequence[DispatchRecord]) -> Sequence[StoredJob]:
    if not dispatches:
        return ()
    ids = [dispatch.id for dispatch in dispatches]
    return store.jobs(JobFilter(ids=ids), after=min(ids) - 1, limit=len(ids))


def _cancellation(worker: WorkerRecord, dispatch: DispatchRecord, *, awaited: bool) -> Cancellation:
    return Cancellation(worker, dispatch.id, dispatch.attempt, awaited)


@frozen
class EndCancelled:
    """Ends a cancelled job whose worker has answered the cancellation (DSP-4.7)."""

    id: int
    attempt: int

    def run(self, store: StoreTransaction) -> None:
        """Run the step."""
        current = current_dispatch(store, self.id, self.attempt)
        if current is not None and current[1].state is StoredJobState.CANCELLING:
            take_back(store, *current, "cancelled", cost=0)
