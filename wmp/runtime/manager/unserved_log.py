"""The log of jobs that no worker can do: one line for each kind and cause."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from wmp.core.manager.unserved import WaitingRow
from wmp.message import Kind, counted

logger = logging.getLogger("wmp.unserved")
"""A separate logger, because `wmp map` reports such jobs itself, and names a command that helps."""

_SHOWN = 5
"""Maximum number of kinds of jobs for which one check logs a line."""


class UnservedLog:
    """Logs why jobs wait.

    A worker may be about to connect, so a cause is logged once, when a second check finds the same
    cause again.

    Args:
        noun: Word for the role of a job.
        more: Where all kinds are listed, as the end of a sentence.
    """

    def __init__(self, noun: str, more: str) -> None:
        self._noun = noun
        self._more = more
        self._seen: dict[Kind, str] = {}
        """The cause for each kind, at the last check."""
        self._logged: dict[Kind, str] = {}

    def look(self, where: str, waiting: Iterable[WaitingRow]) -> None:
        """Take the outcome of a check.

        Args:
            where: The node, and its addresses.
            waiting: The jobs that no worker can do.
        """
        rows = {Kind(row.role, tuple(row.needs.items()), row.codec): row for row in waiting}
        before, self._seen = self._seen, {kind: row.unserved for kind, row in rows.items()}
        stands = {kind: why for kind, why in self._seen.items() if before.get(kind) == why}
        new = [kind for kind, why in stands.items() if self._logged.get(kind) != why]
        self._logged = stands
        for kind in new[:_SHOWN]:
            logger.warning(
                "%s: jobs of %s %r wait (%s): %s",
                where,
                self._noun,
                kind.role,
                counted(rows[kind].count, "job"),
                stands[kind],
            )
        if len(new) > _SHOWN:
            logger.warning(
                "%s: jobs of %s wait; %s",
                where,
                counted(len(new) - _SHOWN, "more kind"),
                self._more,
            )
