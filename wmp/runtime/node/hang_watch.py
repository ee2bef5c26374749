"""The watch for hung handlers: handlers that continue in threads although their jobs were
interrupted.

A thread cannot be ended from outside. Its handler holds the slot until it returns, and other jobs
wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic

from attrs import frozen

from wmp.actions import Interrupt, Recall, Run
from wmp.core.worker.run_queue import RunningLane
from wmp.runtime.driver.performers import Executors

logger = logging.getLogger("wmp")

_LOOK = 1.0
"""Seconds between two checks."""

_REPORT = 5.0
"""Seconds after which a log line reports a job that continues."""


@frozen
class HungJob:
    """A job whose handler continues after the job was interrupted."""

    id: int
    role: str
    seconds: float
    """Time since the job was interrupted."""

    def __str__(self) -> str:
        return f"job {self.id} (role {self.role!r}, interrupted {self.seconds:.0f} s ago)"


class HangWatch:
    """Passes on a worker's actions about lanes, and remembers which jobs were interrupted.

    Args:
        executors: Perform the actions.
        lanes: Returns the lanes that run.
        timeout: Seconds after which handlers that continue are reported to ``hung``.
        hung: Called once, at the first check that finds a job interrupted at least ``timeout``
            seconds ago. Gets all jobs that :meth:`hung` returns.
    """

    def __init__(
        self,
        executors: Executors,
        lanes: Callable[[], Iterable[RunningLane]],
        timeout: float,
        hung: Callable[[list[HungJob]], None],
    ) -> None:
        self.run: Callable[[Run], None] = executors.run
        self.recall: Callable[[Recall], None] = executors.recall
        self._executors = executors
        self._lanes = lanes
        self._timeout = timeout
        self._hung: Callable[[list[HungJob]], None] | None = hung
        self._since: dict[tuple[int, int], float] = {}
        """Time of each job's interruption, by lane and number."""
        self._logged: set[tuple[int, int]] = set()

    def interrupt(self, action: Interrupt) -> None:
        """Ask jobs to stop, and check later whether they have."""
        now = monotonic()
        if not self._since:
            self._look_later()
        for id in action.ids:
            self._since.setdefault((action.lane, id), now)
        self._executors.interrupt(action)

    def hung(self) -> list[HungJob]:
        """Return the jobs that still continue some time after they were interrupted."""
        return [job for _, job in self._overdue()]

    def only_hung_left(self) -> bool:
        """Return whether only hung jobs run."""
        going_on = {lane.number for lane, _, _ in self._going_on()}
        return all(lane.number in going_on for lane in self._lanes())

    def _overdue(self) -> list[tuple[RunningLane, HungJob]]:
        now = monotonic()
        return [
            (lane, HungJob(id, lane.kind.role, now - since))
            for lane, id, since in self._going_on()
            if now - since >= min(_REPORT, self._timeout)
        ]

    def _going_on(self) -> list[tuple[RunningLane, int, float]]:
        # The first job of a lane is the running job.
        going_on = []
        for lane in self._lanes():
            id = next(iter(lane.ids), None)
            since = None if id is None else self._since.get((lane.number, id))
            if id is not None and since is not None:
                going_on.append((lane, id, since))
        return going_on

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        going_on = {(lane.number, id): since for lane, id, since in self._going_on()}
        self._since = going_on
        self._logged &= going_on.keys()
        if not going_on:
            return
        self._look_later()
        overdue = self._overdue()
        for lane, job in overdue:
            if (lane.number, job.id) in self._logged:
                continue
            self._logged.add((lane.number, job.id))
            needs = ", ".join(f"{name}={amount}" for name, amount in lane.kind.needs)
            logger.warning(
                "worker: %s still runs in a thread, which cannot be ended; it holds %s; "
                'use pool="process" for handlers that may hang',
                job,
                needs or "nothing",
            )
        if self._hung is not None and any(job.seconds >= self._timeout for _, job in overdue):
            hung, self._hung = self._hung, None
            hung([job for _, job in overdue])
