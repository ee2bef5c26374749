"""The thread that writes to the store of a manager. Nothing else of the manager waits for it.

The thread numbers the batches of its instance. After ``StoreUnavailable`` it gives the same batch
again until the store answers: so nothing is acknowledged that is not stored, and nothing is stored
twice (STORE-3.3). Meanwhile the thread looks for the writes of other processes. After
``StoreUnusable``, for example because the file was replaced, the node ends (STORE-12.12).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from threading import Thread
from typing import Final

from attrs import evolve

from wmp.actions import Write
from wmp.errors import InstanceEnded, StoreError, StoreFull, StoreUnusable
from wmp.events import InstanceBegun, StoreFilled, Woken, Written
from wmp.message import counted
from wmp.runtime.common.threads import start_thread
from wmp.runtime.driver.inbox import Inbox, InboxEntry
from wmp.runtime.submission.submissions import Submissions
from wmp.store.contract import JobFilter, Store, StoredJob, StoreInstance
from wmp.store.stored_job import ENDED
from wmp.store.write_batch import BatchAnswer, WriteBatch

logger = logging.getLogger("wmp")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
"""Seconds between two attempts to write; each pause is twice as long as the one before."""
_REMIND: Final = 30.0
"""Seconds between two log lines about a store that is away."""
_LOOK: Final = 0.25
"""Seconds without a look for writes of others while this manager writes all the time."""
_IDLE: Final = 1.0
"""Limit of the seconds of one wait."""
_LAST: Final = 5.0
"""Seconds that the last writes of a manager have."""
_PAGE: Final = 500
"""Jobs that are read at a time."""


def open_store(store: Store | str | os.PathLike[str]) -> Store:
    """Return a store, or open the store at a path or URL. This blocks.

    Raises:
        ConfigError: A store cannot be created at the place, or an extra is missing.
        StoreError: The store cannot be opened.
    """
    if not isinstance(store, str | os.PathLike):
        return store
    # Managers without a store need none of this.
    from wmp.store.opening import make_store

    return make_store(store)


class StoreCommitter:
    """Writes the batches of one manager, and posts the answers.

    Args:
        store: The store, in which an instance was begun.
        instance: That instance.
        submissions: Get numbers and acknowledgements.
        inbox: Takes the answers.
        name: Name of the node, for log lines.
    """

    def __init__(
        self,
        store: Store,
        instance: StoreInstance,
        submissions: Submissions,
        inbox: Inbox,
        name: str,
    ) -> None:
        self._store = store
        self._me = instance
        self._number = 0
        """Number of the last batch that was answered."""
        # The thread must not keep a manager alive that is no longer used.
        self._submissions = weakref.ref(submissions)
        self._inbox = weakref.ref(inbox)
        self._name = name
        self._writes: deque[Write] = deque()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._until: float | None = None
        """When the thread gives up, after ``close``."""
        self._looked_at = 0.0
        self._away_since: float | None = None
        self._complained_at = 0.0
        self._thread: Thread | None = None
        submissions.provide(instance.block)

    # -- calls from the driver's thread -----------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._post(self._begun(()))
        self._thread = start_thread(self._run, f"{self._name}-store", failed=self._post)
        if self._thread is None:
            raise StoreError(
                "cannot start the thread that writes to the store; end other threads or processes"
            )

    def write(self, action: Write) -> None:
        """Apply a batch soon."""
        self._writes.append(action)
        self._ring()

    def close(self) -> None:
        """Write what was given, for some seconds at most, and end the instance. This blocks.

        Idempotent.
        """
        if self._until is None:
            self._until = time.monotonic() + _LAST
            self._ring()
        if self._thread is not None:
            self._thread.join(_LAST + 1.0)
        elif self._writer >= 0:
            self._end()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes the thread already
            os.write(self._writer, b"\0")

    # -- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._look(counted=True)
            while self._until is None or self._writes:
                if self._writes:
                    self._apply(self._writes.popleft())
                    if time.monotonic() - self._looked_at >= _LOOK:
                        self._wait(0.0)
                else:
                    self._wait(_IDLE)
                if self._inbox() is None:
                    break
        finally:
            self._end()

    def _end(self) -> None:
        """End the instance, and release the store."""
        with contextlib.suppress(StoreError):
            self._store.end(self._me)
        self._store.close()
        reader, writer, self._writer = self._reader, self._writer, -1
        for descriptor in (reader, writer):
            os.close(descriptor)

    def _wait(self, timeout: float) -> None:
        """Wait for a batch, or until another process writes."""
        try:
            foreign = self._store.wait(self._reader, timeout)
        except StoreError as error:
            self._complain(error)
            self._sleep(_FIRST_PAUSE)
            return
        with contextlib.suppress(OSError):
            os.read(self._reader, 4096)
        if foreign:
            self._look()

    def _look(self, *, counted: bool = False) -> None:
        """Report what others wrote; ``counted``: also the numbers of the queued jobs."""
        self._looked_at = time.monotonic()
        try:
            news, kinds = self._store.news(self._me), self._store.kinds(counted=counted)
        except StoreError as error:
            self._complain(error)
            return
        if news.ended or news.cancelling or kinds:
            self._post(Woken(news.ended, news.cancelling, kinds))

    def _apply(self, action: Write) -> None:
        """Apply a batch, as often as it takes."""
        batch, pause = action.batch, _FIRST_PAUSE
        while True:
            try:
                answer, held, seen = self._attempt(action, batch)
            except InstanceEnded as error:
                logger.warning("%s: %s", self._name, error)
                self._begin_anew()
                return
            except StoreError as error:
                if isinstance(error, StoreFull):
                    # Jobs that are submitted while this batch waits for space are refused, too.
                    self._post(StoreFilled(action.step, str(error)))
                    if batch.adds:
                        logger.error("%s: %s", self._name, error)
                        batch = evolve(batch, adds=())
                        continue
                self._complain(error)
            else:
                break
            if not self._sleep(pause):
                logger.error(
                    "%s: the manager ends, and its last changes are not stored: the jobs are done "
                    "again",
                    self._name,
                )
                return
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._number += 1
        self._answers()
        self._post(Written(action.step, answer, held, seen))
        if answer.repeated:
            self._post(Woken(self._ended(), (), ()))
        if batch.sweep or answer.stirred:
            self._look(counted=bool(batch.sweep))

    def _attempt(
        self, action: Write, batch: WriteBatch
    ) -> tuple[BatchAnswer, list[StoredJob] | None, list[StoredJob]]:
        """Apply a batch once, and read what its answer needs."""
        store = self._store
        submissions = self._submissions()
        if submissions is not None and submissions.wants_numbers:
            batch = evolve(batch, block=True)
        answer = store.apply(self._me, self._number + 1, batch)
        if submissions is not None and answer.block is not None:
            submissions.provide(answer.block)
        held, seen = None, list[StoredJob]()
        if answer.repeated or action.held:
            held = list(self._pages(JobFilter(instance=self._me.number)))
        if action.look:
            seen = list(self._pages(JobFilter(ids=action.look)))
        return answer, held, seen

    def _pages(self, where: JobFilter) -> Iterator[StoredJob]:
        after = -1
        while page := self._store.list(where, after=after, limit=_PAGE, payloads=True):
            yield from page
            after = page[-1].id

    def _ended(self) -> list[StoredJob]:
        """Return the ended jobs among those that were submitted here.

        After an unknown outcome no other process would report the ends that the sweep of the batch
        caused.
        """
        ids, jobs = self._open(), list[StoredJob]()
        try:
            for start in range(0, len(ids), _PAGE):
                where = JobFilter(ids=ids[start : start + _PAGE], states=ENDED)
                jobs += self._pages(where)
        except StoreError as error:
            self._complain(error)
        return jobs

    def _begin_anew(self) -> None:
        """Begin another instance, because the old one was ended."""
        pause = _FIRST_PAUSE
        while True:
            try:
                self._me = self._store.begin(self._me.identity, self._me.label)
                break
            except StoreError as error:
                self._complain(error)
            if not self._sleep(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._number = 0
        self._answers()
        if (submissions := self._submissions()) is not None:
            submissions.provide(self._me.block)
        self._post(self._begun(self._open()))
        self._look()

    def _begun(self, owned: Sequence[int]) -> InstanceBegun:
        peer = self._store.identity, self._store.generation
        return InstanceBegun(owned, peer, self._me.number)

    def _open(self) -> list[int]:
        submissions = self._submissions()
        return [] if submissions is None else submissions.open_stored()

    def _post(self, entry: InboxEntry) -> None:
        if (inbox := self._inbox()) is not None:
            inbox.post(entry)
        else:
            self._until = time.monotonic()

    # -- trouble ----------------------------------------------------------------------------

    def _complain(self, error: StoreError) -> None:
        """Log an error, but not too often.

        Raises:
            StoreUnusable: It is this error: to try again is useless, or does harm.
        """
        if isinstance(error, StoreUnusable):
            raise error
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        elif now - self._complained_at < _REMIND:
            return
        self._complained_at = now
        logger.error(
            "%s: %s. Stored jobs wait until the store answers; %s not written",
            self._name,
            error,
            counted(1 + len(self._writes), "batch is", "batches are"),
        )

    def _answers(self) -> None:
        if self._away_since is not None:
            seconds, self._away_since = time.monotonic() - self._away_since, None
            logger.warning("%s: the store answers again after %.1f s", self._name, seconds)

    def _sleep(self, seconds: float) -> bool:
        """Pause; return False when the thread has to give up."""
        if self._until is not None:
            seconds = min(seconds, self._until - time.monotonic())
            if seconds <= 0:
                return False
        time.sleep(seconds)
        return True
