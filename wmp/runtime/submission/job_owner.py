"""The owner of submitted jobs, and the delivery of ends to owners.

An owner is the user's job, a running ``map`` or a door. Its jobs end also when the owner raises an
error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from wmp.message import Frame
from wmp.runtime.submission.results import Ended, Status

logger = logging.getLogger("wmp")


class JobOwner(Protocol):
    """Takes the ends of jobs.

    The driver calls all methods but ``_given``. No method may block. If a method raises
    nevertheless, ``_undelivered`` is called. The names begin with an underscore, because the user's
    job is an owner too and has other public methods.
    """

    def _given(self, first: int, count: int) -> None:
        """Take the numbers of the submitted jobs, before any event of these jobs."""

    def _succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        """Take results of jobs: one or more, in the order of their ends."""

    def _settle(self, rows: Sequence[Ended]) -> None:
        """Take ends of jobs, with or without a result: one or more, in the order of the ends."""

    def _undelivered(self, ids: Sequence[int], error: BaseException) -> None:
        """End those of the jobs that have not ended: the delivery of their ends raised an error."""

    def _progress(self, id: int, status: Status) -> None:
        """Take a report of a job's handler."""


def settle_each(ends: Iterable[tuple[JobOwner, Ended]]) -> None:
    """Deliver ends one by one. An error ends its job and is logged, or is raised at last."""
    problem: BaseException | None = None
    for owner, row in ends:
        try:
            owner._settle([row])
        except BaseException as error:
            give_up(owner, [row[0]], error)
            if isinstance(error, Exception):
                logger.exception("the end of job %d could not be delivered", row[0])
            else:
                problem = error
    if problem is not None:
        raise problem


def give_up(owner: JobOwner, ids: Sequence[int], error: BaseException) -> None:
    """End jobs whose delivery raised an error."""
    try:
        owner._undelivered(ids, error)
    except BaseException:
        logger.exception("jobs %s could not be ended", list(ids))
