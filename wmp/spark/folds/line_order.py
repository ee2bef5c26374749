"""The order of the lines of one process: their steps, their times, and its two clocks.

A node numbers its lines and its steps, and its monotonic clock never goes back. Its wall clock is
ahead of this clock by an amount that changes only at ``beat`` lines (``specs/journal.md``). So a
line whose step or time was changed contradicts its neighbors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter, le, sub
from typing import Final, NamedTuple

from attrs import define, field

from wmp.journal.schema import ACTION_LINES, EVENT_LINES, LINES
from wmp.spark.journals.lines import LineRow

_MAX: Final = 100
"""Maximum number of contradictions that are kept."""
_RUNS: Final = 256
"""Number of runs from which on they are joined."""
_columns: Final = attrgetter("n", "step", "at", "wall", "what")


class LinePosition(NamedTuple):
    """The columns of one line that show its position."""

    n: int
    step: int
    at: int
    wall: int
    what: str

    def contradiction(self, before: LinePosition) -> str | None:
        """Return in words how the line contradicts the line before it; None if it does not."""
        if self.what not in LINES:
            return None  # a kind of a later release
        step = before.step + (self.what in EVENT_LINES)
        if self.step != step:
            return f"{self.what} has step {self.step} after step {before.step}; expected {step}"
        if self.at < before.at or (self.what in ACTION_LINES and self.at != before.at):
            expected = f"{before.at}{'' if self.what in ACTION_LINES else ' or later'}"
            return f"{self.what} has the time {self.at}; expected {expected}"
        ahead, expected_ahead = self.wall - self.at, before.wall - before.at
        if ahead != expected_ahead and self.what != "beat":
            return (
                f"at {self.what} the wall clock is {ahead} µs ahead of the monotonic clock; "
                f"expected {expected_ahead} µs, which only a beat changes"
            )
        return None


class LineJump(NamedTuple):
    """A line that contradicts the line before it."""

    n: int
    at: int
    text: str


@define(eq=False)
class LineOrder:
    """The order of lines that are added in parts."""

    jumps: list[LineJump] = field(factory=list)
    """The contradictions, of very many only some."""
    _runs: list[tuple[LinePosition, LinePosition]] = field(factory=list)
    """The first and last line of each run of consecutive numbers."""

    def add(self, lines: Sequence[LineRow]) -> None:
        """Add lines of one part of a journal."""
        rows = sorted(set(map(_columns, lines)))
        while rows and rows[0][0] <= 0:
            rows.pop(0)  # a start line stands at the beginning of each segment
        if not rows:
            return
        if rows[0][0] == 1:
            rows.insert(0, (0, 0, *rows[0][2:4], "start"))
        numbers, steps, times, walls, kinds = zip(*rows, strict=True)
        whole = numbers[-1] - numbers[0] + 1 == len(numbers)
        if whole and _is_in_order(steps, times, walls, kinds):
            self._runs.append((LinePosition(*rows[0]), LinePosition(*rows[-1])))
            return
        positions = list(map(LinePosition._make, rows))
        self._runs += [(position, position) for position in positions]
        self._join()

    def merge(self, other: LineOrder) -> None:
        """Add the lines of another part of the journal."""
        self.jumps = (self.jumps + other.jumps)[:_MAX]
        self._runs += other._runs
        if len(self._runs) > _RUNS:
            self._join()

    def check(self) -> Sequence[LineJump]:
        """Return all contradictions of the lines so far."""
        self._join()
        return self.jumps

    def _join(self) -> None:
        """Join runs that follow one another, and compare the lines where they meet."""
        runs: list[tuple[LinePosition, LinePosition]] = []
        for first, last in sorted(self._runs):
            if runs and runs[-1][1].n + 1 == first.n:
                self._compare(runs[-1][1], first)
                runs[-1] = (runs[-1][0], last)
            else:
                runs.append((first, last))
        self._runs = runs

    def _compare(self, before: LinePosition, line: LinePosition) -> None:
        text = line.contradiction(before)
        if text is not None and len(self.jumps) < _MAX:
            self.jumps.append(LineJump(line.n, line.at, text))


def _is_in_order(
    steps: Sequence[int], times: Sequence[int], walls: Sequence[int], kinds: Sequence[str]
) -> bool:
    """Return whether no line certainly contradicts the line before it, by few fast calls."""
    growth = list(map(sub, steps[1:], steps))
    events = list(map(EVENT_LINES.__contains__, kinds[1:]))
    same = all(
        event or early == late for event, (early, late) in zip(events, pairwise(times), strict=True)
    )
    return (
        same
        and growth == events
        and all(map(le, times, times[1:]))
        and len(set(map(sub, walls, times))) == 1
    )
