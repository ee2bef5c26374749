"""Writes a node's journal: a bounded buffer, a thread that writes the buffer into files, and a
clock.

The driver adds the lines of each step to the buffer and never waits. A thread of the recorder
writes them. Lines are lost if the buffer is full or a write fails. Lost lines are counted in the
node's statistics, from time to time in the log, and in the journal as soon as it can be written
again. ``specs/journal.md`` defines how segments are named, begun and ended. A node without a
journal does not import this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, Self

from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.errors import ConfigError
from wmp.journal.formatter import JournalFormatter
from wmp.journal.header import JournalHeader
from wmp.journal.schema import name_of_file
from wmp.runtime.common.journal import CLOSE, Journal
from wmp.runtime.common.threads import LONGEST_WAIT, FailedCall, start_thread

logger = logging.getLogger("wmp")

_HURRY: Final = 256 << 10
"""Number of bytes in the buffer at which the writer writes without waiting for more."""
_COMPLAIN: Final = 30.0
"""Seconds between two log lines about lost lines."""


class Recorder:
    """The journal of one node while the node runs.

    All methods except ``wait`` are called on the loop's thread. This thread and the writer's thread
    share a deque, of which each uses one end, and counters that only one of them changes.

    Args:
        journal: Folder and sizes.
        header: Identity of the node.
        loop: Its clock is the clock of the steps.
        failed: Takes the unexpected end of the writer's thread.

    Raises:
        ConfigError: No file can be created.
    """

    @classmethod
    def begin(
        cls,
        journal: Journal,
        settings: ManagerSettings | WorkerSettings | DeviceSettings,
        endpoints: Sequence[str],
        loop: asyncio.AbstractEventLoop,
        failed: FailedCall | None = None,
    ) -> Self:
        """Begin the journal of one node; ``failed`` takes the unexpected end of its thread.

        Raises:
            ConfigError: No file can be created in the folder.
        """
        header = JournalHeader.of(
            settings,
            endpoints=endpoints,
            host=socket.gethostname(),
            pid=os.getpid(),
            release=_release(),
        )
        return cls(journal, header, loop, failed)

    def __init__(
        self,
        journal: Journal,
        header: JournalHeader,
        loop: asyncio.AbstractEventLoop,
        failed: FailedCall | None = None,
    ) -> None:
        self._journal = journal
        self._formatter = JournalFormatter(header)
        self._loop = loop
        self._ahead = 0
        """µs by which the wall clock is ahead of the loop's."""
        self._chunks: deque[list[str]] = deque()
        self._put = 0
        """Number of bytes put into the buffer so far."""
        self._lost: Counter[str] = Counter()
        """Number of lines that did not reach the writer, by reason."""
        self._missed = 0
        """Their sum."""
        self._written: Counter[str] = Counter()
        """Number of lost lines that the journal has reported already, by reason."""
        self._lost_written = 0
        """Their sum."""
        self._ended = False
        self._look_at_clock()
        self._writer = _Writer(journal, header, self._chunks, self._times)
        self._writer.start(failed)
        self._timer = loop.call_later(min(journal.beat, LONGEST_WAIT), self._beat)

    def step(self, event: object, actions: Sequence[object], now: float) -> None:
        """Record a machine's step at ``now``, seconds on the loop's clock. Never raises."""
        if self._ended:
            return
        at = int(now * 1e6)
        wall = at + self._ahead
        try:
            lines = self._formatter.step(event, actions, at, wall)
        except Exception as error:  # noqa: BLE001 - a defect of ours; the node must still run
            self._lose(1, "defect")
            self._writer.complain(f"a defect: {error!r}")
            return
        if lines:
            self._add(lines, at, wall)

    def stop(self) -> None:
        """Write the last lines. The writer ends later: see :meth:`wait`. Idempotent.

        These lines go even into a full buffer. Otherwise a reader would take the node for killed,
        and would not see the last losses.
        """
        if self._ended:
            return
        self._timer.cancel()
        at, wall = self._times()
        lines = self._news(at, wall)
        lines.append(self._formatter.stop(self.lost, at, wall))
        self._chunks.append(lines)
        self._ended = True
        self._writer.end()

    def wait(self, timeout: float = CLOSE) -> None:
        """Wait until all lines are in the file, for ``timeout`` seconds at most.

        Any thread may call this method.
        """
        self._writer.join(timeout)

    @property
    def lost(self) -> int:
        """Number of lines lost so far."""
        return self._missed + self._writer.failed

    def _lose(self, lines: int, reason: str) -> None:
        self._lost[reason] += lines
        self._missed += lines

    def _beat(self) -> None:
        self._look_at_clock()
        at, wall = self._times()
        self._add([self._formatter.beat(self.lost, at, wall)], at, wall)
        self._timer = self._loop.call_later(min(self._journal.beat, LONGEST_WAIT), self._beat)

    def _add(self, lines: list[str], at: int, wall: int) -> None:
        """Put lines into the buffer; lose them if it is full."""
        size = sum(map(len, lines)) + len(lines)
        waiting = self._put - self._writer.taken
        if waiting + size > self._journal.buffer:
            self._lose(len(lines), "full buffer")
            self._writer.complain("the buffer is full because the disk is too slow")
            return
        if self.lost != self._lost_written:
            lines += self._news(at, wall)
            size = sum(map(len, lines)) + len(lines)
        self._chunks.append(lines)
        self._put += size
        self._writer.wake(hurry=waiting > _HURRY)

    def _news(self, at: int, wall: int) -> list[str]:
        """Return lines about the losses since the last such lines."""
        counts = {**self._lost, "failed write": self._writer.failed}
        written, self._written = self._written, Counter(counts)
        self._lost_written = sum(counts.values())
        return [
            self._formatter.lost(count - written[reason], reason, at, wall)
            for reason, count in counts.items()
            if count > written[reason]
        ]

    def _look_at_clock(self) -> None:
        self._ahead = time.time_ns() // 1000 - int(self._loop.time() * 1e6)

    def _times(self) -> tuple[int, int]:
        at = int(self._loop.time() * 1e6)
        return at, at + self._ahead


