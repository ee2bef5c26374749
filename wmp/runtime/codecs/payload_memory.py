"""Memory of encoded arrays, which is used again when its payload has gone.

The C library returns large blocks to the system. The next payload would then use fresh pages of
memory, which cost the kernel as much time as the copy of the items.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from typing import Any, Final

MIN: Final = 1 << 18
"""Bytes of the smallest payload for which memory is kept."""

_MAX: Final = 1 << 25
"""Maximum number of free bytes that are kept."""

_free: Final[deque[Any]] = deque()
"""Free blocks, as arrays of bytes. Any thread may add a block, and any thread may take one."""


def payload_memory(size: int) -> Any:
    """Return an array of ``size`` bytes for a new payload.

    The memory is free again when nothing refers to the array or to a view of it.
    """
    try:
        block = _free.pop()
    except IndexError:
        block = None
    if block is None or not size <= len(block) <= 2 * size:
        block = sys.modules["numpy"].empty(size, "u1")
    part = block[:size]
    weakref.finalize(part, _keep, block).atexit = False
    return part


def _keep(block: Any) -> None:
    """Keep a block whose payload has gone, if few bytes are free."""
    # Another thread may change the blocks meanwhile, so this sum may be late by a block.
    if sum(map(len, tuple(_free))) + len(block) <= _MAX:
        _free.append(block)
