"""A running ``map`` whose results are taken in the order in which jobs end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from wmp.message import Frame
from wmp.runtime.submission.map_pipeline import MapPipeline
from wmp.runtime.submission.results import Ended, undelivered

_FEW_BYTES = 512
"""Payloads of at most this many bytes do not count against the limit of bytes."""


class UnorderedMap(MapPipeline):
    """Inputs and results of one ``map`` with ``ordered=False``.

    The result of a slow job keeps no other result back.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._came: deque[int] = deque()
        """Numbers of ended jobs in the order of their ends. The driver adds at the right end."""
        self._picked: list[int] = []
        """Numbers that the consumer removed from ``_came``, of results that are not taken yet."""
        self._waiting: set[int] = set()
        """Numbers of the jobs that are submitted and whose results are not taken."""
        self._sizes: dict[int, int] = {}
        """Number of payload bytes of the jobs with more than ``_FEW_BYTES``, by the job's number.
        """
        self._given_last = 0

    # -- the consumer's side ----------------------------------------------------------------

    def ready(self) -> bool:
        """Return whether ``take`` has a result to return, or an error to raise."""
        return bool(self._picked or self._came)

    def abandon(self) -> None:
        """Cancel the submitted jobs and drop their results."""
        super().abandon()
        self._came.clear()
        self._picked.clear()
        self._waiting.clear()
        self._sizes.clear()

    def _next_ids(self, maximum: int) -> Sequence[int]:
        picked, came = self._picked, self._came
        while came and len(picked) < maximum:
            picked.append(came.popleft())
        return picked[:maximum]

    def _forget(self, ids: Sequence[int]) -> None:
        del self._picked[: len(ids)]
        self._waiting.difference_update(ids)
        self._count -= len(ids)
        for id in ids:
            del self._ended[id]
            self._bytes -= self._sizes.pop(id, 0)

    def _outstanding(self) -> list[int]:
        return sorted(id for id in self._waiting if id not in self._ended)

    def _keep_unfit(self, error: Exception) -> None:
        super()._keep_unfit(error)
        self._came.append(-self._unfit)

    def _count_bytes(self, part: Sequence[Frame]) -> None:
        for id, payload in enumerate(part, self._given_last):
            size = len(payload)
            if size > _FEW_BYTES:
                self._sizes[id] = size
                self._bytes += size

    # -- the driver's side ------------------------------------------------------------------

    def _given(self, first: int, count: int) -> None:
        self._given_last = first
        self._waiting.update(range(first, first + count))
        self._count += count

    def _succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        if not self._abandoned:
            self._ended.update(zip(ids, payloads, strict=True))
            self._came.extend(ids)
            self._signal.set()

    def _settle(self, rows: Sequence[Ended]) -> None:
        if not self._abandoned:
            ids = [row[0] for row in rows]
            self._ended.update(zip(ids, rows, strict=True))
            self._came.extend(ids)
            self._signal.set()

    def _undelivered(self, ids: Sequence[int], error: BaseException) -> None:
        if not self._abandoned:
            for id in ids:
                if id in self._waiting and id not in self._ended:
                    self._ended[id] = id, undelivered(id, error), b"", 0
                    self._came.append(id)
            self._signal.set()
