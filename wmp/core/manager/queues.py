"""Waiting jobs by kind, from which TAKEs are filled.

There is a queue for each kind (role, needs, codec). Each queue has a line for each priority. The
cost of a step for one job does not grow with the number of jobs, kinds and workers; it grows only
with the few priorities in use.

A million jobs may wait. Each waiting job is a number and a payload in the columns of its batch, not
an object that a garbage collector would visit. Jobs that leave a batch together stay together in
their grant until an event other than a result concerns one of them
(:mod:`wmp.core.manager.leases`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import ClassVar, Final, TypeAlias

from attrs import define, field

from wmp.core.manager.job_lifecycle import TRANSITIONS, JobInput, JobLimits, JobRecord, JobState
from wmp.message import Frame, Kind

GRANTED: Final = TRANSITIONS[JobState.QUEUED, JobInput.GRANT]
"""The step of the table that every job needs, looked up once."""

FEW: Final = 8
"""Maximum number of jobs of a queue that are checked for a refusal by a worker."""
_DEAD = 64
"""Maximum number of entries of ended jobs in the lines of a queue beyond the number of waiting
jobs.
"""
_MAX = 256
"""Limit of the jobs in a batch. Adding or removing a job moves at most this number of jobs."""
_SPENT = 64
"""Number of empty batches that may be kept beyond the number of batches with jobs."""


@define(eq=False)
class Grant:
    """The jobs of one batch in one TAKE, each leased for the first time."""

    attempt: ClassVar[int] = 1

    kind: Kind
    priority: int
    max_worker_losses: int
    deadline: float | None
    ids: list[int]
    """Numbers of the jobs, ascending, including the jobs that have ended."""
    payloads: Sequence[Frame]
    left: int
    """Number of the jobs that have not ended."""
    holder: bytes | None = None
    """Identity of the worker that holds the leases; None until the TAKE is built."""
    take: int = 0
    """Number of the TAKE that granted the jobs."""
    limits: JobLimits | None = None

    def waiting(self) -> Iterator[JobRecord]:
        """Return the records of jobs that were taken out for a TAKE that was not sent."""
        terms = self.kind, self.priority, self.max_worker_losses, self.deadline
        for id, payload in zip(self.ids, self.payloads, strict=True):
            yield JobRecord(id, payload, *terms, limits=self.limits)

    def records(self, parts: dict[int, Part]) -> Iterator[JobRecord]:
        """Return the records of the open jobs: ``parts`` still maps them to this grant."""
        for id, payload in zip(self.ids, self.payloads, strict=True):
            if parts.get(id) is self:
                yield JobRecord(
                    id=id,
                    payload=payload,
                    kind=self.kind,
                    priority=self.priority,
                    max_worker_losses=self.max_worker_losses,
                    deadline=self.deadline,
                    state=GRANTED,
                    attempt=self.attempt,
                    holder=self.holder,
                    take=self.take,
                    limits=self.limits,
                )


Part: TypeAlias = JobRecord | Grant
"""Jobs for a TAKE: one job with a record, or many without records."""


@define(eq=False)
class Batch:
    """Jobs that were submitted one after the other on the same terms, oldest first."""

    kind: Kind
    priority: int
    max_worker_losses: int
    deadline: float | None
    first: int
    """Number of the first job that was ever in the batch."""
    limits: JobLimits | None = None
    due: float | None = None
    """Time from which the jobs of the batch may be granted; None when that time has passed."""
    ids: array[int] = field(factory=lambda: array("Q"))
    payloads: tuple[Frame, ...] = ()
    """A tuple, because a garbage collector ignores a tuple of bytes."""

    def suits(
        self,
        kind: Kind,
        priority: int,
        max_worker_losses: int,
        deadline: float | None,
        limits: JobLimits | None,
        due: float | None,
    ) -> bool:
        """Return whether jobs on these terms may join the batch.

        False for a batch that has become empty.
        """
        return (
            0 < len(self.ids) < _MAX
            and (kind is self.kind or kind == self.kind)  # mostly the queue's only object
            and priority == self.priority
            and max_worker_losses == self.max_worker_losses
            and deadline == self.deadline
            and limits == self.limits
            and due == self.due
        )

    def take(self, count: int, size: int, *, minimum: int) -> tuple[Part | None, int, int]:
        """Take out up to ``count`` jobs and ``size`` payload bytes, at least ``minimum`` jobs.

        Returns:
            The jobs or None; their number; and the remaining bytes, which are negative when no
            further job fits.
        """
        payloads = self.payloads[:count]
        fit, left = len(payloads), size - sum(map(len, payloads))
        if left < 0:
            sizes = list(accumulate(map(len, payloads)))
            fit = max(minimum, bisect_right(sizes, size))
            left = size - sizes[min(fit, len(sizes) - 1)]
            payloads = payloads[:fit]
        if fit == 1:
            part: Part | None = JobRecord(
                self.ids[0],
                payloads[0],
                self.kind,
                self.priority,
                self.max_worker_losses,
                self.deadline,
                limits=self.limits,
            )
        elif fit:
            ids = self.ids[:fit].tolist()
            part = Grant(
                self.kind,
                self.priority,
                self.max_worker_losses,
                self.deadline,
                ids,
                payloads,
                fit,
                limits=self.limits,
            )
        else:
            part = None
        del self.ids[:fit]
        self.payloads = self.payloads[fit:]
        return part, fit, left

    def find(self, id: int) -> JobRecord | None:
        """Return the record of one of the jobs without removing the job.

        None when the batch lacks the job.
        """
        row = bisect_left(self.ids, id)
        if row == len(self.ids) or self.ids[row] != id:
            return None
        return JobRecord(
            id,
            self.payloads[row],
            self.kind,
            self.priority,
            self.max_worker_losses,
            self.deadline,
            JobState.QUEUED if self.due is None else JobState.DELAYED,
            limits=self.limits,
        )

    def remove(self, id: int) -> None:
        """Remove one job."""
        row = bisect_left(self.ids, id)
        del self.ids[row]
        self.payloads = self.payloads[:row] + self.payloads[row + 1 :]


@define(eq=False)
class Batches:
    """All batches of a manager by number of their jobs. The numbers ascend and do not overlap."""

    _all: list[Batch] = field(factory=list)
    _spent: int = 0
    _sealed: bool = False
    """Whether other jobs stand behind the newest batch in a line, so that no more jobs may join
    the batch.
    """

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._all)

    def add(
        self,
        ids: Sequence[int],
        payloads: Sequence[Frame],
        kind: Kind,
        priority: int,
        max_worker_losses: int,
        deadline: float | None,
        limits: JobLimits | None,
        due: float | None,
    ) -> list[Batch]:
        """Add jobs behind all others; return the batches that were created for them."""
        batch = self._all[-1] if self._all and not self._sealed else None
        self._sealed = False
        start, created = 0, []
        while start < len(ids):
            if batch is None or not batch.suits(
                kind, priority, max_worker_losses, deadline, limits, due
            ):
                batch = Batch(kind, priority, max_worker_losses, deadline, ids[start], limits, due)
                created.append(batch)
            end = start + _MAX - len(batch.ids)
            batch.ids.extend(ids[start:end])
            batch.payloads += tuple(payloads[start:end])
            start = end
        self._all += created
        return created

    def find(self, id: int) -> JobRecord | None:
        """Return the record of a job without removing the job.

        None when the job was granted or has ended.
        """
        batch = self.at(id)
        return None if batch is None else batch.find(id)

    def at(self, id: int) -> Batch | None:
        """Return the batch of a job that was never granted and has not ended."""
        row = bisect_right(self._all, id, key=_FIRST)
        return self._all[row - 1] if row else None

    def seal(self) -> None:
        """Close the newest batch, so that no further jobs join the batch."""
        self._sealed = True

    def remove(self, job: JobRecord) -> bool:
        """Remove a job that ended while it waited.

        Returns:
            Whether other jobs still use its entry in the line.
        """
        batch = None if job.attempt else self.at(job.id)
        if batch is not None:  # the job was never granted
            batch.remove(job.id)
            if batch.ids:
                return True
            self.spent()
        job.payload = b""
        return False

    def spent(self) -> None:
        """Count a batch that has become empty. Empty batches are removed together, at O(1) each."""
        self._spent += 1
        if self._spent > len(self._all) // 2 + _SPENT:
            self._all = [batch for batch in self._all if batch.ids]
            self._spent = 0


_FIRST: Final = attrgetter("first")


@define(eq=False)
class PriorityLevel:
    """Jobs of one priority. Jobs that came back go before new jobs (WMP-6.28)."""

    back: deque[JobRecord] = field(factory=deque)
    new: deque[Batch | JobRecord] = field(factory=deque)
    """Batches and records in the order in which they may be granted; a record is of a job that is
    tried again.
    """

    def __len__(self) -> int:
        return len(self.back) + len(self.new)


@define(eq=False)
class Queue:
    """Jobs of one kind: highest priority first, then oldest first (WMP-6.13).

    A job that ends while it waits stays in its line until it is the first of the line. An empty
    batch stays too. ``waiting`` does not count them.
    """

    kind: Kind
    batches: Batches
    """The batches of all queues."""
    waiting: int = 0
    woken: int = 0
    """Number of jobs in WAKEs that no GIVE has answered yet."""
    factor: int = 1
    """Number of WAKEs that may announce each waiting job (WMP-3.5)."""
    dead: int = 0
    """Number of ended jobs and empty batches that are still in a line."""
    needs: dict[str, int] = field(init=False)
    _lines: dict[int, PriorityLevel] = field(factory=dict)
    _order: list[int] = field(factory=list)
    """The negated priorities of ``_lines``, ascending."""

    def __attrs_post_init__(self) -> None:
        self.needs = dict(self.kind.needs)

    def append(
        self,
        ids: Sequence[int],
        payloads: Sequence[Frame],
        priority: int,
        max_worker_losses: int,
        deadline: float | None,
        limits: JobLimits | None = None,
    ) -> None:
        """Add new jobs behind the others of their priority."""
        created = self.batches.add(
            ids, payloads, self.kind, priority, max_worker_losses, deadline, limits, None
        )
        if created:
            self._line(priority).new += created
        self.waiting += len(ids)

    def join(self, part: Batch | JobRecord) -> None:
        """Add jobs behind the others of their priority at their start time (WMP-6.24)."""
        self._line(part.priority).new.append(part)
        self.waiting += 1 if type(part) is JobRecord else len(part.ids)  # type: ignore[union-attr]
        self.batches.seal()

    def join_all(self, jobs: Sequence[JobRecord], priority: int) -> None:
        """Add jobs of one priority behind the others of this priority."""
        self._line(priority).new += jobs
        self.waiting += len(jobs)
        self.batches.seal()

    def put_back(self, job: JobRecord) -> None:
        """Add a job before all others of its priority (WMP-6.28)."""
        self._line(job.priority).back.appendleft(job)
        self.waiting += 1

    def count_out(self, job: JobRecord) -> None:
        """Count a job that ended while it waited; its entry is cleared later."""
        self.waiting -= 1
        if self.batches.remove(job):
            return
        self.dead += 1
        if self.dead > self.waiting + _DEAD:
            self._clear()

    def has_for(self, worker: tuple[bytes, int, int]) -> bool:
        """Return whether a job waits that the worker did not refuse.

        Only a few jobs are checked.
        """
        return self.waiting > FEW or any(
            any(_is_for(part, worker) for part in (*line.new, *line.back))
            for line in self._lines.values()
        )

    def head(self) -> tuple[int, int] | None:
        """Return (negated priority, number) of the next job, for the choice between queues."""
        for negated in tuple(self._order):
            line = self._lines[-negated]
            back, new = line.back, line.new
            while back and back[0].state is not JobState.QUEUED:
                back.popleft()
                self.dead -= 1
            while new and not _lives(new[0]):
                new.popleft()
                self.dead -= 1
            if back or new:
                first = back[0] if back else new[0]
                return negated, first.id if type(first) is JobRecord else first.ids[0]  # type: ignore[union-attr]
            self._forget(negated)
        return None

    def take(self, count: int, size: int, worker: tuple[bytes, int, int]) -> tuple[list[Part], int]:
        """Take out up to ``count`` jobs and ``size`` payload bytes, at least one job.

        Jobs that ``worker`` (identity, session, READY) refused stay, in their order.

        Returns:
            The jobs and their number.
        """
        parts: list[Part] = []
        taken = 0
        for negated in tuple(self._order):
            line = self._lines[-negated]
            back, new = line.back, line.new
            passed: list[JobRecord] = []
            while back and taken < count:
                job = back.popleft()
                if job.state is not JobState.QUEUED:
                    self.dead -= 1
                    continue
                if (job.refused or job.left) and job.passes_over(*worker):
                    passed.append(job)
                    continue
                size -= len(job.payload)
                if taken and (size < 0 or job.alone):
                    back.appendleft(job)
                    size = -1
                    break
                parts.append(job)
                taken += 1
                if job.alone:
                    size = -1
                    break
            back.extendleft(reversed(passed))
            while new and taken < count and size >= 0:
                batch = new[0]
                if type(batch) is JobRecord:
                    if taken and _lives(batch) and (batch.alone or len(batch.payload) > size):
                        size = -1
                        break
                    new.popleft()
                    if not _lives(batch):
                        self.dead -= 1
                    elif batch.refused is not None and batch.passes_over(*worker):
                        back.append(batch)  # the batch stays in front of all later jobs
                    else:
                        size = -1 if batch.alone else size - len(batch.payload)
                        parts.append(batch)
                        taken += 1
                    continue
                assert type(batch) is Batch
                if batch.ids:
                    part, part_count, size = batch.take(count - taken, size, minimum=not taken)
                    if part is not None:
                        parts.append(part)
                        taken += part_count
                    if batch.ids:
                        break
                    self.batches.spent()
                else:
                    self.dead -= 1
                new.popleft()
            if not back and not new:
                self._forget(negated)
            if taken == count or size < 0:
                break
        self.waiting -= taken
        return parts, taken

    def records(self) -> list[JobRecord]:
        """Return the records of waiting jobs, in the order in which they may be granted.

        Jobs of batches have no records.
        """
        return [
            part
            for negated in self._order
            for part in (*self._lines[-negated].back, *self._lines[-negated].new)
            if type(part) is JobRecord and part.state is JobState.QUEUED
        ]

    def withdraw(self, chosen: Callable[[JobRecord], bool]) -> list[JobRecord]:
        """Take out the waiting jobs with records that are chosen; return them in their order."""
        withdrawn = [job for job in self.records() if chosen(job)]
        if withdrawn:
            gone = set(map(id, withdrawn))
            for line in self._lines.values():
                line.back = deque(job for job in line.back if id(job) not in gone)
                line.new = deque(part for part in line.new if id(part) not in gone)
            self.waiting -= len(withdrawn)
        return withdrawn

    def _line(self, priority: int) -> PriorityLevel:
        line = self._lines.get(priority)
        if line is None:
            line = self._lines[priority] = PriorityLevel()
            insort(self._order, -priority)
        return line

    def _clear(self) -> None:
        """Remove all ended jobs together, at O(1) each."""
        for line in self._lines.values():
            line.back = deque(job for job in line.back if job.state is JobState.QUEUED)
            line.new = deque(part for part in line.new if _lives(part))
        self.dead = 0

    def _forget(self, negated: int) -> None:
        """Remove an empty line."""
        del self._lines[-negated]
        self._order.remove(negated)


def _lives(part: Batch | JobRecord) -> bool:
    """Return whether jobs of a record or batch still wait."""
    if type(part) is JobRecord:
        return part.state is JobState.QUEUED
    return bool(part.ids)  # type: ignore[union-attr]


def _is_for(part: Batch | JobRecord, worker: tuple[bytes, int, int]) -> bool:
    """Return whether jobs of a record or batch still wait, and the worker did not refuse them."""
    return _lives(part) and not (type(part) is JobRecord and part.passes_over(*worker))


@define(eq=False)
class Queues:
    """All queues of a manager. A queue without jobs and open WAKEs is removed."""

    batches: Batches = field(factory=Batches)
    _by_kind: dict[Kind, Queue] = field(factory=dict)
    _by_role: dict[str, dict[Kind, Queue]] = field(factory=dict)

    def __iter__(self) -> Iterator[Queue]:
        return iter(tuple(self._by_kind.values()))

    @property
    def waiting(self) -> int:
        """Return the number of waiting jobs of all kinds."""
        return sum(queue.waiting for queue in self._by_kind.values())

    def get(self, kind: Kind) -> Queue:
        """Return the queue of ``kind``; make it if there is none."""
        queue = self._by_kind.get(kind)
        if queue is None:
            queue = self._by_kind[kind] = Queue(kind, self.batches)
            self._by_role.setdefault(kind.role, {})[kind] = queue
        return queue

    def find(self, kind: Kind) -> Queue | None:
        """Return the queue of ``kind``, None if there is none."""
        return self._by_kind.get(kind)

    def for_roles(self, roles: Iterable[str]) -> list[Queue]:
        """Return the queues with waiting jobs of these roles."""
        queues = []
        for role in roles:
            for queue in self._by_role.get(role, {}).values():
                if queue.waiting:
                    queues.append(queue)
        return queues

    def tidy(self, queue: Queue) -> None:
        """Remove ``queue`` when it has no jobs and no open WAKEs."""
        if not queue.waiting and not queue.woken and self._by_kind.get(queue.kind) is queue:
            del self._by_kind[queue.kind]
            kinds = self._by_role[queue.kind.role]
            del kinds[queue.kind]
            if not kinds:
                del self._by_role[queue.kind.role]
