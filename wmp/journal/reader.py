"""Reads journals without other packages: finds their files and yields their lines.

A broken line is counted by its defect and skipped. Only a schema of another version ends the
reading, because the meaning of its lines is unknown.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from wmp.errors import ConfigError
from wmp.journal.schema import SUFFIX, VERSION, what_is_wrong

Line = Mapping[str, Any]
"""One line: values by the names of the columns."""

_LONGEST: Final = 64 << 20
"""Maximum size of a line.

The number of a job takes ten bytes, and a step has up to a million jobs.
"""

_NUMBER: Final = re.compile(r"-(\d+)" + re.escape(SUFFIX))


def find_segments(paths: Iterable[str | Path]) -> list[Path]:
    """Return the segments of paths in order; each path is a segment or a folder of segments.

    Unfinished segments are included: a node still writes them, or was killed while it wrote them.
    Their names begin with a dot.

    Raises:
        ConfigError: A path does not exist, has no segment, or cannot be read.
    """
    segments: dict[Path, None] = {}
    for path in map(Path, paths):
        if path.is_dir():
            inside = segments_in(path)
            if not inside:
                raise ConfigError(
                    f"there is no journal in {path}: the folder has no file *{SUFFIX}"
                )
            segments.update(dict.fromkeys(inside))
        elif path.exists():
            segments[path] = None
        else:
            raise ConfigError(f"there is no file or folder {path}; expected a journal")
    return sorted(segments, key=_order)


def segments_in(folder: Path) -> list[Path]:
    """Return the segments in ``folder`` by their present names.

    A running node removes the dot from the name of a full segment, perhaps between two searches.

    Raises:
        ConfigError: A folder cannot be read.
    """
    segments: dict[Path, None] = {}
    # rglob skips a folder that it may not read, and its journals would be missing unnoticed.
    for inside, _, names in os.walk(folder, onerror=_cannot_read):
        for path in (Path(inside, name) for name in names if name.endswith(SUFFIX)):
            if not path.is_file():
                path = path.with_name(path.name.removeprefix("."))
            if path.is_file():
                segments[path] = None
    return list(segments)


def _cannot_read(error: OSError) -> None:
    # A program may remove a folder during the search.
    if not isinstance(error, FileNotFoundError):
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read the folder {error.filename}: {reason}") from error


def whole(line: dict[str, Any]) -> Line:
    """Return the same line with the numbers of all its jobs in ``ids``."""
    last = line.pop("last", None)
    if last is not None:
        line["ids"] = list(range(line["ids"][0], last + 1))
    return line


def strands(segments: Iterable[Path]) -> list[list[Path]]:
    """Group segments by their writer: a list for each epoch of a node, in order."""
    by_writer: dict[tuple[Path, str], list[Path]] = {}
    for segment in sorted(segments, key=_order):
        by_writer.setdefault(_order(segment)[:2], []).append(segment)
    return list(by_writer.values())


def _order(path: Path) -> tuple[Path, str, int]:
    """Return (folder, node and epoch, number); the dot does not count as part of the name."""
    name = path.name.removeprefix(".")
    number = _NUMBER.search(name)
    if number is None:
        return path.parent, name, 0
    return path.parent, name[: number.start()], int(number[1])


@define(eq=False)
class Reader:
    """Reads segments, and counts lines and defects."""

    progress: Callable[[int], object] | None = None
    """Called with the number of bytes after each block that was read."""
    lines: int = 0
    """Number of the lines that match the schema."""
    bad: Counter[str] = field(factory=Counter)
    """Number of the broken lines, by their defect."""

    def read(self, segment: Path) -> Iterator[Line]:
        """Yield the lines of one segment.

        Raises:
            ConfigError: The segment cannot be read, or its schema has an unknown version.
        """
        reported = done = 0
        for text, ended in _split(segment):
            done += len(text)
            if done - reported > 1 << 20 and self.progress is not None:
                self.progress(done - reported)
                reported = done
            line = self._parse(segment, text, ended)
            if line is not None:
                self.lines += 1
                yield line
        if self.progress is not None:
            self.progress(done - reported)

    def _parse(self, segment: Path, text: bytes, ended: bool) -> Line | None:
        if len(text) > _LONGEST:
            self.bad["too long"] += 1
            return None
        try:
            line: Any = json.loads(text)
        except (ValueError, RecursionError):
            if text.strip() or not ended:
                # The last line of a file may be torn, because the node was killed there or still
                # writes.
                self.bad["not JSON" if ended else "torn"] += 1
            return None
        if not isinstance(line, dict):
            self.bad["no object"] += 1
            return None
        version = line.get("v")
        if isinstance(version, int) and version != VERSION:
            raise ConfigError(
                f"{segment} has schema {version}; this program reads schema {VERSION}; use the "
                "release that wrote the journal, or a later one"
            )
        wrong = what_is_wrong(line)
        if wrong is not None:
            self.bad[wrong] += 1
            return None
        return whole(line)


def _split(segment: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines of a file, and whether each is complete."""
    try:
        try:
            file = segment.open("rb")
        except FileNotFoundError:
            # The segment has been finished since it was found, and its name has lost the dot.
            file = segment.with_name(segment.name.removeprefix(".")).open("rb")
        with file:
            while text := file.readline(_LONGEST + 1):
                ended = text.endswith(b"\n")
                if not ended and len(text) > _LONGEST:
                    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                        pass
                    ended = True
                yield text, ended
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read {segment}: {reason}") from error
