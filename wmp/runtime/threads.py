"""Daemon threads, which never keep the interpreter from ending, and the bound of every wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from threading import Thread
from typing import Any, Final

__all__ = ["LONGEST_WAIT", "aside", "start_thread"]

LONGEST_WAIT: Final = 86_400.0
"""Seconds that one wait takes at most: a selector refuses more than 24 days. After a wait that
ends early the caller checks the time and waits again."""


def start_thread(target: Callable[..., object], name: str, *args: Any) -> Thread | None:
    """Start a daemon thread.

    Returns:
        The thread; None where none is to be had: the system has no more of them, or the main
        thread has ended. From then on (Python 3.12) the interpreter starts no threads, although
        ``atexit`` functions and other threads still run.
    """
    thread = Thread(target=target, name=name, args=args, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


async def aside(act: Callable[[], object], name: str, timeout: float) -> None:
    """Call a function that blocks, on a thread of its own; here if no thread can be started.

    Args:
        act: The function; it must not raise.
        name: The thread's.
        timeout: Seconds to wait at most; the function goes on after that.
    """
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def run() -> None:
        act()
        with contextlib.suppress(RuntimeError):  # The loop may be closed by then.
            loop.call_soon_threadsafe(done.set)

    if start_thread(run, name) is None:
        act()
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await done.wait()
