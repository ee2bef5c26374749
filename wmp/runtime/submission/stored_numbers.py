"""Numbers of stored jobs, which the store gives out in blocks."""

from __future__ import annotations

from collections import deque
from typing import Final

from wmp.errors import StoreUnavailable

_LOW: Final = 8 * 65_536
"""Numbers left below which another block is wanted: more jobs than come before its answer."""


class StoredNumbers:
    """Gives numbers to new stored jobs.

    The owner of this object guards all calls by one lock.
    """

    def __init__(self) -> None:
        self._next = self._end = 0
        """The numbers of the current block that are left."""
        self._blocks: deque[range] = deque()

    @property
    def low(self) -> bool:
        """Whether another block of numbers is wanted."""
        return self._end - self._next + sum(map(len, self._blocks)) < _LOW

    def provide(self, block: range) -> None:
        """Take a block of numbers that the store gave."""
        self._blocks.append(block)

    def take(self, count: int) -> int:
        """Return the first of ``count`` numbers in a row.

        Raises:
            StoreUnavailable: No numbers are left: the store has not answered for a long time.
        """
        while self._end - self._next < count:
            if not self._blocks:
                raise StoreUnavailable(
                    "the store has given no numbers for further jobs: it has not answered since "
                    "many jobs were submitted; submit the job again when the store answers (see "
                    "the log)"
                )
            block = self._blocks.popleft()
            self._next, self._end = block.start, block.stop
        first = self._next
        self._next = first + count
        return first
