"""The inputs of a blocking ``map`` that may come slowly: a thread pulls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wmp.message import Frame
from wmp.runtime.submission.input_thread import InputThread
from wmp.runtime.submission.map_inputs import MapInputs


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
        self._popped = 0
        """Number of inputs that were taken from the thread."""
        self._requested = 0
        """Number of inputs that the thread may have pulled."""
        self._thread: InputThread | None = None
        self._alone = False
        """Whether no thread could be started, so that the consumer pulls the inputs."""

    @property
    def awaited(self) -> bool:
        """Whether the next input was requested and has not come yet."""
        thread = self._thread
        # While the manager is full, no input is requested, and none will come.
        if thread is None or self.ended or self._requested <= self._popped:
            return False
        return not (thread.queue or thread.exhausted)

    def close(self, error: BaseException | None = None) -> None:
        """Pull no more inputs. The iterable is released by the thread, at the latest when its next
        input has come.
        """
        super().close(error)
        if self._thread is not None:
            self._thread.close()

    def _iterate(self, chunk: list[Frame], count: int, size: int) -> None:
        thread = self._thread
        if thread is None and not self._alone:
            thread = InputThread(self._coming, self._came)
            if thread.started:
                self._thread, self._coming = thread, iter(())
            else:
                self._alone = True
        if self._alone or thread is None:
            super()._iterate(chunk, count, size)
            return
        queue = thread.queue
        while queue and len(chunk) < count and size > 0:
            payload = queue.popleft()
            self._popped += 1
            data = self._pack(payload)
            if data is None:
                return
            chunk.append(data)
            size -= len(data)
        self._requested = self._popped + count - len(chunk)
        thread.request(self._requested)
        # Read first: what the thread has added before it is exhausted must not be lost.
        exhausted = thread.exhausted
        if exhausted and not queue:
            failure = thread.failure
            self.close(failure)
            if failure is not None and not isinstance(failure, Exception):
                raise failure
