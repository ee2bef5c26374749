"""Leases: which worker holds which job, and how a job ends.

Theory of operation. Most jobs are leased once and end with a result. The manager keeps no record of
such a job, only the grant that contains the job. A *grant* is the jobs of one batch in one TAKE:
all of them are leased for the first time, by one worker. Results come for many of them at once and
are settled at once. Any other event of one of its jobs (cancelled, refused, lost, timed out) turns
the whole grant into records. From then on each job follows the table of
:mod:`wmp.core.manager.job_lifecycle`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from itertools import repeat
from math import ceil
from typing import Final, TypeAlias

from attrs import define, evolve, field

from wmp.actions import Answer, End, FailedAttempt, Resolve
from wmp.core.manager.job_lifecycle import TRANSITIONS, JobInput, JobRecord, JobState
from wmp.core.manager.queues import GRANTED, Grant, Part
from wmp.core.manager.remote_worker import ManagerOutbound, RemoteWorker
from wmp.core.manager.timers import ManagerTimers
from wmp.core.protocol.checksums import checksums_of
from wmp.message import Columns, ForwardedKind, Frame, Outcome

Returned = tuple[JobRecord, int, Frame, str | None, int | None]
"""The record of a job whose lease ended without a result or with an error, and the outcome, the
payload, the text and the wait of DONE.
"""

EndedJobs: TypeAlias = tuple[
    list[int], list[End], list[Frame], list[int], dict[int, Sequence[FailedAttempt]]
]
"""Numbers, ends, payloads and attempts of ended jobs, and the histories of some by number."""

BEGUN: Final = "the job may have begun"
"""Text of a forwarded job without a result that did not end before its TAKE left (WMP-6.35)."""

_OUTCOMES: Final = {
    End.CANCELLED: Outcome.CANCELLED,
    End.TIMEOUT: Outcome.CANCELLED,
    End.LOST: Outcome.LOST,
}
"""The answer to the manager above for each end without a result."""

_ENDS: Final = {int(Outcome.OK): End.OK, int(Outcome.ERROR): End.ERROR}
"""The outcomes that end a job, whatever the state of its lease."""

# ``settle`` ends jobs without looking each job up in the table.
assert TRANSITIONS[JobState.LEASED, JobInput.RESULT] is JobState.ENDED
assert TRANSITIONS[JobState.CANCELLING, JobInput.RESULT] is JobState.ENDED


@define(eq=False)
class Leases:
    """All jobs of a manager that were granted and have not ended.

    Invariant: ``_parts`` maps the number of each such job to its record or its grant. A leased
    record is in its worker's ``leases``. A grant is in its worker's ``grants`` until all of its
    jobs have ended. A worker's ``granted`` counts the jobs of its grants, and its ``held`` counts
    all its jobs by kind. A record without a holder is queued.
    """

    outbound: ManagerOutbound
    timers: ManagerTimers
    workers: dict[bytes, RemoteWorker] = field(factory=dict)
    """All known workers by identity; only known workers hold leases."""
    ended: Counter[End] = field(factory=Counter)
    runs: dict[int, tuple[str, float | None]] = field(factory=dict)
    """Worker and start of the leases of stored jobs that ended in this step, by number."""
    _parts: dict[int, Part] = field(factory=dict)
    _ids: list[int] = field(factory=list)
    """Numbers of the jobs that ended in this step.

    Each of the next three lists contains one entry for each number.
    """
    _ends: list[End] = field(factory=list)
    _payloads: list[Frame] = field(factory=list)
    _attempts: list[int] = field(factory=list)
    _histories: dict[int, Sequence[FailedAttempt]] = field(factory=dict)
    """Histories of the jobs that were tried again, by number of the job."""
    _codecs: dict[int, str] = field(factory=dict)
    """Codecs of results that differ from the codec of the job, by number of the job."""
    forwarded: int = 0
    """Number of open jobs of other managers, with and without a lease."""
    _answers: dict[str | None, list[tuple[int, Outcome, Frame, str | None, int | None]]] = field(
        factory=dict
    )
    """Ends of forwarded jobs of this step, by the codec of their results."""

    def __len__(self) -> int:
        return len(self._parts)

    # -- a lease begins

    def lease(self, worker: RemoteWorker, parts: Sequence[Part], now: float) -> Columns:
        """Lease jobs to a worker in its next numbered message; return that message's columns."""
        number, identity = worker.stream.sent + 1, worker.identity
        ids: list[int] = []
        attempts: list[int] = []
        payloads: list[Frame] = []
        deadlines: list[float | None] = []
        begun: list[int | None] | None = None
        limited = False
        for part in parts:
            part.holder, part.take = identity, number
            deadline = part.deadline
            limited = limited or part.limits is not None
            if type(part) is JobRecord:
                limited = limited or part.failed > 0
                # The table allows a grant only from QUEUED, and all jobs of a queue are in this
                # state.
                part.state = GRANTED
                if part.reserved:
                    part.reserved = False
                    if not part.number:
                        part.leased_at, part.reported = now, False
                else:
                    part.attempt += 1
                worker.leases[part.id] = self._parts[part.id] = part
                if part.unbegun:
                    begun = begun or []
                    begun += [None] * (len(ids) - len(begun))
                    begun.append(max(0, part.attempt - 1 - part.unbegun))  # WMP-6.34
                if part.number:
                    self._forward(worker, part)
                ids.append(part.number or part.id)
                attempts.append(part.attempt)
                payloads.append(part.payload)
                deadlines.append(deadline)
            elif type(part) is Grant:
                count = part.left
                worker.grants[part.ids[0]] = part
                worker.granted += count
                self._parts.update(dict.fromkeys(part.ids, part))
                ids += part.ids
                attempts += [1] * count
                payloads += part.payloads
                deadlines += [deadline] * count
        timed = deadlines.count(None) < len(deadlines)
        left = [_left(at, now) for at in deadlines] if timed else None
        columns = Columns(ids=ids, attempts=attempts, left_ms=left, payloads=payloads)
        if parts[0].kind.checksum:
            columns = evolve(columns, checksums=checksums_of(payloads))
        if begun is not None:
            columns = evolve(columns, begun=begun + [None] * (len(ids) - len(begun)))
        return _limited(columns, parts, now) if limited else columns

    # -- a lease ends: results

    def settle(self, worker: RemoteWorker, columns: Columns, codec: str) -> bool:
        """Accept results that all end current leases of ``worker``.

        Args:
            worker: The worker.
            columns: The columns of its DONE.
            codec: Codec of the results.

        Returns:
            False, without any change, when a result needs a check of its own.
        """
        ids, attempts = columns.ids, columns.attempts
        outcomes, payloads = columns.outcomes or (), columns.payloads or ()
        count = len(ids)
        if outcomes.count(Outcome.OK) == count:
            ends = [End.OK] * count
        else:
            ends = [_ENDS[outcome] for outcome in outcomes if outcome in _ENDS]
            if len(ends) < count or columns.waits_ms is not None:
                return False
        held = list(map(self._parts.pop, ids, repeat(None)))
        # One grant may have hundreds of these jobs, so each grant is checked once.
        different = set(held)
        parts = [part for part in different if part is not None and part.holder == worker.identity]
        first = attempts.count(1) == count and all(part.attempt == 1 for part in parts)
        again = End.ERROR in ends and any(map(_may_be_tried_again, parts))
        if (
            len(parts) < len(different)
            or again
            or not (first or list(attempts) == [part.attempt for part in held if part is not None])
        ):
            rows_back = zip(ids, held, strict=True)
            self._parts.update((id, part) for id, part in rows_back if part is not None)
            return False
        timed = False
        for part in parts:
            if type(part) is Grant:
                ended = count if len(parts) == 1 else held.count(part)
                part.left -= ended
                worker.granted -= ended
                if not part.left:
                    del worker.grants[part.ids[0]]
            elif type(part) is JobRecord:
                ended = 1
                part.state, part.holder = JobState.ENDED, None
                del worker.leases[part.id]
                if part.leased_at is not None:
                    self.runs[part.id] = worker.name, part.leased_at
            worker.hold(part.kind, -ended)
            if part.kind.codec != codec:
                same = (id for id, leased in zip(ids, held, strict=True) if leased is part)
                self._codecs.update(dict.fromkeys(same, codec))
            timed = timed or part.deadline is not None or part.limits is not None
        if timed:
            self.timers.clear_all(ids)
        worker.done += count
        self._ids += ids
        self._ends += ends
        self._payloads += payloads
        self._attempts += attempts
        return True

    def settle_each(
        self, worker: RemoteWorker, columns: Columns, codec: str
    ) -> tuple[list[int], list[Returned]]:
        """Accept results one by one (WMP-6.2, 6.3).

        Returns:
            The rows of the results without a current lease, and the jobs that came back without a
            result.
        """
        stale: list[int] = []
        back: list[Returned] = []
        outcomes, payloads = columns.outcomes or (), columns.payloads or ()
        none = [None] * len(outcomes)
        for row, id, attempt, outcome, payload, text, wait in zip(
            range(len(columns.ids)),
            columns.ids,
            columns.attempts,
            outcomes,
            payloads,
            columns.texts or none,
            columns.waits_ms or none,
            strict=True,
        ):
            job = self.record(id) if self.holds(worker, id, attempt) else None
            if job is None:
                stale.append(row)
                continue
            self.release(worker, job)
            end = _ENDS.get(outcome)
            fails = end is End.ERROR and (wait is not None or _may_be_tried_again(job))
            if end is None or fails:
                back.append((job, outcome, payload, text, wait))
            else:
                worker.done += 1
                job.step(JobInput.RESULT)
                if job.kind.codec != codec:
                    self._codecs[job.id] = codec
                self.end(job, end, payload)
        return stale, back

    # -- the end of a job

    def release(self, worker: RemoteWorker, job: JobRecord) -> None:
        """End the lease of a job."""
        if job.leased_at is not None:
            self.runs[job.id] = worker.name, job.leased_at
        job.holder = None
        del worker.leases[job.id]
        worker.hold(job.kind, -1)
        if job.number:
            worker.release_forwarded(job)

    def end(self, job: JobRecord, end: End, payload: Frame) -> None:
        """Drop a job that has reached ENDED; ``report`` informs its submitter."""
        if job.number:
            text = BEGUN if job.take else None
            self.answer(job, _OUTCOMES[end], payload if end is End.LOST else b"", text)
            return
        self._parts.pop(job.id, None)
        if job.deadline is not None or job.limits is not None:
            self.timers.clear(job.id)
        self._ids.append(job.id)
        self._ends.append(end)
        self._payloads.append(payload)
        self._attempts.append(job.attempt)
        if job.history is not None and end is not End.OK:
            self._histories[job.id] = tuple(job.history)

    def answer(
        self,
        job: JobRecord,
        outcome: Outcome,
        payload: Frame,
        text: str | None,
        wait: int | None = None,
        codec: str | None = None,
    ) -> None:
        """Drop a forwarded job that has ended; ``report`` answers the manager above."""
        self.forget(job)
        self.forwarded -= 1
        self._answers.setdefault(codec, []).append((job.id, outcome, payload, text, wait))

    def _forward(self, worker: RemoteWorker, job: JobRecord) -> None:
        """Lease a forwarded job; the worker answers no earlier attempt of it (WMP-4.14)."""
        assert type(job.kind) is ForwardedKind
        key = job.kind.owner, job.number
        earlier = self._parts.get(worker.forwarded.get(key, 0))
        if type(earlier) is JobRecord:
            self.release(worker, earlier)
            earlier.step(JobInput.RESULT)
            self.answer(earlier, Outcome.CANCELLED, b"", BEGUN)
        worker.forwarded[key] = job.id

    def adopt(self, worker: RemoteWorker, job: JobRecord, now: float) -> None:
        """Lease a job to the worker that holds it already (WMP-14.7)."""
        self.keep(job)
        job.step(JobInput.GRANT)
        job.reserved = False
        job.leased_at, job.reported = now, False
        job.holder, job.take = worker.identity, 0
        worker.leases[job.id] = job
        worker.hold(job.kind, 1)

    def keep(self, job: JobRecord) -> None:
        """Add the record of a stored job that waits for a worker."""
        self._parts[job.id] = job
        if job.deadline is None and job.limits is None:
            return
        expires_at = None if job.limits is None else job.limits.expires_at
        times = [at for at in (job.deadline, expires_at) if at is not None]
        if times:
            self.timers.set(job.id, min(times))

    def forget(self, job: JobRecord) -> None:
        """Forget a job without a lease; its end is not reported."""
        self._parts.pop(job.id, None)
        if job.deadline is not None or job.limits is not None:
            self.timers.clear(job.id)

    def take_ended(self, below: int) -> EndedJobs | None:
        """Take out the jobs that ended in this step and have numbers below ``below``.

        Returns:
            Numbers, ends, payloads, attempts, and histories by number; None without such jobs.
        """
        ids = self._ids
        if not ids or min(ids) >= below:
            return None
        histories, self._histories = self._histories, {}
        if max(ids) < below:
            ended = (ids, self._ends, self._payloads, self._attempts, histories)
            self._ids, self._ends, self._payloads, self._attempts = [], [], [], []
            return ended
        rows = list(zip(ids, self._ends, self._payloads, self._attempts, strict=True))
        taken: EndedJobs = ([], [], [], [], {})
        for column in (self._ids, self._ends, self._payloads, self._attempts):
            column.clear()
        for id, end, payload, attempt in rows:
            if id < below:
                columns = taken
                if id in histories:
                    taken[4][id] = histories[id]
            else:
                columns = (
                    self._ids,
                    self._ends,
                    self._payloads,
                    self._attempts,
                    self._histories,
                )
                if id in histories:
                    self._histories[id] = histories[id]
            columns[0].append(id)
            columns[1].append(end)
            columns[2].append(payload)
            columns[3].append(attempt)
        return taken

    def report_results(
        self, ids: Sequence[int], payloads: Sequence[Frame], attempts: Sequence[int]
    ) -> None:
        """Report results that were accepted before."""
        self._ids += ids
        self._ends += repeat(End.OK, len(ids))
        self._payloads += payloads
        self._attempts += attempts

    def report_end(
        self,
        id: int,
        end: End,
        payload: Frame,
        attempt: int,
        history: Sequence[FailedAttempt] | None,
    ) -> None:
        """Report the end of a job whose end was decided before."""
        self._ids.append(id)
        self._ends.append(end)
        self._payloads.append(payload)
        self._attempts.append(attempt)
        if history is not None and end is not End.OK:
            self._histories[id] = history

    def report(self) -> None:
        """Report all jobs that ended in this step, in one last action."""
        if self._answers:
            answers, self._answers = self._answers, {}
            for codec, rows in answers.items():
                ids, outcomes, payloads, texts, waits = zip(*rows, strict=True)
                answer = Answer(ids, outcomes, payloads, texts, waits, codec)
                self.outbound.actions.append(answer)
        if not self._ids:
            return
        ends = tuple(self._ends)
        histories, self._histories = self._histories, {}
        codecs, self._codecs = self._codecs, {}
        resolve = Resolve(
            tuple(self._ids),
            ends,
            tuple(self._payloads),
            tuple(self._attempts),
            histories or None,
            codecs or None,
        )
        self.outbound.actions.append(resolve)
        if ends.count(ends[0]) == len(ends):
            # Hashing an Enum runs Python code, so the value is looked up once for all jobs.
            self.ended[ends[0]] += len(ends)
        else:
            self.ended.update(ends)
        for column in (self._ids, self._ends, self._payloads, self._attempts):
            column.clear()

    # -- holders of leases

    def holds(self, worker: RemoteWorker, id: int, attempt: int) -> bool:
        """Return whether ``worker`` holds this attempt of the job."""
        part = self._parts.get(id)
        return part is not None and part.holder == worker.identity and part.attempt == attempt

    def is_leased(self, id: int) -> bool:
        """Return whether a worker holds a job."""
        part = self._parts.get(id)
        return part is not None and part.holder is not None

    def record(self, id: int) -> JobRecord | None:
        """Return the record of a job. If the job is in a grant, the grant becomes records."""
        part = self._parts.get(id)
        return self._break(part)[id] if type(part) is Grant else part  # type: ignore[return-value]

    def of(self, worker: RemoteWorker) -> list[JobRecord]:
        """Return the records of all jobs of ``worker``, oldest first."""
        for grant in tuple(worker.grants.values()):
            self._break(grant)
        return [job for _, job in sorted(worker.leases.items())]

    def missing(self, worker: RemoteWorker, take: int, held: Container[int]) -> list[JobRecord]:
        """Return records of jobs that ``worker`` should hold up to a TAKE and ``held`` lacks."""
        for grant in tuple(worker.grants.values()):
            if grant.take <= take and not all(id in held for id in self.open(grant)):
                self._break(grant)
        leases = sorted(worker.leases.items())
        return [job for id, job in leases if job.take <= take and id not in held]

    def of_take(self, worker: RemoteWorker, take: int) -> list[JobRecord]:
        """Return the records of the jobs of one TAKE, oldest first."""
        for grant in tuple(worker.grants.values()):
            if grant.take == take:
                self._break(grant)
        return [job for _, job in sorted(worker.leases.items()) if job.take == take]

    def open(self, grant: Grant) -> Iterator[int]:
        """Return the numbers of the jobs of a grant that have not ended."""
        return (id for id in grant.ids if self._parts.get(id) is grant)

    def _break(self, grant: Grant) -> dict[int, JobRecord]:
        """Replace a grant by records, one for each job that has not ended; return the records."""
        assert grant.holder is not None
        worker = self.workers[grant.holder]
        jobs = {job.id: job for job in grant.records(self._parts)}
        self._parts.update(jobs)
        worker.leases.update(jobs)
        worker.granted -= len(jobs)
        del worker.grants[grant.ids[0]]
        return jobs


