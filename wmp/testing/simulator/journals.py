"""The journals of worlds: the nodes' actions, in the lines and files of real journals.

Times are virtual: ``at`` is the time on the node's own clock, which in some worlds is wrong and
runs too fast or too slow; ``wall`` is this time counted from a fixed day.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TextIO

from attrs import define, field

from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.journal.formatter import JournalFormatter
from wmp.journal.header import JournalHeader
from wmp.journal.schema import name_of_file

BEGINNING: Final = 1_767_225_600_000_000
"""Start of all worlds, in µs since 1970."""
_QUIET: Final = 100_000
"""µs without a line after which a node writes a line that shows the time."""


@define(eq=False)
class Journals:
    """The journals of one world: one segment for each epoch of a node.

    Args:
        folder: The folder of the journals; it must be empty or missing.
    """

    folder: Path
    _open: dict[str, tuple[JournalFormatter, TextIO, Path]] = field(factory=dict, init=False)
    _last: dict[str, int] = field(factory=dict, init=False)
    """The time of each node's last line."""

    def step(
        self,
        name: str,
        settings: ManagerSettings | WorkerSettings | DeviceSettings,
        event: object,
        actions: Sequence[object],
        now: float,
    ) -> None:
        """Write that a node handled an event; ``now`` is on the node's own clock."""
        at = round(now * 1e6)
        entry = self._open.get(name)
        if entry is None or entry[0].header.epoch != settings.epoch:
            if entry is not None:
                self._end(name, stop=False)
            entry = self._begin(name, JournalHeader.of(settings), at)
        formatter, file, _ = entry
        lines = formatter.step(event, actions, at, BEGINNING + at)
        if not lines and at >= self._last[name] + _QUIET:
            # A real node has a timer for ``beat`` lines. In a world the next event writes such a
            # line.
            lines = [formatter.beat(0, at, BEGINNING + at)]
        if lines:
            self._last[name] = at
        file.writelines(f"{line}\n" for line in lines)

    def epoch(self, name: str) -> int:
        """Return the epoch of the process whose journal is open under a name."""
        return self._open[name][0].header.epoch

    def close(self, alive: Callable[[str], bool]) -> None:
        """Close the journals and name the files.

        A node whose process does not run counts as killed.
        """
        for name in tuple(self._open):
            self._end(name, stop=alive(name))

    def _begin(
        self, name: str, header: JournalHeader, at: int
    ) -> tuple[JournalFormatter, TextIO, Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f".{name_of_file(header.identity, header.epoch, 1)}"
        file = path.open("x", encoding="ascii")
        entry = self._open[name] = (JournalFormatter(header), file, path)
        file.write(f"{header.start(1, at, BEGINNING + at)}\n")
        self._last[name] = at
        return entry

    def _end(self, name: str, *, stop: bool) -> None:
        formatter, file, path = self._open.pop(name)
        if stop:
            at = self._last[name]
            file.write(f"{formatter.stop(0, at, BEGINNING + at)}\n")
        file.close()
        path.rename(path.with_name(path.name[1:]))
