"""A bell: how another thread wakes a loop, at a third of what ``call_soon_threadsafe`` costs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["Wakeup"]

_ONE: Final = (1).to_bytes(8, sys.byteorder)
"""What is written: an eventfd takes no less."""


class Wakeup:
    """Has ``answer()`` called on a loop, once or more, after any thread has rung.

    Args:
        loop: The running loop.
        answer: What to call; it must not raise.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Callable[[], object]) -> None:
        self._loop = loop
        self._answer = answer
        self._lock = threading.Lock()
        self._closed = False
        if sys.platform == "linux":
            self._heard = self._rung = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._heard, self._rung = os.pipe()
            os.set_blocking(self._heard, False)
            os.set_blocking(self._rung, False)
        loop.add_reader(self._heard, self._hear)

    def ring(self) -> bool:
        """Wake the loop; tell whether there is one that may hear it."""
        # Under the lock: the number of a closed descriptor may be somebody else's.
        with self._lock:
            if self._closed or self._loop.is_closed():
                return False
            with contextlib.suppress(BlockingIOError):  # Full: it rings already.
                os.write(self._rung, _ONE)
            return True

    def close(self) -> None:
        """Let go of it; call it on the loop. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._loop.remove_reader(self._heard)
            for descriptor in {self._heard, self._rung}:
                os.close(descriptor)

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._heard, 4096)
        self._answer()
