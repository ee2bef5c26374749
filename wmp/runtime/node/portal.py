"""A portal: an event loop on a separate thread, for callers that block."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from wmp.errors import ClosedError, TransportError
from wmp.runtime.common.checks import check_descriptors
from wmp.runtime.common.threads import FailedCall, ThreadEnded, start_thread

logger = logging.getLogger("wmp")

_T = TypeVar("_T")
_Calls = queue.SimpleQueue[tuple[Callable[..., object], Any] | None]

_DESCRIPTORS = 5
"""Number of file descriptors of an event loop, and some more that are open for moments."""

_FAILURES = 3
"""Number of errors of the loop after which its thread gives up."""

_PATIENCE = 5.0
"""Seconds within which each thread of a portal must end."""


class Portal:
    """Runs coroutines on a loop's thread, and callbacks of users on another thread.

    Both threads are daemons, so they cannot keep the interpreter from ending.

    Args:
        name: Name of the threads, for people.
        failed: Takes the unexpected end of a thread, and an error that stopped the loop.
    """

    def __init__(self, name: str, failed: FailedCall | None = None) -> None:
        self._name = name
        self._failed = failed
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: _Calls | None = None
        self._callbacks: threading.Thread | None = None
        self._closed = False
        self._dismissed = False
        """Whether the callbacks' thread was asked to end."""
        self._pid = 0
        self._last: asyncio.Task[object] | None = None
        """The task that closes a node that its user did not close."""

    @property
    def calls_user(self) -> bool:
        """Whether the current thread is the callbacks' thread: ``close`` waits for its callback."""
        return threading.current_thread() is self._callbacks

    @property
    def on_loop(self) -> bool:
        """Whether the current thread is the loop's thread."""
        return threading.current_thread() is self._thread

    @property
    def opened(self) -> bool:
        """Whether the loop runs in this process; False after a fork."""
        return self._loop is not None and not self._closed and self._pid == os.getpid()

    def open(self) -> None:
        """Start the loop. Idempotent.

        Raises:
            ClosedError: The portal was closed.
            TransportError: Too few file descriptors are left in this process.
        """
        with self._lock:
            if self._closed:
                raise ClosedError(f"the {self._name} is closed; make a new {self._name}")
            if self._loop is not None:
                return
            check_descriptors(f"a {self._name}", _DESCRIPTORS)
            try:
                loop = self._loop = asyncio.new_event_loop()
            except OSError as error:
                raise TransportError(f"cannot start the {self._name}: {error.strerror}") from error
            self._pid = os.getpid()
            self._thread = threading.Thread(
                target=self._run, args=(loop,), name=f"wmp-{self._name}", daemon=True
            )
            self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            for _ in range(_FAILURES):
                try:
                    loop.run_forever()
                # SystemExit of a task or callback may stop the loop. The loop is started again, so
                # that its nodes can end in order.
                except BaseException as error:
                    logger.exception(
                        "the event loop of the %s was stopped by other code", self._name
                    )
                    self._report(ThreadEnded("the event loop", error))
                    continue
                if self._closed:
                    break
                self._report(ThreadEnded("the event loop", RuntimeError("it was stopped")))
        finally:
            with self._lock:
                self._closed = True
            with contextlib.suppress(Exception):  # no caller is left to receive this error
                # Other threads may wait for one of these tasks, so each must end.
                while tasks := asyncio.all_tasks(loop):
                    for task in tasks:
                        task.cancel()
                    loop.run_until_complete(asyncio.wait(tasks, timeout=_PATIENCE))
                    if not all(task.done() for task in tasks):
                        break
                loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _report(self, ended: ThreadEnded) -> None:
        if self._failed is not None:
            self._failed(ended)

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and wait for its result.

        An exception in the waiting thread, such as Ctrl-C, cancels the coroutine.

        Raises:
            RuntimeError: Called on the loop's own thread, which would wait for itself.
            ClosedError: The portal is not open.
        """
        self._check(coroutine)
        with self._lock:
            # Under the lock, so that a coroutine that was passed on before close() runs before the
            # loop stops.
            if self._closed:
                coroutine.close()
                raise ClosedError(f"the {self._name} is closed")
            assert self._loop is not None
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClosedError(f"the {self._name} was closed during this call") from None
        except BaseException:
            future.cancel()
            raise

    def ask(self, question: Callable[[], _T]) -> _T:
        """Call ``question`` on the loop and return its result; errors as for :meth:`call`."""

        async def answer() -> _T:
            return question()

        return self.call(answer())

    def check_thread(self) -> None:
        """Check that a wait for the loop would end.

        Raises:
            RuntimeError: Called on the loop's own thread, which would wait for itself.
            ClosedError: The loop runs in the parent process, from which this process was forked.
        """
        if self._loop is not None and self._pid != os.getpid():
            raise ClosedError(
                f"the {self._name} runs in the parent process, not in this fork of it; "
                f"make a {self._name} in this process"
            )
        if self.on_loop:
            raise RuntimeError(
                f"a blocking call of the {self._name} on its own event loop would never return; "
                "use wmp.aio there, or move the call to another thread"
            )

    def _check(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self.check_thread()
            if self._loop is None or self._closed:
                raise ClosedError(f"the {self._name} is not open; call it within its `with` block")
        except BaseException:
            coroutine.close()
            raise

    def post(self, act: Callable[[], object]) -> None:
        """Have ``act()`` called on the loop.

        Any thread and any signal handler may call this method.
        """
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(act)

    def call_user(self, fn: Callable[[Any], object], argument: object) -> None:
        """Have a user's callback called on the callbacks' thread, in the order of these calls.

        The loop does not call the callback, because a callback may take long (WMP-9.5). If the
        callbacks' thread has ended, or the interpreter is about to end, the callback is called at
        once on the current thread.
        """
        with self._lock:
            if self._calls is None and not self._dismissed:
                calls: _Calls = queue.SimpleQueue()
                name = f"wmp-{self._name}-callbacks"
                self._callbacks = start_thread(
                    _serve_calls, name, calls, failed=self._callbacks_ended
                )
                if self._callbacks is not None:
                    self._calls = calls
            if self._calls is not None and not self._dismissed:
                self._calls.put((fn, argument))
                return
        _call(fn, argument)

    def _callbacks_ended(self, ended: ThreadEnded) -> None:
        """Report the end of the callbacks' thread, and call the waiting callbacks."""
        with self._lock:
            self._dismissed = True
            calls = self._calls
        self._report(ended)
        if calls is not None:
            with contextlib.suppress(queue.Empty):
                while (call := calls.get_nowait()) is not None:
                    _call(*call)

    def leave(self, close: Callable[[float], Coroutine[Any, Any, object]]) -> None:
        """Let the loop run ``close(0.0)`` and end. This method waits for nothing and takes no lock.

        The garbage collector may call it on any thread, in the middle of any call.
        """
        loop, self._closed = self._loop, True

        def end() -> None:
            assert loop is not None
            self._last = loop.create_task(close(0.0))
            self._last.add_done_callback(lambda _: loop.stop())

        self.post(end)
        if self._calls is not None:
            self._calls.put(None)

    def close(self) -> None:
        """Stop the loop; wait for its thread and for running callbacks. Idempotent."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None or self._pid != os.getpid():
            return
        with contextlib.suppress(RuntimeError):  # closed already
            loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(_PATIENCE)
        with self._lock:
            self._dismissed = True
            calls, callbacks = self._calls, self._callbacks
        if calls is not None and callbacks is not None:
            calls.put(None)
            if callbacks is not threading.current_thread():
                callbacks.join(_PATIENCE)


def _serve_calls(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        _call(*call)


def _call(fn: Callable[[Any], object], argument: object) -> None:
    try:
        fn(argument)
    # A user's callback may even call sys.exit. The next callbacks are still called.
    except (Exception, SystemExit):
        logger.exception("a callback raised an error: %r", fn)
