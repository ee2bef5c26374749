"""How long jobs take here, and what follows from it: the window and the size of bundles."""

from __future__ import annotations

from attrs import define, field

from wmp.core.protocol.settings import WorkerSettings

__all__ = ["Throughput"]

_WEIGHT = 0.25
"""Of the newest measure in the mean: some ten bundles to forget an old habit."""


@define(eq=False)
class Throughput:
    """Mean time of a job, role by role, moving with the newest bundles.

    Jobs of a few microseconds are worth fetching ahead and starting many at a time; a job
    of seconds that waits here is one that an idle worker elsewhere could do.
    """

    settings: WorkerSettings
    means: dict[str, float] = field(factory=dict)
    """Role to seconds a job."""
    _windows: dict[int, int] = field(factory=dict)
    """The window by places, until the next measure: it is asked for several times an event."""

    def record(self, role: str, seconds: float, jobs: int) -> None:
        """A lane took ``seconds`` for ``jobs`` jobs."""
        each = max(0.0, seconds) / jobs
        mean = self.means.get(role)
        self.means[role] = each if mean is None else mean + _WEIGHT * (each - mean)
        self._windows.clear()

    def window(self, places: int) -> int:
        """Jobs worth taking beyond what can run at once, on ``places`` places."""
        window = self._windows.get(places)
        if window is None:
            window = self._windows[places] = self._window(places)
        return window

    def _window(self, places: int) -> int:
        settings = self.settings
        if settings.window is not None:
            return settings.window
        if not self.means:
            return 0
        # The slowest role counts: nobody knows of which role the next jobs will be.
        slowest = max(self.means.values())
        if slowest > settings.window_time:
            return 0
        return self._jobs(settings.window_time, slowest, settings.window_max, max(1, places))

    def bundle(self, role: str, waiting: int, places: int) -> int:
        """Jobs to start on one lane when ``waiting`` wait and ``places`` lanes could run."""
        settings = self.settings
        mean = self.means.get(role)
        if mean is None:
            return 1
        most = self._jobs(settings.lane_time, mean, settings.lane_max)
        return max(1, min(most, -(-waiting // places)))

    @staticmethod
    def _jobs(seconds: float, mean: float, most: int, times: int = 1) -> int:
        # Compared before it is divided: a mean may be zero, or small enough to overflow.
        if mean * most <= seconds * times:
            return most
        return int(seconds / mean * times)
