"""Clients that ask a pair of nodes without end, while a test kills the nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from tests.waiting import WAIT, wait_until
from wmp.gateways import StarClient

__all__ = ["PairClients"]

_COUNT = 3
"""Seconds for the next replies, and for the end of a client."""


class PairClients:
    """Three clients, from the start of the block to its end.

    Args:
        doors: The addresses of the primary and of the backup.
        tries: Tries of each request.
    """

    def __init__(self, doors: Sequence[str], tries: int) -> None:
        self.wrong: list[tuple[bytes, bytes]] = []
        """Requests with another reply than their own."""
        self.replies = 0
        self.waits: list[float] = []
        """Seconds that each request took."""
        self._doors, self._tries = doors, tries
        self._ended = threading.Event()
        self._counting = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(_COUNT)]

    def __enter__(self) -> PairClients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Wait for the last replies. Idempotent."""
        self._ended.set()
        for thread in self._threads:
            thread.join(WAIT)

    def _ask(self, client: int) -> None:
        number = 0
        with StarClient(*self._doors, timeout=1.0, settle=2.1, tries=self._tries) as asker:
            while not self._ended.is_set():
                number += 1
                body, began = b"%d of %d" % (number, client), time.monotonic()
                reply = asker.request(body)
                self.waits.append(time.monotonic() - began)
                if reply != body.upper():
                    self.wrong.append((body, reply))
                with self._counting:
                    self.replies += 1

    def wait_for_replies(self) -> None:
        """Wait for 20 further replies."""
        aim = self.replies + 20
        wait_until(lambda: self.replies >= aim or self.wrong, "further replies")
