"""A thread that pulls inputs which may come slowly.

On the consumer's own thread, a wait for the next input would hold back results that have arrived.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterator
from threading import Event, Thread, current_thread
from typing import Any, Final

from wmp.runtime.common.threads import start_thread

_PATIENCE: Final = 1.0
"""Seconds for which ``close`` waits for the thread while no input is being pulled."""

_ON_A_THREAD: Final = (
    "map() pulled this input on a thread of its own; pass a list of the inputs if they belong to "
    "one thread, as the rows of SQLite do"
)


class InputThread:
    """Pulls the items of an iterator on a thread, never more than were requested.

    Args:
        coming: The iterator. The thread iterates it in a copy of the context of the caller.
        came: Called on the thread when an item, the end or an error has come. It must not
            raise.
    """

    def __init__(self, coming: Iterator[Any], came: Callable[[], None]) -> None:
        self.queue: deque[Any] = deque()
        """The items that were pulled. The thread appends to it, and the consumer pops."""
        self.exhausted = False
        """Whether the thread appends no further item."""
        self.failure: BaseException | None = None
        """The error that ended the thread; it belongs behind the last item."""
        self._came = came
        self._until = 0
        self._more = Event()
        self._closed = False
        self._pulling = False
        # The thread alone holds the iterator, and so releases it.
        run = contextvars.copy_context().run
        self._thread: Thread | None = start_thread(run, "wmp-map-inputs", self._bring, [coming])
        self.started = self._thread is not None
        """Whether a thread could be started; otherwise the consumer pulls the inputs."""

    def request(self, until: int) -> None:
        """Let the thread pull items until it has pulled ``until`` items in all."""
        self._until = until
        self._more.set()

    def close(self) -> None:
        """Pull no more items. The thread releases the iterator, at the latest when its next item
        has come.
        """
        self._closed = True
        self.queue.clear()
        self._more.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not current_thread() and not self._pulling:
            thread.join(_PATIENCE)

    def _bring(self, holder: list[Iterator[Any]]) -> None:
        """Pull items while they are wanted, on the thread."""
        coming = holder.pop()
        pulled = 0
        try:
            while not self._closed:
                if pulled >= self._until:
                    self._more.clear()
                    if pulled >= self._until and not self._closed:
                        self._more.wait()
                    continue
                self._pulling = True
                try:
                    item = next(coming)
                except StopIteration:
                    break
                finally:
                    self._pulling = False
                pulled += 1
                self.queue.append(item)
                del item
                self._came()
        # An error of the iterator belongs behind the last item, on the consumer's thread.
        except BaseException as error:  # noqa: BLE001
            if type(error).__module__ == "sqlite3":
                error.add_note(_ON_A_THREAD)
            self.failure = error
        finally:
            del coming
            self.exhausted = True
            self._came()
