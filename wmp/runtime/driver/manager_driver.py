"""The driver of a manager: its DEALERs lead to devices to which the manager dials in."""

from __future__ import annotations

from typing import Any, ClassVar

from wmp.events import Disconnected
from wmp.runtime.driver.driver import Driver


class ManagerDriver(Driver):
    """Runs a manager's machine; see :class:`~wmp.runtime.driver.driver.Driver`.

    The machine also gets the ends of the connections of its DEALERs: it announces itself to a
    device only while it is connected.

    Args:
        args: Arguments of the driver.
        others: Arguments of the driver.
    """

    others: ClassVar[str] = "the device at "

    def __init__(self, *args: Any, **others: Any) -> None:
        super().__init__(*args, lost=self._lost, **others)

    def _lost(self, link: int) -> None:
        # The end comes behind the messages that were received before it.
        self._late.append(Disconnected(link))
        self._inbox.schedule()
