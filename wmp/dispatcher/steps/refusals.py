"""Jobs that their workers did not accept (DSP-3.9, DSP-3.14), and workers that accept again."""

from __future__ import annotations

from typing import Final

import attrs
from attrs import frozen

from wmp.dispatcher.job_document import id_text
from wmp.dispatcher.records import DispatchRecord, WorkerRecord
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.checking import Cancellation
from wmp.dispatcher.steps.taking_back import (
    LostDispatch,
    close_dispatch,
    current_dispatch,
    put_out_of_turn,
    take_back,
)
from wmp.error_reports import pack_error
from wmp.message import counted
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.transaction import StoreTransaction
from wmp.store.write_batch import JobChanges, StoredFailure

_REFUSED: Final = "the worker refused the job"
_LONGEST_WAIT: Final = 60_000
"""Milliseconds between two attempts of a job that is refused again and again."""


@frozen
class RefusedPost:
    """Why a worker did not accept a job."""

    text: str
    """The cause, for people."""
    counts: bool = False
    """Whether the refusal counts for the job: an answer other than 503."""
    begun: bool = False
    """Whether the worker may have begun the job although it did not accept the job."""
    answered: bool = True
    """Whether the worker answered; the health checks look after a worker that is not reached."""
    worker_at_fault: bool = True
    """Whether the worker is out of turn for a while."""


@frozen
class TakenBack:
    """The state of a refused job and its worker."""

    line: str | None = None
    """A line for the log; None if the worker was out of turn already."""
    cancellation: Cancellation | None = None
    """A cancellation to send, if the worker may have begun."""
    lost: LostDispatch | None = None
    """The lease; None if another process ended the lease before."""
    failed: bool = False
    """Whether the job failed, because it was refused too often."""


@frozen
class TakeBack:
    """Queues a job again that its worker refused or did not get (DSP-3.9, DSP-3.14)."""

    settings: DispatcherSettings
    id: int
    attempt: int
    refusal: RefusedPost

    def run(self, store: StoreTransaction) -> TakenBack:
        """Run the step."""
        current = current_dispatch(store, self.id, self.attempt)
        if current is None:
            return TakenBack()
        dispatch, job = current
        refusal, settings = self.refusal, self.settings
        if refusal.counts:
            dispatch = attrs.evolve(dispatch, refusals=dispatch.refusals + 1)
        wanted = job.state is StoredJobState.RESERVED
        failed = wanted and refusal.counts and dispatch.refusals > settings.max_refusals
        if failed:
            _fail(store, dispatch, refusal.text)
            fate = f"it fails after {counted(dispatch.refusals, 'refusal')}"
        else:
            wait = _wait(settings, dispatch.refusals) if refusal.counts else 0
            take_back(
                store,
                dispatch,
                job,
                refusal.text,
                cost=0,
                noted=refusal.counts,
                begun=refusal.begun,
                wait=wait,
            )
            fate = "it is queued again" if wanted else "it is cancelled"
        if dispatch.worker is None:
            lost = LostDispatch(self.id, self.attempt, None, _REFUSED)
            return TakenBack(lost=lost, failed=failed)
        worker = WorkerRecord.read(store, dispatch.worker)
        lost = LostDispatch(self.id, self.attempt, worker, _REFUSED)
        cancellation = None
        if worker is not None and refusal.begun:
            cancellation = Cancellation(worker, self.id, self.attempt, awaited=False)
        if not refusal.worker_at_fault:
            return TakenBack(None, cancellation, lost, failed)
        suspect = refusal.counts
        pause = put_out_of_turn(
            store,
            settings,
            dispatch.worker,
            refusal.text,
            suspect=suspect,
            doubled=refusal.answered,
        )
        if not refusal.answered:
            _doubt(store, dispatch.worker)
        if pause is None or worker is None:
            return TakenBack(None, cancellation, lost, failed)
        line = (
            f"{refusal.text}; job {id_text(self.id)} was not accepted: {fate}, and worker "
            f"{worker.label} gets no job for {pause / 1000:g} s"
        )
        return TakenBack(line, cancellation, lost, failed)


def _doubt(store: StoreTransaction, id: int) -> None:
    """Give no further job to a stranger that is not there, until it answers a health check."""
    worker = WorkerRecord.read(store, id)
    if worker is not None and not worker.trusted and not worker.credit:
        attrs.evolve(worker, answered=False, next_ping=store.now).write(store)  # DSP-10.5


def _wait(settings: DispatcherSettings, refusals: int) -> int:
    """Return the milliseconds until a refused job is due; 0 after the first refusal."""
    if refusals < 2:
        return 0
    return min(max(settings.pause, _LONGEST_WAIT), settings.pause << min(refusals - 2, 16))


def _fail(store: StoreTransaction, dispatch: DispatchRecord, text: str) -> None:
    """End a job that was refused too often."""
    worker = None if dispatch.worker is None else WorkerRecord.read(store, dispatch.worker)
    name = "a worker" if worker is None else worker.label
    change = JobChanges(
        StoredJobInput.FAIL,
        [dispatch.id],
        [dispatch.attempt],
        [pack_error("Refused", f"{counted(dispatch.refusals, 'refusal')}; the last: {text}")],
        failures=[StoredFailure(dispatch.attempt, name, text)],
    )
    store.change(change)
    close_dispatch(store, dispatch, lost=True)


@frozen
class NoteAccepted:
    """Ends the pauses of a worker that has accepted a job (DSP-3.15)."""

    worker: int

    def run(self, store: StoreTransaction) -> None:
        """Run the step."""
        worker = WorkerRecord.read(store, self.worker)
        if worker is not None and worker.refusals:
            attrs.evolve(worker, refusals=0, refusal=None).write(store)
