"""Daemon threads, which never keep the interpreter from ending, and the limit of every wait."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from threading import Thread
from typing import Any, Final

from wmp.record import FrozenRecord

logger = logging.getLogger("wmp")

LONGEST_WAIT: Final = 86_400.0
"""Limit of the seconds of one wait, because a selector refuses more than 24 days.

After a wait that ends early the caller checks the time and waits again.
"""


class ThreadEnded(FrozenRecord):
    """A thread or a task that a node needs has ended unexpectedly. The node must stop."""

    name: str
    cause: BaseException


FailedCall = Callable[[ThreadEnded], object]
"""Takes the unexpected end of a thread, on that thread; for example the inbox of a node."""


def start_thread(
    target: Callable[..., object], name: str, *args: Any, failed: FailedCall | None = None
) -> Thread | None:
    """Start a daemon thread.

    Args:
        target: Runs on the thread.
        name: Name of the thread.
        args: Arguments of the target.
        failed: Called when the target raises; without it the exception is logged.

    Returns:
        The thread; None if no thread can be started: the system's threads are used up, or the main
        thread has ended. After the end of the main thread the interpreter (Python 3.12) starts no
        threads, although ``atexit`` functions and other threads still run.
    """

    def run() -> None:
        try:
            target(*args)
        # Every error must be handled here, because no other code on this thread would handle it.
        except BaseException as error:
            if failed is None:
                logger.exception("the thread %s ended by an error", name)
            else:
                failed(ThreadEnded(name, error))

    thread = Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


async def aside(act: Callable[[], object], name: str, timeout: float) -> None:
    """Call a blocking function on a separate thread. Call it on this thread if no thread can be
    started.

    Args:
        act: The function; it must not raise.
        name: Name of the thread.
        timeout: Seconds to wait at most; the function continues after this time.
    """
    # Worker processes import this module, call no coroutine, and start sooner without asyncio.
    import asyncio

    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def run() -> None:
        try:
            act()
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                loop.call_soon_threadsafe(done.set)

    if start_thread(run, name) is None:
        act()
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await done.wait()
