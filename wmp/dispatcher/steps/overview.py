"""Pages of jobs, histories and capacity, read in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from wmp.dispatcher.job_document import LETTERS, date_text, id_text, worker_document
from wmp.dispatcher.records import WorkerRecord
from wmp.dispatcher.steps.callback_steps import CALLBACKS
from wmp.dispatcher.steps.crew import CrewMember, add_jobs, crew_document, crew_of
from wmp.dispatcher.steps.job_steps import read_document, read_job
from wmp.store.contract import JobFilter
from wmp.store.transaction import StoreTransaction

_LOOKED_AT: Final = 10_000
"""Jobs that one request reads at most to find jobs of a status."""
_READ: Final = 16
"""Jobs that are read at a time: each may have a payload and a result of the maximum size."""
_PAGE: Final = 8 << 20
"""Bytes of payloads and results after which a page ends."""

_LAST: Final = (1 << 63) - 1


def list_jobs(
    store: StoreTransaction, status: str | None, role: str | None, after: int, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Return one page of documents, and the `_id` after which the next page begins.

    Args:
        store: The transaction.
        status: Letter of the jobs; None for all.
        role: Type of the jobs; None for all.
        after: Number after which the page begins.
        limit: Maximum number of documents.
    """
    states = None
    if status is not None:
        wanted = "r" if status == "d" else status
        states = [state for state, letter in LETTERS.items() if letter == wanted]
    where = JobFilter(role=role, states=states)
    documents: list[dict[str, Any]] = []
    size = 0
    for _ in range(0, _LOOKED_AT, _READ):
        jobs = store.jobs(where, after=min(after, _LAST), limit=_READ, payloads=True)
        for job in jobs:
            if job.kind != CALLBACKS:
                document = read_document(store, job)
                if status is None or document["status"] == status:
                    if len(documents) == limit or size > _PAGE:
                        return documents, str(documents[-1]["_id"])
                    documents.append(document)
                    size += len(job.payload or b"") + len(job.result or b"")
            after = job.id
        if len(jobs) < _READ:
            return documents, None
    return documents, id_text(after)


def history(store: StoreTransaction, id: int) -> dict[str, Any] | None:
    """Return the failed attempts of a job; None without the job."""
    job = read_job(store, id)
    if job is None:
        return None
    attempts = [
        {
            "attempt": failure.attempt,
            "worker": failure.worker,
            "error": failure.error,
            "date": date_text(failure.at),
        }
        for failure in job.history
    ]
    return {
        "_id": id_text(id),
        "attempt": job.attempt,
        "lost": job.lost,
        "failed": job.failed,
        "attempts": attempts,
    }


def list_workers(store: StoreTransaction, own: Sequence[CrewMember]) -> list[dict[str, Any]]:
    """Return the HTTP workers and the WMP workers as documents (DSP-5.13).

    Args:
        store: The transaction.
        own: The WMP workers that are connected here.
    """
    crew = crew_of(store, own)
    add_jobs(store, crew)
    documents = [worker_document(worker) for worker in WorkerRecord.all(store)]
    return documents + [crew_document(entry, store.now) for entry in crew]


def read_worker(
    store: StoreTransaction, id: int, own: Sequence[CrewMember]
) -> dict[str, Any] | None:
    """Return a worker as a document; None without the worker."""
    worker = WorkerRecord.read(store, id)
    if worker is not None:
        return worker_document(worker)
    crew = [entry for entry in crew_of(store, own) if entry.id == id]
    add_jobs(store, crew)
    return crew_document(crew[0], store.now) if crew else None


def capacity(store: StoreTransaction, own: Sequence[CrewMember] = ()) -> dict[str, Any]:
    """Return places and free places, in all, by kind and by type, and the queued jobs by type.

    Args:
        store: The transaction.
        own: The WMP workers that are connected here.
    """
    types: dict[str, dict[str, int]] = {}
    kinds = {kind: {"workers": 0, "maxJobs": 0, "free": 0} for kind in ("http", "wmp")}

    def count(kind: str, workers: int, places: int, free: int, roles: Iterable[str]) -> None:
        kinds[kind]["workers"] += workers
        rows = [types.setdefault(role, {"maxJobs": 0, "free": 0, "queued": 0}) for role in roles]
        for row in (kinds[kind], *rows):
            row["maxJobs"] += places
            row["free"] += free

    for worker in WorkerRecord.all(store):
        if worker.living:
            count("http", 1, worker.max_jobs, worker.free(store.now), worker.handlers)
    for entry in crew_of(store, own):
        count("wmp", len(entry.members), entry.places, entry.free, entry.roles)
    for queued in store.queued(counted=True):
        if queued.kind != CALLBACKS:
            empty = {"maxJobs": 0, "free": 0, "queued": 0}
            types.setdefault(queued.kind.role, empty)["queued"] += queued.count or 0
    total = {
        name: sum(row[name] for row in kinds.values()) for name in ("workers", "maxJobs", "free")
    }
    return {**total, "kinds": kinds, "types": types}
