"""Frames to messages."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from wmp.codec.columns import check_frames, decode_columns
from wmp.codec.fields import check_fields, checked_path
from wmp.codec.limits import DEFAULTS, CodecLimits
from wmp.codec.strict import DEPTH, UINT_MAX, Wrong, kind_of, load
from wmp.codec.tables import PREFIXES, WITHOUT_TO
from wmp.errors import DecodeError
from wmp.message import VERSION, Command, ErrorCode, Frame, Message, Path

__all__ = ["decode", "peek"]


def decode(frames: Sequence[Frame], limits: CodecLimits = DEFAULTS) -> Message:
    """Read a whole message; payloads in frames of their own stay the frames given.

    Columns come out as lists, a single value for all jobs (WMP-2.8) written out k times.
    ``manager``, ``about peer`` and ``roles`` come out as tuples.

    Raises:
        DecodeError: The frames are no message; its ``code`` is what to answer.
    """
    command, to, source, fields = _decode_head(frames, limits)
    if len(frames) == 1:
        return Message(command, to, source, fields)
    try:
        columns = decode_columns(command, frames, limits)
    except Wrong as wrong:
        raise DecodeError(
            f"columns of {command.name}: {wrong}", code=wrong.code, source=source, command=command
        ) from wrong.__cause__
    return Message(command, to, source, fields, columns)


def peek(frames: Sequence[Frame], limits: CodecLimits = DEFAULTS) -> Message:
    """Read only the head, as a device does (WMP-8.4); what follows it stays in ``frames``.

    Raises:
        DecodeError: The head is no head, or a limit is passed; its ``code`` is what to answer.
    """
    command, to, source, fields = _decode_head(frames, limits)
    return Message(command, to, source, fields, None, tuple(frames[1:]))


def _decode_head(
    frames: Sequence[Frame], limits: CodecLimits
) -> tuple[Command, Path, Path, dict[int | str, Any]]:
    if not frames:
        raise DecodeError("no frames, expected a head")
    frame = frames[0]
    command = PREFIXES.get(bytes(frame[:3]))
    source: Path = ()
    try:
        if len(frame) > limits.head:
            raise Wrong(f"{len(frame)} bytes, at most {limits.head} are taken", ErrorCode.LIMIT)
        stream = BytesIO(frame)
        head = load(stream, DEPTH)
        if command is None or stream.read(1):
            raise _refusal(head)
        _, _, receiver, sender, fields = head
        source = checked_path(sender, limits)
        to = _checked_to(command, receiver, limits)
        check_fields(command, fields, limits)
        check_frames(command, to, frames, limits)
    except Wrong as wrong:
        name = "head" if command is None else f"head of {command.name}"
        raise DecodeError(
            f"{name}: {wrong}", code=wrong.code, source=source, command=command
        ) from wrong.__cause__
    return command, to, source, fields


def _checked_to(command: Command, to: Any, limits: CodecLimits) -> Path:
    """Check a ``to``: a ``from`` reversed (WMP-2.5), empty only where WMP-2.6 says."""
    if type(to) is not list:
        raise Wrong(f"to is of type {kind_of(to)}, expected an array")
    if to:
        return checked_path(to[::-1], limits)[::-1]
    if command not in WITHOUT_TO:
        raise Wrong("empty to, which only READY, PING and ERROR may have")
    return ()


def _refusal(head: Any) -> DecodeError:
    """Say why what was decoded is no head of this version (WMP-2.1, WMP-10.4)."""
    source, number = _salvage(head)
    code = ErrorCode.MALFORMED
    version = head[0] if type(head) is list and head else None
    if type(head) is not list:
        text = f"{kind_of(head)}, expected an array of five"
    elif type(version) is not int or version < 0:
        text = f"version is of type {kind_of(version)}, expected {VERSION}"
    elif version != VERSION:
        code, text = ErrorCode.VERSION, f"version {version}, this peer speaks {VERSION}"
    elif len(head) != 5:
        text = f"an array of {len(head)}, expected five"
    elif number is None:
        text = f"command is of type {kind_of(head[1])}, expected an unsigned integer"
    elif not 1 <= number <= len(Command):
        code, text = ErrorCode.COMMAND, f"command {number}, known are 1 to {len(Command)}"
    else:
        # Either the three bytes of WMP-2.1 are more than three, or something follows the array.
        text = "bytes behind the array, or an array header, version or command longer than a byte"
    return DecodeError(f"head: {text}", code=code, source=source, command=number)


def _salvage(head: Any) -> tuple[Path, int | None]:
    """Read what an ERROR needs from what is no head of ours: sender and command."""
    if type(head) is not list or len(head) < 4:
        return (), None
    number = head[1] if type(head[1]) is int and 0 <= head[1] <= UINT_MAX else None
    try:
        return checked_path(head[3], DEFAULTS), number
    except Wrong:
        return (), number
