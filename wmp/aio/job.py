"""One job as its submitter holds it, for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from typing import Any

from wmp.errors import JobCancelled
from wmp.message import Frame
from wmp.runtime.ledger import Ended, Ledger, Status, result_of

__all__ = ["Job"]

logger = logging.getLogger("wmp")


class Job:
    """A submitted job: await it for its result.

    Awaiting raises :class:`~wmp.errors.JobFailed`, ``JobCancelled``, ``JobTimeout``,
    ``WorkerLost`` or ``ClosedError``. Like asyncio's futures it is not thread-safe.

    Attributes:
        id: The job's number within its manager, from 1.
    """

    __slots__ = (
        "_callbacks",
        "_codec",
        "_done",
        "_error",
        "_ledger",
        "_loop",
        "_status",
        "_status_callbacks",
        "_value",
        "_waiters",
        "id",
    )

    def __init__(self, ledger: Ledger, codec: str) -> None:
        self.id = 0
        self._ledger = ledger
        self._codec = codec
        self._loop = asyncio.get_running_loop()
        self._done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._status: Status | None = None
        self._waiters: list[asyncio.Future[None]] | None = None
        self._callbacks: list[Callable[[Job], object]] | None = None
        self._status_callbacks: list[Callable[[Status], object]] | None = None

    def __repr__(self) -> str:
        if not self._done:
            state = "pending"
        elif self._error is None:
            state = "done"
        else:
            state = type(self._error).__name__
        return f"<Job {self.id} {state}>"

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._done:
            waiter: asyncio.Future[None] = self._loop.create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            try:
                yield from waiter
            except asyncio.CancelledError:
                # Whoever gives up waiting, a timeout for example, wants no result any more.
                self.cancel()
                raise
        return self.result()

    def cancel(self) -> bool:
        """Ask for the job to be cancelled: CANCEL is really sent to whoever has it.

        Wait for the job after that: it ends with the definite answer, ``JobCancelled`` or the
        result that was faster.

        Returns:
            False when the job had ended already.
        """
        return not self._done and self._ledger.cancel([self.id])

    def status(self) -> Status | None:
        """Return what the handler reported last, None before its first report."""
        return self._status

    def add_status_callback(self, fn: Callable[[Status], object]) -> None:
        """Have ``fn(status)`` called on the loop at every report of the handler."""
        if self._status_callbacks is None:
            self._status_callbacks = []
        self._status_callbacks.append(fn)

    def done(self) -> bool:
        """Tell whether the job has ended, one way or the other."""
        return self._done

    def cancelled(self) -> bool:
        """Tell whether the job has ended by cancellation."""
        return isinstance(self._error, JobCancelled)

    def result(self) -> Any:
        """Return the result of a job that has ended.

        Raises:
            JobError: It did not end well.
            ClosedError: The manager closed first.
            asyncio.InvalidStateError: It has not ended; await it.
        """
        if not self._done:
            raise asyncio.InvalidStateError(f"job {self.id} has not ended; await it")
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self) -> Exception | None:
        """Return the error of a job that has ended, None if it ended well.

        Raises:
            asyncio.InvalidStateError: It has not ended; await it.
        """
        if not self._done:
            raise asyncio.InvalidStateError(f"job {self.id} has not ended; await it")
        return self._error

    def add_done_callback(self, fn: Callable[[Job], object]) -> None:
        """Have ``fn(job)`` called on the loop when the job has ended."""
        if self._done:
            self._loop.call_soon(_call, fn, self)
            return
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(fn)

    # -- the driver's side ------------------------------------------------------------------

    def given(self, first: int, count: int) -> None:
        """Learn the job's number."""
        self.id = first

    def succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        """Learn that the job ended well."""
        self._value, self._error = result_of(ids[0], payloads[0], self._codec)
        self._finish()

    def settle(self, rows: Sequence[Ended]) -> None:
        """Learn how the job ended."""
        self._value, self._error = result_of(self.id, rows[0], self._codec)
        self._finish()

    def fail(self, id: int, error: Exception) -> None:
        """Learn that the manager ended first."""
        self._error = error
        self._finish()

    def progress(self, id: int, status: Status) -> None:
        """Learn what the handler reported."""
        self._status = status
        for fn in self._status_callbacks or ():
            self._loop.call_soon(_call, fn, status)

    def _finish(self) -> None:
        self._done = True
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        for fn in self._callbacks or ():
            self._loop.call_soon(_call, fn, self)
        self._waiters = self._callbacks = self._status_callbacks = None


def _call(fn: Callable[[Any], object], argument: object) -> None:
    try:
        fn(argument)
    except Exception:  # A user's callback; it must not end up in the loop's handler.
        logger.exception("a callback failed: %r", fn)
