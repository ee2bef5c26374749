"""How many requests a network address may send: one bucket of requests for each (DSP-6.14)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from attrs import define

_BURST: Final = 2.0
"""Seconds of requests that an address may send at once."""
_ADDRESSES: Final = 10_000
"""Addresses whose buckets are remembered."""


@define
class _Bucket:
    left: float
    at: float


class PeerRates:
    """Counts the requests of each network address.

    Args:
        rate: Requests in a second.
        clock: Returns the time in seconds, by a clock that never jumps.
    """

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, address: str) -> bool:
        """Return whether an address may send a request now."""
        now, most = self._clock(), self._rate * _BURST
        bucket = self._buckets.pop(address, None) or _Bucket(most, now)
        self._buckets[address] = bucket  # the last one has asked last
        while len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)
        bucket.left = min(most, bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True
