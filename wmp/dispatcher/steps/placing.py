"""Dispatching: queued jobs become `d`, and jobs in `d` get their workers (DSP-3)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
from attrs import frozen

from wmp.dispatcher.job_document import CODEC, job_document
from wmp.dispatcher.records import DispatchRecord, WorkerRecord
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.taking_back import give_up_dispatching
from wmp.dispatcher.steps.turns import Turns
from wmp.message import DEFAULT_NEEDS, Kind
from wmp.store.contract import JobFilter, StoredJob
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.transaction import StoreTransaction
from wmp.store.write_batch import JobChanges, Reservation

_MAX: Final = 256
"""Maximum number of jobs of one kind that a step dispatches."""
_MAX_BYTES: Final = 8 << 20


@frozen
class DispatchedJob:
    """A job that was given to a worker, and that is now sent to the worker."""

    id: int
    attempt: int
    worker: WorkerRecord
    document: bytes
    role: str = ""


@frozen
class Placed:
    """What a step of dispatching did."""

    assignments: Sequence[DispatchedJob]
    cooling: Sequence[tuple[int, int]] = ()
    """Number and attempt of each job that waits for the second step."""
    left: int = 0
    """Number of jobs that were left to WMP workers."""
    more: bool = False
    """Whether further jobs may be dispatched at once."""
    next_due: int | None = None
    """Milliseconds until the next job of a known type is due."""


def share(count: int, free: Sequence[int], wants: Sequence[int]) -> int:
    """Return how many of ``count`` jobs HTTP workers get: most free places first (DSP-3.7).

    Args:
        count: Number of jobs.
        free: Free places of each HTTP worker.
        wants: Number of jobs that each waiting request of a WMP worker wants.
    """
    if not wants:
        return min(count, sum(free))
    places, others, taken = sorted(free), sorted(wants), 0
    for _ in range(min(count, sum(free) + sum(wants))):
        here = places[-1] if places else 0
        if here >= (others[-1] if others else 0):
            places[-1] -= 1
            places.sort()
            taken += 1
        else:
            others[-1] -= 1
            others.sort()
    return taken


@frozen
class Place:
    """Saves queued jobs as `d`; without a cooldown the workers get them at once."""

    settings: DispatcherSettings
    wants: Mapping[str, Sequence[int]] = {}
    """Waiting requests of WMP workers, by type."""

    def run(self, store: StoreTransaction) -> Placed:
        """Run the step."""
        cooling: list[tuple[int, int]] = []
        left, more, dues = 0, False, list[int]()
        turns = Turns(WorkerRecord.all(store), store.now, self.settings.max_unproven)
        for queued in store.queued(counted=True) if turns else ():
            role = queued.kind.role
            if not for_http(queued.kind):
                continue
            if queued.wait:
                if turns.knows(role):
                    dues.append(queued.wait)
                continue
            capacity = turns.capacity(role)
            total = min(queued.count or 0, _MAX, capacity)
            wants = self.wants.get(role, ())
            count = min(total, share(total, turns.offered(role), wants)) if wants else total
            left += total - count
            if not count:
                continue
            reserved = store.reserve(Reservation(queued.kind, count, _MAX_BYTES))
            for id, attempt in zip(reserved.ids, reserved.attempts, strict=True):
                refusals = _refusals(store, id) if id in reserved.histories else 0
                dispatch = DispatchRecord(id, attempt, store.me, store.now, refusals=refusals)
                dispatch.write(store)
                cooling.append((id, attempt))
                turns.take(role)
            more = more or (reserved.more and turns.capacity(role) > 0)
        placed = Placed((), cooling, left, more, min(dues, default=None))
        if self.settings.cooldown_period:
            return placed
        given = Assign(self.settings, cooling).run(store)
        return attrs.evolve(placed, assignments=given.assignments, cooling=())


def _refusals(store: StoreTransaction, id: int) -> int:
    """Return the refusals of a job in its earlier dispatches (DSP-3.14)."""
    earlier = DispatchRecord.read(store, id)
    return 0 if earlier is None else earlier.refusals


def for_http(kind: Kind) -> bool:
    """Return whether HTTP workers can do the jobs of a kind."""
    return kind.codec == CODEC and kind.needs == DEFAULT_NEEDS and not kind.role.startswith("wmp.")


@frozen
class Assign:
    """Gives jobs in `d` to workers, if they are still `d` and the dispatcher's own (DSP-3.3)."""

    settings: DispatcherSettings
    jobs: Sequence[tuple[int, int]]
    """Number and attempt of each job."""

    def run(self, store: StoreTransaction) -> Placed:
        """Run the step."""
        assignments = []
        ids = [id for id, _ in self.jobs]
        jobs = {job.id: job for job in _read(store, ids)}
        workers = {worker.id: worker for worker in WorkerRecord.all(store)} if ids else {}
        turns = Turns(workers.values(), store.now, self.settings.max_unproven)
        for id, attempt in self.jobs:
            dispatch, job = DispatchRecord.read(store, id), jobs.get(id)
            if (
                job is None
                or dispatch is None
                or not dispatch.open
                or dispatch.worker is not None
                or (dispatch.instance, dispatch.attempt) != (store.me, attempt)
                or (job.instance, job.attempt) != (store.me, attempt)
            ):
                continue
            reserved = job.state is StoredJobState.RESERVED
            number = turns.take(job.kind.role) if reserved else None
            if number is None:
                give_up_dispatching(store, dispatch)
                continue
            worker = workers[number]
            worker = workers[number] = attrs.evolve(worker, jobs=(*worker.jobs, id))
            worker.write(store)
            limit = job.terms.run_limit
            dispatch = attrs.evolve(
                dispatch,
                worker=worker.id,
                started=store.now,
                expiry=None if limit is None else store.now + round(limit * 1000),
            )
            dispatch.write(store)
            begin = JobChanges(
                StoredJobInput.BEGIN,
                [id],
                [attempt],
                workers=[worker.label],
                ages_ms=[0],
            )
            store.change(begin)
            document = json.dumps(job_document(job, dispatch, None)).encode()
            assignments.append(DispatchedJob(id, attempt, worker, document, job.kind.role))
        return Placed(assignments)


def _read(store: StoreTransaction, ids: Sequence[int]) -> Sequence[StoredJob]:
    where = JobFilter(ids=ids)
    return store.jobs(where, after=min(ids) - 1, limit=len(ids), payloads=True) if ids else ()
