"""Delayed jobs: submitted with a delay, or to be tried again later.

Theory of operation. A heap contains an entry for each batch of jobs with one time and each record.
A job that ends before its time leaves its batch at once. An empty batch, or the record of an ended
job, stays in the heap until it is first or is cleared with others. So adding, ending and releasing
a job cost O(log n), and a million jobs of one time cost no more than a million jobs that wait for
workers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Final

from attrs import define, field

from wmp.core.manager.job_lifecycle import JobInput, JobRecord, JobState
from wmp.core.manager.queues import Batch, Batches

_DEAD: Final = 64
"""Maximum number of ended entries in the heap beyond the number of waiting entries."""

_MAX: Final = 4096
"""Maximum number of entries that one step releases, because a step must stay short."""


@define(eq=False)
class DelayedJobs:
    """All jobs of a manager that may not be granted yet, earliest first."""

    batches: Batches
    """The batches of all queues, including the batches of delayed jobs."""
    waiting: int = 0
    """Number of delayed jobs."""
    dead: int = 0
    """Number of heap entries of jobs that ended before their start time."""
    _heap: list[tuple[float, int, Batch | JobRecord]] = field(factory=list)
    _ties: int = 0
    """Number of entries added so far. Entries with the same time are released in this order."""

    def add(self, due: float, part: Batch | JobRecord, count: int = 1) -> None:
        """Keep ``count`` jobs until ``due``."""
        self._ties += 1
        self.waiting += count
        heapq.heappush(self._heap, (due, self._ties, part))

    def extend(self, due: float, batches: Sequence[Batch], count: int) -> None:
        """Keep ``count`` new jobs until ``due``, in a batch of the heap or in a new batch."""
        for batch in batches:
            self.add(due, batch, 0)
        self.waiting += count

    def next(self) -> float | None:
        """Return the earliest start time; None without jobs."""
        heap = self._heap
        while heap and not _waits(heap[0][2]):
            heapq.heappop(heap)
            self.dead -= 1
        return heap[0][0] if heap else None

    def release(self, now: float) -> Iterator[Batch | JobRecord]:
        """Remove the jobs whose start time has come, earliest first.

        One call removes a bounded number of entries.
        """
        heap = self._heap
        for _ in range(_MAX):
            due = self.next()
            if due is None or due > now:
                return
            part = heapq.heappop(heap)[2]
            if type(part) is Batch:
                self.waiting -= len(part.ids)
                part.due = None
            elif type(part) is JobRecord:
                self.waiting -= 1
                part.step(JobInput.DUE)
            yield part

    def count_out(self, job: JobRecord) -> None:
        """Count a job that ended before its start time."""
        self.waiting -= 1
        if self.batches.remove(job):
            return
        self.dead += 1
        if self.dead > len(self._heap) // 2 + _DEAD:
            self._heap = [entry for entry in self._heap if _waits(entry[2])]
            heapq.heapify(self._heap)
            self.dead = 0


def _waits(part: Batch | JobRecord) -> bool:
    """Return whether the jobs of a heap's entry still wait for their start time."""
    if type(part) is JobRecord:
        return part.state is JobState.DELAYED
    return bool(part.ids)  # type: ignore[union-attr]
