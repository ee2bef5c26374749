"""The history of one lock of a worker, checked against the table of locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field

from wmp.core.worker.locks import TRANSITIONS, LockInput, LockState
from wmp.spark.facts import Process
from wmp.spark.lines import LineRow

__all__ = ["LockFold"]


@define(eq=False)
class LockFold:
    """A lock from its GIVE on."""

    give: LineRow
    manager: Process
    device: str | None
    """The device next to the worker."""
    wake: Any
    """The WAKE that the GIVE answers."""
    number: int = field(init=False)
    state: LockState = field(init=False)
    answer: str | None = None
    answered: int | None = None
    closed: int | None = None
    done: int | None = None
    """When the last DONE of its jobs was sent."""
    withdrawn: bool = False
    jobs: int = 0
    late: int = 0
    held: int = 0
    """Number of its jobs whose last DONE was not sent."""
    lines: list[tuple[str, int, int]] = field(factory=list)
    _seen: set[tuple[int | None, int | None]] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.number = self.give.lock or 0
        what = LockInput.HOLD if self.give.hold else LockInput.GIVE
        self.state = TRANSITIONS[LockState.UNUSED, what]
        self._see(self.give)

    def is_over(self, time: int) -> bool:
        """Return whether the lock was closed before a time, and all its jobs were answered."""
        closed = self.closed is not None and self.closed < time
        return closed and self.held <= 0

    def withdraw(self, line: LineRow) -> None:
        """Record a GIVE with want 0."""
        self.withdrawn = True
        self.step(LockInput.WITHDRAW, line)

    def answer_by(self, line: LineRow, complain: Callable[..., None]) -> None:
        """Record a TAKE or NO."""
        if (line.session, line.number) in self._seen:
            return  # the message was sent again
        self._seen.add((line.session, line.number))
        if self.answered is None:
            self.answered = line.at
        if line.command == "NO":
            self.step(LockInput.NO, line)
            return
        jobs, give = len(line.ids or ()), self.give
        about: dict[str, Any] = {"lock": self.number, "lines": self.lines}
        if line.role not in (give.roles or ()):
            text = f"TAKE has role {line.role}; the GIVE named {', '.join(give.roles or ())}"
            self._see(line)
            complain(line, "WMP-4.6", text, **about)
        if (line.source, line.source_epoch) != self.manager:
            self._see(line)
            text = f"TAKE is from {line.source}; the GIVE was sent to {self.manager[0]}"
            complain(line, "WMP-4.13", text, **about)
        if self.state is LockState.CLOSED:
            self.late += jobs
        self.jobs += jobs
        self.step(LockInput.MORE if line.more else LockInput.TAKE, line)
        if self.jobs > (give.want or 0):
            text = f"TAKE brought {self.jobs} jobs in all; the GIVE wanted {give.want}"
            complain(line, "WMP-4.6", text, **about)

    def step(self, what: LockInput, line: LineRow) -> None:
        """Make a step in the table of locks; a pair that the table ignores changes nothing."""
        self._see(line)
        state = TRANSITIONS.get((self.state, what))
        if state is None:
            return
        self.state = state
        if what in (LockInput.TAKE, LockInput.MORE):
            self.answer = "TAKE"
        if state is LockState.CLOSED:
            self.closed = line.at
            if self.answer is None:
                self.answer = "NO" if what is LockInput.NO else what.value

    def _see(self, line: LineRow) -> None:
        one = (line.node, line.epoch, line.n)
        if one not in self.lines[-1:]:
            self.lines.append(one)
