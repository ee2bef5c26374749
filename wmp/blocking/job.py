"""A job for its submitter: a future of ``concurrent.futures``."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any

from wmp.errors import JobCancelled
from wmp.message import Frame
from wmp.runtime.portal import Portal
from wmp.runtime.submission.results import Ended, Status, result_of, with_cause
from wmp.runtime.submission.submissions import Submissions

__all__ = ["Job"]


class Job(concurrent.futures.Future[Any]):
    """A submitted job: a future whose cancellation asks the worker.

    Callbacks run on a separate thread, one after the other.

    Attributes:
        id: The job's number within its manager, from 1.
    """

    def __init__(self, submissions: Submissions, portal: Portal) -> None:
        super().__init__()
        self.id = 0
        self._submissions = submissions
        self._portal = portal
        self._status: Status | None = None
        self._status_callbacks: tuple[Callable[[Status], object], ...] = ()

    def result(self, timeout: float | None = None) -> Any:
        """Return the result; wait for it, for ``timeout`` seconds at most.

        Raises:
            JobError: The job did not end with a result.
            ClosedError: The manager closed first.
            TimeoutError: The job had not ended by then.
            RuntimeError: Called on the event loop's thread, which would wait for itself.
        """
        if not self.done():
            self._portal.check_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, None for a job that ended with a result; wait as ``result`` does."""
        if not self.done():
            self._portal.check_thread()
        return super().exception(timeout)

    def cancel(self) -> bool:
        """Ask for the job to be cancelled: CANCEL is sent to the worker that has it.

        Wait for the job after that. It ends with ``JobCancelled``, or with a result that was
        faster.

        Returns:
            False when the job had ended already.
        """
        return not self.done() and self._submissions.cancel([self.id])

    def cancelled(self) -> bool:
        """Return whether the job has ended by cancellation."""
        return self.done() and isinstance(super().exception(), JobCancelled)

    def status(self) -> Status | None:
        """Return the last report of the handler, None before the first report.

        While no connected worker can do the job, ``unserved`` of the status states the cause.
        """
        find = self._submissions.unserved
        if find is None or self.done() or not self._portal.opened:
            return self._status

        async def cause() -> str:
            return find(self.id)

        return with_cause(self._status, self._portal.call(cause()))

    def add_status_callback(self, fn: Callable[[Status], object]) -> None:
        """Have ``fn(status)`` called at every report of the handler."""
        self._status_callbacks += (fn,)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Have ``fn(job)`` called when the job has ended."""
        # A future calls back on the thread that ends it, which is the driver's.
        super().add_done_callback(lambda job: self._portal.call_user(fn, job))

    # -- the driver's side ------------------------------------------------------------------

    def _given(self, first: int, count: int) -> None:
        """Take the job's number."""
        self.id = first

    def _succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        """End with a result."""
        self._settle(payloads)

    def _settle(self, rows: Sequence[Frame | Ended]) -> None:
        """End with a result or an error."""
        value, error = result_of(self.id, rows[0], self._submissions.codec)
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)

    def _progress(self, id: int, status: Status) -> None:
        """Keep the handler's report, and call back."""
        self._status = status
        for fn in self._status_callbacks:
            self._portal.call_user(fn, status)
