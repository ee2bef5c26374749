"""Results that a worker process has not sent yet, in memory that outlives the process.

Results are sent in parts, because a message for each result would cost many times as much as a
small job. So before the next job begins, the results of the last milliseconds are put into memory
that the parent shares. If the process is killed, no result is lost, and no job runs again for this
reason.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from struct import Struct
from typing import Any, Final

from wmp.vocabulary import Frame, Outcome

BUFFER_SIZE: Final = 1 << 16
"""Size in bytes: enough for some hundred small results. Other results are sent at once."""

_HEAD: Final = Struct("=qBL")
"""Number of the job, outcome, and length of the payload that follows."""

_OUTCOMES: Final = tuple(Outcome)


class ResultBuffer:
    """Results in shared memory.

    The child puts results there and clears the buffer. The parent reads the buffer after the
    child's death.
    """

    def __init__(self, memory: Any, mark: Any, filled: int) -> None:
        """Use shared memory.

        Args:
            memory: An array of bytes.
            mark: An array of integers, shared as well.
            filled: Index of the mark with the number of used bytes. The number is written last, so
                that a result does not count if the process died while it wrote the result.
        """
        self._memory = memoryview(memory).cast("B")
        self._mark: MutableSequence[int] = mark
        self._filled = filled

    def put(self, id: int, outcome: Outcome, payload: Frame) -> bool:
        """Put a result into the buffer if it fits; return whether it fitted."""
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
                break  # a handler wrote into this memory; the bytes from here on are not a result
            ids.append(id)
            outcomes.append(_OUTCOMES[outcome])
            payloads.append(bytes(self._memory[at : at + size]))
            at += size
        return ids, outcomes, payloads
