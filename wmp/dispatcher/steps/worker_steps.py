"""The registry of HTTP workers: registrations, resignations, health checks (DSP-5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

import attrs
from attrs import field, frozen

from wmp.dispatcher.records import DispatchRecord, WorkerRecord, worker_number
from wmp.dispatcher.registration import (
    Registered,
    Registrant,
    is_same_address,
    secret_digest,
    shows_secret,
)
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.steps.checking import Cancellation
from wmp.store.transaction import StoreTransaction

_CANCELLED: Final = 100
"""Cancellations that follow from one health check at most; the next check shows the others."""
_AGAIN: Final = 1_000
"""Milliseconds until the next health check of a worker that did not name one of its jobs."""


@frozen
class Register:
    """Registers a worker, or replaces the entry of the same hostname and port (DSP-5.1)."""

    settings: DispatcherSettings
    hostname: str
    port: int
    max_jobs: int
    handlers: Mapping[str, Any]
    by: Registrant = field(factory=Registrant)

    def run(self, store: StoreTransaction) -> Registered:
        """Run the step."""
        by = self.by
        id = worker_number(self.hostname, self.port)
        known = WorkerRecord.read(store, id)
        usual = known is not None and known.living
        shown = known is not None and shows_secret(known, by.secret, required=True)
        others = [] if by.trusted else self._others(store, id)
        if (known is not None and usual and not self._may_replace(known)) or (
            others and not by.confirmed
        ):
            return Registered(None, taken=True)
        for other in others:  # other names of the same server, which strangers registered
            attrs.evolve(other, resigned=True, next_ping=store.now).write(store)
        if known is None:
            full = self._make_place(store)
            if full is not None:
                return Registered(None, full=full)
        secret = by.secret if shown else by.new
        worker = WorkerRecord(
            id,
            self.hostname,
            self.port,
            self.max_jobs,
            self.handlers,
            known.jobs if known is not None else (),
            last_pinged=store.now,
            next_ping=known.next_ping if known is not None and usual else store.now,
            address=by.address,
            host=by.host,
            peer=by.peer,
            trusted=by.trusted,
            token=by.token,
            secret=None if secret is None else secret_digest(secret),
            shown=shown,
            answered=by.trusted or by.confirmed,
            registered=store.now if known is None else known.registered,
        )
        if known is not None and (shown or by.confirmed or not by.required):
            worker = attrs.evolve(worker, credit=known.credit)
        if known is not None and usual:
            # A worker registers often, and is not sound only because it did (DSP-3.15).
            worker = attrs.evolve(
                worker,
                pause_until=known.pause_until,
                refusals=known.refusals,
                refusal=known.refusal,
                suspect=known.suspect,
                unnamed=known.unnamed,
                answered=worker.answered or known.answered,
            )
            if not worker.answered:
                # Registrations do not multiply the checks of a port that does not answer.
                wait = _AGAIN << min(known.failed_pings, 5)
                worker = attrs.evolve(
                    worker,
                    failed_pings=known.failed_pings,
                    last_error=known.last_error,
                    next_ping=min(known.next_ping, store.now + wait),
                )
        worker.write(store)
        return Registered(worker, secret)

    def _others(self, store: StoreTransaction, id: int) -> Sequence[WorkerRecord]:
        """Return the living entries of the same server under other names."""
        return [
            worker
            for worker in WorkerRecord.all(store)
            if worker.id != id
            and worker.living
            and worker.port == self.port
            and is_same_address(worker.address, self.by.address)
        ]

    def _may_replace(self, known: WorkerRecord) -> bool:
        """Return whether the request may replace an entry that is alive (DSP-10.3)."""
        by = self.by
        same_token = by.token is not None and by.token == known.token
        return (
            known.secret is None
            or by.confirmed
            or same_token
            or shows_secret(known, by.secret, required=by.required)
        )

    def _make_place(self, store: StoreTransaction) -> str | None:
        """Make place for a new entry; return why there is none (DSP-10.4)."""
        workers = WorkerRecord.all(store)
        settings = self.settings
        same = [worker for worker in workers if not worker.trusted and worker.peer == self.by.peer]
        if not self.by.trusted and len(same) >= settings.max_per_address:
            why = (
                f"{self.by.peer} has {len(same)} registrations, the maximum "
                "(workers.max_per_address), and each of them answers; resign some of them"
            )
        elif len(workers) >= settings.max_workers:
            same = [worker for worker in workers if not worker.trusted]
            why = (
                f"{len(workers)} workers are registered, the maximum (workers.max_workers); "
                "resign some of them"
            )
        else:
            return None
        idle = [worker for worker in same if not worker.jobs and not worker.credit]
        gone = [worker for worker in idle if not worker.living or worker.failed_pings]
        chosen = gone or [worker for worker in idle if not worker.answered] or idle
        if not chosen:
            return why
        oldest = min(chosen, key=lambda worker: worker.registered)
        store.remove(WorkerRecord.SORT, oldest.id)
        return None


@frozen
class Resigned:
    """The answer to a resignation."""

    worker: WorkerRecord | None
    """None: there is no such worker, or the request may not resign it."""
    forbidden: bool = False
    """Whether the request lacks the secret of the registration."""


@frozen
class Resign:
    """Gives a worker no more jobs; the checks of the dispatchers queue its jobs (DSP-5.6)."""

    settings: DispatcherSettings
    id: int
    secret: str | None = field(default=None, repr=False)
    required: bool = False
    """Whether the request must carry the secret of the registration (DSP-10.2)."""
    by_admin: bool = False
    """Whether the request may resign any worker (DSP-12.2)."""

    def run(self, store: StoreTransaction) -> Resigned:
        """Run the step."""
        worker = WorkerRecord.read(store, self.id)
        if worker is None:
            return Resigned(None)
        if not (self.by_admin or shows_secret(worker, self.secret, required=self.required)):
            return Resigned(None, forbidden=True)
        if worker.resigned:
            return Resigned(worker)
        until = store.now + self.settings.dead_worker_ping_interval
        worker = attrs.evolve(worker, resigned=True, next_ping=until)
        worker.write(store)
        return Resigned(worker)


@frozen
class ClaimPings:
    """Takes the health checks that are due (DSP-5.2), and removes workers that resigned."""

    settings: DispatcherSettings

    def run(self, store: StoreTransaction) -> Sequence[tuple[WorkerRecord, int]]:
        """Return each worker to check, and the time at which its check begins."""
        claimed = []
        for worker in WorkerRecord.all(store):
            if worker.next_ping > store.now:
                continue
            if worker.resigned:
                if not worker.jobs:
                    store.remove(WorkerRecord.SORT, worker.id)
                continue
            settings = self.settings
            pause = settings.dead_worker_ping_interval if worker.dead else settings.ping_interval
            worker = attrs.evolve(worker, next_ping=store.now + pause)
            worker.write(store)
            claimed.append((worker, store.now))
        return claimed


@frozen
class PingNoted:
    """What a health check showed."""

    cancellations: Sequence[Cancellation]
    changed: bool
    """Whether a worker came back or died, or jobs are to be queued."""


@frozen
class NotePing:
    """Writes the outcome of a health check."""

    settings: DispatcherSettings
    worker: int
    began: int
    """When the check was taken, by the clock of the store."""
    error: str | None
    """None after an answer."""
    jobs: Sequence[tuple[int, int | None]] | None = None
    """Number and attempt of each job that the worker names; None: it names none or some."""

    def run(self, store: StoreTransaction) -> PingNoted:
        """Run the step."""
        worker = WorkerRecord.read(store, self.worker)
        if worker is None or worker.resigned:
            return PingNoted((), False)
        if self.error is not None:
            return PingNoted((), self._fail(store, worker))
        changed = worker.dead or not worker.answered
        revived = worker.dead
        worker = attrs.evolve(
            worker,
            answered=True,
            last_pinged=store.now,
            failed_pings=0,
            last_error=None,
            dead=False,
            unnamed=self.jobs is None,
        )
        if revived:
            worker = attrs.evolve(worker, next_ping=store.now + self.settings.ping_interval)
        cancellations: list[Cancellation] = []
        if self.jobs is not None:
            worker, lost = self._compare(store, worker, cancellations)
            changed |= lost
        worker.write(store)
        return PingNoted(cancellations, changed)

    def _fail(self, store: StoreTransaction, worker: WorkerRecord) -> bool:
        """Count a failure (DSP-5.4); return whether the worker is given up by that."""
        failed = worker.failed_pings + 1
        settings = self.settings
        worker = attrs.evolve(worker, failed_pings=failed, last_error=self.error)
        removed_at = settings.max_failed_checks + settings.dead_worker_max_failed_checks
        if not worker.answered and failed >= settings.max_failed_checks and not worker.jobs:
            store.remove(WorkerRecord.SORT, worker.id)  # nobody was ever there (DSP-10.5)
            return False
        if worker.dead and failed >= removed_at:
            store.remove(WorkerRecord.SORT, worker.id)
            return True
        died = not worker.dead and failed >= settings.max_failed_checks
        if died:
            until = store.now + settings.dead_worker_ping_interval
            worker = attrs.evolve(worker, dead=True, next_ping=until)
        worker.write(store)
        return died

    def _compare(
        self, store: StoreTransaction, worker: WorkerRecord, cancellations: list[Cancellation]
    ) -> tuple[WorkerRecord, bool]:
        """Compare the worker's jobs with its dispatches (DSP-4.2 to DSP-4.4)."""
        named = dict(self.jobs or ())
        lost = missing = False
        for dispatch in DispatchRecord.all(store):
            if dispatch.worker != worker.id:
                continue
            attempt = named.get(dispatch.id, 0)
            if attempt is None or attempt == dispatch.attempt:
                del named[dispatch.id]
                if dispatch.id not in worker.jobs:
                    worker = attrs.evolve(worker, jobs=(*worker.jobs, dispatch.id))
                if dispatch.unknown or not dispatch.listed:
                    attrs.evolve(dispatch, unknown=0, listed=True).write(store)
            elif (dispatch.started or 0) + self.settings.post_timeout <= self.began:
                unlisted = dispatch.id not in worker.jobs
                unknown = 2 if unlisted else dispatch.unknown + 1
                attrs.evolve(dispatch, unknown=unknown, listed=False).write(store)
                lost |= unknown >= 2
                missing = True
        if missing:
            worker = attrs.evolve(worker, next_ping=min(worker.next_ping, store.now + _AGAIN))
        for id, attempt in islice(named.items(), _CANCELLED):
            cancellations.append(Cancellation(worker, id, attempt or 0, awaited=False))
        return worker, lost
