"""Columns and payloads: the check of their sizes, types and numbers (WMP-2.8 to 2.10)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from wmp.codec.cbor import KINDS, UINT_MAX, InvalidPart, check_plain, kind_of
from wmp.codec.limits import CodecLimits
from wmp.codec.message_tables import (
    ATTEMPTS,
    BEGUN,
    CHECKSUMS,
    COLUMN_NAMES,
    EXPIRES,
    FAILED,
    FRACTIONS,
    IDS,
    LEFT,
    LIMITS,
    NULLABLE,
    OUTCOMES,
    PAYLOADS,
    REQUIRED_COLUMNS,
    TEXTS,
    WAITS,
    WITH_COLUMNS,
)
from wmp.message import Columns, Command, ErrorCode, Frame, Outcome, Path, counted


def check_sizes(command: Command, to: Path, sizes: list[int], limits: CodecLimits) -> None:
    """Check that a message has columns if its command needs them (WMP-2.8), and check every length
    (WMP-2.10).

    Args:
        command: The command of the message.
        to: The ``to`` of the message.
        sizes: Lengths of all its frames.
        limits: Upper limits.
    """
    count = len(sizes)
    if count == 1:
        if command in WITH_COLUMNS:
            raise InvalidPart("columns are missing behind the head")
        return
    if command not in WITH_COLUMNS and not (command is Command.PING and to):
        raise InvalidPart(
            f"{counted(count - 1, 'frame follows', 'frames follow')} the head; this command has no "
            "columns"
        )
    if count > limits.frames:
        raise InvalidPart(
            f"the message has {count} frames; at most {limits.frames} are accepted", ErrorCode.LIMIT
        )
    if sizes[1] > limits.columns:
        raise InvalidPart(
            f"the columns have {sizes[1]} bytes; at most {limits.columns} are accepted",
            ErrorCode.LIMIT,
        )
    if count > 2:
        _check_payload(max(sizes[2:]), limits)


def _check_payload(longest: int, limits: CodecLimits) -> None:
    if longest > limits.payload:
        raise InvalidPart(
            f"a payload has {longest} bytes; at most {limits.payload} are accepted", ErrorCode.LIMIT
        )


def read_columns(
    command: Command, table: dict[Any, Any], frames: Sequence[Frame], limits: CodecLimits
) -> Columns:
    """Check the columns, and put the payload frames in place of the nulls.

    Args:
        command: The command of the message.
        table: The columns by number.
        frames: All frames of the message.
        limits: Upper limits.

    Raises:
        InvalidPart: The columns are not those of this command.
    """
    if not _KEYS.issuperset(map(type, table)):
        raise InvalidPart("a key of the columns is neither an unsigned integer nor text")
    required = REQUIRED_COLUMNS[command]
    if not required.issubset(table):
        missing = ", ".join(COLUMN_NAMES[key] for key in sorted(required.difference(table)))
        raise InvalidPart(f"the columns lack {missing}")
    ids = table[IDS]
    if type(ids) is not list or not ids:
        raise InvalidPart("ids is not an array of 1 entry or more")
    count = len(ids)
    if count > limits.jobs:
        raise InvalidPart(
            f"the message has {count} jobs; at most {limits.jobs} are accepted", ErrorCode.LIMIT
        )
    _check_uints(ids, count, 1, "ids")
    attempts = _uints(table[ATTEMPTS], count, 1, "attempts")
    outcomes = fractions = texts = payloads = None
    numbers: dict[int, list[Any]] = {}
    if len(table) > 2:
        for key, column in table.items():
            if key == PAYLOADS:
                inline = len(frames) == 2 and len(frames[1]) <= limits.payload
                plain = inline and type(column) is list and len(column) == count
                if plain and _BYTES.issuperset(map(type, column)):  # in almost all messages
                    payloads = column
                else:
                    payloads = _decode_payloads(column, count, frames, limits)
            elif key == OUTCOMES:
                outcomes = _uints(column, count, 0, "outcomes")
                if not _OUTCOMES.issuperset(outcomes):
                    raise InvalidPart(
                        f"outcomes has the entry {max(outcomes)}; expected 0 to {max(_OUTCOMES)}"
                    )
            elif key in NULLABLE:
                numbers[key] = _nullable(column, count, COLUMN_NAMES[key])
            elif key == FRACTIONS:
                fractions = _expand(column, count, "fractions")
                _check_types(fractions, _FLOAT_OR_NULL, "fractions")
            elif key == TEXTS:
                texts = _expand(column, count, "texts")
                _check_types(texts, _TEXT_OR_NULL, "texts")
            elif key not in COLUMN_NAMES:
                _check_unknown_column(key, column)
    if payloads is None and len(frames) > 2:
        raise InvalidPart(
            f"{counted(len(frames) - 2, 'payload frame follows', 'payload frames follow')}, but "
            "the column payloads is missing"
        )
    if not numbers:
        return Columns(ids, attempts, None, outcomes, payloads, fractions, texts)
    return Columns(
        ids,
        attempts,
        numbers.get(LEFT),
        outcomes,
        payloads,
        fractions,
        texts,
        numbers.get(EXPIRES),
        numbers.get(LIMITS),
        numbers.get(FAILED),
        numbers.get(WAITS),
        numbers.get(CHECKSUMS),
        numbers.get(BEGUN),
    )


_OUTCOMES: Final = frozenset(map(int, Outcome))
_KEYS: Final = frozenset({int, str})
_FLOAT_OR_NULL: Final[frozenset[type]] = frozenset({float, type(None)})
_TEXT_OR_NULL: Final[frozenset[type]] = frozenset({str, type(None)})
_BYTES: Final = frozenset({bytes})
_BYTES_OR_NULL: Final[frozenset[type]] = frozenset({bytes, type(None)})


def _expand(column: Any, count: int, name: str) -> list[Any]:
    """Return the column with one entry for each job; a single value is repeated (WMP-2.8)."""
    if type(column) is not list:
        return [column] * count
    if len(column) != count:
        raise InvalidPart(
            f"{name} has {counted(len(column), 'entry', 'entries')}; expected {count}, one for "
            "each id"
        )
    return column


def _uints(column: Any, count: int, lowest: int, name: str) -> list[int]:
    if type(column) is int and lowest <= column <= UINT_MAX:
        return [column] * count
    entries = _expand(column, count, name)
    _check_uints(entries, count, lowest, name)
    return entries


def _nullable(column: Any, count: int, name: str) -> list[int | None]:
    entries = _expand(column, count, name)
    numbers = [entry for entry in entries if entry is not None]
    _check_uints(numbers, len(numbers), 0, name)
    return entries


def _check_uints(column: list[Any], count: int, lowest: int, name: str) -> None:
    if count < 4:
        for entry in column:
            if type(entry) is not int or not lowest <= entry <= UINT_MAX:
                break
        else:
            return
    else:
        try:
            # The packing refuses other types than int, and numbers above 2**63 - 1.
            struct.pack(f"{count}q", *column)
        except struct.error:
            minimum = -1
        else:
            minimum = min(column)
        # The packing takes True for 1 and False for 0, so the types need a check.
        if minimum > 1 or (minimum >= lowest and set(map(type, column)) == {int}):
            return
    raise InvalidPart(f"{name} has an entry that is not an integer from {lowest} to 2**63 - 1")


def _check_types(column: list[Any], types: frozenset[type], name: str) -> None:
    if not types.issuperset(map(type, column)):
        names = " or ".join(sorted(KINDS[kind] for kind in types))
        raise InvalidPart(f"{name} has an entry that is not {names}")


def _check_unknown_column(key: int | str, column: Any) -> None:
    if type(key) is int and not 0 < key <= UINT_MAX:
        raise InvalidPart(f"the columns have the key {key}; expected an unsigned integer or text")
    if type(column) is dict:
        raise InvalidPart("a column is a map; expected an array or a single value")
    try:
        check_plain(column, 1, -UINT_MAX - 1, UINT_MAX)
    except ValueError as error:
        raise InvalidPart(f"an unknown column holds {error}") from None


def _decode_payloads(
    column: Any, count: int, frames: Sequence[Frame], limits: CodecLimits
) -> list[Frame]:
    if type(column) is not list:
        raise InvalidPart(f"payloads is of type {kind_of(column)}; expected an array")
    if len(column) != count:
        raise InvalidPart(
            f"payloads has {counted(len(column), 'entry', 'entries')}; expected {count}, one for "
            "each id"
        )
    if limits.payload < len(frames[1]):
        _check_payload(
            max((len(entry) for entry in column if type(entry) is bytes), default=0), limits
        )
    nulls = 0
    if not _BYTES.issuperset(map(type, column)):
        _check_types(column, _BYTES_OR_NULL, "payloads")
        nulls = column.count(None)
    if nulls != len(frames) - 2:
        raise InvalidPart(
            f"{counted(len(frames) - 2, 'payload frame follows', 'payload frames follow')}; "
            f"expected {nulls}, one for each null in payloads"
        )
    if nulls:
        following = iter(frames[2:])
        return [next(following) if entry is None else entry for entry in column]
    return column
