"""Jobs in columns: batches of jobs that wait for their first grant, and grants of them.

A million jobs may wait. Each is a number and a payload in the columns of its batch, and nothing
that a garbage collector would have to visit. Jobs that leave a batch together stay together in
their grant for as long as nothing but their result happens to them
(:mod:`wmp.core.manager.leases`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import ClassVar, Final, TypeAlias

from attrs import define, field

from wmp.core.manager.job_lifecycle import TRANSITIONS, JobInput, JobRecord, JobState
from wmp.message import Frame, Kind

__all__ = ["GRANTED", "Batch", "Batches", "Grant", "Part"]

GRANTED: Final = TRANSITIONS[JobState.QUEUED, JobInput.GRANT]
"""A row of the table that is needed for every job, looked up once."""

_MOST = 256
"""Jobs in a batch: so many places move when one comes or goes."""
_SPENT = 64
"""Batches without jobs that may stand in the books beyond as many as have some."""


@define(eq=False)
class Grant:
    """Jobs of one batch that went in one TAKE, each leased for the first time."""

    attempt: ClassVar[int] = 1

    kind: Kind
    priority: int
    retries: int
    deadline: float | None
    ids: list[int]
    """Growing; those that have ended stay here."""
    payloads: Sequence[Frame]
    left: int
    """How many of them have not ended."""
    holder: bytes | None = None
    """Identity of the worker that holds the leases; None until the TAKE is made."""
    take: int = 0
    """Number of that TAKE."""

    def records(self, parts: dict[int, Part]) -> Iterator[JobRecord]:
        """The records of those that have not ended: ``parts`` leads from them to here."""
        for id, payload in zip(self.ids, self.payloads, strict=True):
            if parts.get(id) is self:
                yield JobRecord(
                    id=id,
                    payload=payload,
                    kind=self.kind,
                    priority=self.priority,
                    retries=self.retries,
                    deadline=self.deadline,
                    state=GRANTED,
                    attempt=self.attempt,
                    holder=self.holder,
                    take=self.take,
                )


Part: TypeAlias = JobRecord | Grant
"""Jobs that a TAKE brings: one that has a record, or many that have none yet."""


@define(eq=False)
class Batch:
    """Jobs that were submitted one after the other on the same terms, oldest first."""

    kind: Kind
    priority: int
    retries: int
    deadline: float | None
    first: int
    """Number of the first job that ever stood in it."""
    ids: array[int] = field(factory=lambda: array("Q"))
    payloads: tuple[Frame, ...] = ()
    """A tuple because a garbage collector passes over one that holds bytes alone."""

    def suits(self, kind: Kind, priority: int, retries: int, deadline: float | None) -> bool:
        """Whether jobs on these terms may be added. A batch that ran empty stands in no line."""
        return (
            0 < len(self.ids) < _MOST
            and kind is self.kind  # a queue has one object for its kind
            and priority == self.priority
            and retries == self.retries
            and deadline == self.deadline
        )

    def add(self, ids: Sequence[int], payloads: Sequence[Frame]) -> int:
        """Add as many jobs as there is room for; returns how many."""
        room = _MOST - len(self.ids)
        self.ids.extend(ids[:room])
        self.payloads += tuple(payloads[:room])
        return min(room, len(ids))

    def take(self, count: int, size: int, *, least: int) -> tuple[Part | None, int, int]:
        """Take out up to ``count`` jobs and ``size`` payload bytes, at least ``least`` jobs.

        Returns:
            The jobs, None for none; how many they are; and the bytes that are left, negative
            when nothing else fits.
        """
        payloads = self.payloads[:count]
        fit, left = len(payloads), size - sum(map(len, payloads))
        if left < 0:
            sizes = list(accumulate(map(len, payloads)))
            fit = max(least, bisect_right(sizes, size))
            left = size - sizes[min(fit, len(sizes) - 1)]
            payloads = payloads[:fit]
        if fit == 1:
            part: Part | None = self._record(self.ids[0], payloads[0])
        elif fit:
            ids = self.ids[:fit].tolist()
            part = Grant(self.kind, self.priority, self.retries, self.deadline, ids, payloads, fit)
        else:
            part = None
        del self.ids[:fit]
        self.payloads = self.payloads[fit:]
        return part, fit, left

    def find(self, id: int) -> JobRecord | None:
        """The record of one of the jobs, which stays; None when it is not here."""
        place = bisect_left(self.ids, id)
        if place == len(self.ids) or self.ids[place] != id:
            return None
        return self._record(id, self.payloads[place])

    def remove(self, id: int) -> None:
        """Take out one of the jobs."""
        place = bisect_left(self.ids, id)
        del self.ids[place]
        self.payloads = self.payloads[:place] + self.payloads[place + 1 :]

    def _record(self, id: int, payload: Frame) -> JobRecord:
        return JobRecord(id, payload, self.kind, self.priority, self.retries, self.deadline)


@define(eq=False)
class Batches:
    """All batches of a manager, by the numbers in them: they grow, and do not overlap."""

    _all: list[Batch] = field(factory=list)
    _spent: int = 0

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._all)

    def add(
        self,
        ids: Sequence[int],
        payloads: Sequence[Frame],
        kind: Kind,
        priority: int,
        retries: int,
        deadline: float | None,
    ) -> list[Batch]:
        """Add jobs behind all others; returns the batches that were made for them."""
        last = self._all[-1] if self._all else None
        suits = last is not None and last.suits(kind, priority, retries, deadline)
        place = last.add(ids, payloads) if last is not None and suits else 0
        made = []
        while place < len(ids):
            batch = Batch(kind, priority, retries, deadline, ids[place])
            place += batch.add(ids[place : place + _MOST], payloads[place : place + _MOST])
            made.append(batch)
        self._all += made
        return made

    def find(self, id: int) -> JobRecord | None:
        """The record of a job, which stays; None when it was granted, or has ended."""
        batch = self.at(id)
        return None if batch is None else batch.find(id)

    def at(self, id: int) -> Batch | None:
        """The batch where a job stands if it was never granted and has not ended."""
        place = bisect_right(self._all, id, key=_FIRST)
        return self._all[place - 1] if place else None

    def spent(self) -> None:
        """A batch ran empty: it is cleared out with others, once for as many as there are."""
        self._spent += 1
        if self._spent > len(self._all) // 2 + _SPENT:
            self._all = [batch for batch in self._all if batch.ids]
            self._spent = 0


_FIRST: Final = attrgetter("first")
