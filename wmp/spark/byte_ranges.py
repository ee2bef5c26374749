"""Growing journals by the byte: how far each segment may be read, and the lines in between.

Plain Python, without Spark. A segment is known by its name without the dot that it has while it
is written: getting its name changes nothing of how far it was read. A position is always the
beginning of a line, so a line is read once it is ended, and never torn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from attrs import frozen

from wmp.errors import ConfigError, WMPError
from wmp.journal.schema import SUFFIX

__all__ = ["ByteRange", "advance", "find", "pieces", "read"]

_BLOCK: Final = 1 << 16


@frozen
class ByteRange:
    """The lines that begin in a part of a segment."""

    path: str
    """The segment, with or without the dot: whichever is there is read."""
    begin: int
    """Byte; where it is no beginning of a line, the first that is after it counts."""
    end: int
    """The byte after."""


def find(paths: Sequence[str | Path]) -> dict[str, tuple[str, int]]:
    """The segments below folders, by name without dot: path and size.

    One that is there twice counts once: the one that is finished, else the longer one.

    Raises:
        ConfigError: A path is not there.
    """
    found: dict[str, tuple[tuple[bool, int], str]] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise ConfigError(f"there is no journal at {path}: no such file or directory")
        for file in [path] if path.is_file() else path.rglob(f"*{SUFFIX}"):
            name = file.name.removeprefix(".")
            rank = _rank(file)
            if rank is not None and (name not in found or rank > found[name][0]):
                found[name] = rank, str(file.with_name(name))
    return {name: (path, rank[1]) for name, (rank, path) in sorted(found.items())}


def _rank(file: Path) -> tuple[bool, int] | None:
    for one in (file, file.with_name(file.name.removeprefix("."))):
        try:
            return not one.name.startswith("."), one.stat().st_size
        except FileNotFoundError:
            continue  # it has got its name meanwhile
    return None


def advance(
    start: Mapping[str, int], found: Mapping[str, tuple[str, int]], most: int | None
) -> dict[str, int]:
    """How far may be read next: name to position, not before ``start``.

    Args:
        start: How far was read; what is not there was not begun.
        found: By :func:`find`.
        most: Bytes in all, None for no limit. They are shared out evenly, so that no node waits
            for another; a single line that is longer is read nevertheless.
    """
    end = dict(start)
    waiting = sorted(
        (size - start.get(name, 0), name)
        for name, (_, size) in found.items()
        if size > start.get(name, 0)
    )
    left = most
    for place, (there, name) in enumerate(waiting):
        if left is not None and left <= 0:
            break
        share = there if left is None else min(there, max(left // (len(waiting) - place), 1))
        path, begin = found[name][0], start.get(name, 0)
        end[name] = _end_of_line(path, begin, begin + share, begin + there)
        if left is not None:
            left -= end[name] - begin
    return end


def _end_of_line(path: str, begin: int, wanted: int, size: int) -> int:
    """The last end of a line up to ``wanted``, else the first after it, else ``begin``."""
    with _open(path) as file:
        high = wanted
        while high > begin:
            low = max(begin, high - _BLOCK)
            file.seek(low)
            place = file.read(high - low).rfind(b"\n")
            if place >= 0:
                return low + place + 1
            high = low
        file.seek(wanted)
        while wanted < size and (block := file.read(min(_BLOCK, size - wanted))):
            place = block.find(b"\n")
            if place >= 0:
                return wanted + place + 1
            wanted += len(block)
    return begin


def pieces(path: str, begin: int, end: int, most: int) -> list[ByteRange]:
    """Cut a part of a segment, for several to read."""
    return [ByteRange(path, at, min(at + most, end)) for at in range(begin, end, most)]


def read(span: ByteRange) -> Iterator[bytes]:
    """The lines that begin in a span and are ended, without their ends.

    Raises:
        WMPError: The segment is gone.
    """
    with _open(span.path) as file:
        at = span.begin
        if at > 0:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < span.end and (line := file.readline()).endswith(b"\n"):
            at += len(line)
            yield line[:-1]


def _open(path: str) -> BinaryIO:
    plain = Path(path)
    dotted = plain.with_name(f".{plain.name}")
    # A segment loses its dot once. If neither name exists, look once more.
    for one in (dotted, plain):
        try:
            return one.open("rb")
        except FileNotFoundError:
            continue
    raise WMPError(f"the segment {path} was removed before it was read to the end")
