"""Defects of this package that a node meets: each is logged with its traceback, and counted."""

from __future__ import annotations

import logging
from typing import Any

from attrs import frozen

from wmp.actions import Send
from wmp.runtime.common.counters import Counters

logger = logging.getLogger("wmp")


@frozen
class Defects:
    """Logs and counts the defects of one node. All methods are called in an ``except`` block."""

    name: str
    """Name of the node."""
    counters: Counters

    def in_event(self, event: object, error: BaseException, now: float) -> None:
        """Report that the machine could not handle an event."""
        logger.exception(
            "%s: defect in wmp: handling the event %s failed; please report it",
            self.name,
            type(event).__name__,
        )
        self.counters.count("defect", repr(error), now, alarming=True)

    def in_action(self, action: Any, error: BaseException, now: float) -> None:
        """Report that an action of the machine could not be performed."""
        what = action.message.command.name if isinstance(action, Send) else ""
        logger.exception(
            "%s: defect in wmp: performing the action %s %s failed; please report it",
            self.name,
            type(action).__name__,
            what,
        )
        self.counters.count("defect", repr(error), now, alarming=True)
