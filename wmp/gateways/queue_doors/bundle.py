"""The jobs of one lane at a foreign worker, one after the other, and their ends until a report.

A worker machine puts quick jobs that wait on one lane. The door gives its worker the next of them
as soon as the reply to the last one has come, and reports some ends together: a step of all
machines for each job would take longer than such a job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from attrs import define, field

from wmp.actions import Run
from wmp.events import Finished
from wmp.message import Frame, Outcome

LANE_JOBS: Final = 16
"""Maximum number of jobs of a lane."""

LANE_TIME: Final = 0.03
"""Seconds that the jobs of a lane should take together, by the time of earlier jobs."""

REPORT_INTERVAL: Final = 0.008
"""Maximum number of seconds for which an end waits for other ends of its lane."""


@define(eq=False)
class Bundle:
    """The jobs of a lane."""

    run: Run
    current: int | None = field(default=None, init=False)
    """The job that the worker has; None for none."""
    since: float = field(default=0.0, init=False)
    """When the first end that is not reported came."""
    _rows: deque[int] = field(init=False)
    """Places of the jobs that have not begun."""
    _ids: list[int] = field(factory=list, init=False)
    """The jobs whose ends are not reported. The next lists have one entry for each."""
    _outcomes: list[Outcome] = field(factory=list, init=False)
    _payloads: list[Frame] = field(factory=list, init=False)
    _codec: str | None = field(default=None, init=False)
    """Codec of these results; None for the codec of the jobs."""

    def __attrs_post_init__(self) -> None:
        self._rows = deque(range(len(self.run.ids)))

    @property
    def over(self) -> bool:
        """Return whether all jobs have ended."""
        return self.current is None and not self._rows

    @property
    def held(self) -> int:
        """Return the number of ends that are not reported."""
        return len(self._ids)

    def begin(self, now: float) -> tuple[int, Frame] | None:
        """Take the next job that may begin now; return its number and payload, None for none.

        A job whose time has passed ends as cancelled (WMP-6.7, 6.19).
        """
        run = self.run
        times = run.begin_by or run.deadlines
        while self._rows:
            row = self._rows.popleft()
            begin_by = None if times is None else times[row]
            if begin_by is not None and begin_by <= now:
                self.hold(run.ids[row], Outcome.CANCELLED, b"", now)
                continue
            self.current = run.ids[row]
            return self.current, run.payloads[row]
        return None

    def end(
        self, outcome: Outcome, payload: Frame, now: float, codec: str | None = None
    ) -> Finished | None:
        """End the job that the worker has.

        Args:
            outcome: Its outcome.
            payload: Its result.
            now: Seconds.
            codec: Codec of the result; None for the codec of the job.

        Returns:
            Earlier ends with results of another codec, which must be reported now; else None.
        """
        assert self.current is not None
        earlier = self.report() if self._ids and codec != self._codec else None
        self._codec = codec
        self.hold(self.current, outcome, payload, now)
        self.current = None
        return earlier

    def hold(self, id: int, outcome: Outcome, payload: Frame, now: float) -> None:
        """Keep the end of a job until the next report."""
        if not self._ids:
            self.since = now
        self._ids.append(id)
        self._outcomes.append(outcome)
        self._payloads.append(payload)

    def recall(self, ids: Collection[int]) -> list[int]:
        """Take out those of ``ids`` that have not begun; return them."""
        run_ids = self.run.ids
        taken = [run_ids[row] for row in self._rows if run_ids[row] in ids]
        self._rows = deque(row for row in self._rows if run_ids[row] not in ids)
        return taken

    def hand_back(self, now: float) -> None:
        """End all jobs that have not begun: they go back to their manager."""
        for row in self._rows:
            self.hold(self.run.ids[row], Outcome.CANCELLED, b"", now)
        self._rows.clear()

    def report(self) -> Finished | None:
        """Return the ends that are not reported yet; None for none."""
        if not self._ids:
            return None
        event = Finished(
            self.run.lane, self._ids, self._outcomes, self._payloads, codec=self._codec
        )
        self._ids, self._outcomes, self._payloads = [], [], []
        self._codec = None
        return event
