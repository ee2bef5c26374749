"""Jobs that were granted, in columns for as long as nothing but their result happens to them.

Theory of operation. Most jobs are leased once and end with a result; of those nothing is kept
a job but where it stands. A *grant* is what one TAKE took out of one batch: all of its jobs are
leased for the first time, by one worker. Results come for many of them at once and are taken in
at once. Whatever else happens to one of them (it is cancelled, refused, lost, its time passes)
turns the whole grant into records, once, and from there on goes by the table of
:mod:`wmp.core.manager.job_lifecycle`, a job at a time.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import repeat
from math import ceil
from typing import TYPE_CHECKING, Final

from attrs import define, field

from wmp.actions import End, Resolve
from wmp.core.manager.job_lifecycle import TRANSITIONS, JobInput, JobRecord, JobState
from wmp.core.manager.timers import ManagerTimers
from wmp.message import Columns, Frame, Outcome

if TYPE_CHECKING:
    from wmp.core.manager.queues import Queue
    from wmp.core.manager.remote_worker import RemoteWorker

__all__ = ["ENDS", "Grant", "Leases", "Part"]

ENDS: Final = {int(Outcome.OK): End.OK, int(Outcome.ERROR): End.ERROR}
"""The outcomes that are a job's end, whatever its manager thinks of it."""

# The table's rows that are asked for every job, so that it is not asked a job at a time.
_GRANTED: Final = TRANSITIONS[JobState.QUEUED, JobInput.GRANT]
assert TRANSITIONS[_GRANTED, JobInput.RESULT] is JobState.ENDED


@define(eq=False)
class Grant:
    """Jobs of one batch that went in one TAKE, each leased for the first time."""

    queue: Queue
    priority: int
    retries: int
    deadline: float | None
    ids: list[int]
    """Growing; those that have ended stay here."""
    payloads: Sequence[Frame]
    left: int
    """How many of them have not ended."""
    worker: RemoteWorker | None = None
    """Who holds the leases; None until the TAKE is made."""
    take: int = 0
    """Number of that TAKE."""

    def records(self, holders: dict[int, JobRecord | Grant]) -> Iterator[JobRecord]:
        """The records of those that have not ended: ``holders`` leads from them to here."""
        for id, payload in zip(self.ids, self.payloads, strict=True):
            if holders.get(id) is self:
                yield JobRecord(
                    id=id,
                    payload=payload,
                    queue=self.queue,
                    priority=self.priority,
                    retries=self.retries,
                    deadline=self.deadline,
                    state=_GRANTED,
                    attempt=1,
                    worker=self.worker,
                    take=self.take,
                )


Part = JobRecord | Grant
"""Jobs that a TAKE brings: one that has a record, or many that have none yet."""


