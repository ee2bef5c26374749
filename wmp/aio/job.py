"""A job for its submitter, with asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from attrs import define

from wmp.errors import ClosedError, ConfigError, JobCancelled, StoreFull
from wmp.message import Frame
from wmp.runtime.codecs.payload_codecs import PLAIN, unpack
from wmp.runtime.submission.results import Ended, Status, result_of, undelivered, with_causes
from wmp.runtime.submission.submissions import Submissions

logger = logging.getLogger("wmp")


_PENDING: Final = object()


@define(eq=False)
class _Interest:
    """Waiters and callbacks of a job; made for the first waiter or callback."""

    waiters: tuple[asyncio.Future[None], ...] = ()
    callbacks: tuple[Callable[[Job], object], ...] = ()
    status_callbacks: tuple[Callable[[Status], object], ...] = ()
    status: Status | None = None


class Job:
    """A submitted job: await the job for its result.

    Awaiting raises :class:`~wmp.errors.JobFailed`, ``JobCancelled``, ``JobTimeout``, ``WorkerLost``
    or ``ClosedError`` if there is no result. Like asyncio's futures, a job is not thread-safe.

    Attributes:
        id: The job's number at its manager, from 1.
    """

    # There may be a million jobs, and the garbage collector visits each slot of each job.
    __slots__ = ("_ended", "_interest", "_loop", "_submissions", "id")

    def __init__(self, submissions: Submissions) -> None:
        self.id = 0
        self._submissions = submissions
        self._loop = asyncio.get_running_loop()
        self._ended: Any = _PENDING
        """The job's result, or its error."""
        self._interest: _Interest | None = None

    def __repr__(self) -> str:
        if not self.done():
            state = "pending"
        elif isinstance(self._ended, Exception):
            state = type(self._ended).__name__
        else:
            state = "done"
        return f"<Job {self.id} {state}>"

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done():
            self._submissions.check_process()
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._wanted().waiters += (waiter,)
            try:
                yield from waiter
            except asyncio.CancelledError:
                # If a wait is cancelled, for example by a timeout, no result is wanted.
                self._submissions.stop(self.id)
                raise
        if isinstance(self._ended, Exception):
            raise self._ended
        return self._ended

    def cancel(self) -> bool:
        """Request the cancellation of the job, as ``asyncio.Task.cancel`` does.

        CANCEL is sent to the worker that has the job. Wait for the job afterwards. The job ends
        with ``JobCancelled``, or with a result that arrived first.

        Returns:
            False when the job had ended already.

        Raises:
            ClosedError: The manager runs in the process from which this process was forked.
        """
        if self.done():
            return False
        self._submissions.check_process()
        return self._submissions.stop(self.id)

    async def stored(self) -> None:
        """Wait until the store has the job. From then on the job outlives its manager's process.

        Raises:
            ConfigError: The job is not stored: its manager keeps it in memory.
            StoreFull: The store does not take the job.
            ClosedError: The manager closed first; it is not known whether the job is stored.
        """
        if not self._submissions.is_stored(self.id):
            raise ConfigError(f"job {self.id} is not stored; give its manager a store")
        waited = False
        if self._submissions.is_unconfirmed(self.id):
            waiter: asyncio.Future[None] = self._loop.create_future()

            def wake() -> None:
                if not waiter.done():
                    waiter.set_result(None)

            waited = self._submissions.when_stored(self.id, wake)
            if waited:
                await waiter
        ended = self._ended
        if isinstance(ended, StoreFull) or (waited and isinstance(ended, ClosedError)):
            raise ended

    def status(self) -> Status | None:
        """Return the last report of the handler; None before the first report.

        While no connected worker can do the job, ``unserved`` of the status states the cause.
        While a stored job waits, ``stored`` of the status states where.
        """
        status = None if self._interest is None else self._interest.status
        if self.done():
            return status
        id, states = self.id, self._submissions.states
        return with_causes(status, states.unserved(id), states.waiting_place(id))

    def add_status_callback(self, fn: Callable[[Status], object]) -> None:
        """Have ``fn(status)`` called on the loop at every report of the handler."""
        self._wanted().status_callbacks += (fn,)

    def done(self) -> bool:
        """Return whether the job has ended, in any way."""
        return self._ended is not _PENDING

    def cancelled(self) -> bool:
        """Return whether the job has ended by cancellation."""
        return isinstance(self._ended, JobCancelled)

    def result(self) -> Any:
        """Return the result of a job that has ended.

        Raises:
            JobError: The job did not end with a result.
            ClosedError: The manager closed first.
            asyncio.InvalidStateError: The job has not ended; await it.
        """
        error = self.exception()
        if error is not None:
            raise error
        return self._ended

    def exception(self) -> Exception | None:
        """Return the error of a job that has ended; None if the job ended with a result.

        Raises:
            asyncio.InvalidStateError: The job has not ended; await it.
        """
        if not self.done():
            raise asyncio.InvalidStateError(f"job {self.id} has not ended; await it")
        return self._ended if isinstance(self._ended, Exception) else None

    def add_done_callback(self, fn: Callable[[Job], object]) -> None:
        """Have ``fn(job)`` called on the loop when the job has ended."""
        if self.done():
            self._loop.call_soon(_call, fn, self)
        else:
            self._wanted().callbacks += (fn,)

    # -- the driver's side ------------------------------------------------------------------

    def _given(self, first: int, count: int) -> None:
        """Take the job's number."""
        self.id = first

    def _succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        """End with a result."""
        codec = self._submissions.codec
        if codec == PLAIN and type(payloads[0]) is bytes:
            self._ended = payloads[0]
        else:
            value, error = unpack(self.id, payloads[0], codec)
            self._ended = value if error is None else error
        self._wake()

    def _settle(self, rows: Sequence[Ended]) -> None:
        """End with a result or an error."""
        value, error = result_of(self.id, rows[0], self._submissions.codec)
        self._ended = value if error is None else error
        self._wake()

    def _undelivered(self, ids: Sequence[int], error: BaseException) -> None:
        """End with the error that the delivery raised, unless the job has ended."""
        if not self.done():
            self._ended = undelivered(self.id, error)
        self._wake()

    def _wake(self) -> None:
        """Wake the waiters of the end, and call the callbacks."""
        wanted = self._interest
        if wanted is None:
            return
        for waiter in wanted.waiters:
            if not waiter.done():
                waiter.set_result(None)
        for fn in wanted.callbacks:
            self._loop.call_soon(_call, fn, self)
        # The last status stays available.
        self._interest = None if wanted.status is None else _Interest(status=wanted.status)

    def _progress(self, id: int, status: Status) -> None:
        """Keep the handler's report, and call the callbacks."""
        wanted = self._wanted()
        wanted.status = status
        for fn in wanted.status_callbacks:
            self._loop.call_soon(_call, fn, status)

    def _wanted(self) -> _Interest:
        if self._interest is None:
            self._interest = _Interest()
        return self._interest


def _call(fn: Callable[[Any], object], argument: object) -> None:
    try:
        fn(argument)
    except Exception:  # an error of a user's callback must not reach the loop
        logger.exception("a callback raised an error: %r", fn)
