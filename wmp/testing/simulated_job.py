"""A job of a simulated world, as the program that submitted it sees it.

That program outlives its manager: what had no result when a manager's process died it submits
again to the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field

from wmp.actions import End
from wmp.errors import JobCancelled
from wmp.message import Frame, Kind, Peer
from wmp.runtime.submission.results import Status, error_of, value_of

__all__ = ["SimulatedJob"]

_SHOWN = 40


@define(eq=False, repr=False)
class SimulatedJob:
    """A submitted job: a future whose ``result()`` lets the world run.

    Attributes:
        number: Its place among all jobs of the world, from 1.
        payload: What was handed in.
        runs: How many times a handler was called for it, to its end or not.
        attempts: How many leases it had when it ended, with the manager that ended it.
    """

    number: int
    payload: Any
    _run: Callable[[], None]
    """Lets the world run until this job has ended."""
    _withdraw: Callable[[SimulatedJob], None]
    """Cancels this job at its manager."""
    _terms: tuple[Frame, Kind, int, float | None, int]
    """Payload, kind, priority, timeout and retries."""
    key: str | None = None
    runs: int = field(default=0, init=False)
    attempts: int = field(default=0, init=False)
    owner: tuple[Peer, int] | None = field(default=None, init=False)
    """The manager's process that holds it, and its number there."""
    cut: int = field(default=0, init=False)
    """How often its handler was ended in the middle."""
    killed: int = field(default=0, init=False)
    """How often what ran it was killed in the middle or right after."""
    unwanted: bool = field(default=False, init=False)
    _end: End | None = field(default=None, init=False)
    _answer: Frame = field(default=b"", init=False)
    _status: Status | None = field(default=None, init=False)

    def done(self) -> bool:
        """Tell whether it has ended."""
        return self._end is not None

    def result(self) -> Any:
        """Return the result; a world that has not come so far runs first.

        Raises:
            JobError: The job did not end well.
        """
        error = self.exception()
        if error is not None:
            raise error
        return value_of(self._answer, self._terms[1].codec or "bytes")

    def exception(self) -> Exception | None:
        """Return the error, None for a job that ended well; the world runs first if it must."""
        if self._end is None:
            self._run()
        assert self._end is not None
        if self._end is End.OK:
            return None
        return error_of(self.number, self._end, self._answer, self.attempts)

    def cancel(self) -> bool:
        """Ask for the job to be cancelled; ``run()`` brings the answer.

        Returns:
            False when the job had ended already.
        """
        if self._end is not None:
            return False
        self.unwanted = True
        self._withdraw(self)
        return True

    def cancelled(self) -> bool:
        """Tell whether the job has ended by cancellation."""
        return self.done() and isinstance(self.exception(), JobCancelled)

    def status(self) -> Status | None:
        """Return what the handler reported last, None before its first report."""
        return self._status

    def __repr__(self) -> str:
        shown = repr(self.payload)
        shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
        return f"job {self.number} ({shown})"

    # -- the world's side

    def settle(self, end: End, answer: Frame, attempts: int) -> None:
        """Learn how the job ended."""
        self._end, self._answer, self.attempts = end, answer, attempts

    def progress(self, status: Status) -> None:
        """Learn what the handler reported."""
        self._status = status
