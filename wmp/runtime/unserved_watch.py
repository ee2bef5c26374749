"""The watch for jobs that no connected worker can do: a line in the log, and the job's status.

Jobs that were stopped and go on are checked at the same times.
"""

from __future__ import annotations

import asyncio
import logging

from wmp.core.manager.machine import ManagerMachine
from wmp.core.manager.unserved import WaitingRow
from wmp.message import Kind, counted
from wmp.runtime.node import Node
from wmp.runtime.stopped_jobs import StoppedJobs
from wmp.runtime.submission.submissions import Submissions

__all__ = ["UnservedWatch", "logger"]

logger = logging.getLogger("wmp.unserved")
"""A separate logger, because `wmp map` reports such jobs itself, and names a command that helps."""

_LOOK = 2.0
"""Seconds between two checks."""

_SHOWN = 5
"""Largest number of kinds of jobs for which one check logs a line."""


class UnservedWatch:
    """Checks every two seconds for jobs that no connected worker can do.

    A worker may be about to connect, so a cause is logged once, when a second check finds the same
    cause again.

    Args:
        node: Node of the manager.
        machine: Machine of the manager.
        submissions: Submissions of the manager; ``has_unserved`` is True while there are such jobs.
            None for the manager inside a gateway, whose jobs are the requests of clients.
    """

    def __init__(
        self, node: Node, machine: ManagerMachine, submissions: Submissions | None = None
    ) -> None:
        self._node = node
        self._machine = machine
        self._submissions = submissions
        self._name = "gateway" if submissions is None else "manager"
        self._seen: dict[Kind, str] = {}
        """The cause for each kind, at the last check."""
        self._logged: dict[Kind, str] = {}
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
        rows = {
            Kind(row.role, tuple(row.needs.items()), row.codec): row
            for row in waiting
            if row.unserved
        }
        if self._submissions is not None:
            self._submissions.has_unserved = bool(rows)
        before, self._seen = self._seen, {kind: row.unserved for kind, row in rows.items()}
        stands = {kind: why for kind, why in self._seen.items() if before.get(kind) == why}
        new = [kind for kind, why in stands.items() if self._logged.get(kind) != why]
        self._logged = stands
        endpoints = ", ".join(self._node.endpoints)
        where = f"{self._name} at {endpoints}" if endpoints else self._name
        for kind in new[:_SHOWN]:
            logger.warning(
                "%s: jobs of role %r wait (%s): %s",
                where,
                kind.role,
                counted(rows[kind].count, "job"),
                stands[kind],
            )
        if len(new) > _SHOWN:
            logger.warning(
                "%s: jobs of %s wait; statistics() lists them",
                where,
                counted(len(new) - _SHOWN, "more kind"),
            )
