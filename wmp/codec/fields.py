"""Paths and fields of a head: what they hold, and that what must be there is (WMP-2.3 to 2.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from wmp.codec.limits import CodecLimits
from wmp.codec.strict import DEPTH, UINT_MAX, Wrong, check_plain, kind_of
from wmp.codec.tables import LOWEST, REQUIRED, REQUIRED_OPEN_GIVE
from wmp.message import Command, ErrorCode, Field, Path

__all__ = ["check_fields", "checked_path"]


def checked_path(path: Any, limits: CodecLimits) -> Path:
    """Check a ``from`` (WMP-2.5)."""
    if type(path) is not list:
        raise Wrong(f"path is of type {kind_of(path)}, expected an array")
    size = len(path)
    if size == 2:  # no devices: nearly always, and told in a few steps
        identity, epoch = path
        if (
            type(identity) is bytes
            and 0 < len(identity) <= limits.identity
            and type(epoch) is int
            and 0 <= epoch <= UINT_MAX
        ):
            return identity, epoch
    if size % 3 != 2:
        raise Wrong(f"path of {size} items, expected identity, epoch, and three for each device")
    if size > 2:
        if size > 2 + 3 * limits.hops:
            raise Wrong(
                f"path of {size // 3} devices, at most {limits.hops} are taken", ErrorCode.LIMIT
            )
        locals_ = path[4::3]
        ids = [path[0], *path[2::3], *[item for item in locals_ if type(item) is bytes]]
        numbers = [path[1], *path[3::3], *[item for item in locals_ if type(item) is not bytes]]
    else:
        ids, numbers = path[:1], path[1:]
    for item in ids:
        if type(item) is not bytes or not item:
            raise Wrong("path holds an identity that is not 1 byte or more")
        if len(item) > limits.identity:
            raise Wrong(
                f"path holds an id of {len(item)} bytes, at most {limits.identity} are taken",
                ErrorCode.LIMIT,
            )
    for item in numbers:
        if type(item) is not int or not 0 <= item <= UINT_MAX:
            raise Wrong("path holds an epoch or local id that is not 0 to 2**63 - 1")
    return tuple(path)


def check_fields(command: Command, fields: Any, limits: CodecLimits) -> None:
    """Check keys, types (WMP-2.4) and presence; turns small arrays into tuples in place."""
    if type(fields) is not dict:
        raise Wrong(f"fields is of type {kind_of(fields)}, expected a map")
    for key, value in fields.items():
        if type(key) is int:
            lowest = LOWEST.get(key)
            if lowest is not None:
                if type(value) is not int or not lowest <= value <= UINT_MAX:
                    seen = value if type(value) is int else kind_of(value)
                    raise Wrong(f"field {key} is {seen}, expected {lowest} to 2**63 - 1")
                continue
            check = _CHECKS.get(key)
            if check is not None:
                try:
                    fields[key] = check(value, limits)
                except Wrong as wrong:
                    raise Wrong(f"field {key}: {wrong}", wrong.code) from None
                continue
            if not 0 <= key <= UINT_MAX:
                raise Wrong(f"field {key}, keys are unsigned or text")
        elif type(key) is not str:
            raise Wrong(f"a field's key is of type {kind_of(key)}, keys are unsigned or text")
        # Not ours: carried as it is, as long as it is plain (WMP-2.3, WMP-12.3).
        try:
            check_plain(value, DEPTH, -UINT_MAX - 1, UINT_MAX)
        except ValueError as error:
            raise Wrong(f"an unknown field holds {error}") from None
    required = REQUIRED[command]
    if not required.issubset(fields):
        raise Wrong(f"fields {sorted(required.difference(fields))} are missing")
    if command is Command.GIVE and fields[Field.WANT] and not REQUIRED_OPEN_GIVE.issubset(fields):
        raise Wrong(f"fields {sorted(REQUIRED_OPEN_GIVE.difference(fields))} are missing")


def _check_text(value: Any, most: int) -> str:
    if type(value) is not str:
        raise Wrong(f"{kind_of(value)}, expected text")
    # A character is at most four bytes.
    if len(value) * 4 > most and len(value.encode()) > most:
        raise Wrong(
            f"text of {len(value.encode())} bytes, at most {most} are taken", ErrorCode.LIMIT
        )
    return value


def _check_name(value: Any, limits: CodecLimits) -> str:
    return _check_text(value, limits.name)


def _check_long_text(value: Any, limits: CodecLimits) -> str:
    return _check_text(value, limits.text)


def _check_bool(value: Any, limits: CodecLimits) -> bool:
    if type(value) is not bool:
        raise Wrong(f"{kind_of(value)}, expected true or false")
    return value


def _check_roles(value: Any, limits: CodecLimits) -> tuple[str, ...]:
    if type(value) is not list:
        raise Wrong(f"{kind_of(value)}, expected an array of text")
    if len(value) > limits.roles:
        raise Wrong(f"{len(value)} roles, at most {limits.roles} are taken", ErrorCode.LIMIT)
    return tuple([_check_text(role, limits.name) for role in value])


def _check_amounts(value: Any, limits: CodecLimits) -> dict[str, int]:
    if type(value) is not dict:
        raise Wrong(f"{kind_of(value)}, expected a map of text to unsigned integers")
    if len(value) > limits.roles:
        raise Wrong(f"{len(value)} resources, at most {limits.roles} are taken", ErrorCode.LIMIT)
    for name, amount in value.items():
        _check_text(name, limits.name)
        if type(amount) is not int or not 0 <= amount <= UINT_MAX:
            raise Wrong("a resource's amount is not 0 to 2**63 - 1")
    return value


def _check_peer(value: Any, limits: CodecLimits) -> Path:
    if type(value) is not list or len(value) != 2:
        raise Wrong(f"{kind_of(value)}, expected [identity, epoch]")
    return checked_path(value, limits)


_CHECKS: Final[dict[int, Callable[[Any, CodecLimits], Any]]] = {
    Field.AGAIN: _check_bool,
    Field.ROLES: _check_roles,
    Field.RESOURCES: _check_amounts,
    Field.ROLE: _check_name,
    Field.NEEDS: _check_amounts,
    Field.MORE: _check_bool,
    Field.MANAGER: _check_peer,
    Field.CODEC: _check_name,
    Field.UNSTARTED: _check_bool,
    Field.CODE: _check_name,
    Field.TEXT: _check_long_text,
    Field.ABOUT_PEER: _check_peer,
    Field.LABEL: _check_long_text,
    Field.IDLE: _check_bool,
}
