"""Jobs of clients: create, cancel, complete, read (DSP-6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from attrs import frozen

from wmp.actions import End
from wmp.dispatcher.job_document import CODEC, NewJobDocument, job_document
from wmp.dispatcher.records import CallbackRecord, DispatchRecord, WorkerRecord
from wmp.dispatcher.registration import shows_secret
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.callback_steps import add_callback
from wmp.dispatcher.steps.taking_back import close_dispatch, give_up_dispatching, take_back
from wmp.message import Kind
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import ENDED, OPEN, StoredJobInput, StoredJobState
from wmp.store.transaction import StoreTransaction
from wmp.store.write_batch import JobChanges, NewJobs


def read_job(store: StoreTransaction, id: int, *, payloads: bool = True) -> StoredJob | None:
    """Return a job; None if the store has none of the number."""
    jobs = store.jobs(JobFilter(ids=[id]), after=id - 1, limit=1, payloads=payloads)
    return jobs[0] if jobs else None


def read_document(store: StoreTransaction, job: StoredJob) -> dict[str, Any]:
    """Return a job as a document."""
    callback = CallbackRecord.read(store, job.id)
    called_back = False
    if callback is not None and callback.job is not None:
        done = read_job(store, callback.job, payloads=False)
        called_back = done is not None and done.state is StoredJobState.OK
    dispatch = DispatchRecord.read(store, job.id)
    return job_document(job, dispatch, callback, called_back=called_back)


@frozen
class Created:
    """The answer to a create."""

    document: dict[str, Any] | None
    """None: the store is full."""
    joined: bool
    """Whether the job was there already, by its idempotency key."""
    differs: bool = False
    """Whether the job that was there has another input."""


@frozen
class Create:
    """Stores a job (DSP-6.1, DSP-6.4)."""

    settings: DispatcherSettings
    id: int
    """A number of the dispatcher's blocks, never used before."""
    job: NewJobDocument

    def run(self, store: StoreTransaction) -> Created:
        """Run the step."""
        new = self.job
        keep = self.settings.result_ttl
        added = store.add(
            NewJobs(
                kind=Kind(new.type, codec=CODEC),
                terms=StoredTerms(
                    self.settings.max_worker_losses, new.timeout / 1000, None, keep, keep
                ),
                ids=[self.id],
                payloads=[new.payload_of(self.id)],
                priority=new.priority,
                delay_ms=0 if new.due is None else max(0, new.due - store.now),
                keys=None if new.key is None else [f"http:{new.key}"],
                unique="kept",
            )
        )
        (id,) = added.ids
        if not id:
            return Created(None, False)
        joined = id != self.id
        if not joined and new.callback is not None:
            CallbackRecord(id, **new.callback).write(store)
        job = read_job(store, id)
        assert job is not None, "the job was added or joined in this transaction"
        differs = joined and not self._is_same(store, job)
        return Created(read_document(store, job), joined, differs=differs)

    def _is_same(self, store: StoreTransaction, job: StoredJob) -> bool:
        """Return whether a job was created by the same document (DSP-6.4).

        When it is due is not compared: a retry changes it.
        """
        new = self.job
        callback = CallbackRecord.read(store, job.id)
        wanted = None
        if new.callback is not None:
            record = CallbackRecord(job.id, **new.callback)
            wanted = attrs.evolve(record, address=None, host=None, depth=0)
        if callback is not None:
            callback = attrs.evolve(callback, job=None, address=None, host=None, depth=0)
        return (
            job.kind.role == new.type
            and job.payload == new.payload_of(job.id)
            and job.priority == new.priority
            and job.terms.run_limit == new.timeout / 1000
            and callback == wanted
        )


