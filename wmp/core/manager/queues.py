"""Jobs that wait, by kind: what a TAKE is filled from.

One queue a kind (role, needs, codec), inside it one line a priority. All steps are O(1) a
job in the number of jobs, kinds and workers, apart from the few priorities in use.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from attrs import define, field

from wmp.core.manager.batches import Batch, Batches, Part
from wmp.core.manager.job_lifecycle import JobRecord, JobState
from wmp.message import Frame, Kind

__all__ = ["FEW", "PriorityLevel", "Queue", "Queues"]

FEW: Final = 8
"""Jobs in a queue up to which it is looked at whether a worker refused them all."""
_DEAD = 64
"""Dead places that may stand in the lines of a queue beyond as many as wait there."""


@define(eq=False)
class PriorityLevel:
    """Jobs of one priority: those that came back go first (WMP-6.13)."""

    back: deque[JobRecord] = field(factory=deque)
    new: deque[Batch] = field(factory=deque)

    def __len__(self) -> int:
        return len(self.back) + len(self.new)


@define(eq=False)
class Queue:
    """Jobs of one kind, highest priority first, then oldest first (WMP-6.13).

    A job that came back and ended while it waited stays in its line until it surfaces, and so
    does a batch all of whose jobs ended; ``waiting`` does not count them.
    """

    kind: Kind
    batches: Batches
    """Those of all queues."""
    waiting: int = 0
    woken: int = 0
    """Jobs asked for by WAKEs that were not answered yet."""
    factor: int = 1
    """How many times the waiting jobs may be asked for (WMP-3.5)."""
    dead: int = 0
    """Jobs and batches that ended while they waited, and still stand in a line."""
    needs: dict[str, int] = field(init=False)
    _lines: dict[int, PriorityLevel] = field(factory=dict)
    _order: list[int] = field(factory=list)
    """The priorities of ``_lines``, negated, ascending."""

    def __attrs_post_init__(self) -> None:
        self.needs = dict(self.kind.needs)

    def append(
        self,
        ids: Sequence[int],
        payloads: Sequence[Frame],
        priority: int,
        retries: int,
        deadline: float | None,
    ) -> None:
        """Add new jobs behind the others of their priority."""
        made = self.batches.add(ids, payloads, self.kind, priority, retries, deadline)
        if made:
            self._line(priority).new += made
        self.waiting += len(ids)

    def put_back(self, job: JobRecord) -> None:
        """Add a job before all others of its priority (WMP-6.4)."""
        self._line(job.priority).back.appendleft(job)
        self.waiting += 1

    def count_out(self, job: JobRecord) -> None:
        """A job ended while it waited; its place is cleared when it surfaces, or with others."""
        self.waiting -= 1
        batch = None if job.attempt else self.batches.at(job.id)
        if batch is not None:  # it was never granted
            batch.remove(job.id)
            if batch.ids:
                return
            self.batches.spent()
        self.dead += 1
        job.payload = b""
        if self.dead > self.waiting + _DEAD:
            self._clear()

    def has_for(self, worker: tuple[bytes, int, int]) -> bool:
        """Whether anything waits that the worker did not refuse; looks at a few jobs at most."""
        return self.waiting > FEW or any(
            any(batch.ids for batch in line.new)
            or any(j.state is JobState.QUEUED and not j.passes_over(*worker) for j in line.back)
            for line in self._lines.values()
        )

    def head(self) -> tuple[int, int] | None:
        """(negated priority, job id) of the next job, for choosing between queues."""
        for negated, line in self._live_lines():
            id = line.back[0].id if line.back else line.new[0].ids[0]
            return negated, id
        return None

    def take(self, count: int, size: int, worker: tuple[bytes, int, int]) -> tuple[list[Part], int]:
        """Take out up to ``count`` jobs and ``size`` payload bytes, at least one job.

        Jobs that ``worker`` (identity, session, READY) refused stay, in their order.

        Returns:
            The jobs, and how many they are.
        """
        parts: list[Part] = []
        taken = 0
        for _, line in self._live_lines():
            back, new = line.back, line.new
            passed: list[JobRecord] = []
            while back and taken < count:
                job = back.popleft()
                if job.state is not JobState.QUEUED:
                    self.dead -= 1
                    continue
                if job.refused is not None and job.passes_over(*worker):
                    passed.append(job)
                    continue
                size -= len(job.payload)
                if size < 0 and taken:
                    back.appendleft(job)
                    break
                parts.append(job)
                taken += 1
            back.extendleft(reversed(passed))
            while new and taken < count and size >= 0:
                batch = new[0]
                if batch.ids:
                    part, found, size = batch.take(count - taken, size, least=not taken)
                    if part is not None:
                        parts.append(part)
                        taken += found
                    if batch.ids:
                        break
                    self.batches.spent()
                else:
                    self.dead -= 1
                new.popleft()
            if taken == count or size < 0:
                break
        self.waiting -= taken
        return parts, taken

    def _line(self, priority: int) -> PriorityLevel:
        line = self._lines.get(priority)
        if line is None:
            line = self._lines[priority] = PriorityLevel()
            insort(self._order, -priority)
        return line

    def _clear(self) -> None:
        """Take out what ended: once for as many as there are, so O(1) each."""
        for line in self._lines.values():
            line.back = deque(job for job in line.back if job.state is JobState.QUEUED)
            line.new = deque(batch for batch in line.new if batch.ids)
        self.dead = 0

    def _live_lines(self) -> Iterator[tuple[int, PriorityLevel]]:
        """The lines whose first job waits, by negated priority; clears the others."""
        for negated in tuple(self._order):
            line = self._lines[-negated]
            back, new = line.back, line.new
            while back and back[0].state is not JobState.QUEUED:
                back.popleft()
                self.dead -= 1
            while new and not new[0].ids:
                new.popleft()
                self.dead -= 1
            if back or new:
                yield negated, line
            else:
                del self._lines[-negated]
                self._order.remove(negated)


@define(eq=False)
class Queues:
    """All queues of a manager. A queue without jobs and open WAKEs is forgotten."""

    batches: Batches = field(factory=Batches)
    _by_kind: dict[Kind, Queue] = field(factory=dict)
    _by_role: dict[str, dict[Kind, Queue]] = field(factory=dict)

    def __iter__(self) -> Iterator[Queue]:
        return iter(tuple(self._by_kind.values()))

    @property
    def waiting(self) -> int:
        """Jobs that wait, of all kinds."""
        return sum(queue.waiting for queue in self._by_kind.values())

    def get(self, kind: Kind) -> Queue:
        """The queue of ``kind``, made when there is none."""
        queue = self._by_kind.get(kind)
        if queue is None:
            queue = self._by_kind[kind] = Queue(kind, self.batches)
            self._by_role.setdefault(kind.role, {})[kind] = queue
        return queue

    def find(self, kind: Kind) -> Queue | None:
        """The queue of ``kind`` when there is one."""
        return self._by_kind.get(kind)

    def for_roles(self, roles: Iterable[str]) -> list[Queue]:
        """Queues with waiting jobs of these roles."""
        found = []
        for role in roles:
            for queue in self._by_role.get(role, {}).values():
                if queue.waiting:
                    found.append(queue)
        return found

    def tidy(self, queue: Queue) -> None:
        """Forget ``queue`` when nothing waits in it."""
        if not queue.waiting and not queue.woken and self._by_kind.get(queue.kind) is queue:
            del self._by_kind[queue.kind]
            kinds = self._by_role[queue.kind.role]
            del kinds[queue.kind]
            if not kinds:
                del self._by_role[queue.kind.role]
