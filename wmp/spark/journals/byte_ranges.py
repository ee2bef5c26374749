"""Growing journals by the byte: the readable part of each segment, and its lines.

This is plain Python without Spark. A segment loses the dot of its name when it is finished.
Positions are kept by the name without the dot, so they stay valid. A position is always the
beginning of a line, and a line is read only when it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, Final

from attrs import frozen

from wmp.errors import ConfigError, WMPError
from wmp.journal.reader import segments_in

_STEP: Final = re.compile(rb'"step": ?(\d+)')


@frozen
class ByteRange:
    """The lines that begin in one part of a segment."""

    path: str
    """Path of the segment, with or without the dot; the reader uses the existing path."""
    begin: int
    """First byte of the part. Inside a line it stands for the beginning of the next line."""
    end: int
    """The byte after the part."""


def find(paths: Sequence[str | Path]) -> dict[str, tuple[str, int]]:
    """Return path and size of each segment below folders, by name without the dot.

    If two segments have the same name, one counts: the finished segment, or else the longer one.

    Raises:
        ConfigError: A path does not exist.
    """
    segments: dict[str, tuple[tuple[bool, int], str]] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise ConfigError(f"there is no journal at {path}: no such file or directory")
        whole = path.resolve()
        for file in [whole] if whole.is_file() else segments_in(whole):
            name = file.name.removeprefix(".")
            rank = _rank(file)
            if rank is not None and (name not in segments or rank > segments[name][0]):
                segments[name] = rank, str(file.with_name(name))
    return {name: (path, rank[1]) for name, (rank, path) in sorted(segments.items())}


def _rank(file: Path) -> tuple[bool, int] | None:
    for path in (file, file.with_name(file.name.removeprefix("."))):
        try:
            return not path.name.startswith("."), path.stat().st_size
        except FileNotFoundError:
            continue  # the segment was finished, and thus renamed, since it was found
    return None


def advance(
    start: Mapping[str, int],
    segments: Mapping[str, tuple[str, int]],
    maximum: int | None,
    growing: Collection[str] = (),
) -> dict[str, int]:
    """Return the positions up to which the next batch reads, by segment; none is before ``start``.

    Args:
        start: Positions of the last batch. A segment that is absent was not read yet.
        segments: The segments that :func:`find` returned.
        maximum: Limit of the bytes in all, None for no limit. Segments share the limit evenly, so
        that no node waits for another. A single line that is longer is read nevertheless.
        growing: Segments whose last step waits if the segment ends within a line, because the rest
        of the step may be written at this moment.
    """
    end = dict(start)
    waiting = sorted(
        (size - start.get(name, 0), name)
        for name, (_, size) in segments.items()
        if size > start.get(name, 0)
    )
    left = maximum
    for index, (there, name) in enumerate(waiting):
        if left is not None and left <= 0:
            break
        share = there if left is None else min(there, max(left // (len(waiting) - index), 1))
        begin = start.get(name, 0)
        with _mapped(segments[name][0]) as text:
            end[name] = at = _end_of_steps(text, begin, begin + share, begin + there)
            if name in growing and at < len(text) and not text.find(b"\n", at) + 1:
                end[name] = _begin_of_step(text, begin, at)
        if left is not None:
            left -= end[name] - begin
    return end


def _end_of_steps(text: mmap, begin: int, wanted: int, size: int) -> int:
    """Return the position behind the last line that ends at or before ``wanted``, and its step.

    If no line ends there, the first line behind ``wanted`` counts; without such a line, the
    position is ``begin``. The lines of a step are folded together.
    """
    end = text.rfind(b"\n", begin, wanted) + 1 or text.find(b"\n", wanted, size) + 1
    if not end:
        return begin
    step = _step_before(text, end)
    while step is not None and (after := text.find(b"\n", end) + 1):
        if _step_before(text, after) != step:
            break
        end = after
    return end


def _begin_of_step(text: mmap, begin: int, end: int) -> int:
    """Return the position before the step whose last line ends at ``end``."""
    step = _step_before(text, end)
    while end > begin and step is not None and _step_before(text, end) == step:
        end = text.rfind(b"\n", begin, end - 1) + 1 or begin
    return end


def _step_before(text: mmap, end: int) -> bytes | None:
    """Return the step of the line that ends at a position."""
    match = _STEP.search(text, text.rfind(b"\n", 0, end - 1) + 1, end)
    return match and match[1]


def divides_a_step(path: str, at: int) -> bool:
    """Return whether the lines before and after a position of a segment belong to one step."""
    with _mapped(path) as text:
        after = text.find(b"\n", at) + 1
        step = _step_before(text, at) if at and after else None
        return step is not None and step == _step_before(text, after)


@contextmanager
def _mapped(path: str) -> Iterator[mmap]:
    with _open(path) as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        yield text


def pieces(path: str, begin: int, end: int, maximum: int) -> list[ByteRange]:
    """Cut a part of a segment into pieces for several tasks."""
    return [ByteRange(path, at, min(at + maximum, end)) for at in range(begin, end, maximum)]


def read(span: ByteRange, *, torn: bool = False) -> Iterator[bytes]:
    """Return the complete lines that begin in a range, without their line ends.

    Args:
        span: The range.
        torn: Whether to return a last line without a line end, too.

    Raises:
        WMPError: The segment was removed.
    """
    with _open(span.path) as file:
        at = span.begin
        if at > 0:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < span.end and (line := file.readline()).endswith(b"\n"):
            at += len(line)
            yield line[:-1]
        if torn and at < span.end and line:
            yield line


def chunks(span: ByteRange, size: int) -> Iterator[bytes]:
    """Return the lines of a range that begins with a line, about so many bytes at a time.

    A last line without a line end is returned, too.

    Raises:
        WMPError: The segment was removed.
    """
    with _open(span.path) as file:
        file.seek(span.begin)
        while (left := span.end - file.tell()) > 0:
            text = file.read(min(size, left))
            if not text:
                return  # the segment is shorter than it was
            yield text if text.endswith(b"\n") or left <= size else text + file.readline()


def _open(path: str) -> BinaryIO:
    plain = Path(path)
    dotted = plain.with_name(f".{plain.name}")
    # A segment may lose its dot between two attempts, so a third attempt is needed.
    for segment in (plain, dotted, plain):
        try:
            return segment.open("rb")
        except FileNotFoundError:
            continue
    raise WMPError(
        f"the segment {path} was removed before all of it was read; leave the segments in place "
        "and start again"
    )
