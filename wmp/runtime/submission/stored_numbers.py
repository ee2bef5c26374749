"""Numbers of stored jobs, and the jobs of which the store has not confirmed that it has them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from wmp.errors import StoreUnavailable

_LOW: Final = 8 * 65_536
"""Numbers left below which another block is wanted: more jobs than come before its answer."""


class StoredNumbers:
    """Gives numbers to new stored jobs, and knows which jobs are not stored yet.

    The owner of this object guards all calls by one lock.
    """

    def __init__(self) -> None:
        self._next = self._end = 0
        """The numbers of the current block that are left."""
        self._blocks: deque[range] = deque()
        self._unstored: set[int] = set()
        self._waiters: dict[int, list[Callable[[], object]]] = {}

    @property
    def low(self) -> bool:
        """Whether another block of numbers is wanted."""
        return self._end - self._next + sum(map(len, self._blocks)) < _LOW

    def provide(self, block: range) -> None:
        """Take a block of numbers that the store gave."""
        self._blocks.append(block)

    def take(self, count: int) -> int:
        """Return the first of ``count`` numbers in a row, whose jobs are not stored yet.

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
        if count == 1:
            self._unstored.add(first)
        else:
            self._unstored.update(range(first, self._next))
        return first

    def waits(self, id: int) -> bool:
        """Return whether the store has not confirmed a job."""
        return id in self._unstored

    def when_stored(self, id: int, wake: Callable[[], object]) -> bool:
        """Call ``wake`` when a job is confirmed or has ended; False if it is or has already."""
        if id not in self._unstored:
            return False
        self._waiters.setdefault(id, []).append(wake)
        return True

    def confirm(self, ids: Iterable[int]) -> list[Callable[[], object]]:
        """Note that jobs are stored, or never will be; return what to call."""
        self._unstored.difference_update(ids)
        waiters = self._waiters
        if not waiters:
            return []
        return [wake for id in ids for wake in waiters.pop(id, ())]

    def confirm_all(self) -> list[Callable[[], object]]:
        """Note that nothing more will be confirmed; return what to call."""
        return self.confirm(tuple(self._unstored))
