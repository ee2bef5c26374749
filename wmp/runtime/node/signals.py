"""SIGTERM and Ctrl-C for programs that run until they are asked to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from wmp.runtime.common.checks import check_descriptors
from wmp.runtime.common.threads import FailedCall, ThreadEnded, start_thread

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

caught: list[int] = []
"""Numbers of the caught signals. The last signal is the cause of the program's end."""

_restore: Final[list[Callable[[], None]]] = []
"""Functions that set the earlier handlers again, the last one first."""


def _forked() -> None:
    """In a forked child, such as a process of ``multiprocessing``: do not catch signals.

    The child shares the socket of this process, so a signal to the child would count as a signal to
    this process.
    """
    if not _restore:
        return
    with contextlib.suppress(ValueError):  # not the main interpreter, which alone sets handlers
        signal.set_wakeup_fd(-1)
        while _restore:
            _restore.pop()()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@contextlib.contextmanager
def caught_signals(act: Callable[[], object], failed: FailedCall | None = None) -> Iterator[None]:
    """Have ``act()`` called at SIGTERM and SIGINT; restore the earlier handlers at the end.

    Only the main thread may set signal handlers, so on other threads this function does nothing.
    ``act`` is called on a separate thread. Python calls handlers only on the main thread, after the
    present wait of the main thread. The system may deliver a signal to any thread, and then the
    main thread is not woken. But Python writes the number of the signal to a socket at once, where
    the separate thread reads it. When that thread ends unexpectedly, ``failed`` is called, and the
    main thread calls ``act`` from then on.
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
                    with contextlib.suppress(OSError):  # the socket is full, or closed
                        os.write(others, number)

        deaf = False

        def ended(end: ThreadEnded) -> None:
            nonlocal deaf
            deaf = True
            if failed is not None:
                failed(end)

        listener = start_thread(listen, "wmp-signals", failed=ended)

        def handle(number: int, frame: FrameType | None) -> None:
            # Without the separate thread the main thread calls ``act``, perhaps late.
            if listener is None or deaf:
                caught.append(number)
                act()

        before = {number: signal.signal(number, handle) for number in _SIGNALS}
        pid = os.getpid()

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        _restore.append(restore)
        try:
            yield
        finally:
            if os.getpid() == pid:  # In a forked child the socket and the thread are the parent's.
                _restore.remove(restore)
                restore()
                signal.set_wakeup_fd(others)
                # Closing the sockets is not enough to end the thread, because a process that was
                # forked meanwhile has them too.
                theirs.shutdown(socket.SHUT_WR)
                if listener is not None:
                    listener.join()


@contextlib.contextmanager
def on_signals(act: Callable[[], object], failed: FailedCall | None = None) -> Iterator[None]:
    """Have ``act()`` called on the running loop at SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()

    def act_on_loop() -> None:
        with contextlib.suppress(RuntimeError):  # the loop may have closed just now
            loop.call_soon_threadsafe(act)

    with caught_signals(act_on_loop, failed):
        yield
