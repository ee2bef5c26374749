"""The inputs of a blocking ``map`` that may come slowly: a thread pulls them.

On the consumer's own thread, a wait for the next input would hold back results that have arrived.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Iterable
from threading import Event, Thread, current_thread
from typing import Any, Final

from wmp.message import Frame
from wmp.runtime.common.threads import start_thread
from wmp.runtime.submission.map_inputs import MapInputs

_PATIENCE: Final = 1.0
"""Seconds for which ``close`` waits for the thread while no input is being pulled."""

_ON_A_THREAD: Final = (
    "map() pulled this input on a thread of its own; pass a list of the inputs if they belong to "
    "one thread, as the rows of SQLite do"
)


class ThreadInputs(MapInputs):
    """Inputs of one ``map`` that a thread pulls, never more than ``pull`` has asked for.

    Args:
        payloads: Iterated by the thread, in a copy of the consumer's context.
        codec: As for ``MapInputs``.
        limit: As for ``MapInputs``.
        came: Called by the thread when an input, the end or an error has come.
        lenient: As for ``MapInputs``.
    """

    def __init__(
        self,
        payloads: Iterable[Any],
        codec: str,
        limit: int,
        came: Callable[[], None],
        *,
        lenient: bool = False,
    ) -> None:
        super().__init__(payloads, codec, limit, lenient=lenient)
        self._came = came
        self._queue: deque[Any] = deque()
        self._popped = 0
        """Number of inputs that were taken from the queue."""
        self._until = 0
        """Number of inputs that the thread may pull in all."""
        self._more = Event()
        self._thread: Thread | None = None
        self._alone = False
        """Whether no thread could be started, so that the consumer pulls the inputs."""
        self._pulling = False
        self._exhausted = False
        """Whether the thread adds no further input to the queue."""
        self._failure: BaseException | None = None

    @property
    def awaited(self) -> bool:
        """Whether the next input has not come yet."""
        return not (self._alone or self._queue or self.ended or self._exhausted)

    def close(self, error: BaseException | None = None) -> None:
        """Pull no more inputs. The iterable is released by the thread, at the latest when its next
        input has come.
        """
        super().close(error)
        self._queue.clear()
        self._more.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not current_thread() and not self._pulling:
            thread.join(_PATIENCE)

    def _iterate(self, chunk: list[Frame], count: int, size: int) -> None:
        if self._thread is None and not self._alone and not self._exhausted:
            # The thread alone holds the iterator, and so releases it.
            coming, self._coming = self._coming, iter(())
            run = contextvars.copy_context().run
            self._thread = start_thread(run, "wmp-map-inputs", self._bring, [coming])
            if self._thread is None:
                self._coming, self._alone = coming, True
        if self._alone:
            super()._iterate(chunk, count, size)
            return
        while self._queue and len(chunk) < count and size > 0:
            payload = self._queue.popleft()
            self._popped += 1
            data = self._pack(payload)
            if data is None:
                return
            chunk.append(data)
            size -= len(data)
        self._until = self._popped + count - len(chunk)
        self._more.set()
        # Read first: what the thread has added before it is exhausted must not be lost.
        exhausted = self._exhausted
        if exhausted and not self._queue:
            failure = self._failure
            self.close(failure)
            if failure is not None and not isinstance(failure, Exception):
                raise failure

    def _bring(self, holder: list[Any]) -> None:
        """Pull inputs while they are wanted, on the thread."""
        coming = holder.pop()
        pulled = 0
        try:
            while not self.ended:
                if pulled >= self._until:
                    self._more.clear()
                    if pulled >= self._until and not self.ended:
                        self._more.wait()
                    continue
                self._pulling = True
                payload = next(coming)
                self._pulling = False
                pulled += 1
                self._queue.append(payload)
                self._came()
        except StopIteration:
            pass
        # An error of the iterable belongs behind the last input, on the consumer's thread.
        except BaseException as error:  # noqa: BLE001
            if type(error).__module__ == "sqlite3":
                error.add_note(_ON_A_THREAD)
            self._failure = error
        finally:
            self._pulling = False
            del coming
            self._exhausted = True
            self._came()
