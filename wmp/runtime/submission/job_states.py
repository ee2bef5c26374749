"""The state of one open job at its manager: whether a worker has it, and what it waits for.

The driver's loop calls all methods, because they read the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wmp.core.manager.job_lifecycle import JobState
from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.runtime.submission.job_table import JobTable


class JobStates:
    """Answers questions about open jobs, and cancels those that no worker has.

    Args:
        table: The jobs that have not ended.
        cancel: Requests the cancellation of jobs.
        stored: Whether the manager has a store.

    Attributes:
        has_unserved: Whether there are jobs that no connected worker can do.
    """

    def __init__(
        self, table: JobTable, cancel: Callable[[Sequence[int]], object], *, stored: bool
    ) -> None:
        self._table = table
        self._cancel = cancel
        self._has_store = stored
        self._machine: ManagerMachine | None = None
        self._take_posted: Callable[[], None] = _nothing
        self.has_unserved = False

    def attach(self, machine: ManagerMachine, take_posted: Callable[[], None]) -> None:
        """Connect this object to the machine that has the jobs.

        Args:
            machine: The manager's machine.
            take_posted: Lets the machine take the posted events at once.
        """
        self._machine, self._take_posted = machine, take_posted

    @property
    def attached(self) -> bool:
        """Whether the manager was started."""
        return self._machine is not None

    def runs(self, id: int) -> bool:
        """Return whether a worker has the job: its TAKE was sent, and the job has not ended."""
        machine = self._machine
        return machine is not None and machine.state(id) in (JobState.LEASED, JobState.CANCELLING)

    def cancel_waiting(self, ids: Sequence[int]) -> bool:
        """Cancel the jobs that no worker has, at once; do nothing to the other jobs.

        Returns:
            Whether there were such jobs.
        """
        self._take_posted()
        waiting = [id for id in ids if id in self._table.jobs and not self.runs(id)]
        if waiting:
            self._cancel(waiting)
            self._take_posted()
        return bool(waiting)

    def unserved(self, id: int) -> str:
        """Return the reason why no connected worker can do a waiting job; empty for other jobs."""
        machine = self._machine
        return "" if machine is None or not self.has_unserved else machine.unserved(id)

    def waiting_place(self, id: int) -> str:
        """Return where a stored job waits; empty for other jobs, and while a worker has the job."""
        machine, stored = self._machine, self._has_store and id < FIRST_UNSTORED
        if machine is None or not stored or id not in self._table.jobs:
            return ""
        if self._table.waits(id):
            return "the job is not stored yet"
        match machine.state(id):
            case JobState.QUEUED:
                return "this manager has reserved the job; no worker has it yet"
            case JobState.ENDED:  # of a job that has no record here
                return "the job is in the store; no worker of this manager has it"
            case _:
                return ""

    def waits_for(self, id: int) -> str:
        """Return what an open job waits for; empty if that is not known."""
        if self._machine is None or id not in self._table.jobs:
            return ""
        if self.runs(id):
            return "a worker has the job"
        why = self._machine.unserved(id) or self.waiting_place(id)
        return why or "the job waits for a worker with free capacity"


def _nothing() -> None:
    """Do nothing: before the start there is no machine that takes jobs."""
