"""Handlers that remember their replies: a request that comes again gets the first reply.

::

    from wmp.gateways.pirates.remember import remember

    @remember(key=lambda frames: (frames[0], frames[1]))      # client and number
    def book(frames: list[bytes]) -> bytes:
        ...

The key is what a client gives to each of its requests once, for example its name and a number. A
client that sends a request again gives it the same key. The handler then runs once for both.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, overload

from wmp.errors import ConfigError
from wmp.runtime.common.checks import check_count
from wmp.runtime.executors.handlers import Handler

_ABSENT: Final = object()

_PLAIN: Final = 64
"""Number of bytes for which a reply counts that is neither bytes nor text nor a list of them."""


class ReplyCache:
    """Replies by key; those that were used least recently are forgotten first.

    Args:
        results: Maximum number of replies.
        size: Maximum number of bytes of replies and keys. A larger reply is not kept.
    """

    def __init__(self, results: int, size: int) -> None:
        self._maximum = results
        self._limit = size
        self._replies: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self.size = 0
        """Number of bytes of all replies and keys."""

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, key: Hashable) -> Any:
        """Return a reply, or a mark that there is none."""
        entry = self._replies.get(key)
        if entry is None:
            return _ABSENT
        self._replies.move_to_end(key)
        return entry[0]

    def put(self, key: Hashable, reply: Any) -> None:
        """Keep a reply, and forget others for it."""
        size = _size(reply) + _size(key)
        if size > self._limit:
            return
        self._replies[key] = (reply, size)
        self.size += size
        while len(self._replies) > self._maximum or self.size > self._limit:
            _, (_, old) = self._replies.popitem(last=False)
            self.size -= old


def _size(reply: Any) -> int:
    if isinstance(reply, bytes | bytearray | memoryview | str):
        return len(reply)
    if isinstance(reply, list | tuple):
        return sum(map(_size, reply))
    return _PLAIN


class _Remembering:
    """The common part of both kinds of handlers."""

    def __init__(
        self, handler: Handler, key: Callable[[Any], Any], results: int, size: int
    ) -> None:
        self._handler = handler
        self._key = key
        self._bounds = (results, size)
        self.replies = ReplyCache(results, size)
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(handler, name):
                setattr(self, name, getattr(handler, name))
        with contextlib.suppress(TypeError, ValueError):  # some functions written in C
            self.__signature__ = inspect.signature(handler)

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process begins with an empty cache.
        return type(self), (self._handler, self._key, *self._bounds)

    def _key_of(self, body: Any) -> Hashable | None:
        """Return the key of a request; None for a request that is done each time.

        Raises:
            TypeError: The key is not a key.
        """
        key = self._key(body)
        if isinstance(key, list):
            key = tuple(key)
        if isinstance(key, tuple):
            key = tuple(bytes(part) if isinstance(part, memoryview) else part for part in key)
        if key is not None and not isinstance(key, Hashable):
            raise TypeError(
                f"the key of a request is of type {type(key).__name__}; expected bytes, text, a "
                "number, or a tuple of them; or None for a request without a key"
            )
        return key


class RememberingHandler(_Remembering):
    """A handler ``def`` that remembers its replies. Any thread may call it."""

    def __init__(
        self, handler: Handler, key: Callable[[Any], Any], results: int, size: int
    ) -> None:
        super().__init__(handler, key, results, size)
        self._lock = threading.Lock()
        self._running: dict[Hashable, threading.Event] = {}

    def __call__(self, body: Any, *job: Any) -> Any:
        """Return the reply to a request, from the cache or from the handler."""
        key = self._key_of(body)
        if key is None:
            return self._handler(body, *job)
        while True:
            with self._lock:
                reply = self.replies.get(key)
                if reply is not _ABSENT:
                    return reply
                first = self._running.get(key)
                if first is None:
                    ended = self._running[key] = threading.Event()
                    break
            first.wait()
        try:
            reply = self._handler(body, *job)
            with self._lock:
                self.replies.put(key, reply)
            return reply
        finally:
            # After an error the next request with this key runs the handler again.
            with self._lock:
                del self._running[key]
            ended.set()


class AsyncRememberingHandler(_Remembering):
    """A handler ``async def`` that remembers its replies. All calls are on one event loop."""

    def __init__(
        self, handler: Handler, key: Callable[[Any], Any], results: int, size: int
    ) -> None:
        super().__init__(handler, key, results, size)
        self._running: dict[Hashable, asyncio.Event] = {}

    async def __call__(self, body: Any, *job: Any) -> Any:
        """Return the reply to a request, from the cache or from the handler."""
        key = self._key_of(body)
        if key is None:
            return await self._handler(body, *job)
        while (first := self._running.get(key)) is not None:
            await first.wait()
        reply = self.replies.get(key)
        if reply is not _ABSENT:
            return reply
        ended = self._running[key] = asyncio.Event()
        try:
            reply = await self._handler(body, *job)
            self.replies.put(key, reply)
            return reply
        finally:
            del self._running[key]
            ended.set()


@overload
def remember(
    handler: Handler, *, key: Callable[[Any], Any], results: int = 10_000, size: int = 64 << 20
) -> RememberingHandler | AsyncRememberingHandler: ...


@overload
def remember(
    handler: None = None,
    *,
    key: Callable[[Any], Any],
    results: int = 10_000,
    size: int = 64 << 20,
) -> Callable[[Handler], RememberingHandler | AsyncRememberingHandler]: ...


def remember(
    handler: Handler | None = None,
    *,
    key: Callable[[Any], Any],
    results: int = 10_000,
    size: int = 64 << 20,
) -> Any:
    """Make a handler that runs once for all requests with one key.

    While the first of these requests runs, the others wait for it. Later ones get its reply from a
    cache. A request whose handler raised an error leaves nothing behind: the next one runs.
    The cache is that of this process. Use it as a decorator, or call it with the handler.

    Args:
        handler: ``f(body)`` or ``f(body, job)``, ``def`` or ``async def``.
        key: Returns the key of a request from its body, for example the name of the client and a
            number; or None for a request that runs each time.
        results: Maximum number of replies in the cache.
        size: Maximum number of bytes of the replies and their keys.

    Raises:
        ConfigError: An argument is wrong.
    """
    if not callable(key):
        raise ConfigError(f"key is {key!r}; expected a callable that returns the key of a body")
    check_count("results", results, 1)
    check_count("size", size, 1)
    if handler is None:
        return functools.partial(remember, key=key, results=results, size=size)
    if not callable(handler):
        raise ConfigError(
            f"the handler is {handler!r}; expected a callable f(body) or f(body, job)"
        )
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - a callable object may be async
    )
    kind = AsyncRememberingHandler if is_async else RememberingHandler
    return kind(handler, key, results, size)
