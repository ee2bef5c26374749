"""A portal: one event loop on a thread of its own, for callers that want to block."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from wmp.errors import ClosedError

__all__ = ["Portal"]

logger = logging.getLogger("wmp")

_T = TypeVar("_T")


class Portal:
    """Runs coroutines on a loop's thread and callbacks of users on another.

    Both threads are daemons: nothing of theirs can keep the interpreter from ending.

    Args:
        name: Of the threads, for people.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: queue.SimpleQueue[tuple[Callable[..., object], Any] | None] | None = None
        self._closed = False

    @property
    def opened(self) -> bool:
        """Whether the loop runs."""
        return self._loop is not None and not self._closed

    def open(self) -> None:
        """Start the loop. Idempotent.

        Raises:
            ClosedError: The portal was closed.
        """
        with self._lock:
            if self._closed:
                raise ClosedError(f"the {self._name} is closed; make a new one")
            if self._loop is not None:
                return
            loop = self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._run, args=(loop,), name=f"wmp-{self._name}", daemon=True
            )
            self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            with contextlib.suppress(Exception):  # Nobody is left who could be told.
                loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and wait for its result.

        An exception in the waiting thread, Ctrl-C for example, cancels the coroutine.

        Raises:
            RuntimeError: Called on the loop's own thread, where it would wait for itself.
            ClosedError: The portal is not open.
        """
        self._check(coroutine)
        assert self._loop is not None
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:
            coroutine.close()
            raise ClosedError(f"the {self._name} is closed") from error
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClosedError(f"the {self._name} closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def check_thread(self) -> None:
        """Raise RuntimeError on the loop's own thread, where waiting would be for ever."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                f"a blocking call of the {self._name} on its own event loop would wait for itself; "
                "use wmp.aio there, or move the call to another thread"
            )

    def _check(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self.check_thread()
            if self._loop is None or self._closed:
                raise ClosedError(
                    f"the {self._name} is not open; use it as a context manager, and within it"
                )
        except BaseException:
            coroutine.close()
            raise

    def post(self, act: Callable[[], object]) -> None:
        """Have ``act()`` called on the loop; from any thread, also from a signal handler."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop is closed: nothing to tell it.
                loop.call_soon_threadsafe(act)

    def call_user(self, fn: Callable[[Any], object], argument: object) -> None:
        """Have a user's callback called on the callbacks' thread, in the order of these calls.

        Never on the loop: a callback may take as long as it likes (WMP-9.5).
        """
        with self._lock:
            if self._calls is None:
                self._calls = queue.SimpleQueue()
                threading.Thread(
                    target=_serve_calls,
                    args=(self._calls,),
                    name=f"wmp-{self._name}-callbacks",
                    daemon=True,
                ).start()
            self._calls.put((fn, argument))

    def close(self) -> None:
        """Stop the loop and wait for its thread. Idempotent."""
        with self._lock:
            self._closed = True
            loop, thread, calls = self._loop, self._thread, self._calls
        if loop is None or thread is None:
            return
        with contextlib.suppress(RuntimeError):  # Closed already.
            loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(5.0)
        if calls is not None:
            calls.put(None)


def _serve_calls(calls: queue.SimpleQueue[tuple[Callable[..., object], Any] | None]) -> None:
    while (call := calls.get()) is not None:
        fn, argument = call
        try:
            fn(argument)
        except Exception:  # A user's callback; the next ones still get their turn.
            logger.exception("a callback failed: %r", fn)
