"""One run of ``wmp map``: its job log, and the condition at which it halts."""

from __future__ import annotations

from collections.abc import Callable

from wmp.blocking import Manager
from wmp.cli.common.entry_point import FAILED, SIGNALLED
from wmp.cli.common.halt import HaltCount, HaltRule
from wmp.cli.map.feed import Feed, Item
from wmp.cli.map.joblog import JobLog, JobLogRow, exit_of
from wmp.errors import JobCancelled
from wmp.runtime.driver.lease_times import LeaseTimes


def error_of_item(item: Item) -> BaseException | None:
    """Return the error of a job that has ended; None for a result, or without a job."""
    if item.job is None:
        return None
    try:
        return item.job.exception()
    except JobCancelled as error:
        return error


class MapRun:
    """The job log and the halt of one run.

    Args:
        rule: The condition at which the run halts; None for no such condition.
    """

    def __init__(self, rule: HaltRule | None) -> None:
        self._count = None if rule is None else HaltCount(rule)
        self._log: JobLog | None = None
        self._times = LeaseTimes()
        self.halted: HaltCount | None = None
        """The condition that applied."""
        self.left = 0
        """Number of jobs that were cancelled then."""

    def log_to(self, log: JobLog, manager: Manager) -> None:
        """Write the jobs of the manager, which has not started, into a log."""
        self._log = log
        manager._inner.node.watchers.append(self._times.step)

    def skips(self, number: int, name: str) -> bool:
        """Return whether an earlier run has done the job of an input."""
        return self._log is not None and self._log.skips(number, name)

    def ended(self, item: Item) -> None:
        """Count a job that has ended; called on another thread."""
        if self._count is not None:
            raised = error_of_item(item)
            if not isinstance(raised, JobCancelled):
                code, number = exit_of(raised) if item.error is None else (FAILED, 0)
                self._count.add(code or (SIGNALLED + number if number else 0))

    def check(self, feed: Feed) -> None:
        """Stop the feed if the condition applies now."""
        if self._count is not None and self.halted is None and self._count.applies(feed.total):
            self.halted = self._count
            feed.stop(running=self._count.rule.now)

    def record(self, item: Item, raised: BaseException | None, flush: Callable[[], None]) -> None:
        """Write a job, whose result was printed, into the log.

        Args:
            item: The input of the job.
            raised: The error of the job; None for a result.
            flush: Writes the printed results.
        """
        if self._log is None:
            return
        times = self._times.take(0 if item.job is None else item.job.id)
        code, number = exit_of(raised) if item.error is None else (FAILED, 0)
        size = len(item.job.result()) if item.job is not None and raised is None else 0
        row = JobLogRow(
            number=item.number,
            host=times.host,
            start=times.sent,
            runtime=max(0.0, times.ended - times.sent),
            sent=item.size,
            received=size,
            code=code,
            signal=number,
            command=self._log.command(item.name),
        )
        if self._log.add(row):
            self.flush(flush)

    def flush(self, flush: Callable[[], None]) -> None:
        """Write the results, and then the log."""
        flush()
        if self._log is not None:
            self._log.flush()
