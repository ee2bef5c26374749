"""The messages of the LMQ layer, on which round robin stands (specs/round-robin.md)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from attrs import frozen

from wmp.foreign import Frames
from wmp.gateways.common.body import MAX_FRAMES, MAX_HOPS
from wmp.message import Frame

_VERSION: Final = b"LMQv100"

INCREMENT: Final = b"\x07"
REGISTER: Final = b"\x08"
DEREGISTER: Final = b"\x09"

_MAX_ID: Final = 255


class LmqType(IntEnum):
    """The types of messages."""

    PING = 1
    PONG = 2
    EXEC = 3
    TRACKEXEC = 4
    TRACKADDRESS = 5
    RESPONSE = 6


@frozen
class LmqMessage:
    """A message for its receiver, or for an address."""

    type: LmqType
    id: bytes
    arguments: Frames = ()
    hops: Frames = ()
    """The addresses through which the message came, the sender without."""
    addresses: Frames = ()
    """The addresses to which the message must be passed on, the next one first."""

    @property
    def command(self) -> bytes:
        """The command of the application; empty for a message without arguments."""
        return bytes(self.arguments[0]) if self.arguments else b""


_TYPES: Final = {bytes((lmq_type,)): lmq_type for lmq_type in LmqType}
_BYTES: Final = {lmq_type: bytes((lmq_type,)) for lmq_type in LmqType}


def read_lmq(frames: Frames) -> LmqMessage | None:
    """Read any frames; return None for frames that are not a message (RR-1.6)."""
    count = len(frames)
    if not 5 <= count <= MAX_FRAMES:
        return None
    first = 0
    while frames[first]:
        first += 1
        if first > MAX_HOPS or first == count:
            return None
    if first + 5 > count or frames[first + 1] != _VERSION:
        return None
    type = _TYPES.get(bytes(frames[first + 2]))
    id = bytes(frames[first + 3])
    if type is None or not 0 < len(id) <= _MAX_ID:
        return None
    last = count - 1
    while frames[last]:
        last -= 1
    if last < first + 4 or count - 1 - last > MAX_HOPS:
        return None
    arguments = frames[first + 4 : last]
    if not arguments and type in (LmqType.EXEC, LmqType.TRACKEXEC):
        return None
    return LmqMessage(type, id, arguments, frames[last + 1 :], frames[:first])


def write_lmq(
    type: LmqType, id: bytes, arguments: Frames = (), *, to: Frames = (), hops: Frames = ()
) -> Frames:
    """Return the frames of a message.

    Args:
        type: Type of the message.
        id: Its id.
        arguments: Command and arguments, or the frames of a result.
        to: Addresses behind the first receiver.
        hops: Addresses through which the message came.
    """
    return (*to, b"", _VERSION, _BYTES[type], id, *arguments, b"", *hops)


def pass_on(frames: Frames, sender: bytes) -> Frames:
    """Return the frames of a message with an address on top, for this address (RR-3.2)."""
    return (*frames[1:], sender)


def slots_of(argument: Frame) -> int:
    """Return the number of slots that an argument of REGISTER names (RR-4.1)."""
    text = bytes(argument[:32]).lstrip()
    digits = bytearray()
    for byte in text.removeprefix(b"+"):
        if not 0x30 <= byte <= 0x39:
            break
        digits.append(byte)
    return int(digits) if digits else 0
