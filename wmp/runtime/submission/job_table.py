"""The jobs of one manager that have not ended, by number: the owner of each, and what else counts.

Most jobs are known by their owner alone. Only a job with a key and a stored job have an entry. The
sizes of large payloads are a column: a ``map`` submits thousands of such jobs at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from attrs import define

from wmp.message import Frame
from wmp.runtime.submission.job_owner import JobOwner

FEW_BYTES: Final = 512
"""Payloads of at most this many bytes do not count against the limit of bytes."""


@define(eq=False)
class JobEntry:
    """A stored job, or a job with a key."""

    owner: JobOwner
    others: tuple[JobOwner, ...] = ()
    """Further owners, whose submissions joined this stored job by key."""
    key: tuple[str, str] | None = None
    """Role and key of a job that was submitted under a key."""
    unstored: bool = False
    """Whether the store has not confirmed that it has the job."""
    wakes: tuple[Callable[[], object], ...] = ()
    """Called once when the store answers about the job, or the job has ended."""


class ForgottenJobs(NamedTuple):
    """Jobs that are in the table no more."""

    owners: list[JobOwner | None]
    """The owner of each job; None for a job that had ended before."""
    others: dict[int, tuple[JobOwner, ...]]
    """Further owners of the jobs that several submissions joined, by number."""
    wakes: Sequence[Callable[[], object]]
    """To be called after the owners know the ends."""


class JobTable:
    """The jobs that have not ended. The owner of this object guards all calls by one lock.

    Attributes:
        jobs: The owner or the entry of each job, by number. A job that needs no entry may be added
            and removed here directly. No lock is needed while ``tracked`` is 0 and ``sizes`` is
            empty.
        tracked: Number of entries.
        sizes: Number of bytes of each large payload, by number of the job.
        bytes: The sum of the sizes.
        keys: Owners of the jobs that were submitted under a key, by role and key.
    """

    def __init__(self) -> None:
        self.jobs: dict[int, JobOwner | JobEntry] = {}
        self.tracked = 0
        self.sizes: dict[int, int] = {}
        self.bytes = 0
        self.keys: dict[tuple[str, str], JobOwner] = {}

    def owner_of(self, id: int) -> JobOwner | None:
        """Return the first owner of a job; None for a job that has ended."""
        job = self.jobs.get(id)
        return job.owner if type(job) is JobEntry else job  # type: ignore[return-value]

    def add(
        self,
        owner: JobOwner,
        first: int,
        payloads: Sequence[Frame],
        key: tuple[str, str] | None,
        *,
        stored: bool,
    ) -> None:
        """Add jobs with numbers in a row.

        Args:
            owner: Owner of the jobs.
            first: Number of the first job.
            payloads: One for each job.
            key: Role and key of a single job.
            stored: Whether the jobs are to be stored.
        """
        numbers = range(first, first + len(payloads))
        lengths = list(map(len, payloads))
        if lengths and max(lengths) > FEW_BYTES:
            self.sizes.update(zip(numbers, lengths, strict=True))
            self.bytes += sum(lengths)
        if key is not None:
            self.keys[key] = owner
        elif not stored:
            self.jobs.update(dict.fromkeys(numbers, owner))
            return
        self.jobs.update({id: JobEntry(owner, key=key, unstored=stored) for id in numbers})
        self.tracked += len(numbers)

    def forget(self, ids: Sequence[int]) -> ForgottenJobs:
        """Remove jobs, in whatever way they end."""
        gone = list(map(self.jobs.pop, ids, repeat(None)))
        if self.sizes:
            self.bytes -= sum(map(self.sizes.pop, ids, repeat(0)))
        if not self.tracked:
            return ForgottenJobs(gone, {}, ())  # type: ignore[arg-type]
        owners: list[JobOwner | None] = []
        others: dict[int, tuple[JobOwner, ...]] = {}
        wakes: list[Callable[[], object]] = []
        for id, job in zip(ids, gone, strict=True):
            if type(job) is not JobEntry:
                owners.append(job)  # type: ignore[arg-type]
                continue
            owners.append(job.owner)
            self.tracked -= 1
            if job.key is not None:
                self.keys.pop(job.key, None)
            if job.others:
                others[id] = job.others
            wakes += job.wakes
        return ForgottenJobs(owners, others, wakes)

    def free_keys(self, ids: Iterable[int]) -> None:
        """Let the next job with the key of one of these jobs be a new job."""
        if not self.tracked:
            return
        for id in ids:
            job = self.jobs.get(id)
            if type(job) is JobEntry and job.key is not None:
                self.keys.pop(job.key, None)
                job.key = None

    # -- stored jobs

    def waits(self, id: int) -> bool:
        """Return whether the store has not confirmed an open job."""
        job = self.jobs.get(id)
        return type(job) is JobEntry and job.unstored

    def when_answered(self, id: int, wake: Callable[[], object]) -> bool:
        """Call ``wake`` when the store next answers about a job, or the job has ended; return False
        if the job has ended already."""
        job = self.jobs.get(id)
        if type(job) is not JobEntry:
            return False
        job.wakes += (wake,)
        return True

    def confirm(self, ids: Iterable[int]) -> list[Callable[[], object]]:
        """Note that jobs are stored; return what to call."""
        wakes: list[Callable[[], object]] = []
        for id in ids:
            job = self.jobs.get(id)
            if type(job) is JobEntry:
                job.unstored = False
                wakes += job.wakes
                job.wakes = ()
        return wakes

    def join(self, id: int, stored: int) -> Sequence[Callable[[], object]]:
        """Give a job the number of the stored job that it joined by key; return what to call."""
        job = self.jobs.pop(id, None)
        if type(job) is not JobEntry:
            return ()
        wakes, job.wakes = job.wakes, ()
        # The store has the payload of the other job, and this payload goes.
        self.bytes -= self.sizes.pop(id, 0)
        job.unstored = False
        job.owner._given(stored, 1)
        there = self.jobs.get(stored)
        if type(there) is JobEntry:
            there.others += (job.owner, *job.others)
            there.key = job.key or there.key
            self.tracked -= 1
        else:
            self.jobs[stored] = job
        return wakes
