"""What the thread of a process pool sleeps on: its children's sockets and ends, and a bell."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from wmp.runtime.executors.child_process import ChildProcess

__all__ = ["ChildSelector"]


class ChildSelector:
    """Tells which children have something to say, can be written to, or have ended.

    One thread owns it; the others only ``ring``.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._bell, self._button = socket.socketpair()
        self._bell.setblocking(False)
        self._button.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)

    def ring(self) -> None:
        """Wake the owner; from any thread, and also after ``close``."""
        try:
            self._button.send(b"\0")
        except OSError:
            pass  # full: it is awake already; closed: it has ended

    def add(self, child: ChildProcess) -> None:
        """Watch a new child."""
        child.mask = selectors.EVENT_READ
        self._selector.register(child.sock, child.mask, child)
        for sentinel in child.sentinels:
            self._selector.register(sentinel, selectors.EVENT_READ, child)

    def hang_up(self, child: ChildProcess) -> None:
        """Watch the socket no more: the child has closed its end."""
        self._selector.unregister(child.sock)

    def remove(self, child: ChildProcess) -> None:
        """Watch it no more."""
        if child.is_open():
            self.hang_up(child)
        for sentinel in child.sentinels:
            self._selector.unregister(sentinel)

    def wait(
        self, children: Iterable[ChildProcess], timeout: float | None
    ) -> Iterator[tuple[ChildProcess, Any]]:
        """Sleep until something happens; iterate over whom it happened to, and at which file.

        Args:
            children: Those that are watched; of one with a backlog also when it can be written.
            timeout: Seconds at most, None for ever.
        """
        for child in children:
            if child.is_open():
                mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.backlog else 0)
                if mask != child.mask:
                    child.mask = mask
                    self._selector.modify(child.sock, mask, child)
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._hear()
            else:
                yield key.data, key.fileobj

    def _hear(self) -> None:
        try:
            while self._bell.recv(4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._selector.close()
        self._bell.close()
        self._button.close()