@define(eq=False)
class Leases:
    """All jobs of a manager that were granted and have not ended.

    Invariant: ``_holders`` leads from each of them to its record, or to its grant. A record
    stands in its worker's ``leases`` while it is leased, a grant in its worker's ``grants``
    while any of its jobs has not ended; ``granted`` of a worker counts those jobs. What it
    ``held`` of a kind are those of both.
    """

    timers: ManagerTimers
    _holders: dict[int, Part] = field(factory=dict)

    def __len__(self) -> int:
        return len(self._holders)

    def lease(self, worker: RemoteWorker, parts: Sequence[Part], now: float) -> Columns:
        """Give jobs to a worker, in its next numbered message; returns that one's columns."""
        number = worker.stream.sent + 1
        ids: list[int] = []
        attempts: list[int] = []
        payloads: list[Frame] = []
        deadlines: list[float | None] = []
        for part in parts:
            part.worker, part.take = worker, number
            deadline = part.deadline
            if type(part) is JobRecord:
                part.state = _GRANTED  # a queue gives out no others than those that are queued
                part.attempt += 1
                worker.leases[part.id] = self._holders[part.id] = part
                ids.append(part.id)
                attempts.append(part.attempt)
                payloads.append(part.payload)
                deadlines.append(deadline)
            elif type(part) is Grant:
                count = part.left
                worker.grants[part.ids[0]] = part
                worker.granted += count
                self._holders.update(dict.fromkeys(part.ids, part))
                ids += part.ids
                attempts += [1] * count
                payloads += part.payloads
                deadlines += [deadline] * count
        worker.hold(parts[0].queue.kind, len(ids))  # a TAKE brings jobs of one kind (WMP-4.6)
        timed = deadlines.count(None) < len(deadlines)
        left = [_left(at, now) for at in deadlines] if timed else None
        return Columns(ids=ids, attempts=attempts, left=left, payloads=payloads)

    def settle(self, worker: RemoteWorker, columns: Columns) -> Resolve | None:
        """Take in results that all are of grants of ``worker``; None, and nothing has changed,
        when there is any that must be looked at by itself (WMP-6.2, 6.3)."""
        ids, outcomes, payloads = columns.ids, columns.outcomes or (), columns.payloads or ()
        count = len(ids)
        if worker.granted < count or columns.attempts.count(1) < count:
            return None
        ends: tuple[End | None, ...]
        if outcomes.count(Outcome.OK) == count:
            ends = (End.OK,) * count
        else:
            ends = tuple(map(ENDS.get, outcomes))
        holders = list(map(self._holders.pop, ids, repeat(None)))
        different = set(holders)
        if None in ends or any(
            type(part) is not Grant or part.worker is not worker for part in different
        ):
            self._holders.update(
                (id, part) for id, part in zip(ids, holders, strict=True) if part is not None
            )
            return None
        timed = False
        for grant in different:
            assert type(grant) is Grant
            ended = count if len(different) == 1 else holders.count(grant)
            grant.left -= ended
            worker.hold(grant.queue.kind, -ended)
            timed = timed or grant.deadline is not None
            if not grant.left:
                del worker.grants[grant.ids[0]]
        worker.granted -= count
        if timed:
            self.timers.clear_all(ids)
        return Resolve(tuple(ids), ends, tuple(payloads), (1,) * count)  # type: ignore[arg-type]

    def take_back(self, worker: RemoteWorker, id: int, attempt: int) -> JobRecord | None:
        """End the lease of a job that ``worker`` holds in this very attempt; its record."""
        job = self.record(id) if self.holds(worker, id, attempt) else None
        if job is not None:
            self.release(worker, job)
        return job

    def release(self, worker: RemoteWorker, job: JobRecord) -> None:
        """The lease of a job is over."""
        job.worker = None
        del worker.leases[job.id]
        worker.hold(job.queue.kind, -1)

    def holds(self, worker: RemoteWorker, id: int, attempt: int) -> bool:
        """Whether ``worker`` holds a job in this very attempt."""
        part = self._holders.get(id)
        if part is None or part.worker is not worker:
            return False
        return attempt == (part.attempt if type(part) is JobRecord else 1)

    def record(self, id: int) -> JobRecord | None:
        """The record of a job, which from now on goes by itself."""
        part = self._holders.get(id)
        return self._break(part)[id] if type(part) is Grant else part  # type: ignore[return-value]

    def of(self, worker: RemoteWorker) -> list[JobRecord]:
        """The records of all that ``worker`` holds, oldest first."""
        for grant in tuple(worker.grants.values()):
            self._break(grant)
        return [job for _, job in sorted(worker.leases.items())]

    def missing(self, worker: RemoteWorker, take: int, held: Container[int]) -> list[JobRecord]:
        """The records of what ``worker`` was given up to a TAKE and does not hold, oldest first."""
        for grant in tuple(worker.grants.values()):
            if grant.take <= take and not all(id in held for id in self.open(grant)):
                self._break(grant)
        leases = sorted(worker.leases.items())
        return [job for id, job in leases if job.take <= take and id not in held]

    def remove(self, job: JobRecord) -> None:
        """A job has ended."""
        self._holders.pop(job.id, None)
        if job.deadline is not None:
            self.timers.clear(job.id)

    def all(self) -> Iterator[JobRecord]:
        """The records of all, to be looked at only."""
        for part in dict.fromkeys(self._holders.values()):
            if type(part) is JobRecord:
                yield part
            elif type(part) is Grant:
                yield from part.records(self._holders)

    def open(self, grant: Grant) -> Iterator[int]:
        """Those of a grant's jobs that have not ended."""
        return (id for id in grant.ids if self._holders.get(id) is grant)

    def _break(self, grant: Grant) -> dict[int, JobRecord]:
        """From now on each job of a grant goes by itself; their records, by number."""
        worker = grant.worker
        assert worker is not None
        jobs = {job.id: job for job in grant.records(self._holders)}
        self._holders.update(jobs)
        worker.leases.update(jobs)
        worker.granted -= len(jobs)
        del worker.grants[grant.ids[0]]
        return jobs


def _left(deadline: float | None, now: float) -> int | None:
    # Rounded up: the worker must not give a job up before its manager does (WMP-6.7).
    return None if deadline is None else max(0, ceil((deadline - now) * 1000))