class _Writer:
    """The thread that owns the files."""

    def __init__(
        self,
        journal: Journal,
        header: JournalHeader,
        chunks: deque[list[str]],
        times: Callable[[], tuple[int, int]],
    ) -> None:
        self._journal = journal
        self._header = header
        self._chunks = chunks
        self._times = times
        self.taken = 0
        """Number of bytes taken out of the buffer so far."""
        self.failed = 0
        """Number of lines that could not be written."""
        self._segment = 0
        self._file: int | None = None
        self._path = journal.folder
        self._size = 0
        """Number of bytes of whole lines in the file."""
        self._opened = 0.0
        self._work = threading.Event()
        self._hurry = threading.Event()
        self._ending = False
        self._silent_until = 0.0
        self._thread: threading.Thread | None = None

    def start(self, failed: FailedCall | None) -> None:
        """Make the folder and the first segment, then start the thread.

        Raises:
            ConfigError: The folder or the segment cannot be created.
        """
        self._journal.prepare()
        try:
            self._begin_segment()
        except OSError as error:
            raise self._journal.refusal(error) from error
        self._thread = start_thread(self._run, "wmp-journal", failed=failed)
        if self._thread is None:
            raise ConfigError(
                "cannot start the thread that writes the journal; end other threads or processes"
            )

    def wake(self, *, hurry: bool) -> None:
        """Wake the thread, because the buffer has lines."""
        if not self._work.is_set():
            self._work.set()
        if hurry and not self._hurry.is_set():
            self._hurry.set()

    def end(self) -> None:
        """Write the remaining lines, close the file, and end."""
        self._ending = True
        self._work.set()
        self._hurry.set()

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread."""
        assert self._thread is not None
        self._thread.join(timeout)

    def complain(self, why: str) -> None:
        """Log that lines are lost, at intervals."""
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + _COMPLAIN
            logger.warning("journal %s: lines were lost: %s", self._journal.folder, why)

    # -- in the thread

    def _run(self) -> None:
        ending = False
        while not ending:
            self._work.wait()
            self._hurry.wait(min(self._journal.flush, LONGEST_WAIT))
            # The event is cleared before the buffer is emptied, so that later lines set it again.
            self._work.clear()
            self._hurry.clear()
            ending = self._ending
            while self._chunks:
                self._write_some()
            if ending:
                self._end_segment()

    def _write_some(self) -> None:
        """Write some of the waiting lines; begin a new segment when it is time for one."""
        lines: list[str] = []
        size = 0
        while self._chunks and size < _HURRY:
            chunk = self._chunks.popleft()
            size += sum(map(len, chunk)) + len(chunk)
            lines += chunk
        age = time.monotonic() - self._opened
        if self._size >= self._journal.segment_bytes or age >= self._journal.segment_age:
            self._end_segment()
        try:
            if self._file is None:
                self._begin_segment()
            self._write(lines)
        except OSError as error:
            self.failed += len(lines)
            self.complain(f"cannot write {self._path}: {error.strerror or error}")
        finally:
            self.taken += size

    def _write(self, lines: Sequence[str]) -> None:
        """Write all these lines, or none of them."""
        assert self._file is not None
        data = "\n".join((*lines, "")).encode("ascii")
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _begin_segment(self) -> None:
        number = self._segment + 1
        name = name_of_file(self._header.identity, self._header.epoch, number)
        self._path = self._journal.folder / f".{name}"
        self._file = self._journal.open(self._path)
        self._size, self._opened = 0, time.monotonic()
        try:
            self._write([self._header.start(number, *self._times())])
        except OSError:
            # A segment without its first line is invalid, so the file is removed.
            os.close(self._file)
            self._file = None
            self._path.unlink(missing_ok=True)
            raise
        self._segment = number

    def _end_segment(self) -> None:
        """Close the file and give it its final name."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            os.close(file)
            self._path.rename(self._path.with_name(self._path.name[1:]))
        except OSError as error:
            self.complain(f"cannot close {self._path}: {error.strerror or error}")


def _release() -> str | None:
    # This import takes a twelfth of the start of a node, and most nodes keep no journal.
    from importlib import metadata

    try:
        return metadata.version("worker-manager-protocol")
    except metadata.PackageNotFoundError:
        return None
