"""SIGTERM and Ctrl-C for the programs that serve until they are told to end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["caught_signals", "heard", "on_signals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

heard: list[int] = []
"""Numbers of the signals caught so far: a program tells by the last one how it was ended."""


@contextlib.contextmanager
def caught_signals(act: Callable[[], object]) -> Iterator[None]:
    """Have ``act()`` called at SIGTERM and SIGINT; put back what was there before.

    Only the main thread may set signal handlers: elsewhere this does nothing. ``act`` runs
    between two instructions of the main thread, so it must do no more than pass the news on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def caught(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        act()

    before = {number: signal.signal(number, caught) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def on_signals(act: Callable[[], object]) -> Iterator[None]:
    """Have ``act()`` called on the running loop at SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()

    def caught() -> None:
        with contextlib.suppress(RuntimeError):  # The loop may have closed just now.
            loop.call_soon_threadsafe(act)

    with caught_signals(caught):
        yield
