"""A call of a function for its submitter: a job whose result may be a pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from wmp.blocking.job import Job
from wmp.calls.handlers import IN_INITIALIZER
from wmp.calls.pickles import take_carried
from wmp.errors import InitializerFailed, JobFailed, WorkerLost
from wmp.message import Frame
from wmp.runtime.node.portal import Portal
from wmp.runtime.submission.results import Ended, result_of
from wmp.runtime.submission.submissions import Submissions

_T = TypeVar("_T")


def _unpickled(id: int, row: Frame | Ended, codec: str) -> tuple[Any, BaseException | None]:
    payload, error = result_of(id, row, "bytes")
    if isinstance(error, JobFailed):
        if error.type_name == InitializerFailed.__name__:
            return None, _broken(error.text, error)
        return None, take_carried(error)
    if isinstance(error, WorkerLost) and error.cause.endswith(IN_INITIALIZER):
        return None, _broken(f"the initializer ended its process: {error.cause}", error)
    if error is not None:
        return None, error
    try:
        return pickle.loads(payload), None
    except BaseException as problem:  # noqa: BLE001 - code of the result's own class
        unfit = JobFailed(
            type(problem).__name__,
            f"the result of the call cannot be unpickled here: {problem}",
            job_id=id,
        )
        unfit.__cause__ = problem
        return None, unfit


def _broken(text: str, cause: Exception) -> InitializerFailed:
    broken = InitializerFailed(text)
    broken.__cause__ = cause
    return broken


class Call(Job[_T]):
    """A call that an executor submitted: a future of ``concurrent.futures``, and a job.

    Args:
        submissions: The jobs of the manager.
        portal: The portal of the manager.
        ended: Takes the call when it has ended, on the driver's thread.
    """

    def __init__(
        self,
        submissions: Submissions,
        portal: Portal,
        ended: Callable[[Call[Any]], None],
    ) -> None:
        super().__init__(submissions, portal)
        self._ended = ended
        self.rows: int | None = None
        """Number of function calls in a chunk; None for a single call."""

    def results(self, timeout: float | None) -> list[Any]:
        """Return the results of all function calls of a chunk, or the result of a single call.

        Raises:
            JobFailed: The worker returned another number of results than the chunk has calls.
            BaseException: As for :meth:`result`.
        """
        result: Any = self.result(timeout)
        if self.rows is None:
            return [result]
        if not isinstance(result, list) or len(result) != self.rows:
            count = f"{len(result)} results" if isinstance(result, list) else type(result).__name__
            raise JobFailed(
                "ValueError",
                f"the worker returned {count} for a chunk of {self.rows} calls; expected a list of "
                f"{self.rows} results",
                job_id=self.id,
            )
        return result

    def _settle(self, rows: Sequence[Frame | Ended]) -> None:
        try:
            super()._settle(rows)
        finally:
            self._ended(self)

    def _undelivered(self, ids: Sequence[int], error: BaseException) -> None:
        super()._undelivered(ids, error)
        self._ended(self)


class PickledCall(Call[_T]):
    """A call whose result and whose exception are pickles (CALL-3.2, CALL-3.3)."""

    _result_of = staticmethod(_unpickled)
