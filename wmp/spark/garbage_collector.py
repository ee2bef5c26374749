"""The garbage collector of this process, which runs rarely while lines are read and folded.

A task holds some hundred thousand lines and facts. They make no circles, so a collector that looks
at all of them again and again finds nothing. At its usual rate it takes a third of the CPU time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["rare_collections"]

_RARE: Final = (100_000, 50, 1000)
"""As in :func:`gc.set_threshold`."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector run rarely during the block."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARE)
    try:
        yield
    finally:
        gc.set_threshold(*before)
