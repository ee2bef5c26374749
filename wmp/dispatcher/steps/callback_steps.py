"""Callbacks as stored jobs (DSP-7), and the sweep of the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import attrs
from attrs import frozen

from wmp.dispatcher.job_document import CODEC, job_document
from wmp.dispatcher.records import CallbackRecord, DispatchRecord
from wmp.dispatcher.settings import DispatcherSettings
from wmp.message import Kind
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.job_terms import StoredTerms
from wmp.store.stored_job import ENDED, StoredJobInput, StoredJobState
from wmp.store.transaction import StoreTransaction
from wmp.store.write_batch import JobChanges, NewJobs, Reservation

CALLBACKS: Final = Kind("wmp.callback", codec=CODEC)
"""The kind of the stored jobs that are callbacks."""

_MAX: Final = 16
"""Callbacks that a dispatcher does at the same time."""
_SWEPT: Final = 1_000
_LOOKED_AT: Final = 500
"""Records that a sweep looks at, of each sort."""
_LONGEST: Final = 60_000


def add_callback(store: StoreTransaction, id: int) -> bool:
    """Add the callback of a job as a stored job if the job has ended (DSP-7.1)."""
    callback = CallbackRecord.read(store, id)
    if callback is None or not callback.open:
        return False
    jobs = store.jobs(JobFilter(ids=[id]), after=id - 1, limit=1)
    if jobs and jobs[0].state not in ENDED:
        return False
    if not jobs:
        store.remove(CallbackRecord.SORT, id)
        return False
    new = NewJobs(
        kind=CALLBACKS,
        terms=StoredTerms(1_000_000, None, None, jobs[0].terms.keep_ms, jobs[0].terms.keep_dead_ms),
        ids=[store.block()[0]],
        payloads=[json.dumps({"job": id}).encode()],
        keys=[f"callback:{id}"],
        unique="kept",
    )
    (number,) = store.add(new).ids
    if not number:
        return False  # the store is full: a later sweep adds it
    attrs.evolve(callback, job=number).write(store)
    return True


@frozen
class Swept:
    """What a sweep did."""

    callbacks: bool
    """Whether callbacks were added."""
    after: int
    """Where the next sweep continues to look at records."""


@frozen
class Sweep:
    """Sweeps the store, adds callbacks, and removes the records of jobs that are gone."""

    after: int = -1

    def run(self, store: StoreTransaction) -> Swept:
        """Run the step."""
        store.sweep(_SWEPT)
        added = False
        for record in store.records(CallbackRecord.SORT, after=self.after, limit=_LOOKED_AT):
            added |= add_callback(store, record.id)
        seen = [-1]
        more = False
        for sort in (CallbackRecord.SORT, DispatchRecord.SORT):
            records = store.records(sort, opened=False, after=self.after, limit=_LOOKED_AT)
            ids = [record.id for record in records if not record.open]
            kept = {job.id for job in _jobs(store, ids)}
            for id in set(ids) - kept:
                store.remove(sort, id)
            if len(records) == _LOOKED_AT:
                more = True
                seen.append(records[-1].id)
        return Swept(added, min(seen[1:]) if more else -1)


def _jobs(store: StoreTransaction, ids: Sequence[int]) -> Sequence[StoredJob]:
    if not ids:
        return ()
    return store.jobs(JobFilter(ids=ids), after=min(ids) - 1, limit=len(ids))


@frozen
class Callback:
    """A callback to do now."""

    id: int
    """Number of the stored job."""
    attempt: int
    record: CallbackRecord
    document: dict[str, Any]


@frozen
class TakeCallbacks:
    """Reserves callbacks that are due."""

    busy: frozenset[int] = frozenset()
    """Numbers of the stored jobs that are under way."""

    def run(self, store: StoreTransaction) -> Sequence[Callback]:
        """Run the step."""
        count = _MAX - len(self.busy)
        if count > 0:
            store.reserve(Reservation(CALLBACKS, count, 1 << 20))
        where = JobFilter(role=CALLBACKS.role, instance=store.me)
        callbacks = []
        # Those of an earlier step of unknown outcome are here, too.
        for job in store.jobs(where, limit=2 * _MAX, payloads=True):
            if job.id in self.busy or job.payload is None:
                continue
            number = json.loads(job.payload)["job"]
            record = CallbackRecord.read(store, number)
            jobs = store.jobs(JobFilter(ids=[number]), after=number - 1, limit=1, payloads=True)
            if record is None or not jobs:
                # The job was purged meanwhile: there is nothing to report any more.
                change = JobChanges(StoredJobInput.SUCCEED, [job.id], [job.attempt], [b"null"])
                store.change(change)
                continue
            dispatch = DispatchRecord.read(store, number)
            document = job_document(jobs[0], dispatch, record)
            callbacks.append(Callback(job.id, job.attempt, record, document))
        return callbacks


@frozen
class EndCallback:
    """Writes the outcome of a callback (DSP-7.2)."""

    settings: DispatcherSettings
    id: int
    attempt: int
    error: str | None

    def run(self, store: StoreTransaction) -> None:
        """Run the step."""
        ids, attempts = [self.id], [self.attempt]
        if self.error is None:
            store.change(JobChanges(StoredJobInput.SUCCEED, ids, attempts, [b"true"]))
            return
        jobs = store.jobs(JobFilter(ids=ids), after=self.id - 1, limit=1)
        if not jobs or jobs[0].state is not StoredJobState.RESERVED:
            return
        failed = jobs[0].failed
        if failed >= self.settings.callback_retries:
            text = json.dumps(self.error).encode()
            store.change(JobChanges(StoredJobInput.FAIL, ids, attempts, [text]))
            return
        wait = min(_LONGEST, 1_000 << min(failed, 16))
        store.change(JobChanges(StoredJobInput.AGAIN, ids, attempts, waits_ms=[wait]))
