"""The times that a submitter gives a job, checked: start, timeout, expiry and run limit.

``timeout`` bounds waiting and running together, ``expires`` bounds only the waiting, and
``run_limit`` bounds only one attempt. ``delay`` and ``start_at`` define when the job may begin; the
other times count from then on.
"""

from __future__ import annotations

import time
from datetime import datetime
from math import isfinite
from typing import Final

from attrs import field, frozen

from wmp.duration import in_seconds
from wmp.errors import ConfigError
from wmp.runtime.common.checks import check_seconds


@frozen
class TimeLimits:
    """Times of a submission, in seconds; None for no limit."""

    timeout: float | None = field(default=None, converter=in_seconds)
    """Seconds within which the job must have ended."""
    expires: float | None = field(default=None, converter=in_seconds)
    """Seconds within which the job must have begun."""
    run_limit: float | None = field(default=None, converter=in_seconds)
    """Seconds for which one attempt may run."""
    delay: float | None = field(default=None, converter=in_seconds)
    """Seconds until the job may begin."""
    start_at: datetime | float | None = None
    """The end of the delay as a time: a ``datetime``, or seconds since 1970."""

    def wait(self) -> float:
        """Return the seconds from now until the job may begin."""
        start = self.start_at
        if start is None:
            return self.delay or 0.0
        seconds = start.timestamp() if isinstance(start, datetime) else start
        return max(0.0, seconds - time.time())

    def check(self) -> None:
        """Check the user's times: a wrong number would end the machine, and all jobs with it.

        Raises:
            ConfigError: A time is not a number of seconds above 0.
        """
        for name in ("timeout", "expires", "run_limit"):
            value = getattr(self, name)
            if value is not None:
                check_seconds(name, value, zero=False)
        if self.delay is not None:
            check_seconds("delay", self.delay)
        if self.start_at is not None:
            self._check_start(self.start_at)
        if self.timeout is not None and self.expires is not None and self.expires > self.timeout:
            raise ConfigError(
                f"expires is {self.expires:g} s and timeout {self.timeout:g} s; a job cannot "
                "begin after its timeout; leave expires out, or make expires smaller"
            )

    def _check_start(self, start: object) -> None:
        if self.delay is not None:
            raise ConfigError("delay and start_at name the same time; give one of them")
        numeric = isinstance(start, int | float) and not isinstance(start, bool)
        if not isinstance(start, datetime) and not (numeric and isfinite(start)):  # type: ignore[arg-type]
            raise ConfigError(
                f"start_at is {start!r}; expected a datetime or seconds since 1970 (use delay for "
                "seconds from now)"
            )
        check_seconds("the time until start_at", self.wait())


NO_LIMITS: Final = TimeLimits()
"""The limits of most jobs: none."""
