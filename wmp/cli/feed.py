"""Inputs of ``wmp map`` as jobs under way: read ahead, in order, within bounds."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from wmp.blocking import Job, Manager
from wmp.message import Limits

__all__ = ["Feed", "Item", "MapInput", "inputs"]

_JOBS: Final = 8192
"""Inputs read ahead of the results, at most."""

_BYTES: Final = 256 << 20
"""The same in bytes; one input may exceed it alone."""

_CHUNK: Final = 1 << 16
"""Bytes read at once from a file that is read line by line."""

_STDIN: Final = "-"

_TOO_LARGE: Final = f"is too large for a job; split it into parts of at most {Limits.PAYLOAD} bytes"


@frozen
class MapInput:
    """Something to be done: its payload, or why there is none."""

    name: str
    payload: bytes
    error: str | None = None


@frozen
class Item:
    """An input that was handed in."""

    name: str
    size: int
    job: Job | None
    """The job of the input; None when the input could not be submitted."""
    error: str | None = None


def inputs(files: Sequence[str], lines: bool) -> Iterator[MapInput]:
    """Yield what the command line names; lines of stdin when it names nothing."""
    if not files:
        yield from _lines(_STDIN)
        return
    for name in files:
        if lines:
            yield from _lines(name)
            continue
        try:
            if name != _STDIN and Path(name).stat().st_size > Limits.PAYLOAD:
                yield MapInput(name, b"", _TOO_LARGE)
                continue
            payload = b"".join(_chunks(name)) if name == _STDIN else Path(name).read_bytes()
        except OSError as error:
            yield MapInput(name, b"", f"cannot be read: {(error.strerror or '').lower()}")
        else:
            yield MapInput(name, payload)


def _lines(name: str) -> Iterator[MapInput]:
    number = 1
    label = "stdin" if name == _STDIN else name
    rest = _Line()
    try:
        for chunk in _chunks(name):
            *ends, begin = chunk.split(b"\n")
            for end in ends:
                rest.add(end)
                yield rest.input(f"{label}:{number}")
                number, rest = number + 1, _Line()
            rest.add(begin)
    except OSError as error:
        yield MapInput(label, b"", f"cannot be read: {(error.strerror or '').lower()}")
    if rest.size:
        yield rest.input(f"{label}:{number}")


class _Line:
    """A line whose end is still to come; of one that is too large only the size is kept."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if self.size > Limits.PAYLOAD:
            self._parts.clear()
        else:
            self._parts.append(part)

    def input(self, name: str) -> MapInput:
        if self.size > Limits.PAYLOAD:
            return MapInput(name, b"", _TOO_LARGE)
        return MapInput(name, b"".join(self._parts))


def _chunks(name: str) -> Iterator[bytes]:
    # Without Python's buffers: a thread that waits in one would hold up the interpreter's end,
    # and a line that was typed is to be seen at once.
    descriptor = 0 if name == _STDIN else os.open(name, os.O_RDONLY)
    try:
        while chunk := os.read(descriptor, _CHUNK):
            yield chunk
    finally:
        if descriptor:
            os.close(descriptor)


class Feed:
    """Submits inputs on a thread of its own, ahead of the reader of the results.

    Args:
        manager: Takes the inputs.
        source: The inputs; iterated on the thread.
        order: Arguments of :meth:`wmp.Manager.submit`.
    """

    def __init__(self, manager: Manager, source: Iterator[MapInput], order: dict[str, Any]) -> None:
        self.count = 0
        """Inputs seen so far."""
        self._manager = manager
        self._source = source
        self._order = order
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._ended = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        # A daemon, for it may wait for stdin when everything else is over.
        threading.Thread(target=self._run, name="wmp-feed", daemon=True).start()

    def first(self, timeout: float) -> tuple[Item | None, bool]:
        """Look at the oldest item.

        Args:
            timeout: Seconds to wait for one.

        Returns:
            The item, None when there is none now; and whether more may come.

        Raises:
            WMPError: Handing in failed for all that follows.
        """
        with self._changed:
            if not self._items and not self._ended:
                self._changed.wait(timeout)
            if self._items:
                return self._items[0], True
            if self._error is not None:
                raise self._error
            return None, not self._ended

    @property
    def total(self) -> int | None:
        """How many inputs there are, None while more may come."""
        with self._changed:
            return self.count if self._ended else None

    def drop(self) -> None:
        """Forget the oldest item: its result was taken."""
        with self._changed:
            self._bytes -= self._items.popleft().size
            self._changed.notify()

    def _run(self) -> None:
        try:
            for one in self._source:
                item = self._hand_in(one)
                with self._changed:
                    self.count += 1
                    self._items.append(item)
                    self._bytes += item.size
                    self._changed.notify()
                    while len(self._items) >= _JOBS or (self._bytes >= _BYTES and self._items):
                        self._changed.wait()
        except BaseException as error:  # noqa: BLE001 — it is raised where the results are taken
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _hand_in(self, one: MapInput) -> Item:
        if one.error is not None:
            return Item(one.name, 0, None, one.error)
        if len(one.payload) > Limits.PAYLOAD:
            return Item(one.name, 0, None, _TOO_LARGE)
        return Item(one.name, len(one.payload), self._manager.submit(one.payload, **self._order))
