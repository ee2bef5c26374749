"""Results that a worker process has not sent yet, in memory that outlives the process.

Results are sent in parts, since a message for each would cost many times as much as a small job. So
the results of the last milliseconds are put into memory that the parent shares before the next job
begins. A process that is killed loses no result, and no job runs again because of that.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from struct import Struct
from typing import Any, Final

from wmp.message import Frame, Outcome

__all__ = ["BUFFER_SIZE", "ResultBuffer"]

BUFFER_SIZE: Final = 1 << 16
"""Limit in bytes: enough for 2 ms of small results. Results that do not fit are sent at once."""

_HEAD: Final = Struct("=qBL")
"""Job, outcome, length of the payload behind it."""

_OUTCOMES: Final = tuple(Outcome)


class ResultBuffer:
    """The child puts results there and clears it; the parent reads it after the child's death."""

    def __init__(self, memory: Any, mark: Any, filled: int) -> None:
        """Use shared memory.

        Args:
            memory: An array of bytes.
            mark: An array of integers, shared as well.
            filled: Index of the mark with the number of used bytes. It is written last, so that a
                result does not count if the process died while it wrote it.
        """
        self._memory = memoryview(memory).cast("B")
        self._mark: MutableSequence[int] = mark
        self._filled = filled

    def put(self, id: int, outcome: Outcome, payload: Frame) -> bool:
        """Keep a result if it fits; return whether it did."""
        size = len(payload)
        begin = self._mark[self._filled]
        body = begin + _HEAD.size
        if body + size > len(self._memory):
            return False
        _HEAD.pack_into(self._memory, begin, id, outcome, size)
        self._memory[body : body + size] = payload
        self._mark[self._filled] = body + size
        return True

    def clear(self) -> None:
        """Remove all results: they were sent."""
        self._mark[self._filled] = 0

    def results(self) -> tuple[list[int], list[Outcome], list[Frame]]:
        """Yield jobs, their outcomes and payloads."""
        ids, outcomes, payloads = list[int](), list[Outcome](), list[Frame]()
        at, end = 0, min(self._mark[self._filled], len(self._memory))
        while at + _HEAD.size <= end:
            id, outcome, size = _HEAD.unpack_from(self._memory, at)
            at += _HEAD.size
            if outcome >= len(_OUTCOMES) or at + size > end:
                break  # a handler wrote into this memory; the rest is no result
            ids.append(id)
            outcomes.append(_OUTCOMES[outcome])
            payloads.append(bytes(self._memory[at : at + size]))
            at += size
        return ids, outcomes, payloads
