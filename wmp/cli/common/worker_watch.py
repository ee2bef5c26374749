"""The lack of workers during a ``wmp map``: a line about it, and an error after some time."""

from __future__ import annotations

import math
import time
from typing import Final

from wmp.blocking import Manager
from wmp.cli.common.progress import ProgressBar
from wmp.core.manager.unserved import listed
from wmp.errors import ConfigError

_LONELY: Final = 3.0
"""Seconds without a worker after which a line reports the lack."""

_LOOK: Final = 0.5
"""Seconds between two checks of the workers while no result comes."""


class WorkerWatch:
    """Prints a line when no connected worker can do the jobs, once for each such period."""

    def __init__(
        self, manager: Manager, bar: ProgressBar, role: str, wait: float, where: str, start: str
    ) -> None:
        self._manager = manager
        self._bar = bar
        self._role = role
        self._wait = wait or math.inf
        self._where = where
        """The address to which workers connect, or the device between them and the manager."""
        self._start = start
        """A command that starts a worker."""
        self._next = 0.0
        self._since: float | None = None
        """Time since which no connected worker can do the jobs; None while one can."""
        self._warned = False

    def served(self) -> None:
        """Record that a worker did a job."""
        self._since, self._warned = None, False

    def look(self) -> None:
        """Check for workers while a job waits.

        Raises:
            ConfigError: For ``wait`` seconds no connected worker could do the jobs.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _LOOK
        now_seen = self._manager.statistics()
        cause = next((row.unserved for row in now_seen.waiting if row.unserved), "")
        if not cause:
            self.served()
            return
        if self._since is None:
            self._since = now
        late = now - self._since >= self._wait
        if not late and (self._warned or now - self._since < _LONELY):
            return
        self._warned = True
        where = self._where
        start = f"start one: {self._start}"
        if any(self._role in worker.roles for worker in now_seen.workers):
            if late:
                raise ConfigError(
                    f"{cause}; this has not changed for {self._wait:g} s; {start}, or wait longer "
                    "with --wait"
                )
            self._bar.complain(f"waiting: {cause}; {start}")
            return
        others = {role for worker in now_seen.workers for role in worker.roles}
        seen = f" (connected workers offer {listed(self._role, others)})" if others else ""
        if late:
            raise ConfigError(
                f"no worker for role {self._role!r} connected to {where} within "
                f"{self._wait:g} s{seen}; {start}, or wait longer with --wait"
            )
        self._bar.complain(
            f"waiting: no worker for role {self._role!r} is connected to {where}{seen}; {start}"
        )
