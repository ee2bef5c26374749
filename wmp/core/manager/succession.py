"""Takes over the jobs that other managers granted, and that their workers still hold.

Theory of operation (spec §14). A worker lists the jobs of the store that it holds, and sends
results of jobs that are not leased to it here. Only the store can decide what becomes of such a
job. So the next write adopts listed jobs, and reads the rows of all these jobs. The answer shows
which jobs this instance has now, and which attempts are current.

This module also knows which DONEs are not written yet. Until they are, messages to the worker have
``kept`` (WMP-14.3), and the worker keeps the results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from typing import Final

from attrs import define, field

from wmp.actions import End, Note
from wmp.core.manager.failures import Failures
from wmp.core.manager.job_ends import JobEnds
from wmp.core.manager.job_lifecycle import JobInput, JobRecord, JobState
from wmp.core.manager.leases import Leases
from wmp.core.manager.ownership import Ownership
from wmp.core.manager.remote_worker import ManagerOutbound, RemoteWorker
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.core.manager.stored_changes import StoredChanges
from wmp.core.manager.stored_records import failure_of, record_of
from wmp.core.protocol.outbound import Stream
from wmp.message import Columns, Command, Field, Frame, Limits, Outcome, printable
from wmp.store.contract import StoredJob
from wmp.store.stored_job import OPEN, StoredJobInput, StoredJobState

_MAX_QUESTIONS: Final = 100_000
"""Limit of the jobs about which the next write asks the store."""

_State = StoredJobState
_In = StoredJobInput


@define(eq=False)
class UnwrittenDone:
    """A DONE whose results are acknowledged and not written."""

    number: int
    step: int
    """The write with the last of its results."""
    unanswered: int = 0
    """Number of its results about which the store is asked first."""


@define(eq=False)
class UnwrittenDones:
    """The DONEs of one session whose results are not written."""

    stream: Stream
    entries: deque[UnwrittenDone] = field(factory=deque)
    """The DONEs, oldest first."""


@define(eq=False)
class StoreQuestion:
    """A worker holds a job that is not leased to it here, or has a result of such a job."""

    worker: RemoteWorker
    stream: Stream
    """The session of the worker at that time."""
    attempt: int
    done: UnwrittenDone | None = None
    """The DONE with the result; None for a listed job."""
    outcome: int = Outcome.OK
    payload: Frame = b""
    text: str | None = None
    wait: int | None = None


@define(eq=False)
class Succession:
    """Takes over jobs whose leases began elsewhere.

    Args:
        outbound: Takes actions.
        leases: All jobs that are leased or have a record.
        ownership: The owners of jobs on the wire.
        changes: The changes that wait for the store.
        job_ends: Ends jobs without results.
        failures: Settles jobs whose attempt failed.
    """

    outbound: ManagerOutbound
    leases: Leases
    ownership: Ownership
    changes: StoredChanges
    job_ends: JobEnds
    failures: Failures
    number: int = 0
    """Number of this instance in the store."""
    step: int = 1
    """Number of the next write."""
    questions: dict[int, StoreQuestion] = field(factory=dict)
    """Jobs about which the next write asks, by number."""
    _pending: dict[int, StoreQuestion] = field(factory=dict)
    """Jobs about which the write under way asks."""
    _settled: set[int] = field(factory=set)
    """Jobs whose results came to count in this step."""
    _unwritten: dict[tuple[bytes, int], UnwrittenDones] = field(factory=dict)
    """By identity of the worker, and session."""

    def begin(self, number: int) -> None:
        """Begin as an instance of the store, for the first time or anew."""
        self.number = number
        # Workers list their jobs again. Results must not be lost.
        questions, self._pending = {**self._pending, **self.questions}, {}
        self.questions = {
            id: question for id, question in questions.items() if question.done is not None
        }
        for some in self._unwritten.values():
            for entry in some.entries:
                entry.step = self.step

    # -- from workers

    def listed(self, worker: RemoteWorker, held: Mapping[int, int], now: float) -> None:
        """Ask the store about the listed jobs that are not leased to the worker (WMP-14.7).

        Args:
            worker: The worker.
            held: Attempts of the listed jobs by number.
            now: Seconds.
        """
        old: list[tuple[int, int]] = []
        unknown: list[int] = []
        for id, attempt in held.items():
            job = self.leases.record(id)
            if job is not None and job.holder == worker.identity:
                pass  # the TAKE of this attempt may be on its way
            elif job is not None and attempt <= job.attempt:
                old.append((id, attempt))
            elif id not in self.questions and id not in self._pending and id < FIRST_UNSTORED:
                unknown.append(id)
        changing = self.changes.changing() if unknown else ()
        adopted = self.changes.pending.of(_In.ADOPT)
        for id in unknown[: max(0, _MAX_QUESTIONS - len(self.questions))]:
            if id not in changing:
                self.questions[id] = StoreQuestion(worker, worker.stream, held[id])
                adopted.add(id, held[id])
        self._cancel(worker, old, now)

    def done(self, worker: RemoteWorker, columns: Columns, rows: Sequence[int], number: int) -> int:
        """Take note of a DONE of stored jobs, and of its results without a lease here.

        Args:
            worker: The worker.
            columns: The columns of DONE.
            rows: Rows of the jobs that are not leased to the worker in this attempt.
            number: Number of DONE in its stream.

        Returns:
            The number of the results that cannot count.
        """
        entry = UnwrittenDone(number, self.step)
        stale = 0
        outcomes, payloads = columns.outcomes or (), columns.payloads or ()
        for row in rows:
            id, attempt = columns.ids[row], columns.attempts[row]
            known, other = self.leases.record(id), self.questions.get(id)
            before = known.attempt if known is not None else 0
            if other is not None and other.done is not None:
                before = max(before, other.attempt)
            if attempt <= before or len(self.questions) >= _MAX_QUESTIONS:
                stale += 1
                continue
            text = None if columns.texts is None else columns.texts[row]
            wait = None if columns.waits_ms is None else columns.waits_ms[row]
            result = outcomes[row], payloads[row], text, wait
            self.questions[id] = StoreQuestion(worker, worker.stream, attempt, entry, *result)
            entry.unanswered += 1
        key = worker.identity, worker.stream.session
        some = self._unwritten.get(key)
        if some is None:
            some = self._unwritten[key] = UnwrittenDones(worker.stream)
        some.entries.append(entry)
        worker.stream.written = some.entries[0].number - 1
        return stale

    def _cancel(self, worker: RemoteWorker, old: Sequence[tuple[int, int]], now: float) -> None:
        """Send CANCEL for attempts that are not wanted (WMP-14.7)."""
        for first in range(0, len(old), Limits.JOBS):
            some = old[first : first + Limits.JOBS]
            columns = Columns([id for id, _ in some], [attempt for _, attempt in some])
            fields: dict[int | str, object] = {Field.MANAGER: self.ownership.store}
            self.outbound.push(worker, Command.CANCEL, fields, columns, now)

    # -- the store

    def ask(self) -> list[int]:
        """Return the jobs whose rows the next write reads."""
        self._pending, self.questions = self.questions, {}
        return list(self._pending)

    def written(
        self,
        step: int,
        seen: Sequence[StoredJob],
        store_now: int,
        now: float,
    ) -> None:
        """Act on the answer to a write."""
        questions, self._pending = self._pending, {}
        self._settled.clear()
        changing = self.changes.changing() if questions else ()
        rows = {row.id: row for row in seen} if questions else {}
        old: dict[RemoteWorker, list[tuple[int, int]]] = {}
        taken: dict[RemoteWorker, list[JobRecord]] = {}
        for id, question in questions.items():
            row = rows.get(id)
            current = row is not None and row.state in OPEN and row.attempt == question.attempt
            if question.done is not None:
                self._settle(question, row if current else None, id, store_now, now)
            elif row is None or not current or row.state is _State.QUEUED:
                old.setdefault(question.worker, []).append((id, question.attempt))
            elif row.instance == self.number and self._is_free(id, changing):
                self._take_over(question, record_of(row, store_now, now), row, taken, now)
        for worker, attempts in old.items():
            if self._is_there(worker, questions[attempts[0][0]].stream):
                self._cancel(worker, attempts, now)
        for worker, jobs in taken.items():
            peer = worker.identity, worker.epoch
            ids, attempts_of = [job.id for job in jobs], [job.attempt for job in jobs]
            note = Note(
                "taken over", peer, owner=self.ownership.store, ids=ids, attempts=attempts_of
            )
            self.outbound.actions.append(note)
            cancelled = [id for id in ids if rows[id].state is _State.CANCELLING]
            if cancelled:
                self.job_ends.cancel(cancelled, now)
        self._note_written(step)

    def results(self) -> set[int]:
        """Return the adopted jobs whose results have come and are not written."""
        return self._settled | self.questions.keys()

    def _note_written(self, step: int) -> None:
        for key, some in tuple(self._unwritten.items()):
            entries = some.entries
            while entries and not entries[0].unanswered and entries[0].step <= step:
                entries.popleft()
            some.stream.written = entries[0].number - 1 if entries else None
            if not entries:
                del self._unwritten[key]

    def _is_free(self, id: int, changing: Container[int]) -> bool:
        """Return whether nothing else happens here to a job that was adopted."""
        free = id not in changing and id not in self.questions
        return free and self.leases.record(id) is None

    def _is_there(self, worker: RemoteWorker, stream: Stream) -> bool:
        """Return whether a worker is still in a session."""
        return self.leases.workers.get(worker.identity) is worker and worker.stream is stream

    def _take_over(
        self,
        question: StoreQuestion,
        job: JobRecord,
        row: StoredJob,
        taken: dict[RemoteWorker, list[JobRecord]],
        now: float,
    ) -> None:
        """Lease a job to the worker that holds it, in the same attempt."""
        if not self._is_there(question.worker, question.stream):
            if row.state is _State.CANCELLING:
                self.changes.pending.of(_In.RELEASE).add(job.id, job.attempt, job=job)
            else:
                self.changes.repeat(job, 0, 0)  # the worker may have begun the job
            return
        self.leases.adopt(question.worker, job, now)
        taken.setdefault(question.worker, []).append(job)

    def _settle(
        self, question: StoreQuestion, row: StoredJob | None, id: int, store_now: int, now: float
    ) -> None:
        """Let a result count that came without a lease here (WMP-14.8)."""
        worker, done = question.worker, question.done
        assert done is not None
        done.unanswered -= 1
        done.step = max(done.step, self.step)
        known = self.leases.record(id)
        if row is None or (known is not None and known.attempt > question.attempt):
            self.outbound.drop("stale result", detail=f"job {id} in attempt {question.attempt}")
            return
        self._settled.add(id)
        job = record_of(row, store_now, now)
        job.reserved = False
        if known is not None:
            self.job_ends.withdraw(id, now)
        job.step(JobInput.GRANT)
        if row.state is _State.CANCELLING:
            job.step(JobInput.CANCEL)
        outcome = question.outcome
        self.leases.runs[id] = worker.name, None  # another manager knew the start
        if outcome == Outcome.OK:
            worker.done += 1
            job.step(JobInput.RESULT)
            self.leases.end(job, End.OK, question.payload)
        elif outcome == Outcome.ERROR or outcome == Outcome.OVERRUN:
            self.failures.settle(
                worker, (job, outcome, question.payload, question.text, question.wait), now
            )
        else:
            self._come_back(job, outcome, question.payload, question.text, worker, now)

    def _come_back(
        self,
        job: JobRecord,
        outcome: int,
        payload: Frame,
        text: str | None,
        worker: RemoteWorker,
        now: float,
    ) -> None:
        """Queue a job again whose attempt is over without a result, or end it."""
        adopted = self.changes.pending.of(_In.ADOPT)
        if job.id not in adopted.ids:
            adopted.add(job.id, job.attempt)
        lost = outcome == Outcome.LOST
        if lost:
            cause = printable(bytes(payload[: Limits.LONG_TEXT]).decode(errors="replace"))
            job.record(worker.name, now, f"lost: {cause}")
        elif outcome == Outcome.REFUSED:
            job.refuse(*worker.mark)
        if lost and job.lost + 1 > job.max_worker_losses and job.state is JobState.LEASED:
            failure = failure_of(job.history, job.attempt)
            data = f"{worker.name}\n{cause}".encode()
            self.changes.pending.of(_In.SPEND).add(
                job.id, job.attempt, data, cost=1, failure=failure
            )
        else:
            job.lost += lost
            job.step(JobInput.LOSE if lost else JobInput.RETURN)
            # The text of DONE cancelled means that the job had begun (WMP-6.34).
            unbegun = int(not lost and (outcome == Outcome.REFUSED or text is None))
            job.unbegun += unbegun
            self.changes.repeat(job, int(lost), unbegun)
