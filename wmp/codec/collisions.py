"""Keys that collide: a map or a set that would take quadratic time to build is refused (VALUE-1.6).

Python draws the hash of a text or of bytes anew for each process. The hash of a number is public:
whole numbers that differ by a multiple of 2**61 - 1 have one hash, and other numbers can be chosen
so that each new key meets all earlier keys. A dict of n such keys takes n**2 steps. So the steps
are counted here before the dict or the set is built.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from attrs import define, field

from wmp.message import Frame

SAFE_BYTES: Final = 16 * 1024
"""Size of a payload whose keys need no check: they take a few milliseconds at most."""

_MANY: Final = 64
"""Number of keys up to which a map or a set is not checked."""

_MAX_STEPS: Final = 128
"""Mean number of steps of a key. Multiples of 2**44, for example, need 56."""

_SPARE_STEPS: Final = 10_000
"""Number of steps that the first keys may take in addition."""

_LINEAR: Final = 9
"""Number of neighbours that a set tries before it jumps. A dict tries none."""

_WORD: Final = (1 << 64) - 1
_MAX_DEPTH: Final = 1000
"""Nesting above which every decoder refuses the payload."""


class CostlyKeys(ValueError):
    """Keys of a map, or members of a set, collide so often that they are not put into a table."""


@define(eq=False)
class _HashTable:
    """The used slots of CPython's hash table of a dict or a set.

    ``Objects/dictobject.c`` and ``Objects/setobject.c`` have the order in which slots are tried.
    """

    linear: int
    """Number of neighbours that are tried after each jump."""
    slots: bytearray = field(factory=lambda: bytearray(8))
    hashes: list[int] = field(factory=list)
    steps: int = 0

    def add(self, number: int) -> None:
        """Add a key by its hash.

        Raises:
            CostlyKeys: The keys so far have taken too many steps.
        """
        hashes = self.hashes
        size = len(self.slots)
        if 5 * len(hashes) >= 3 * size:
            while size <= 3 * len(hashes):
                size *= 2
            self.slots = bytearray(size)
            for earlier in hashes:
                self._fill(earlier)
        hashes.append(number)
        self._fill(number)

    def _fill(self, number: int) -> None:
        slots, mask, linear = self.slots, len(self.slots) - 1, self.linear
        rest = number & _WORD
        first = rest & mask
        while True:
            self.steps += 1
            last = first + linear if first + linear <= mask else first
            slot = slots.find(0, first, last + 1)
            if slot >= 0:
                slots[slot] = 1
                return
            if self.steps > _MAX_STEPS * len(self.hashes) + _SPARE_STEPS:
                raise CostlyKeys(
                    f"{len(self.hashes)} keys or members took {self.steps} steps because they "
                    f"collide; expected {_MAX_STEPS} steps at most for each"
                )
            rest >>= 5
            first = (5 * first + 1 + rest) & mask


def check_members(members: Sequence[Hashable]) -> None:
    """Check the members of a set before the set is built.

    Raises:
        CostlyKeys: The members collide.
        TypeError: A member cannot be in a set.
    """
    if len(members) > _MANY and not {str, bytes}.issuperset(map(type, members)):
        _check([hash(member) for member in members], _LINEAR)


def _check(hashes: Sequence[int], linear: int) -> None:
    table = _HashTable(linear)
    for number in hashes:
        table.add(number)


@define
class _OpenItem:
    """An array or a map whose items are being read."""

    left: int
    """Number of items, with keys, that follow."""
    keys: list[int] | None
    """Hashes of the whole numbers among the keys of a large map."""


def check_keys(payload: Frame) -> None:
    """Check the keys of all maps in CBOR, before a decoder builds them.

    The check reads each item once. Malformed CBOR is left to the decoder.

    Raises:
        CostlyKeys: Keys of a map collide, or a large map has other keys than whole numbers, text
            and bytes.
    """
    data = bytes(payload)
    end = len(data)
    levels: list[_OpenItem] = []
    at = 0
    tag = -1
    while at < end:
        major, low = data[at] >> 5, data[at] & 31
        at += 1
        if low >= 28:
            return
        argument = low
        if low >= 24:
            size = 1 << (low - 24)
            argument = int.from_bytes(data[at : at + size], "big")
            at += size
        if major == 6:
            tag = argument
            continue
        level = levels[-1] if levels else None
        if level is not None:
            if level.keys is not None and level.left % 2 == 0:
                if major < 2:
                    level.keys.append(hash(argument if major == 0 else -1 - argument))
                elif major == 2 and tag in (2, 3):
                    number = int.from_bytes(data[at : at + argument], "big")
                    level.keys.append(hash(number if tag == 2 else -1 - number))
                elif major > 3 or tag >= 0:
                    raise CostlyKeys("a large map has keys that are not integers, text or bytes")
            level.left -= 1
        tag = -1
        if major in (2, 3):
            at += argument
        elif major in (4, 5) and argument:
            if len(levels) >= _MAX_DEPTH:
                return
            many = major == 5 and argument > _MANY
            levels.append(_OpenItem(argument * (major - 3), [] if many else None))
        while levels and not levels[-1].left:
            keys = levels.pop().keys
            if keys is not None and len(keys) > _MANY:
                _check(keys, 0)
