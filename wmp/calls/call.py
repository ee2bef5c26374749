"""A call of a function for its submitter: a job whose result may be a pickle."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from wmp.blocking.job import Job
from wmp.calls.pickles import take_carried
from wmp.errors import InitializerFailed, JobFailed
from wmp.message import Frame
from wmp.runtime.portal import Portal
from wmp.runtime.submission.results import Ended
from wmp.runtime.submission.submissions import Submissions, result_of

__all__ = ["Call", "PickledCall"]


def _unpickled(id: int, row: Frame | Ended, codec: str) -> tuple[Any, BaseException | None]:
    payload, error = result_of(id, row, "bytes")
    if isinstance(error, JobFailed):
        if error.type_name == InitializerFailed.__name__:
            broken = InitializerFailed(error.text)
            broken.__cause__ = error
            return None, broken
        return None, take_carried(error)
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


class Call(Job):
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
        ended: Callable[[Call], None],
    ) -> None:
        super().__init__(submissions, portal)
        self._ended = ended

    def _settle(self, rows: Sequence[Frame | Ended]) -> None:
        super()._settle(rows)
        self._ended(self)


class PickledCall(Call):
    """A call whose result and whose exception are pickles (CALL-3.2, CALL-3.3)."""

    _result_of = staticmethod(_unpickled)
