"""Checksums of payloads: a receiver notices a payload that changed on the way (WMP-2.11 to 2.13).

TCP uses a checksum of 16 bits, and a program between two nodes may cut bytes out of a stream. The
result is almost never a valid message. But a part of a payload is a valid payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from attrs import evolve

from wmp.message import Columns, Frame, Outcome

WRONG_JOB: Final = b"a payload does not fit its checksum"
_WRONG_RESULT: Final = b"the result does not fit its checksum"


def checksums_of(payloads: Sequence[Frame]) -> list[int]:
    """Return the CRC-32 of each payload."""
    return list(map(crc32, payloads))


def fits(columns: Columns) -> bool:
    """Return whether every payload fits its checksum, where there is one."""
    if columns.checksums is None or columns.payloads is None:
        return True
    return not _wrong(columns.payloads, columns.checksums)


def refuse_wrong(columns: Columns) -> Columns:
    """Return results; a result that does not fit its checksum becomes lost."""
    payloads = columns.payloads or ()
    wrong = _wrong(payloads, columns.checksums or [None] * len(payloads))
    if not wrong:
        return columns
    outcomes, results = list(columns.outcomes or ()), list(payloads)
    for row in wrong:
        outcomes[row], results[row] = Outcome.LOST, _WRONG_RESULT
    return evolve(columns, outcomes=outcomes, payloads=results)


def _wrong(payloads: Sequence[Frame], checksums: Sequence[int | None]) -> list[int]:
    rows = zip(payloads, checksums, strict=True)
    return [
        row for row, (payload, sum) in enumerate(rows) if sum is not None and crc32(payload) != sum
    ]
