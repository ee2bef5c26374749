"""Bytes to values, and frames to messages: the head with its paths and fields, then the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, Final, NoReturn

import cbor2

from wmp.codec.cbor import DEPTH, UINT_MAX, InvalidPart, check_plain, kind_of
from wmp.codec.columns import check_sizes, read_columns
from wmp.codec.limits import DEFAULTS, CodecLimits
from wmp.codec.message_tables import (
    LOWEST,
    PREFIXES,
    REQUIRED,
    REQUIRED_ANNOUNCEMENT,
    REQUIRED_OPEN_GIVE,
    WITHOUT_TO,
)
from wmp.errors import DecodeError
from wmp.message import (
    NUMBERED_BY_MANAGERS,
    NUMBERED_BY_WORKERS,
    VERSION,
    Command,
    ErrorCode,
    Field,
    Frame,
    Message,
    Path,
    counted,
)

_WHOLE: Final = 64 * 1024
"""Size in bytes up to which columns are decoded at once.

This makes at most a few MiB of objects.
"""


def decode(frames: Sequence[Frame], limits: CodecLimits = DEFAULTS) -> Message:
    """Read a whole message; payloads in separate frames stay the given frames.

    Columns become lists; a single value for all jobs (WMP-2.8) is repeated k times. ``manager``,
    ``about peer`` and ``roles`` become tuples.

    Raises:
        DecodeError: The frames are not a message; its ``code`` is the code for the answer.
    """
    if not frames:
        raise DecodeError(_EMPTY)
    command, to, source, fields = _decode_head(frames[0], limits)
    try:
        check_sizes(command, to, list(map(len, frames)), limits)
        columns = None
        if len(frames) > 1:
            frame = frames[1]
            if not len(frame) or not 0xA0 <= frame[0] < 0xB8:
                raise InvalidPart("the frame is not a map of fewer than 24 columns")
            stream = BytesIO(frame)
            table = load(stream, 2) if len(frame) <= _WHOLE else _load_by_column(stream, limits)
            if stream.read(1):
                raise InvalidPart("bytes follow the map")
            columns = read_columns(command, table, frames, limits)
    except InvalidPart as wrong:
        what = f"columns of {command.name}"
        raise _refused(what, wrong, source, command, to, fields) from wrong.__cause__
    return Message(command, to, source, fields, columns)


def peek(frames: Sequence[Frame], limits: CodecLimits = DEFAULTS) -> Message:
    """Read only the head, as a device does (WMP-8.4); the other frames stay in ``frames``.

    Raises:
        DecodeError: The head is invalid, or above a limit; its ``code`` is the code for the answer.
    """
    if not frames:
        raise DecodeError(_EMPTY)
    command, to, source, fields = _decode_head(frames[0], limits)
    try:
        check_sizes(command, to, list(map(len, frames)), limits)
    except InvalidPart as wrong:
        what = f"columns of {command.name}"
        raise _refused(what, wrong, source, command, to, fields) from None
    return Message(command, to, source, fields, None, tuple(frames[1:]))


class _NoTags(dict[int, Any]):
    """Semantic decoders that refuse every tag before its content is read (WMP-12.3)."""

    def __missing__(self, tag: int) -> NoReturn:
        raise ValueError(f"tag {tag} is not allowed")


_NO_TAGS: Final = _NoTags()


def load(stream: BytesIO, depth: int, *, safe_keys: bool = False) -> Any:
    """Decode one item, and leave the stream directly behind the item.

    Args:
        stream: The bytes.
        depth: Maximum nesting.
        safe_keys: Whether maps may have only text and bytes as keys, whose hashes no peer knows.

    Raises:
        InvalidPart: The bytes are not CBOR, or CBOR that WMP-2.2 forbids.
    """
    try:
        return cbor2.load(
            stream,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            max_depth=depth,
            semantic_decoders=_NO_TAGS,
            strict_hashable_types=safe_keys,
        )
    except Exception as error:  # any error that untrusted bytes cause becomes a DecodeError
        raise InvalidPart(
            f"not CBOR as WMP-2.2 requires ({str(error.__cause__ or error)[:120]})"
        ) from error


def _load_by_column(stream: BytesIO, limits: CodecLimits) -> dict[Any, Any]:
    """Decode a large map of columns, each column after a check of its length."""
    table: dict[Any, Any] = {}
    for _ in range(stream.read(1)[0] - 0xA0):
        key = load(stream, 0)
        start = stream.tell()
        lead = stream.read(9)
        stream.seek(start)
        major, low = (lead[0] >> 5, lead[0] & 31) if lead else (7, 31)
        if major == 4 and low < 28:
            entries = low if low < 24 else int.from_bytes(lead[1 : 1 + (1 << (low & 3))])
            if entries > limits.jobs:
                raise InvalidPart(
                    f"a column has {entries} entries; at most {limits.jobs} are accepted",
                    ErrorCode.LIMIT,
                )
        elif major == 5:
            raise InvalidPart("a column is a map; expected an array or a single value")
        if type(key) is list or type(key) is dict or key in table:
            raise InvalidPart("a key of the columns is a duplicate, an array or a map")
        table[key] = load(stream, 1)
    return table


_EMPTY: Final = "the message has no frames; expected a head"
_NUMBERED: Final = NUMBERED_BY_MANAGERS | NUMBERED_BY_WORKERS


def _refused(
    what: str,
    wrong: InvalidPart,
    source: Path,
    command: Command | None,
    to: Path = (),
    fields: Any = None,
) -> DecodeError:
    """Return the error for a message with a readable head, or with a part of one (WMP-10.7)."""
    session = number = 0
    if command in _NUMBERED and to and type(fields) is dict:
        numbering = [fields.get(Field.SESSION), fields.get(Field.NUMBER)]
        if all(type(part) is int and 1 <= part <= UINT_MAX for part in numbering):
            session, number = fields[Field.SESSION], fields[Field.NUMBER]
    return DecodeError(
        f"{what}: {wrong}",
        code=wrong.code,
        source=source,
        command=command,
        to=to,
        session=session,
        number=number,
    )


def _decode_head(
    frame: Frame, limits: CodecLimits
) -> tuple[Command, Path, Path, dict[int | str, Any]]:
    command = PREFIXES.get(bytes(frame[:3]))
    source: Path = ()
    to: Path = ()
    fields: Any = None
    try:
        if len(frame) > limits.head:
            raise InvalidPart(
                f"the frame has {len(frame)} bytes; at most {limits.head} are accepted",
                ErrorCode.LIMIT,
            )
        stream = BytesIO(frame)
        head = load(stream, DEPTH)
        if command is None or stream.read(1):
            raise _refusal(head)
        _, _, receiver, sender, fields = head
        source = _checked_path(sender, limits)
        to = _checked_to(command, receiver, limits)
        _check_fields(command, to, fields, limits)
    except InvalidPart as wrong:
        name = "head" if command is None else f"head of {command.name}"
        raise _refused(name, wrong, source, command, to, fields) from wrong.__cause__
    return command, to, source, fields


def _checked_to(command: Command, to: Any, limits: CodecLimits) -> Path:
    """Check a ``to``: a reversed ``from`` (WMP-2.5), empty only where WMP-2.6 allows this."""
    if type(to) is not list:
        raise InvalidPart(f"'to' is of type {kind_of(to)}; expected an array")
    if to:
        return _checked_path(to[::-1], limits)[::-1]
    if command not in WITHOUT_TO:
        raise InvalidPart("'to' is empty, which only READY, PING, PONG, BYE and ERROR allow")
    return ()


def _refusal(head: Any) -> DecodeError:
    """Return the reason why the decoded value is not a head of this version (WMP-2.1, WMP-10.4)."""
    source, number = _salvage(head)
    code = ErrorCode.MALFORMED
    version = head[0] if type(head) is list and head else None
    if type(head) is not list:
        text = f"the value is of type {kind_of(head)}; expected an array of five"
    elif type(version) is not int or version < 0:
        text = f"the version is of type {kind_of(version)}; expected {VERSION}"
    elif version != VERSION:
        code, text = ErrorCode.VERSION, f"the version is {version}; this peer speaks {VERSION}"
    elif len(head) != 5:
        text = f"the array has {counted(len(head), 'item')}; expected five"
    elif number is None:
        text = f"the command is of type {kind_of(head[1])}; expected an unsigned integer"
    elif not 1 <= number <= len(Command):
        code, text = ErrorCode.COMMAND, f"the command is {number}; expected 1 to {len(Command)}"
    else:
        # The three bytes of WMP-2.1 are encoded differently, or bytes follow the array.
        text = "bytes follow the array, or its header, version or command is longer than a byte"
    return DecodeError(f"head: {text}", code=code, source=source, command=number)


def _salvage(head: Any) -> tuple[Path, int | None]:
    """Read sender and command from an invalid head, for the answer by ERROR."""
    if type(head) is not list or len(head) < 4:
        return (), None
    number = head[1] if type(head[1]) is int and 0 <= head[1] <= UINT_MAX else None
    try:
        return _checked_path(head[3], DEFAULTS), number
    except InvalidPart:
        return (), number


# -- paths and fields (WMP-2.3 to 2.5) ---------------------------------------------------------


def _checked_path(path: Any, limits: CodecLimits) -> Path:
    """Check a ``from`` (WMP-2.5)."""
    if type(path) is not list:
        raise InvalidPart(f"a path is of type {kind_of(path)}; expected an array")
    size = len(path)
    if size == 2:  # almost all paths contain no devices, and this check is short
        identity, epoch = path
        if (
            type(identity) is bytes
            and 0 < len(identity) <= limits.identity
            and type(epoch) is int
            and 0 <= epoch <= UINT_MAX
        ):
            return identity, epoch
    if size % 3 != 2:
        raise InvalidPart(
            f"a path has {counted(size, 'item')}; expected identity, epoch, and three for each "
            "device"
        )
    if size > 2:
        if size > 2 + 3 * limits.hops:
            raise InvalidPart(
                f"a path has {size // 3} devices; at most {limits.hops} are accepted",
                ErrorCode.LIMIT,
            )
        locals_ = path[4::3]
        ids = [path[0], *path[2::3], *[item for item in locals_ if type(item) is bytes]]
        numbers = [path[1], *path[3::3], *[item for item in locals_ if type(item) is not bytes]]
    else:
        ids, numbers = path[:1], path[1:]
    for item in ids:
        if type(item) is not bytes or not item:
            raise InvalidPart("a path has an identity that is not bytes, or is empty")
        if len(item) > limits.identity:
            raise InvalidPart(
                f"a path has an id of {len(item)} bytes; at most {limits.identity} are accepted",
                ErrorCode.LIMIT,
            )
    for item in numbers:
        if type(item) is not int or not 0 <= item <= UINT_MAX:
            raise InvalidPart("a path has an epoch or local id that is not from 0 to 2**63 - 1")
    return tuple(path)


def _check_fields(command: Command, to: Path, fields: Any, limits: CodecLimits) -> None:
    """Check keys, types (WMP-2.4) and required keys; replace small arrays by tuples in place."""
    if type(fields) is not dict:
        raise InvalidPart(f"the fields are of type {kind_of(fields)}; expected a map")
    for key, value in fields.items():
        if type(key) is int:
            lowest = LOWEST.get(key)
            if lowest is not None:
                if type(value) is not int or not lowest <= value <= UINT_MAX:
                    seen = value if type(value) is int else kind_of(value)
                    raise InvalidPart(f"field {key} is {seen}; expected {lowest} to 2**63 - 1")
                continue
            check = _CHECKS.get(key)
            if check is not None:
                try:
                    fields[key] = check(value, limits)
                except InvalidPart as wrong:
                    raise InvalidPart(f"field {key}: {wrong}", wrong.code) from None
                continue
            if not 0 <= key <= UINT_MAX:
                raise InvalidPart(
                    f"the fields have the key {key}; expected an unsigned integer or text"
                )
        elif type(key) is not str:
            raise InvalidPart(
                f"a field's key is of type {kind_of(key)}; expected an unsigned integer or text"
            )
        # An unknown field is kept and passed on if its value is plain (WMP-2.3, WMP-12.3).
        try:
            check_plain(value, DEPTH, -UINT_MAX - 1, UINT_MAX)
        except ValueError as error:
            raise InvalidPart(f"an unknown field holds {error}") from None
    required = REQUIRED[command]
    if not required.issubset(fields):
        if not to and command is Command.PONG and REQUIRED_ANNOUNCEMENT.issubset(fields):
            return
        raise InvalidPart(f"fields {sorted(required.difference(fields))} are missing")
    if command is Command.GIVE and fields[Field.WANT] and not REQUIRED_OPEN_GIVE.issubset(fields):
        raise InvalidPart(f"fields {sorted(REQUIRED_OPEN_GIVE.difference(fields))} are missing")


def _check_text(value: Any, maximum: int) -> str:
    if type(value) is not str:
        raise InvalidPart(f"the value is of type {kind_of(value)}; expected text")
    # A character is at most four bytes.
    if len(value) * 4 > maximum and len(value.encode()) > maximum:
        raise InvalidPart(
            f"the text has {len(value.encode())} bytes; at most {maximum} are accepted",
            ErrorCode.LIMIT,
        )
    return value


def _check_name(value: Any, limits: CodecLimits) -> str:
    return _check_text(value, limits.name)


def _check_long_text(value: Any, limits: CodecLimits) -> str:
    return _check_text(value, limits.text)


def _check_bool(value: Any, limits: CodecLimits) -> bool:
    if type(value) is not bool:
        raise InvalidPart(f"the value is of type {kind_of(value)}; expected true or false")
    return value


def _check_roles(value: Any, limits: CodecLimits) -> tuple[str, ...]:
    if type(value) is not list:
        raise InvalidPart(f"the value is of type {kind_of(value)}; expected an array of text")
    if len(value) > limits.roles:
        raise InvalidPart(
            f"there are {len(value)} roles; at most {limits.roles} are accepted", ErrorCode.LIMIT
        )
    return tuple([_check_text(role, limits.name) for role in value])


def _check_amounts(value: Any, limits: CodecLimits) -> dict[str, int]:
    if type(value) is not dict:
        raise InvalidPart(
            f"the value is of type {kind_of(value)}; expected a map of text to unsigned integers"
        )
    if len(value) > limits.roles:
        raise InvalidPart(
            f"there are {len(value)} resources; at most {limits.roles} are accepted",
            ErrorCode.LIMIT,
        )
    for name, amount in value.items():
        _check_text(name, limits.name)
        if type(amount) is not int or not 0 <= amount <= UINT_MAX:
            raise InvalidPart("the amount of a resource is not from 0 to 2**63 - 1")
    return value


def _check_peer(value: Any, limits: CodecLimits) -> Path:
    if type(value) is not list or len(value) != 2:
        raise InvalidPart(f"the value is of type {kind_of(value)}; expected [identity, epoch]")
    return _checked_path(value, limits)


def _check_peers(value: Any, limits: CodecLimits) -> tuple[Path, ...]:
    if type(value) is not list:
        raise InvalidPart(f"the value is of type {kind_of(value)}; expected an array of peers")
    if len(value) > limits.roles:
        raise InvalidPart(
            f"there are {len(value)} peers; at most {limits.roles} are accepted", ErrorCode.LIMIT
        )
    return tuple([_check_peer(peer, limits) for peer in value])


def _check_identities(value: Any, limits: CodecLimits) -> tuple[bytes, ...]:
    if type(value) is not list:
        raise InvalidPart(f"the value is of type {kind_of(value)}; expected an array of identities")
    if len(value) > limits.roles:
        raise InvalidPart(
            f"there are {len(value)} identities; at most {limits.roles} are accepted",
            ErrorCode.LIMIT,
        )
    for identity in value:
        if type(identity) is not bytes or not identity:
            raise InvalidPart("an identity is not a byte string of 1 byte or more")
        if len(identity) > limits.identity:
            raise InvalidPart(
                f"an identity has {len(identity)} bytes; at most {limits.identity} are accepted",
                ErrorCode.LIMIT,
            )
    return tuple(value)


def _check_versions(value: Any, limits: CodecLimits) -> tuple[int, ...]:
    if type(value) is not list:
        raise InvalidPart(f"the value is of type {kind_of(value)}; expected an array of versions")
    if len(value) > limits.roles:
        raise InvalidPart(
            f"there are {len(value)} versions; at most {limits.roles} are accepted",
            ErrorCode.LIMIT,
        )
    if any(type(version) is not int or not 0 <= version <= UINT_MAX for version in value):
        raise InvalidPart("a version is not from 0 to 2**63 - 1")
    return tuple(value)


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
    Field.STANDBY: _check_bool,
    Field.SERVES: _check_peers,
    Field.VERSIONS: _check_versions,
    Field.FORWARDS: _check_identities,
    Field.PASSED: _check_identities,
}
