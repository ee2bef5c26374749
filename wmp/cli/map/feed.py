"""Inputs of ``wmp map`` as submitted jobs: read in advance, in order, within limits."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from attrs import define, evolve, frozen

from wmp.blocking import Job, Manager
from wmp.message import Limits
from wmp.runtime.submission.submit_options import SubmitOptions

_JOBS: Final = 8192
"""Maximum number of inputs that are read in advance of the results."""

_BYTES: Final = 256 << 20
"""Maximum number of bytes that are read in advance; a single input may have more."""

_CHUNK: Final = 1 << 16
"""Bytes of one read of a file that is read line by line."""

_STDIN: Final = "-"

_TOO_LARGE: Final = (
    f"is too large for one job; split it into parts of at most {Limits.PAYLOAD} bytes"
)


@frozen
class MapInput:
    """An input: its payload, or the reason why there is none."""

    name: str
    payload: bytes
    error: str | None = None
    skipped: bool = False
    """Whether an earlier run has done the job."""


@define
class Item:
    """An input that was read, and its job."""

    number: int
    """Number of the input, from 1."""
    name: str
    size: int
    job: Job | None
    """The job of the input; None if it could not be submitted."""
    error: str | None = None


Skips = Callable[[int, str], bool]
"""Returns whether the job of an input was done before, for the number and the name of the input."""


def inputs(files: Sequence[str], lines: bool, skips: Skips | None = None) -> Iterator[MapInput]:
    """Yield the inputs that the command line names, or the lines of stdin without any.

    Args:
        files: Names of files; ``-`` is stdin.
        lines: Whether each line of a file is an input, instead of the whole file.
        skips: Names the inputs whose jobs were done before. Files of these inputs are not read.
    """
    if not files or lines:
        every = chain.from_iterable(map(_lines, files or (_STDIN,)))
        for number, map_input in enumerate(every, 1):
            skipped = skips is not None and skips(number, map_input.name)
            yield evolve(map_input, payload=b"", error=None, skipped=True) if skipped else map_input
        return
    for number, name in enumerate(files, 1):
        if skips is not None and skips(number, name):
            yield MapInput(name, b"", skipped=True)
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
    """A line whose end has not been read. If the line is too large, only its size is kept."""

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
    # Python's buffers are not used. A thread that waits in a buffered read would delay the
    # interpreter's end, and a typed line must be processed at once.
    descriptor = 0 if name == _STDIN else os.open(name, os.O_RDONLY)
    try:
        while chunk := os.read(descriptor, _CHUNK):
            yield chunk
    finally:
        if descriptor:
            os.close(descriptor)


class Feed:
    """Submits inputs on a thread of its own, in advance of the reader of the results.

    Args:
        manager: Takes the inputs.
        source: The inputs; read on the thread.
        options: Options of each job.
        ended: Called when the job of an item has ended, on another thread; None for no call.
        stored: Whether the jobs are stored, under keys of their names and contents.
    """

    def __init__(
        self,
        manager: Manager,
        source: Iterator[MapInput],
        options: SubmitOptions,
        ended: Callable[[Item], None] | None = None,
        *,
        stored: bool = False,
    ) -> None:
        self.count = 0
        """Number of inputs so far."""
        self.skipped = 0
        """Number of inputs whose jobs were done before."""
        self._on_end = ended
        self._stopped = False
        self._manager = manager
        self._source = source
        self._options = options
        self._stored = stored
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._ended = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        # The thread is a daemon, because it may still wait for stdin when all other work is over.
        threading.Thread(target=self._run, name="wmp-feed", daemon=True).start()

    def first(self, timeout: float) -> tuple[Item | None, bool]:
        """Return the oldest item without removing it.

        Args:
            timeout: Seconds to wait for an item.

        Returns:
            The item, or None when there is none now; and whether more items may come.

        Raises:
            WMPError: No more inputs can be submitted.
        """
        with self._changed:
            if not self._items and not self._ended:
                self._changed.wait(timeout)
            if self._items:
                return self._items[0], True
            if self._error is not None:
                raise self._error
            return None, not (self._ended or self._stopped)

    @property
    def total(self) -> int | None:
        """The number of inputs, None while more may come. Skipped inputs count too."""
        with self._changed:
            return self.count if self._ended else None

    def stop(self, *, running: bool) -> None:
        """Submit no further input, and cancel the jobs that no worker has.

        Args:
            running: Whether the jobs that workers have are stopped too.
        """
        with self._changed:
            self._stopped = True
            items = list(self._items)
            self._changed.notify_all()
        for item in items:
            if item.job is not None:
                item.job.stop() if running else item.job.cancel()

    def drop(self) -> None:
        """Remove the oldest item, whose result was printed."""
        with self._changed:
            self._bytes -= self._items.popleft().size
            self._changed.notify()

    def _run(self) -> None:
        try:
            for map_input in self._source:
                if self._stopped:
                    break
                if map_input.skipped:
                    with self._changed:
                        self.count += 1
                        self.skipped += 1
                    continue
                item = self._hand_in(map_input)
                with self._changed:
                    self.count += 1
                    self._items.append(item)
                    self._bytes += item.size
                    self._changed.notify()
                    while self._is_full():
                        self._changed.wait()
                self._cancel_late(item)
        except BaseException as error:  # noqa: BLE001 — it is raised where the results are taken
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _is_full(self) -> bool:
        if self._stopped:
            return False
        return len(self._items) >= _JOBS or (self._bytes >= _BYTES and bool(self._items))

    def _cancel_late(self, item: Item) -> None:
        """Cancel the job of an input that was submitted while ``stop`` was called."""
        if self._stopped and item.job is not None:
            item.job.cancel()

    def _hand_in(self, map_input: MapInput) -> Item:
        number, size = self.count + 1, len(map_input.payload)
        error = map_input.error if size <= Limits.PAYLOAD else _TOO_LARGE
        item = Item(number, map_input.name, 0 if error else size, None, error)
        if error is None:
            item.job = self._submit(map_input)
        if self._on_end is not None:
            on_end = self._on_end
            if item.job is None:
                on_end(item)
            else:
                item.job.add_done_callback(lambda job: on_end(item))
        return item

    def _submit(self, map_input: MapInput) -> Job:
        if not self._stored:
            return self._manager.submit(map_input.payload, **self._options)
        # The jobs read in advance are fewer than a manager takes, so nothing waits here.
        key = _key(self._options["role"], map_input)
        options: SubmitOptions = {**self._options, "key": key, "unique": "kept"}
        return self._manager.submit_nowait(map_input.payload, **options)


def _key(role: str, map_input: MapInput) -> str:
    """Return a key of an input: equal for equal names, contents and roles."""
    name = os.fsencode(map_input.name)
    digest = hashlib.sha256(b"%d %s" % (len(name), name))
    digest.update(map_input.payload)
    return f"wmp map {role} {digest.hexdigest()}"
