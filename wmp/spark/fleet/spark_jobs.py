"""Spark jobs that another thread may cancel, in classic sessions and through Spark Connect."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from wmp.spark.fleet.table import Slots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RAISED: Final = re.compile(r"^[\w.]*(Error|Exception|Hung|Superseded)\b")
_FRAME: Final = re.compile(r"^\s*(at |File |Traceback|\^|~|\.\.\.|raise |return )|^\s*$")


class SparkJobs:
    """Runs DataFrames under names, by which they can be cancelled.

    Args:
        spark: The session.
        prefix: Beginning of the names of these jobs; no other program uses it.
    """

    def __init__(self, spark: SparkSession, prefix: str) -> None:
        self.spark = spark
        self._prefix = prefix
        self._classic = is_classic(spark)

    def collect(self, name: str, what: str, make: Callable[[], DataFrame]) -> list[Any]:
        """Run a DataFrame on this thread; return its rows.

        Args:
            name: Name of the job.
            what: Description for Spark's pages.
            make: Returns the DataFrame.
        """
        tag = self._prefix + name
        if not self._classic:
            self.spark.addTag(tag)
            try:
                return list(make().collect())
            finally:
                self.spark.removeTag(tag)
        self.spark.sparkContext.setJobGroup(tag, what, interruptOnCancel=True)
        return list(make().collect())

    def cancel(self, name: str) -> None:
        """Cancel the job of a name, if it runs. Its ``collect`` raises."""
        # A session that has ended has no jobs.
        with contextlib.suppress(Exception):
            if self._classic:
                self.spark.sparkContext.cancelJobGroup(self._prefix + name)
            else:
                self.spark.interruptTag(self._prefix + name)

    def others(self, names: list[str]) -> Slots | None:
        """Return the tasks of all Spark jobs but these; None through Spark Connect."""
        if not self._classic:
            return None
        status = self.spark.sparkContext.statusTracker()
        own: set[int] = set()
        for name in names:
            own.update(status.getJobIdsForGroup(self._prefix + name))
        return self._count(status, set(status.getActiveJobsIds()) - own)

    def slots(self, name: str) -> Slots | None:
        """Return the tasks of the job of a name; None through Spark Connect."""
        if not self._classic:
            return None
        status = self.spark.sparkContext.statusTracker()
        return self._count(status, set(status.getJobIdsForGroup(self._prefix + name)))

    @staticmethod
    def _count(status: Any, jobs: set[int]) -> Slots:
        active, running, waiting = set(status.getActiveStageIds()), 0, 0
        for stage in SparkJobs._stages(status, jobs, active):
            running += stage.numActiveTasks
            waiting += stage.numTasks - stage.numActiveTasks - stage.numCompletedTasks
        return Slots(running=running, waiting=max(0, waiting))

    @staticmethod
    def _stages(status: Any, jobs: set[int], active: set[int]) -> Iterator[Any]:
        for job in jobs:
            seen = status.getJobInfo(job)
            for stage in () if seen is None else seen.stageIds:
                info = status.getStageInfo(stage) if stage in active else None
                if info is not None:
                    active.discard(stage)
                    yield info


def is_classic(spark: SparkSession) -> bool:
    """Return whether a session has a driver in this process, rather than Spark Connect."""
    return hasattr(spark, "_jsparkSession")


def one_line(error: BaseException) -> str:
    """Return the cause of a failed Spark job, in one line: the last exception of Python in it."""
    lines = [line.strip() for line in str(error).splitlines() if not _FRAME.match(line)]
    named = [line for line in lines if _RAISED.match(line)]
    cause = named[0] if named else (lines[0] if lines else type(error).__name__)
    return cause[:500]