@frozen
class CancelJob:
    """Cancels a job (DSP-4.7)."""

    id: int

    def run(self, store: StoreTransaction) -> tuple[dict[str, Any], bool] | None:
        """Return the document, and whether the job had ended; None without the job."""
        job = read_job(store, self.id)
        if job is None:
            return None
        ended = job.state in ENDED
        if not ended:
            store.change(JobChanges(StoredJobInput.CANCEL, [self.id]))
            dispatch = DispatchRecord.read(store, self.id)
            if (
                dispatch is not None
                and dispatch.open
                and dispatch.worker is None
                and dispatch.instance == store.me
            ):
                give_up_dispatching(store, dispatch)
            add_callback(store, self.id)
            job = read_job(store, self.id) or job
        return read_document(store, job), ended


@frozen
class Completed:
    """The answer to a completion."""

    known: bool
    """Whether the store has the job."""
    counts: bool
    """Whether the completion had an effect (DSP-3.10)."""
    callback: bool = False
    """Whether a callback was added."""
    forbidden: bool = False
    """Whether the completion lacks the secret of the worker that has the job."""


_ENDS: Final = {"s": StoredJobInput.SUCCEED, "f": StoredJobInput.FAIL}


@frozen
class Finish:
    """Takes a completion of a worker, whichever dispatcher gave it the job (DSP-3.10)."""

    id: int
    attempt: int
    status: str
    """``s``, ``f`` or ``x``."""
    payload: bytes
    """The result, or the error in the form of WMP workers."""
    secret: str | None = attrs.field(default=None, repr=False)
    """The secret that the completion carries (DSP-10.2)."""
    required: bool = False
    """Whether the completion must carry the secret of the worker that has the job."""

    def run(self, store: StoreTransaction) -> Completed:
        """Run the step."""
        job = read_job(store, self.id, payloads=False)
        if job is None:
            return Completed(known=False, counts=False)
        dispatch = DispatchRecord.read(store, self.id)
        if job.state not in OPEN or job.attempt != self.attempt:
            return Completed(known=True, counts=False)
        if dispatch is None or dispatch.attempt != self.attempt or dispatch.worker is None:
            # A WMP worker has the job, or nobody: an `_id` is no proof (DSP-3.10).
            return Completed(known=True, counts=False)
        worker = WorkerRecord.read(store, dispatch.worker)
        if worker is None:
            if self.required:
                return Completed(known=True, counts=False)
        elif not shows_secret(worker, self.secret, required=self.required):
            return Completed(known=True, counts=False, forbidden=True)
        elif self.secret is not None and not worker.shown:
            attrs.evolve(worker, shown=True).write(store)
        if self.status == "x":
            return Completed(known=True, counts=self._give_back(store, dispatch, job))
        change = JobChanges(_ENDS[self.status], [self.id], [self.attempt], [self.payload])
        counts = store.change(change).states[0] in ENDED
        if counts and dispatch.open:
            close_dispatch(store, dispatch, completed=True)
        callback = counts and add_callback(store, self.id)
        return Completed(known=True, counts=counts, callback=callback)

    def _give_back(self, store: StoreTransaction, dispatch: DispatchRecord, job: StoredJob) -> bool:
        """Take a job back that its worker has stopped: it was cancelled, or the worker ends."""
        if not dispatch.open:
            return False
        if job.instance == store.me:
            take_back(store, dispatch, job, "the worker stopped the job", cost=0)
            return True
        # The check of the dispatcher that has the job acts on this.
        attrs.evolve(dispatch, unknown=2, listed=False).write(store)
        return True


@frozen
class LookForEnds:
    """Reads which of some jobs have ended, whoever ended them."""

    ids: Sequence[int]
    """In growing order, at least one."""

    def run(self, store: StoreTransaction) -> Mapping[int, tuple[End, int] | None]:
        """Return end and attempt of each job that has ended; None for a job that was removed."""
        where = JobFilter(ids=self.ids)
        jobs = store.jobs(where, after=self.ids[0] - 1, limit=len(self.ids))
        states = {job.id: job for job in jobs}
        return {
            id: None if (job := states.get(id)) is None else (End[job.state.name], job.attempt)
            for id in self.ids
            if id not in states or states[id].state in ENDED
        }
