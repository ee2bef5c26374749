"""The watch for jobs that no connected worker can do: a line in the log, and the job's status.

Jobs that were stopped and go on are checked at the same times.
"""

from __future__ import annotations

import asyncio

from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.unserved import WaitingRow
from wmp.runtime.manager.stopped_jobs import StoppedJobs
from wmp.runtime.manager.unserved_log import UnservedLog
from wmp.runtime.node.node import Node
from wmp.runtime.submission.submissions import Submissions

_LOOK = 2.0
"""Seconds between two checks."""


class UnservedWatch:
    """Checks every two seconds for jobs that no connected worker can do.

    Args:
        node: Node of the manager.
        machine: Machine of the manager.
        submissions: Submissions of the manager, whose ``states`` learn whether there are such jobs.
            None for the manager inside a gateway, whose jobs are the requests of clients.
    """

    def __init__(
        self, node: Node, machine: ManagerMachine, submissions: Submissions | None = None
    ) -> None:
        self._node = node
        self._machine = machine
        self._submissions = submissions
        self._name = "gateway" if submissions is None else "manager"
        self._log = UnservedLog("role", "statistics() lists them")
        self._stopped = None if submissions is None else StoppedJobs(machine, submissions)

    def start(self) -> None:
        """Begin to check on the running loop, until the end of the node."""
        asyncio.get_running_loop().call_later(_LOOK, self._turn)

    def _turn(self) -> None:
        if self._node.running:
            self.start()
            quiet = self._submissions is not None and not len(self._submissions)
            self.look(() if quiet else self._machine.waiting())
            if self._stopped is not None:
                self._stopped.look(", ".join(self._node.endpoints), _LOOK)

    def look(self, waiting: tuple[WaitingRow, ...]) -> None:
        """Check the kinds of the jobs that wait now."""
        rows = [row for row in waiting if row.unserved]
        if self._submissions is not None:
            self._submissions.states.has_unserved = bool(rows)
        endpoints = ", ".join(self._node.endpoints)
        self._log.look(f"{self._name} at {endpoints}" if endpoints else self._name, rows)
