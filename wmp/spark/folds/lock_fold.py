"""The history of one lock of a worker, checked against the table of locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field

from wmp.core.worker.locks import TRANSITIONS, LockInput, LockState
from wmp.spark.folds.facts import FoldSink, KnownProcess, ProcessKey
from wmp.spark.journals.lines import LineRow


@define(eq=False)
class SeenWake:
    """A WAKE that a worker received."""

    manager: ProcessKey
    line: LineRow
    ready: int | None
    """When the last READY before it was sent."""
    answer: str | None = None
    """The next command to its manager."""

    def report(self, me: KnownProcess, sink: FoldSink, lock: LockFold | None) -> None:
        """Add its row; ``lock`` is that of the GIVE that answers the WAKE."""
        time = self.line.at + me.clock
        if not sink.shows(time):
            return
        number, jobs = (None, 0) if lock is None else (lock.number, lock.jobs)
        row = (
            me.node, me.epoch, *self.manager, self.line.role, self.line.count, time,
            self.answer if lock is None else "GIVE", number, jobs, not jobs,
        )  # fmt: skip
        sink.add("wakes", row)
        sink.count(int(not jobs), "wakes")


@define(eq=False)
class LockFold:
    """A lock from its GIVE on."""

    give: LineRow
    manager: ProcessKey
    wake: SeenWake | None
    """The WAKE that the GIVE answers."""
    number: int = field(init=False)
    state: LockState = LockState.UNUSED
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
        self.number = self.give.lock
        self.step(LockInput.HOLD if self.give.hold else LockInput.GIVE, self.give)

    def is_over(self, time: int) -> bool:
        """Return whether the lock was closed before a time, and all its jobs were answered."""
        return self.closed is not None and self.closed < time and self.held <= 0

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
        self._see(line)
        if line.role not in (give.roles or ()):
            text = f"TAKE has role {line.role}; the GIVE named {', '.join(give.roles or ())}"
            complain(line, "WMP-4.6", text, **about)
        if (line.source, line.source_epoch) != self.manager:
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
        event = (line.node, line.epoch, line.n)
        if event not in self.lines[-1:]:
            self.lines.append(event)

    def report(self, me: KnownProcess, sink: FoldSink) -> None:
        """Add the rows of the lock, of its WAKE and of their conversation."""
        give, wake, clock = self.give, self.wake, me.clock
        if wake is not None:
            wake.report(me, sink, self)
        given = give.at + clock
        if not sink.shows(given):
            return

        def time(at: int | None) -> int | None:
            return None if at is None else at + clock

        ready, woken = (None, None) if wake is None else (time(wake.ready), time(wake.line.at))
        answered = time(self.answered)
        device = give.via[0] if give.via else None
        sink.add(
            "locks",
            (
                me.node, me.epoch, self.number, *self.manager, give.roles, give.want,
                give.hold or 0, given, answered, time(self.closed), self.state.value, self.answer,
                self.withdrawn, self.jobs, self.late,
            ),
        )  # fmt: skip
        sink.add(
            "conversations",
            (
                me.node, me.epoch, *self.manager, self.number, ready, woken, given, answered,
                time(self.done), self.answer, self.jobs, device,
            ),
        )  # fmt: skip
        sink.count(self.late, "locks", self.answer)
        for phase, first, last in (
            ("ready to wake", ready, woken),
            ("wake to give", woken, given),
            ("give to take", given, answered if self.answer == "TAKE" else None),
            ("give to no", given, answered if self.answer == "NO" else None),
        ):
            if first is not None and last is not None:
                sink.phase(phase, last - first, last, None, self.manager[0], me.node, device)
