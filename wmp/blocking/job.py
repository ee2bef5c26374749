"""A job for its submitter: a future of ``concurrent.futures``."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wmp.duration import Duration, in_seconds
from wmp.errors import ClosedError, ConfigError, JobCancelled, StoreFull
from wmp.message import Frame
from wmp.runtime.node.portal import Portal
from wmp.runtime.submission.results import Ended, Status, result_of, undelivered, with_causes
from wmp.runtime.submission.submissions import Submissions

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # in the standard library since Python 3.13

    _R = TypeVar("_R", default=Any)
else:
    from typing import TypeVar

    _R = TypeVar("_R")


class Job(concurrent.futures.Future[_R]):
    """A submitted job: a future like those of ``concurrent.futures.Executor.submit``.

    The job is ``running`` once a worker has it. From then on ``cancel`` returns False, and ``stop``
    sends the worker a request to end the job. Callbacks run on a separate thread, one after the
    other. For type checkers, the results of a :class:`wmp.Executor` and of a task have their types:
    ``Job[int]``. A ``Job`` alone is a ``Job[Any]``.

    Attributes:
        id: The job's number at its manager, from 1.
    """

    _result_of: Callable[[int, Frame | Ended, str], tuple[Any, BaseException | None]] = (
        staticmethod(result_of)
    )
    """Returns the result and the error of the job's end."""

    def __init__(self, submissions: Submissions, portal: Portal) -> None:
        super().__init__()
        self.id = 0
        self._submissions = submissions
        self._portal = portal
        self._status: Status | None = None
        self._cancelled: JobCancelled | None = None
        self._status_callbacks: tuple[Callable[[Status], object], ...] = ()

    def result(self, timeout: Duration | None = None) -> _R:
        """Return the result; wait for it, for ``timeout`` seconds at most.

        Raises:
            JobError: The job ended without a result.
            JobCancelled: The job was cancelled. This ``JobError`` is also a ``CancelledError``.
            ClosedError: The manager closed before the end of the job.
            TimeoutError: The job did not end within ``timeout`` seconds. The text names the cause.
            RuntimeError: The caller is on the event loop's thread, which would wait for itself.
        """
        timeout = in_seconds(timeout)
        if not self.done():
            self._portal.check_thread()
        try:
            return super().result(timeout)
        except concurrent.futures.CancelledError:
            raise self._cancelled or JobCancelled("cancelled", job_id=self.id) from None
        except TimeoutError:
            if self.done() or not timeout or timeout < 0:
                raise
            raise TimeoutError(self._late(timeout)) from None

    def _late(self, timeout: float) -> str:
        """Return a text about a job that has not ended in time."""
        why = ""
        with contextlib.suppress(ClosedError, RuntimeError):
            why = self._portal.ask(lambda: self._submissions.states.waits_for(self.id))
        return f"job {self.id} has not ended after {timeout:g} s" + (why and f": {why}")

    def exception(self, timeout: Duration | None = None) -> BaseException | None:
        """Return the error; None for a job that ended with a result. Wait as ``result`` does.

        Raises:
            JobCancelled: The job was cancelled.
        """
        timeout = in_seconds(timeout)
        if not self.done():
            self._portal.check_thread()
        try:
            return super().exception(timeout)
        except concurrent.futures.CancelledError:
            raise self._cancelled or JobCancelled("cancelled", job_id=self.id) from None

    def running(self) -> bool:
        """Return whether a worker has the job; from then on the job can only be stopped."""
        return not self.done() and self._portal.ask(lambda: self._submissions.states.runs(self.id))

    def cancel(self) -> bool:
        """Cancel the job if no worker has it yet. The store confirms the end of a stored job first.

        A later ``submit`` with the same key makes a new job.

        Returns:
            Whether the job is cancelled. False means that a worker has the job and still runs it
            (see :meth:`stop`), that another manager of the store has the job and is asked to end
            it, or that the job has ended.
        """
        if not self.done():
            id, submissions, answered = self.id, self._submissions, threading.Event()
            if self._portal.ask(
                lambda: (
                    submissions.states.cancel_waiting([id])
                    and submissions.when_answered(id, answered.set)
                )
            ):
                answered.wait()
        return self.cancelled()

    def stop(self) -> bool:
        """Request the end of the job. If a worker has the job, send CANCEL to the worker.

        Wait for the job afterwards. The job ends with ``JobCancelled``, or with a result that
        arrived first. A handler in a thread cannot be ended: the job then ends when the handler
        does. The manager logs a warning about such a job.

        Returns:
            False when the job had ended already.

        Raises:
            ClosedError: The manager runs in the process from which this process was forked.
        """
        if self.done():
            return False
        self._submissions.check_process()
        return self._submissions.stop(self.id)

    def stored(self) -> None:
        """Wait until the store has the job. From then on the job outlives its manager's process.

        Raises:
            ConfigError: The job is not stored: its manager keeps it in memory.
            StoreFull: The store does not take the job.
            ClosedError: The manager closed first; it is not known whether the job is stored.
        """
        if not self._submissions.is_stored(self.id):
            raise ConfigError(f"job {self.id} is not stored; give its manager a store")
        self._portal.check_thread()
        waited = False
        if self._submissions.is_unconfirmed(self.id):
            waiter = threading.Event()
            waited = self._submissions.when_stored(self.id, waiter.set)
            if waited:
                waiter.wait()
        error = super().exception() if self.done() and not self.cancelled() else None
        if isinstance(error, StoreFull) or (waited and isinstance(error, ClosedError)):
            raise error

    def status(self) -> Status | None:
        """Return the last report of the handler; None before the first report.

        While no connected worker can do the job, ``unserved`` of the status states the cause.
        While a stored job waits, ``stored`` of the status states where.
        """
        id, states = self.id, self._submissions.states
        if self.done() or not (states.has_unserved or self._submissions.is_stored(id)):
            return self._status
        causes = self._portal.ask(lambda: (states.unserved(id), states.waiting_place(id)))
        return with_causes(self._status, *causes)

    def add_status_callback(self, fn: Callable[[Status], object]) -> None:
        """Have ``fn(status)`` called on a thread at every report of the handler."""
        self._status_callbacks += (fn,)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Have ``fn(job)`` called when the job has ended."""
        # A future calls its callbacks on the thread that ends it. Here this is the driver's thread.
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
        value, error = self._result_of(self.id, rows[0], self._submissions.codec)
        if error is None:
            self.set_result(value)
        elif isinstance(error, JobCancelled):
            self._cancelled = error
            if super().cancel():
                self.set_running_or_notify_cancel()
            else:  # other code has declared the future as running
                self.set_exception(error)
        else:
            self.set_exception(error)

    def _undelivered(self, ids: Sequence[int], error: BaseException) -> None:
        """End with the error that the delivery raised, unless the job has ended."""
        if self._state == "CANCELLED":
            self.set_running_or_notify_cancel()  # other code has cancelled the future
        elif not self.done():
            self.set_exception(undelivered(self.id, error))

    def _progress(self, id: int, status: Status) -> None:
        """Keep the handler's report, and call back."""
        self._status = status
        for fn in self._status_callbacks:
            self._portal.call_user(fn, status)
