"""The terms with which a job was submitted, and the leases and ends that contradict the terms.

The lines of a manager show the terms twice: in the submission, and in each TAKE. So a changed time,
limit or role contradicts the other line, or the time of a lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import define, field

from wmp.actions import End
from wmp.message import Outcome
from wmp.spark.folds.facts import Fact

_ROUNDED: Final = 2_000
"""µs by which rounding to milliseconds may change a time."""
_NAME: Final = "a TAKE states its job"
_TIMES: Final = "times are kept"
_RETRIES: Final = "retries are kept"

Contradiction = tuple[str, str]
"""The name of a finding, and the observation."""


def _milliseconds(micros: int | None) -> int | None:
    """Return the milliseconds that are left, rounded up as a manager does (WMP-6.7)."""
    return None if micros is None else max(0, -(-micros // 1000))


@define(eq=False)
class SubmittedTerms:
    """The terms of one job of a manager."""

    submitted: Fact
    begin: int = field(init=False)
    """µs on the manager's clock before which no attempt may be granted."""
    deadline: int | None = field(init=False)
    expiry: int | None = field(init=False)
    run_limit: int | None = field(init=False)
    retries: int | None = field(init=False)
    codec: str | None = field(init=False)
    failures: int = 0
    """Number of the attempts that ended as error or overrun."""
    _due: int | None = None
    """µs before which the next attempt may not be granted, after a failure; None for no failure."""
    _retry: bool = True
    """Whether the last failure requested another attempt."""
    _failed: int | None = None
    """The attempt that failed last."""
    _attempts: set[int] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        delay, timeout, expires, self.run_limit, self.retries, self.codec = (
            self.submitted.terms or (None,) * 6
        )
        self.begin = self.submitted.at + (delay or 0)
        self.deadline = None if timeout is None else self.begin + timeout
        self.expiry = None if expires is None else self.begin + expires

    def grant(self, fact: Fact) -> Iterator[Contradiction]:
        """Yield how a new lease contradicts the terms."""
        self._attempts.add(fact.attempt or 0)
        what = f"attempt {fact.attempt} was granted"
        for name, bound in (("start time", self.begin), ("wait after a failure", self._due)):
            if bound is not None and fact.at < bound - _ROUNDED:
                early = (bound - fact.at) / 1e6
                yield _TIMES, f"{what} {early:.3f} s before the end of its {name}"
        if self.expiry is not None and fact.at > self.expiry + _ROUNDED:
            yield _TIMES, f"{what} {(fact.at - self.expiry) / 1e6:.3f} s after the job's expiry"
        if self._due is not None and not self._retry and self.retries is None:
            yield _RETRIES, f"{what} after an error; neither the job nor its handler asked for it"
        if self.retries is not None and self.failures > self.retries:
            tried = f"failure {self.failures}; the job may be tried again {self.retries} times"
            yield _RETRIES, f"{what} after {tried}"
        yield from self._compare(fact)

    def _compare(self, fact: Fact) -> Iterator[Contradiction]:
        """Yield the columns of a TAKE that contradict the submission."""
        needs, codec, left, expires, limit, failed, _ = fact.terms or (None,) * 7
        submitted, until = self.submitted, fact.at
        left_then = None if self.deadline is None else self.deadline - until
        expires_then = None if self.expiry is None else self.expiry - until
        for name, seen, expected, tolerance in (
            ("role", fact.role, submitted.role, 0),
            ("needs", needs or {}, submitted.text or {}, 0),
            ("codec", codec, self.codec, 0),
            ("left", left, _milliseconds(left_then), _ROUNDED // 1000),
            ("expires", expires, _milliseconds(expires_then), _ROUNDED // 1000),
            ("limits", limit, _milliseconds(self.run_limit), 1),
            ("failed", failed, None if self.retries is not None else self.failures, 0),
        ):
            near = (
                isinstance(seen, int)
                and isinstance(expected, int)
                and abs(seen - expected) <= tolerance
            )
            if seen != expected and not near:
                what = f"TAKE has {name} {seen} for attempt {fact.attempt}"
                yield _NAME, f"{what}; expected {expected}"

    def fail(self, fact: Fact) -> None:
        """Record that the current attempt ended as error or overrun."""
        if fact.value in (Outcome.ERROR, Outcome.OVERRUN):
            wait = fact.terms
            self.failures += 1
            self._failed = fact.attempt
            self._retry = wait is not None
            self._due = fact.at + (wait or 0) * 1000

    def end(self, end: End, fact: Fact, *, requested: bool) -> Iterator[Contradiction]:
        """Yield how the end of the job contradicts the terms.

        Args:
            end: The end.
            fact: The line that reported the end.
            requested: Whether the submitter requested the cancellation.
        """
        failed = end is End.ERROR or (end is End.TIMEOUT and fact.peer is not None)
        if not failed or requested or self._due is None or not self._retry:
            return
        if fact.attempt != self._failed:
            return  # a later attempt ended the job
        if self.retries is not None and self.failures > self.retries:
            return
        bounds = [bound for bound in (self.deadline, self.expiry) if bound is not None]
        if all(self._due + _ROUNDED < bound for bound in bounds):
            text = f"the job ended {end.value} after failure {self.failures}, which asked for more"
            yield _RETRIES, text

    def cancel(self, fact: Fact) -> Iterator[Contradiction]:
        """Yield how a CANCEL contradicts the leases."""
        if fact.attempt not in self._attempts:
            yield "WMP-6.8", f"CANCEL names attempt {fact.attempt}, which was never granted"
