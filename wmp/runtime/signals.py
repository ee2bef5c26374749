"""SIGTERM and Ctrl-C for the programs that serve until they are asked to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from wmp.runtime.checks import check_descriptors
from wmp.runtime.threads import FailedCall, ThreadEnded, start_thread

__all__ = ["caught", "caught_signals", "on_signals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

caught: list[int] = []
"""Numbers of the signals caught so far: a program finds by the last one how it was ended."""


@contextlib.contextmanager
def caught_signals(act: Callable[[], object], failed: FailedCall | None = None) -> Iterator[None]:
    """Have ``act()`` called at SIGTERM and SIGINT; put back what was there before.

    Only the main thread may set signal handlers: elsewhere this does nothing. ``act`` is called
    on a thread of its own. Python calls handlers on the main thread alone, and not before that
    comes back from what it waits for; the system may hand a signal to any thread, and then nobody
    wakes the main one. The number that Python writes to a socket at once is read here instead.
    When that thread ends unexpectedly, ``failed`` is called, and the main thread calls ``act``.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    check_descriptors("a program that waits for signals", 2)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        others = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)

        def listen() -> None:
            while number := ours.recv(1):
                if number[0] in _SIGNALS:
                    caught.append(number[0])
                    act()
                elif others != -1:
                    with contextlib.suppress(OSError):  # It is full, or gone.
                        os.write(others, number)

        deaf = False

        def ended(end: ThreadEnded) -> None:
            nonlocal deaf
            deaf = True
            if failed is not None:
                failed(end)

        listener = start_thread(listen, "wmp-signals", failed=ended)

        def handle(number: int, frame: FrameType | None) -> None:
            if listener is None or deaf:  # No thread was to be had: late is better than never.
                caught.append(number)
                act()

        before = {number: signal.signal(number, handle) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(others)
            # Closing alone would not end it: a process forked meanwhile has these sockets, too.
            theirs.shutdown(socket.SHUT_WR)
            if listener is not None:
                listener.join()


@contextlib.contextmanager
def on_signals(act: Callable[[], object], failed: FailedCall | None = None) -> Iterator[None]:
    """Have ``act()`` called on the running loop at SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()

    def act_on_loop() -> None:
        with contextlib.suppress(RuntimeError):  # The loop may have closed just now.
            loop.call_soon_threadsafe(act)

    with caught_signals(act_on_loop, failed):
        yield
