"""Protocols of the parts that perform the actions which a driver does not perform itself."""

from __future__ import annotations

from typing import Protocol

from wmp.actions import Acknowledge, Decline, Interrupt, Notify, Recall, Resolve, Run, Write


class Submitters(Protocol):
    """Performs a manager's actions about jobs. No method may block."""

    def resolve(self, action: Resolve) -> None:
        """Deliver the ends of jobs to their owners."""

    def notify(self, action: Notify) -> None:
        """Deliver a job's progress to its owner."""


class StoreWriter(Protocol):
    """Performs a manager's actions about its store. No method may block."""

    def write(self, action: Write) -> None:
        """Apply a batch soon; post the answer."""

    def acknowledge(self, action: Acknowledge) -> None:
        """Report to submitters that jobs are stored."""

    def decline(self, action: Decline) -> None:
        """Report to submitters that the store does not take jobs."""


class Executors(Protocol):
    """Performs a worker's actions about lanes. No method may block."""

    def run(self, action: Run) -> None:
        """Start a lane."""

    def recall(self, action: Recall) -> None:
        """Take back jobs that have not begun."""

    def interrupt(self, action: Interrupt) -> None:
        """Ask jobs to stop."""
