"""The times that a submitter gives a job, checked: timeout, expiry and run limit.

``timeout`` bounds waiting and running together, ``expires`` the waiting alone, and ``run_limit``
one attempt alone.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from wmp.errors import ConfigError
from wmp.runtime.checks import check_seconds

__all__ = ["NO_LIMITS", "TimeLimits"]


@frozen
class TimeLimits:
    """Times of a submission, in seconds; None for no limit."""

    timeout: float | None = None
    """Until the job must have ended."""
    expires: float | None = None
    """Within which the job must have begun."""
    run_limit: float | None = None
    """For which one attempt may run."""

    def check(self) -> None:
        """Check what a user gave: a wrong number would end the machine, and with it all jobs.

        Raises:
            ConfigError: A time is no number of seconds above 0.
        """
        for name in ("timeout", "expires", "run_limit"):
            value = getattr(self, name)
            if value is not None:
                check_seconds(name, value, zero=False)
        if self.timeout is not None and self.expires is not None and self.expires > self.timeout:
            raise ConfigError(
                f"expires is {self.expires:g} s and timeout {self.timeout:g} s; a job that must "
                "have ended by then cannot begin later; leave expires out, or make it smaller"
            )


NO_LIMITS: Final = TimeLimits()
"""The limits of most jobs."""
