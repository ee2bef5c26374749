"""Columns that few waiting jobs need: times, limits, failed attempts and begun runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from attrs import define

from wmp.message import Columns

Times: TypeAlias = Sequence[float | None]


@define(eq=False)
class JobTimes:
    """Columns of some jobs. Each column contains one entry for each job, or is None."""

    deadlines: Times | None = None
    """Deadline of each job, on the clock of ``now``."""
    begin_by: Times | None = None
    """Time after which each job may not be begun, at the latest its deadline."""
    limits: Times | None = None
    """Seconds for which each job may run."""
    failed: Sequence[int | None] | None = None
    """Number of failed attempts of each job, None for a job with settings of its own."""
    begun: Sequence[int | None] | None = None
    """Number of earlier runs of each job, None for all earlier leases."""

    @staticmethod
    def of(columns: Columns, rows: Sequence[int] | None, now: float) -> JobTimes:
        """Read the times of a TAKE; ``rows`` selects the held jobs, None selects all."""
        left, expires, limits = columns.left_ms, columns.expires_ms, columns.limits_ms
        deadlines = None if left is None else _times(left, now)
        begin_by = None if expires is None else _times(expires, now)
        if begin_by is not None and deadlines is not None:
            rowed = zip(begin_by, deadlines, strict=True)
            begin_by = [b if a is None else a if b is None else min(a, b) for a, b in rowed]
        runs = None if limits is None else _times(limits, 0.0)
        times = JobTimes(deadlines, begin_by, runs, columns.failed, columns.begun)
        return times if rows is None else times.only(rows)

    def only(self, rows: Sequence[int]) -> JobTimes:
        """Return the times of some of the jobs."""
        return JobTimes(
            None if self.deadlines is None else [self.deadlines[row] for row in rows],
            None if self.begin_by is None else [self.begin_by[row] for row in rows],
            None if self.limits is None else [self.limits[row] for row in rows],
            None if self.failed is None else [self.failed[row] for row in rows],
            None if self.begun is None else [self.begun[row] for row in rows],
        )

    def slice(self, first: int, last: int | None = None) -> JobTimes:
        """Return the times of the jobs from ``first`` up to ``last``, which is not included."""
        return JobTimes(
            None if self.deadlines is None else self.deadlines[first:last],
            None if self.begin_by is None else self.begin_by[first:last],
            None if self.limits is None else self.limits[first:last],
            None if self.failed is None else self.failed[first:last],
            None if self.begun is None else self.begun[first:last],
        )

    @property
    def begins(self) -> Times | None:
        """Return the times after which the jobs may not be begun."""
        return self.deadlines if self.begin_by is None else self.begin_by

    def late(self, now: float, first: int, last: int) -> int:
        """Return the index of the first job, from ``first`` on, that may no longer begin.

        Else ``last``.
        """
        for row, time in enumerate((self.begins or ())[first:last], first):
            if time is not None and time <= now:
                return row
        return last


NO_TIMES: Final = JobTimes()


def joined(parts: Sequence[tuple[int, Times | None]]) -> Times | None:
    """Join the columns of several groups of jobs; None when no job has such a time."""
    if all(column is None for _, column in parts):
        return None
    times: list[float | None] = []
    for count, column in parts:
        times += [None] * count if column is None else column
    return times if times.count(None) < len(times) else None


def _times(column: Sequence[int | None], now: float) -> list[float | None]:
    return [None if ms is None else now + ms / 1000 for ms in column]
