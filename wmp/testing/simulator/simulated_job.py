"""A job of a simulated world, as the submitting program sees the job.

That program outlives its manager. When the manager's process ends, the program submits the jobs
without a result again, to the next manager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field

from wmp.actions import End
from wmp.errors import JobCancelled
from wmp.message import Frame, Kind, Peer
from wmp.runtime.submission.results import Status, error_of, result_of

_SHOWN = 40


@define(eq=False, repr=False)
class SimulatedJob:
    """A submitted job: a future whose ``result()`` lets the world run.

    Attributes:
        number: Its number among all jobs of the world, from 1.
        payload: The payload as submitted.
        runs: The number of calls of a handler for the job, including calls that did not finish.
        attempts: The number of leases at the manager that ended the job.
    """

    number: int
    payload: Any
    _run: Callable[[], None]
    """Lets the world run until this job has ended."""
    _withdraw: Callable[[SimulatedJob], None]
    """Cancels this job at its manager."""
    _terms: tuple[Frame, Kind, int, float | None, int]
    """Payload, kind, priority, timeout and worker losses."""
    key: str | None = None
    runs: int = field(default=0, init=False)
    attempts: int = field(default=0, init=False)
    owner: tuple[Peer, int] | None = field(default=None, init=False)
    """The manager's process that holds the job, and the job's number there."""
    cut: int = field(default=0, init=False)
    """Number of handler calls of this job that were ended in the middle."""
    killed: int = field(default=0, init=False)
    """Number of times that the process of this job was killed during a call or right after a call.
    """
    unwanted: bool = field(default=False, init=False)
    _end: End | None = field(default=None, init=False)
    _answer: Frame = field(default=b"", init=False)
    _status: Status | None = field(default=None, init=False)

    def done(self) -> bool:
        """Return whether the job has ended."""
        return self._end is not None

    def result(self) -> Any:
        """Return the result; the world runs first if the job has not ended.

        Raises:
            JobError: The job ended without a result.
        """
        error = self.exception()
        if error is not None:
            raise error
        value, error = result_of(self.number, self._answer, self._terms[1].codec or "bytes")
        if error is not None:
            raise error
        return value

    def exception(self) -> Exception | None:
        """Return the error; None for a job with a result. The world runs first if necessary."""
        if self._end is None:
            self._run()
        assert self._end is not None
        if self._end is End.OK:
            return None
        return error_of(self.number, self._end, self._answer, self.attempts)

    def cancel(self) -> bool:
        """Request the cancellation of the job; the answer comes in ``run()``.

        Returns:
            False when the job had ended already.
        """
        if self._end is not None:
            return False
        self.unwanted = True
        self._withdraw(self)
        return True

    def cancelled(self) -> bool:
        """Return whether the job has ended by cancellation."""
        return self.done() and isinstance(self.exception(), JobCancelled)

    def status(self) -> Status | None:
        """Return the handler's last report; None before the first report."""
        return self._status

    def __repr__(self) -> str:
        shown = repr(self.payload)
        shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
        return f"job {self.number} ({shown})"

    # -- the world's side

    def settle(self, end: End, answer: Frame, attempts: int) -> None:
        """Record the end of the job."""
        self._end, self._answer, self.attempts = end, answer, attempts

    def progress(self, status: Status) -> None:
        """Record a report of the handler."""
        self._status = status
