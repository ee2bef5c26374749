"""``wmp map --halt``: the condition at which the program stops, as GNU parallel has it."""

from __future__ import annotations

import re
import threading
from math import ceil
from typing import Final

from attrs import frozen

from wmp.errors import ConfigError

_FORM: Final = re.compile(r"(now|soon),(fail|success|done)=(\d+)(%?)")

_SHORT: Final = {
    "0": "never",
    "1": "soon,fail=1",
    "2": "now,fail=1",
    "-1": "soon,success=1",
    "-2": "now,success=1",
}
"""The older names of rules."""


@frozen
class HaltRule:
    """A condition at which no further job begins."""

    now: bool
    """Whether running jobs are stopped too."""
    event: str
    """``fail``, ``success`` or ``done``."""
    amount: int
    percent: bool
    """Whether ``amount`` is a percentage of all jobs."""

    @classmethod
    def parse(cls, text: str) -> HaltRule | None:
        """Read a rule; None for ``never``.

        Raises:
            ConfigError: The text is not a rule.
        """
        given = _SHORT.get(text, text)
        if re.fullmatch(r"\d+%", given):
            given = f"soon,fail={given}"
        if given == "never":
            return None
        match = _FORM.fullmatch(given)
        if match is None or not int(match[3]) >= 1 or (match[4] and int(match[3]) > 100):
            raise ConfigError(
                f"--halt is {text!r}; expected never, or now or soon, a comma, and fail=N, "
                "success=N or done=N, where N is a number of jobs or a percentage, for example "
                "now,fail=1 or soon,success=10%"
            )
        return cls(match[1] == "now", match[2], int(match[3]), bool(match[4]))

    def __str__(self) -> str:
        how = "now" if self.now else "soon"
        return f"{how},{self.event}={self.amount}{'%' if self.percent else ''}"


class HaltCount:
    """Counts ended jobs until a rule applies. Any thread may call any method."""

    def __init__(self, rule: HaltRule) -> None:
        self.rule = rule
        self.code = 0
        """Exit code of the job at whose end the rule applied."""
        self._codes: list[int] = []
        """Exit codes of the jobs that count."""
        self._lock = threading.Lock()

    def add(self, code: int) -> None:
        """Count a job that ended with this exit code; 0 is a success."""
        event = self.rule.event
        if event == "done" or (event == "fail") == (code != 0):
            with self._lock:
                self._codes.append(code)

    def applies(self, total: int | None) -> bool:
        """Return whether the rule applies.

        Args:
            total: The number of all jobs; None while more may come. Until the number is known, a
                percentage does not apply.
        """
        minimum = self.rule.amount
        if self.rule.percent:
            if total is None:
                return False
            minimum = max(1, ceil(total * minimum / 100))
        with self._lock:
            if len(self._codes) < minimum:
                return False
            self.code = self._codes[minimum - 1]
            return True
