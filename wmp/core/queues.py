"""Jobs that wait, by kind: what a TAKE is filled from.

One queue a kind (role, needs, codec), inside it one line a priority. All steps are O(1) a
job in the number of jobs, kinds and workers, apart from the few priorities in use.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator

from attrs import define, field

from wmp.core.jobs import Input, Job, State
from wmp.message import Kind

__all__ = ["Queue", "Queues"]

_FEW = 8
_DEAD = 64
"""Ended jobs that may stand in the lines of a queue beyond as many as wait there."""


@define(eq=False)
class Queue:
    """Jobs of one kind, highest priority first, then oldest first (WMP-6.13).

    Jobs that ended while they waited stay in their line until they surface; ``waiting``
    does not count them.
    """

    kind: Kind
    waiting: int = 0
    woken: int = 0
    """Jobs asked for by WAKEs that were not answered yet."""
    factor: int = 1
    """How many times the waiting jobs may be asked for (WMP-3.5)."""
    dead: int = 0
    """Jobs that ended while they waited, and still stand in a line."""
    needs: dict[str, int] = field(init=False)
    _lines: dict[int, deque[Job]] = field(factory=dict)
    _order: list[int] = field(factory=list)
    """The priorities of ``_lines``, negated, ascending."""

    def __attrs_post_init__(self) -> None:
        self.needs = dict(self.kind.needs)

    def append(self, jobs: Iterable[Job], priority: int) -> None:
        """Add new jobs of one priority behind the others of it."""
        line = self._line(priority)
        before = len(line)
        line.extend(jobs)
        self.waiting += len(line) - before

    def put_back(self, job: Job) -> None:
        """Add a job before all others of its priority (WMP-6.4)."""
        self._line(job.priority).appendleft(job)
        self.waiting += 1

    def count_out(self, job: Job) -> None:
        """A job ended while it waited; its place is cleared when it surfaces, or with others."""
        self.waiting -= 1
        self.dead += 1
        job.payload = b""
        if self.dead > self.waiting + _DEAD:
            self._clear()

    def has_for(self, worker: tuple[bytes, int, int]) -> bool:
        """Whether anything waits that the worker did not refuse; looks at a few jobs at most."""
        return self.waiting > _FEW or any(
            job.state is State.QUEUED and not job.passes_over(*worker)
            for line in self._lines.values()
            for job in line
        )

    def head(self) -> tuple[int, int] | None:
        """(negated priority, job id) of the next job, for choosing between queues."""
        for line in self._live_lines():
            return -line[0].priority, line[0].id
        return None

    def take(self, count: int, size: int, worker: tuple[bytes, int, int]) -> list[Job]:
        """Take out up to ``count`` jobs and ``size`` payload bytes, at least one job.

        Jobs that ``worker`` (identity, session, READY) refused stay, in their order.
        """
        taken: list[Job] = []
        for line in self._live_lines():
            passed: list[Job] = []
            while line and len(taken) < count:
                job = line.popleft()
                if job.state is not State.QUEUED:
                    self.dead -= 1
                    continue
                if job.refused is not None and job.passes_over(*worker):
                    passed.append(job)
                    continue
                size -= len(job.payload)
                if size < 0 and taken:
                    line.appendleft(job)
                    break
                taken.append(job)
            line.extendleft(reversed(passed))
            if len(taken) == count or size < 0:
                break
        self.waiting -= len(taken)
        return taken

    def _line(self, priority: int) -> deque[Job]:
        line = self._lines.get(priority)
        if line is None:
            line = self._lines[priority] = deque()
            insort(self._order, -priority)
        return line

    def _clear(self) -> None:
        """Take out the jobs that ended: once for as many as there are, so O(1) each."""
        for priority, line in self._lines.items():
            self._lines[priority] = deque(job for job in line if job.state is State.QUEUED)
        self.dead = 0

    def _live_lines(self) -> Iterator[deque[Job]]:
        """The lines whose first job waits, highest priority first; clears the others."""
        for negated in tuple(self._order):
            line = self._lines[-negated]
            while line and line[0].state is not State.QUEUED:
                line.popleft()
                self.dead -= 1
            if line:
                yield line
            else:
                del self._lines[-negated]
                self._order.remove(negated)


@define(eq=False)
class Queues:
    """All queues of a manager. A queue without jobs and open WAKEs is forgotten."""

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
            queue = self._by_kind[kind] = Queue(kind)
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

    def requeue(self, job: Job, what: Input) -> bool:
        """Step a leased job, and put it back when that queues it again; says whether."""
        job.step(what)
        job.worker = None
        if job.state is not State.QUEUED:
            return False
        # Its queue may have been forgotten, and another made, while it was away.
        job.queue = self.get(job.queue.kind)
        job.queue.put_back(job)
        return True