def _has_retry(part: Part) -> bool:
    """Return whether jobs have settings of their own for errors."""
    return part.limits is not None and part.limits.retry is not None


def _may_be_tried_again(part: Part) -> bool:
    """Return whether an error of these jobs needs a closer look."""
    return _has_retry(part) or (type(part) is JobRecord and part.history is not None)


def _limited(columns: Columns, parts: Sequence[Part], now: float) -> Columns:
    """Add the columns for the limits of the jobs (WMP-6.19, 6.21)."""
    expires: list[int | None] = []
    runs: list[int | None] = []
    failed: list[int | None] = []
    for part in parts:
        count = 1 if type(part) is JobRecord else len(part.ids)  # type: ignore[union-attr]
        limits = part.limits
        expires += [None if limits is None else _left(limits.expires_at, now)] * count
        runs += [None if limits is None else _left(limits.run, 0.0)] * count
        own = limits is not None and limits.retry is not None
        failed += [None if own else part.failed if type(part) is JobRecord else 0] * count
    return evolve(
        columns,
        expires_ms=expires if expires.count(None) < len(expires) else None,
        limits_ms=runs if runs.count(None) < len(runs) else None,
        failed=failed if any(failures != 0 for failures in failed) else None,
    )


def _left(deadline: float | None, now: float) -> int | None:
    # Round up: the worker must not give a job up before its manager does (WMP-6.7).
    return None if deadline is None else max(0, ceil((deadline - now) * 1000))
