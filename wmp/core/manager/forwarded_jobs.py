"""Jobs of other managers at a forwarding manager: each lease is granted once below (spec §19).

Theory of operation. A forwarded job has a record from its arrival to its end, like a stored job. It
is granted once, under the number and the attempt that it has at its owner. However that lease ends,
the job ends here, and ``Answer`` reports the end: only the manager above may grant the job again.
So the owner counts losses, retries and runs as for a worker of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

from attrs import define, evolve

from wmp.actions import Answer, Notify
from wmp.core.manager.job_lifecycle import JobInput, JobLimits, JobRecord
from wmp.core.manager.leases import Leases
from wmp.core.manager.ownership import Ownership
from wmp.core.manager.queues import Queue, Queues
from wmp.core.manager.remote_worker import ManagerOutbound, RemoteWorker
from wmp.core.manager.worker_selection import WorkerSelection
from wmp.core.protocol.resources import Offered
from wmp.events import Forwarded
from wmp.message import Columns, ForwardedKind, Limits, Outcome, Peer, counted
from wmp.retry import Retry

_OWN_RETRY: Final = Retry(times=0)
"""Stands for settings that only the owner of a job knows (WMP-6.26)."""

_RESULTS: Final = frozenset((Outcome.OK, Outcome.ERROR))


@define(eq=False)
class ForwardedJobs:
    """The jobs of other managers that this manager has."""

    outbound: ManagerOutbound
    leases: Leases
    queues: Queues
    selection: WorkerSelection
    ownership: Ownership

    # -- from the manager above

    def add(self, event: Forwarded, now: float, *, draining: bool) -> Queue | None:
        """Queue jobs, or refuse them (WMP-19.8, 19.10).

        Args:
            event: The jobs.
            now: Seconds.
            draining: Whether the manager drains.

        Returns:
            The queue in which the jobs wait; None for refused jobs.
        """
        kind = event.kind
        if refusal := self._why_not(kind):
            self._answer(event.ids, Outcome.REFUSED, refusal.encode(errors="replace"))
            return None
        if draining or self.ownership.standby:
            self._answer(event.ids, Outcome.CANCELLED, b"")
            return None
        self.ownership.note_forwarded(kind.owner)
        queue = self.queues.get(evolve(kind, passed=(*kind.passed, self.outbound.me[0])))
        jobs = _records(event, queue)
        for job in jobs:
            self.leases.keep(job)
        self.leases.forwarded += len(jobs)
        queue.join_all(jobs, 0)
        return queue

    def _why_not(self, kind: ForwardedKind) -> str:
        """Return why no worker of this manager can do the jobs of a kind; empty if one can."""
        me = self.outbound.me[0]
        if me in kind.passed or self.ownership.is_own(kind.owner):
            return "the job came back to a manager that it has passed: managers forward in a circle"
        if len(kind.passed) >= Limits.HOPS:
            passed = counted(len(kind.passed), "forwarding manager")
            return f"the job has passed {passed}, the limit"
        if not self.selection.profiles.suits(kind.role, dict(kind.needs)):
            needs = dict(kind.needs)
            return f"no worker of this forwarding manager does role {kind.role!r} with {needs}"
        return ""

    def _answer(self, ids: Sequence[int], outcome: Outcome, payload: bytes) -> None:
        columns = [[value] * len(ids) for value in (outcome, payload, None, None)]
        self.outbound.actions.append(Answer(ids, *columns))  # type: ignore[arg-type]

    # -- from workers

    def done(self, worker: RemoteWorker, owner: Peer, columns: Columns, codec: str) -> int:
        """Pass results to the manager above; return the number of those without a lease."""
        leases, stale = self.leases, 0
        none = repeat(None)
        for id, attempt, outcome, payload, text, wait in zip(
            columns.ids,
            columns.attempts,
            columns.outcomes or (),
            columns.payloads or (),
            columns.texts or none,
            columns.waits_ms or none,
            strict=False,
        ):
            job = self._held(worker, owner, id, attempt)
            if job is None:
                stale += 1
                continue
            leases.release(worker, job)
            job.step(JobInput.RESULT)
            worker.done += outcome in _RESULTS
            other = codec if job.kind.codec != codec else None
            leases.answer(job, Outcome(outcome), payload, text, wait, other)
        return stale

    def status(self, worker: RemoteWorker, owner: Peer, columns: Columns) -> None:
        """Pass progress to the manager above (WMP-19.7)."""
        none = repeat(None)
        for id, attempt, fraction, text in zip(
            columns.ids,
            columns.attempts,
            columns.fractions or none,
            columns.texts or none,
            strict=False,
        ):
            job = self._held(worker, owner, id, attempt)
            if job is not None:
                self.outbound.actions.append(Notify(job.id, fraction, text))

    def _held(
        self, worker: RemoteWorker, owner: Peer, number: int, attempt: int
    ) -> JobRecord | None:
        """Return the record of a job if a worker holds this attempt of it."""
        id = worker.forwarded.get((owner, number), 0)
        return self.leases.record(id) if self.leases.holds(worker, id, attempt) else None

    # -- what the workers offer

    def offer(self, *, draining: bool) -> Offered:
        """Return what the workers offer together, for the managers above (WMP-19.2).

        The cost grows with the number of workers.

        Args:
            draining: Whether the manager drains.
        """
        if draining or self.ownership.standby:
            return Offered((), {"slots": 0}, (self.outbound.me[0],))
        roles: dict[str, None] = {}
        resources: dict[str, int] = {"slots": 0}
        forwards: dict[bytes, None] = {self.outbound.me[0]: None}
        leased = 0
        for worker in self.leases.workers.values():
            leased += worker.leased
            if not worker.circular:
                forwards.update(dict.fromkeys(worker.forwards))
        for names, amounts, members in self.selection.profiles.totals():
            roles.update(dict.fromkeys(names))
            for name, amount in amounts:
                resources[name] = min(resources.get(name, 0) + amount * members, Limits.UINT)
        own = leased + self.queues.waiting - self.leases.forwarded
        resources["slots"] = max(0, resources["slots"] - own)
        return Offered(
            tuple(sorted(roles)[: Limits.ROLES]),
            dict(sorted(resources.items())[: Limits.ROLES]),
            tuple(forwards)[: Limits.ROLES],
        )


def _records(event: Forwarded, queue: Queue) -> list[JobRecord]:
    """Make the records of forwarded jobs. Each keeps the attempt that it has at its owner."""
    none: Any = repeat(None)
    records = []
    for id, number, attempt, payload, deadline, begin_by, limit, failed, begun in zip(
        event.ids,
        event.numbers,
        event.attempts,
        event.payloads,
        event.deadlines or none,
        event.begin_by or none,
        event.limits or none,
        repeat(0) if event.failed is None else event.failed,
        event.begun or none,
        strict=False,
    ):
        # A worker gets the deadline by itself. ``begin_by`` is never later than the deadline.
        expires_at = None if begin_by == deadline else begin_by
        limits = None
        if expires_at is not None or limit is not None or failed is None:
            limits = JobLimits(expires_at, limit, _OWN_RETRY if failed is None else None)
        record = JobRecord(id, payload, queue.kind, 0, 0, deadline, limits=limits, number=number)
        record.attempt, record.reserved, record.failed = attempt, True, failed or 0
        record.unbegun = 0 if begun is None else max(0, attempt - 1 - begun)
        records.append(record)
    return records
