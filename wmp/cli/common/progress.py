"""A progress bar on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import io
import logging
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Final, TextIO

from wmp.cli.common.entry_point import complain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class ProgressBar:
    """Shows progress, and prints lines without tearing the bar.

    The bar is drawn on stderr. If stdout is a terminal too, results and the library's log lines are
    printed above the bar. If stderr is not a terminal, there is no bar.

    Args:
        program: The program's name, with which warnings begin.
        total: Number of steps, None when it is unknown.
        shown: Whether there may be a bar.
    """

    def __init__(self, program: str, total: int | None, *, shown: bool = True) -> None:
        self._program: Final = program
        self._above = sys.stdout.isatty()
        self._progress: Progress | None = None
        self._total = total
        self._moved: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []
        if shown and sys.stderr.isatty():
            self._progress = _bar(self._above)
            self._task = self._progress.add_task("", total=total)

    @property
    def live(self) -> bool:
        """Whether the bar is shown."""
        return self._progress is not None

    def __enter__(self) -> ProgressBar:
        if self._progress is not None:
            self._progress.start()
            for handler in logging.getLogger("wmp").handlers:
                if type(handler) is logging.StreamHandler:
                    self._moved.append((handler, handler.stream))
                    handler.setStream(_LogStream(self._progress.console))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            for handler, stream in self._moved:
                handler.setStream(stream)
            self._progress.stop()

    def advance(self, count: int = 1, text: str | None = None) -> None:
        """Advance the bar, and change the text before it."""
        if self._progress is not None:
            self._progress.update(self._task, advance=count, description=text)

    def know(self, total: int | None) -> None:
        """Set the number of steps; None while it is unknown."""
        if self._progress is not None and total is not None and total != self._total:
            self._total = total
            self._progress.update(self._task, total=total)

    def print(self, line: bytes) -> None:
        """Print the bytes of a line, which end with a newline.

        On stdout that is not a terminal, the bytes are not changed.
        """
        if self._progress is not None and self._above:
            self._progress.console.out(line.decode("utf-8", "replace"), end="", highlight=False)
        else:
            sys.stdout.buffer.write(line)

    def complain(self, text: str) -> None:
        """Print one line for people on stderr, without tearing the bar."""
        if self._progress is not None:
            line = " ".join(text.split())
            self._progress.console.out(f"{self._program}: {line}", highlight=False)
        else:
            complain(self._program, text)

    def flush(self) -> None:
        """Flush stdout."""
        sys.stdout.flush()


def _bar(above: bool) -> Progress:
    # This import takes a ninth of the program's start, and only a terminal needs it.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=not above),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


class _LogStream(io.TextIOBase):
    """The stream of a log handler while there is a bar: whole lines, above the bar."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> int:
        self._console.out(text, end="", highlight=False)
        return len(text)
