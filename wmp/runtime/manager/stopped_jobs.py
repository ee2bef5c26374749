"""Jobs that were stopped and whose handlers still run: a line in the log of their manager.

A handler in a thread cannot be ended. Its job ends when the handler does, and the submitter waits
until then.
"""

from __future__ import annotations

import logging

from wmp.core.manager.job_lifecycle import JobState
from wmp.core.manager.machine import ManagerMachine
from wmp.message import counted
from wmp.runtime.submission.submissions import Submissions

logger = logging.getLogger("wmp")

_SHOWN = 5
"""Maximum number of jobs that a line names."""


class StoppedJobs:
    """Logs each job once that has not ended between two checks after its stop.

    Args:
        machine: Machine of the manager.
        submissions: Submissions of the manager, which collect the stopped jobs.
    """

    def __init__(self, machine: ManagerMachine, submissions: Submissions) -> None:
        self._machine = machine
        self._submissions = submissions
        self._seen: list[int] = []
        """Jobs that the last check saw for the first time."""

    def look(self, where: str, seconds: float) -> None:
        """Check the jobs that were stopped.

        Args:
            where: Addresses of the manager.
            seconds: Time since the last check.
        """
        still = self._cancelling(self._seen)
        new, stopping = [], self._submissions.stopping
        while stopping:
            new.append(stopping.pop())
        self._seen = self._cancelling(new)
        if still:
            shown = ", ".join(map(str, still[:_SHOWN]))
            more = f" and {len(still) - _SHOWN} more" if len(still) > _SHOWN else ""
            logger.warning(
                "manager at %s: %s stopped more than %g s ago, and the handler goes on (%s%s): a "
                "handler in a thread cannot be ended, so the job ends when its handler does. The "
                'handler can read job.cancelled. A worker with pool="process" ends its handlers',
                where,
                counted(len(still), "job was", "jobs were"),
                seconds,
                shown,
                more,
            )

    def _cancelling(self, ids: list[int]) -> list[int]:
        state = self._machine.state
        return sorted(id for id in ids if state(id) is JobState.CANCELLING)
