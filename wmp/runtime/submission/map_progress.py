"""The progress bar of a ``map``, drawn on stderr by the package that is installed: rich or tqdm.

Neither package is a requirement of the library, so they are imported by name at the first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sized
from typing import Any, Final, Protocol

from wmp.errors import ConfigError

_MAKERS: Final = ("rich", "tqdm")


class MapProgress(Protocol):
    """A progress bar."""

    def advance(self, count: int) -> None:
        """Count results."""

    def close(self) -> None:
        """Leave the bar as it is, and end it. Idempotent."""


def total_of(inputs: Iterable[object]) -> int | None:
    """Return the number of jobs of a ``map`` over these inputs; None if an input has no length."""
    lengths = [len(iterable) if isinstance(iterable, Sized) else None for iterable in inputs]
    known = [length for length in lengths if length is not None]
    return min(known) if len(known) == len(lengths) else None


def open_progress(total: int | None) -> MapProgress:
    """Draw a bar.

    Args:
        total: Number of steps; None if it is unknown.

    Raises:
        ConfigError: Neither rich nor tqdm is installed.
    """
    for name in _MAKERS:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        return _RichBar(total) if name == "rich" else _TqdmBar(total)
    raise ConfigError(
        "progress=True draws a bar with rich or tqdm, and neither is installed; run pip install "
        "rich, or leave out progress="
    )


class _RichBar:
    """A bar of rich. If stderr is not a terminal, only the last state is printed."""

    def __init__(self, total: int | None) -> None:
        # Any, because a type checker may run without rich.
        console: Any = importlib.import_module("rich.console")
        progress: Any = importlib.import_module("rich.progress")
        self._progress: Any = progress.Progress(
            progress.BarColumn(bar_width=None),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("", total=total)
        self._progress.start()

    def advance(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def close(self) -> None:
        self._progress.stop()


class _TqdmBar:
    """A bar of tqdm."""

    def __init__(self, total: int | None) -> None:
        self._bar: Any = importlib.import_module("tqdm").tqdm(total=total, unit="job")

    def advance(self, count: int) -> None:
        self._bar.update(count)

    def close(self) -> None:
        self._bar.close()
