"""The inputs of a ``map``: pulled a chunk at a time, and made into payloads."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from wmp.errors import ConfigError
from wmp.message import Frame
from wmp.runtime.codecs.payload_codecs import pack

_PULL: Final = 0.005
"""Seconds of pulling after which a chunk is submitted even if it is not full, because inputs may
come or be encoded slowly.
"""

_AHEAD: Final = 512
"""Number of inputs that are requested from an async iterable before they are pulled."""

_BYTES: Final = frozenset({bytes})


class MapInputs:
    """The inputs of one ``map``, in order.

    Args:
        payloads: Pulled only in ``pull``, and so in the consumer's own context. A list or tuple is
            sliced.
        codec: Name of the codec of payloads.
        limit: Maximum number of bytes of one payload.
        lenient: Whether the inputs behind an invalid input are pulled too.
    """

    def __init__(
        self, payloads: Iterable[Any], codec: str, limit: int, *, lenient: bool = False
    ) -> None:
        self._codec = codec
        self._limit = limit
        self._lenient = lenient
        self._there: Sequence[Any] = ()
        self._position = 0
        self._coming: Iterator[Any] = iter(())
        if type(payloads) is list or type(payloads) is tuple:
            self._there = payloads
        else:
            self._coming = iter(payloads)
        self.ended = False
        """Whether no input follows: the last input was pulled, or the inputs raised an error."""
        self.error: BaseException | None = None
        """Error that the inputs raised; it belongs behind the last input."""
        self.unfit: Exception | None = None
        """Error of an invalid input; it belongs behind the inputs pulled so far, and
        more may follow. The code that takes the error sets None."""

    @property
    def awaited(self) -> bool:
        """Whether the next input has not come yet and will set the consumer's signal."""
        return False

    def pull(self, count: int, size: int) -> list[Frame]:
        """Return the next inputs: up to ``count``, and until they have ``size`` bytes together.

        Raises:
            BaseException: For example Ctrl-C. An ``Exception`` is kept in ``error`` instead.
        """
        chunk: list[Frame] = []
        try:
            if self._there:
                self._slice(chunk, count, size)
            else:
                self._iterate(chunk, count, size)
        except Exception as error:  # noqa: BLE001 - raised where the failing input's result would be
            self.close(error)
        except BaseException as error:
            self.close(error)
            raise
        return chunk

    def close(self, error: BaseException | None = None) -> None:
        """Pull no more inputs."""
        self.ended, self.error = True, error
        self._there, self._coming = (), iter(())

    def _slice(self, chunk: list[Frame], count: int, size: int) -> None:
        some = self._there[self._position : self._position + count]
        if self._codec == "bytes" and _BYTES.issuperset(map(type, some)):
            sizes = list(map(len, some))
            if some and max(sizes) <= self._limit:
                fit = bisect_left(list(accumulate(sizes)), size) + 1
                chunk += some[:fit]
                some = ()
        until = time.monotonic() + _PULL
        for payload in some:
            data = self._pack(payload)
            if data is None:
                self._position += 1
                break
            chunk.append(data)
            size -= len(data)
            # Workers can begin while further payloads are encoded.
            if size <= 0 or time.monotonic() >= until:
                break
        self._position += len(chunk)
        if self._position >= len(self._there):
            self.close()

    def _iterate(self, chunk: list[Frame], count: int, size: int) -> None:
        limit, plain = self._limit, self._codec == "bytes"
        until = time.monotonic() + _PULL
        for payload in self._coming:
            if plain and type(payload) is bytes and len(payload) <= limit:
                data: Frame = payload
            else:
                packed = self._pack(payload)
                if packed is None:
                    return
                data = packed
            chunk.append(data)
            size -= len(data)
            if len(chunk) >= count or size <= 0 or time.monotonic() >= until:
                return
        self.close()

    def _pack(self, payload: Any) -> Frame | None:
        """Return the payload of an input; None when its error is in ``unfit``."""
        try:
            return pack(payload, self._codec, self._limit)
        except (TypeError, ConfigError) as error:
            if not self._lenient:
                raise
            self.unfit = error
            return None


class AsyncInputs(MapInputs):
    """The inputs of a ``map`` over an async iterable, which a task reads.

    Make the object on the loop of the consumer.

    Args:
        payloads: Read by the task, a few inputs ahead of ``pull``.
        codec: As for ``MapInputs``.
        limit: As for ``MapInputs``.
        came: Called when an input, the end or an error has come.
        lenient: As for ``MapInputs``.
    """

    def __init__(
        self,
        payloads: AsyncIterable[Any],
        codec: str,
        limit: int,
        came: Callable[[], None],
        *,
        lenient: bool = False,
    ) -> None:
        super().__init__((), codec, limit, lenient=lenient)
        self._queue: deque[Any] = deque()
        self._space = asyncio.Event()
        self._came = came
        self._task = asyncio.get_running_loop().create_task(self._bring(payloads))
        self._task.add_done_callback(lambda task: came())

    @property
    def awaited(self) -> bool:
        """Whether the next input has not come yet."""
        return not (self._queue or self.ended or self._task.done())

    def close(self, error: BaseException | None = None) -> None:
        """Pull no more inputs; the task ends, and closes an async generator."""
        super().close(error)
        self._queue.clear()
        self._task.cancel()

    async def _bring(self, payloads: AsyncIterable[Any]) -> None:
        iterator = aiter(payloads)
        try:
            async for payload in iterator:
                self._queue.append(payload)
                self._came()
                while len(self._queue) >= _AHEAD:
                    self._space.clear()
                    await self._space.wait()
        finally:
            if isinstance(iterator, AsyncGenerator):
                await iterator.aclose()

    def _iterate(self, chunk: list[Frame], count: int, size: int) -> None:
        while self._queue and len(chunk) < count and size > 0:
            data = self._pack(self._queue.popleft())
            if data is None:
                return
            chunk.append(data)
            size -= len(data)
        self._space.set()
        if not self._queue and self._task.done():
            # the end or the error comes after the last input
            self.close(None if self._task.cancelled() else self._task.exception())
