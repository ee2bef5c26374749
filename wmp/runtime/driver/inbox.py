"""A driver's inbox: entries from any thread, and the wake-up of the driver's loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import frozen

from wmp.events import DeviceEvent, ManagerEvent, Submitted, WorkerEvent
from wmp.message import Frame, Kind
from wmp.retry import Retry
from wmp.runtime.common.threads import ThreadEnded

if TYPE_CHECKING:
    from wmp.actions import Resolve
    from wmp.foreign import ForeignEvent, RepliesArrived
    from wmp.store.job_terms import StoredTerms

Event: TypeAlias = (
    "ManagerEvent | WorkerEvent | DeviceEvent | ForeignEvent | Resolve | RepliesArrived"
)
"""``Resolve`` is an event of a door, whose jobs have ended, and ``RepliesArrived`` of a gateway."""


@frozen
class JobTerms:
    """Terms of a submission, apart from its payload. Jobs with equal terms share one Submitted."""

    kind: Kind
    priority: int
    timeout: float | None
    max_worker_losses: int
    expires: float | None = None
    run_limit: float | None = None
    delay: float = 0.0
    retry: Retry | None = None
    stored: StoredTerms | None = None
    """Terms of stored jobs; None for jobs that are not stored."""
    unique: Literal["open", "kept"] = "open"
    after: tuple[int, ...] = ()
    """Stored jobs for whose results the job waits in the store."""
    splice: int | None = None
    """Place of these results in the payload."""


class OpenSubmission:
    """Jobs with equal terms in the driver's inbox. More jobs may join until the driver seals the
    object.

    Args:
        lock: Guards the attributes.
        terms: Terms of the jobs.
        first: Number of the first job; the others follow it.

    Attributes:
        payloads: One for each job.
        called: When the submitter called for each job, on the monotonic clock.
        keys: One for each stored job with a key; None for jobs without keys.
        sealed: Whether the batch is closed to further jobs.
    """

    __slots__ = ("_lock", "called", "first", "keys", "payloads", "sealed", "terms")

    def __init__(self, lock: threading.Lock, terms: JobTerms, first: int) -> None:
        self._lock = lock
        self.terms = terms
        self.first = first
        self.payloads: list[Frame] = []
        self.called: list[float] = []
        self.keys: list[str] | None = None
        self.sealed = False

    def seal(self) -> Submitted:
        """Close the batch to further jobs; return all jobs as one event."""
        with self._lock:
            self.sealed = True
            # The submissions keep this object until the next one. The payloads must not stay with
            # it.
            payloads, self.payloads = self.payloads, []
            called, self.called = self.called, []
        terms, first = self.terms, self.first
        return Submitted(
            ids=range(first, first + len(payloads)),
            payloads=payloads,
            kind=terms.kind,
            priority=terms.priority,
            timeout=terms.timeout,
            max_worker_losses=terms.max_worker_losses,
            expires=terms.expires,
            run_limit=terms.run_limit,
            delay=terms.delay,
            retry=terms.retry,
            stored=terms.stored,
            keys=self.keys,
            unique=terms.unique,
            after=terms.after,
            splice=terms.splice,
            called=called,
        )


InboxEntry: TypeAlias = "Event | OpenSubmission | ThreadEnded"
"""An event, jobs that later become an event, or the reason to stop the node."""

_ONE: Final = (1).to_bytes(8, sys.byteorder)
"""The bytes of one write. An eventfd takes exactly eight bytes."""


class Wakeup:
    """Wakes a loop from another thread, at a third of the cost of ``call_soon_threadsafe``.

    Args:
        loop: The running loop.
        answer: Called on the loop, once or more, after ``ring``; it must not raise.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Callable[[], object]) -> None:
        self._loop = loop
        self._answer = answer
        self._lock = threading.Lock()
        self._closed = False
        if sys.platform == "linux":
            self._reader = self._writer = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)
        loop.add_reader(self._reader, self._on_readable)

    def ring(self) -> bool:
        """Wake the loop, from any thread; return False if the loop or this object is closed."""
        # Under the lock, because the number of a closed descriptor may belong to another file by
        # now.
        with self._lock:
            if self._closed or self._loop.is_closed():
                return False
            with contextlib.suppress(BlockingIOError):  # A full descriptor already wakes the loop.
                os.write(self._writer, _ONE)
            return True

    def close(self) -> None:
        """Close the descriptors; call it on the loop. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._loop.remove_reader(self._reader)
            for descriptor in {self._reader, self._writer}:
                os.close(descriptor)

    def _on_readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)
        self._answer()


class Inbox:
    """Entries for one driver, and its next turn.

    ``post`` may be called from any thread and at any time. Entries before ``start`` wait for it.
    Entries after ``close`` are ignored. All other methods are called on the loop.

    Attributes:
        entries: Posted entries; the driver takes them from the left.
        scheduled: Whether a turn is scheduled. The driver clears this mark when a turn begins.
    """

    def __init__(self) -> None:
        self.entries: deque[InboxEntry] = deque()
        self.scheduled = False
        self._turn: Callable[[], object] = _nothing
        self._loop_closed: Callable[[], object] = _nothing
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._wakeup: Wakeup | None = None

    def start(self, turn: Callable[[], object], loop_closed: Callable[[], object]) -> None:
        """Begin to wake the running loop.

        Args:
            turn: The driver's turn.
            loop_closed: Called by ``post``, on its thread, when the loop was closed.
        """
        self._turn = turn
        self._loop_closed = loop_closed
        loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._wakeup = Wakeup(loop, turn)
        # Set last, because another thread that sees the loop also needs the two values above.
        self._loop = loop

    def post(self, entry: InboxEntry) -> None:
        """Add an entry, and wake the loop once for several entries.

        The entry is added before the mark is read, and a turn clears the mark before it takes
        entries. So a scheduled turn always takes an entry that was added while the mark was set.
        """
        self.entries.append(entry)
        loop = self._loop  # another thread may close the inbox during this call
        if self.scheduled or loop is None:
            return
        if threading.get_ident() == self._thread:
            self.schedule()
            return
        self.scheduled = True
        wakeup = self._wakeup
        if wakeup is None or not wakeup.ring():
            self._loop_closed()

    def schedule(self) -> None:
        """Schedule a turn soon, unless a turn is scheduled already."""
        if not self.scheduled and self._loop is not None:
            self.scheduled = True
            self._loop.call_soon(self._turn)

    def close(self) -> None:
        """Stop waking the loop, and drop posted entries. Idempotent."""
        self._loop = None
        self._turn = self._loop_closed = _nothing
        if self._wakeup is not None:
            self._wakeup.close()
        self.entries.clear()


def _nothing() -> None:
    pass
