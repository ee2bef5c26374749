"""The facts of a world about start times, expiries, run limits and failures of one job."""

from __future__ import annotations

from typing import Final

from attrs import define

from wmp.retry import Retry

_MIN: Final = 0.5
"""Jitter makes a wait shorter by up to a half."""

_ROUNDED: Final = 0.0011
"""Seconds by which rounding to milliseconds may delay a job."""


@define(eq=False)
class TimeFacts:
    """The limits that a submitter set, on the clock of the job's manager, and the failures."""

    due: float
    """Time from which an attempt may be granted; it moves with every failure."""
    expires_at: float | None
    limited: bool
    """Whether an attempt may run only for a limited time."""
    retry: Retry | None
    failed: int = 0
    wish: int | None = None
    """Milliseconds until the next attempt, as the newest attempt requested; None for no request."""
    overran: bool = False
    """Whether the newest attempt was answered overrun."""

    def too_early(self, now: float) -> str:
        """Return in words why a lease that is granted now is too early; empty if it is not."""
        return f"at {now}, before its start time {self.due}" if now < self.due else ""

    def too_late(self, now: float) -> str:
        """Return in words why a lease that is granted now is too late; empty if it is not."""
        expired = self.expires_at is not None and self.expires_at + _ROUNDED <= now
        return f"at {now}, after its expiry {self.expires_at}" if expired else ""

    def expired(self, now: float) -> bool:
        """Return whether the job may end because of its expiry."""
        return self.expires_at is not None and self.expires_at <= now

    def fail(self, now: float, wait: int | None) -> None:
        """Record a failure after which the job is tried again."""
        self.failed += 1
        if wait is not None:
            seconds = wait / 1000
        elif self.retry is not None:
            seconds = self.retry.backoff.wait(self.failed)
            seconds *= _MIN if self.retry.jitter else 1.0
        else:
            seconds = 0.0
        self.due = max(self.due, now + seconds)

    @property
    def too_often(self) -> bool:
        """Whether the job was tried again more often than its settings allow."""
        return self.retry is not None and self.failed > self.retry.times

    def gave_up_early(self, now: float, deadline: float | None, names: tuple[str, ...]) -> bool:
        """Return whether a job that ended with an error should have been tried again."""
        retry = self.retry
        if retry is None or self.failed >= retry.times or not retry.suits_names(names):
            return False
        wait = retry.backoff.wait(self.failed + 1) if self.wish is None else self.wish / 1000
        latest = now + wait + _ROUNDED
        bounds = [bound for bound in (deadline, self.expires_at) if bound is not None]
        return all(latest < bound for bound in bounds)
