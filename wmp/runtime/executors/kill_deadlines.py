"""The forced end of a handler in a child process: first its flag, then SIGTERM, then SIGKILL.

A job must stop if it was cancelled or its deadline has passed. Its flag is raised at once. If the
job continues for ``cancel_grace``, its child gets SIGTERM, which raises ``SystemExit`` in the
handler. ``KILL_AFTER`` later the child gets SIGKILL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from wmp.runtime.executors.assignment import NEVER, Assignment
from wmp.runtime.executors.child_process import ChildProcess

KILL_AFTER: Final = 1.0
"""Seconds between SIGTERM and SIGKILL: enough for ``finally`` blocks."""

_AGAIN: Final = 0.1
"""Seconds until the next check of a job that should end by itself as soon as it begins."""


class KillDeadlines:
    """Enforces the deadlines of the jobs in child processes. Called under the executor's lock.

    Args:
        grace: Seconds that a job may continue after its flag was raised; None for no limit.
        raise_flag: Makes a child raise the flag of its running job.
    """

    def __init__(
        self, grace: float | None, raise_flag: Callable[[ChildProcess, int], None]
    ) -> None:
        self.grace = NEVER if grace is None else grace
        self._raise_flag = raise_flag

    def enforce(self, child: ChildProcess, now: float) -> None:
        """Raise the flag of the running job, or send the child SIGTERM or SIGKILL, as due."""
        if child.kill_at is not None:
            if now < child.kill_at:
                return
            if not child.pardon():
                child.kill()
                child.kill_at = NEVER
                return
        assignment = child.assignment
        if assignment is None or assignment.alarm > now:
            return
        running = child.begun
        raised, ended = self._check(assignment, running, now)
        if raised:
            self._raise_flag(child, running)
        if ended:
            child.condemn(running, now + KILL_AFTER)

    def interrupt(self, assignment: Assignment, ids: Iterable[int], now: float) -> None:
        """Begin the grace of jobs whose flags are raised now."""
        for id in ids:
            assignment.flagged.setdefault(id, now)
        assignment.alarm = min(assignment.alarm, now + self.grace)

    def next(self, children: Iterable[ChildProcess]) -> float:
        """Return when ``enforce`` is due for one of these children."""
        due = NEVER
        for child in children:
            if child.kill_at is not None:
                due = min(due, child.kill_at)
            elif child.assignment is not None:
                due = min(due, child.assignment.alarm)
        return due

    def _check(self, assignment: Assignment, running: int, now: float) -> tuple[bool, bool]:
        """Check whether the child's running job may continue; set the next alarm.

        Returns:
            Whether the job's flag must be raised now, and whether the job must be ended by force.
        """
        raised = ended = False
        alarm = NEVER
        for id, (_, deadline, *_) in assignment.jobs.items():
            since = assignment.flagged.get(id)
            if since is None:
                if deadline is None:
                    continue
                if deadline > now:
                    alarm = min(alarm, deadline)
                    continue
                if id == running:
                    assignment.flagged[id] = since = deadline
                    raised = True
                else:
                    since = NEVER  # the child will no longer begin the job (WMP-6.7)
            due = since + self.grace
            if id != running:
                # The child may begin the job at any moment, for example before it has read the
                # flag.
                alarm = min(alarm, max(due, now + _AGAIN))
            elif due > now:
                alarm = min(alarm, due)
            else:
                ended = True
        assignment.alarm = alarm
        return raised, ended
