"""The driver of a manager: its DEALERs lead to devices to which the manager dials in."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from wmp.actions import Answer, Notify
from wmp.events import Disconnected
from wmp.runtime.driver.driver import Driver


class ForwardedAnswers(Protocol):
    """Performs the actions of a forwarding manager about jobs of other managers."""

    def answer(self, action: Answer) -> None:
        """Pass the ends of jobs to the managers above."""

    def notify(self, action: Notify) -> None:
        """Pass the progress of a job to its owner, here or above."""


class ManagerDriver(Driver):
    """Runs a manager's machine; see :class:`~wmp.runtime.driver.driver.Driver`.

    The machine also gets the ends of the connections of its DEALERs: it announces itself to a
    device only while it is connected.

    Args:
        args: Arguments of the driver.
        forwarding: Performs the actions about jobs of other managers; None if the manager forwards
            no jobs.
        others: Arguments of the driver.
    """

    others: ClassVar[str] = "the device at "

    def __init__(
        self, *args: Any, forwarding: ForwardedAnswers | None = None, **others: Any
    ) -> None:
        super().__init__(*args, lost=self._lost, **others)
        if forwarding is not None:
            self._performers |= {Answer: forwarding.answer, Notify: forwarding.notify}

    def _lost(self, link: int) -> None:
        # The end comes behind the messages that were received before it.
        self._late.append(Disconnected(link))
        self._inbox.schedule()
