"""The selector of a process executor's thread: the sockets and ends of children, and a wake-up."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from wmp.runtime.executors.child_process import ChildProcess


class ChildSelector:
    """Selects children that have sent bytes, can take bytes, or have ended.

    One thread owns the selector; other threads only call ``wake``.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._selector.register(self._reader, selectors.EVENT_READ)

    def wake(self) -> None:
        """Wake the owner. Any thread may call this method, also after ``close``."""
        try:
            self._writer.send(b"\0")
        except OSError:
            pass  # a full pipe has woken the owner already; the owner of a closed pipe has gone

    def add(self, child: ChildProcess) -> None:
        """Watch a new child."""
        child.mask = selectors.EVENT_READ
        self._selector.register(child.sock, child.mask, child)
        for sentinel in child.sentinels:
            self._selector.register(sentinel, selectors.EVENT_READ, child)

    def remove_socket(self, child: ChildProcess) -> None:
        """Watch only for the child's end, because the child has closed its socket."""
        self._selector.unregister(child.sock)

    def remove(self, child: ChildProcess) -> None:
        """Stop watching the child."""
        if child.is_open():
            self.remove_socket(child)
        for sentinel in child.sentinels:
            self._selector.unregister(sentinel)

    def wait(
        self, children: Iterable[ChildProcess], timeout: float | None
    ) -> Iterator[tuple[ChildProcess, Any]]:
        """Wait until a child or a timeout needs attention; yield children and their ready files.

        Args:
            children: The watched children. A child with a backlog is also watched for writing.
            timeout: Seconds at most; None for no limit.
        """
        for child in children:
            if child.is_open():
                mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.backlog else 0)
                if mask != child.mask:
                    child.mask = mask
                    self._selector.modify(child.sock, mask, child)
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._clear_wakeup()
            else:
                yield key.data, key.fileobj

    def _clear_wakeup(self) -> None:
        try:
            while self._reader.recv(4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close the files of the selector."""
        self._selector.close()
        self._reader.close()
        self._writer.close()
