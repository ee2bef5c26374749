"""The messages of Majordomo 0.1, 7/MDP (specs/majordomo.md)."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from attrs import frozen

from wmp.foreign import Frames
from wmp.gateways.common.body import MAX_FRAMES, MAX_HOPS
from wmp.message import Frame, Limits

CLIENT: Final = b"MDPC01"
WORKER: Final = b"MDPW01"

MAX_BODY: Final = MAX_FRAMES - 5
"""Maximum number of frames of a body: a request to a worker has five frames more (MDP-1.2)."""

_READY: Final = b"\x01"
_REQUEST: Final = b"\x02"
_REPLY: Final = b"\x03"
_HEARTBEAT: Final = b"\x04"
_DISCONNECT: Final = b"\x05"

HEARTBEAT: Final[Frames] = (b"", WORKER, _HEARTBEAT)
DISCONNECT: Final[Frames] = (b"", WORKER, _DISCONNECT)


@frozen
class ClientRequest:
    """A request as a broker reads it."""

    envelope: Frames
    """The frames up to the first empty one, which the reply has, too."""
    service: bytes
    body: Frames


class AttendantCommand(Enum):
    """The meaning of a message of a worker."""

    READY = "ready"
    REPLY = "reply"
    HEARTBEAT = "heartbeat"
    DISCONNECT = "disconnect"
    UNEXPECTED = "unexpected"
    """A valid command that only a broker may send."""
    INVALID = "invalid"


@frozen
class WorkerNotice:
    """A message of a worker as its broker reads it."""

    command: AttendantCommand
    service: bytes = b""
    """The service of a READY."""
    address: bytes = b""
    """The address of the client in a REPLY."""
    body: Frames = ()
    tolerated: bool = False
    """Whether a REPLY has no empty frame behind the address (MDP-1.6)."""


class BrokerCommand(Enum):
    """The meaning of a message of a broker to a worker."""

    REQUEST = "request"
    HEARTBEAT = "heartbeat"
    DISCONNECT = "disconnect"
    UNEXPECTED = "unexpected"
    """A valid command that only a worker may send."""
    INVALID = "invalid"


@frozen
class BrokerNotice:
    """A message of a broker as its worker reads it."""

    command: BrokerCommand
    address: bytes = b""
    body: Frames = ()


_INVALID: Final = WorkerNotice(AttendantCommand.INVALID)
_UNEXPECTED: Final = WorkerNotice(AttendantCommand.UNEXPECTED)
_SHORT: Final = {
    _HEARTBEAT: WorkerNotice(AttendantCommand.HEARTBEAT),
    _DISCONNECT: WorkerNotice(AttendantCommand.DISCONNECT),
}

_INVALID_HERE: Final = BrokerNotice(BrokerCommand.INVALID)
_UNEXPECTED_HERE: Final = BrokerNotice(BrokerCommand.UNEXPECTED)
_SHORT_HERE: Final = {
    _HEARTBEAT: BrokerNotice(BrokerCommand.HEARTBEAT),
    _DISCONNECT: BrokerNotice(BrokerCommand.DISCONNECT),
}


_PERCENT: Final = re.compile("%(?=[0-9A-F]{2})")
_ESCAPED: Final = re.compile(b"%([0-9A-F]{2})")


def role_of(name: Frame) -> str | None:
    """Return the role of the jobs of a service (MDP-1.4).

    Args:
        name: Any bytes. A name of printable characters is its own role. Any other byte, and a
            percent sign that could be taken for such a byte, is written as in ``%0A``.

    Returns:
        The role; None if the name is empty or the role is longer than a role may be.
    """
    text = bytes(name).decode(errors="surrogateescape")
    text = _PERCENT.sub("%25", text)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _escape(char) for char in text)
    return text if 0 < len(text.encode()) <= Limits.TEXT else None


def _escape(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode(errors="surrogateescape"))


def service_of(role: str) -> bytes:
    """Return the name of the service with a role: the inverse of :func:`role_of`."""
    return _ESCAPED.sub(lambda match: bytes((int(match[1], 16),)), role.encode())


def find_header(frames: Frames) -> int:
    """Return the index after the first empty frame (MDP-1.3); 0 if there is none."""
    for index, frame in enumerate(frames[: MAX_HOPS + 1]):
        if not frame:
            return index + 1 if index + 1 < len(frames) else 0
    return 0


# -- at the broker


def read_client(frames: Frames, header: int) -> ClientRequest | None:
    """Read the request of a client (MDP-1.5).

    Args:
        frames: The message.
        header: The place of ``MDPC01`` in it.

    Returns:
        The request; None for a message without service or body, or with too many frames.
    """
    if not header + 3 <= len(frames) <= header + 2 + MAX_BODY:
        return None
    return ClientRequest(frames[:header], bytes(frames[header + 1]), frames[header + 2 :])


def read_worker(frames: Frames) -> WorkerNotice:
    """Read a message whose second frame is ``MDPW01`` (MDP-1.6)."""
    count = len(frames)
    if not 3 <= count <= MAX_FRAMES or frames[0]:
        return _INVALID
    command = bytes(frames[2])
    if command == _REPLY:
        if count < 5 or not frames[3]:
            return _INVALID
        bare = count == 5 or len(frames[4]) > 0
        body = frames[4:] if bare else frames[5:]
        return WorkerNotice(AttendantCommand.REPLY, b"", bytes(frames[3]), body, tolerated=bare)
    if count == 3:
        return _SHORT.get(command, _INVALID)
    if command == _READY and count == 4:
        return WorkerNotice(AttendantCommand.READY, bytes(frames[3]))
    if command == _REQUEST and count >= 6 and frames[3] and not frames[4]:
        return _UNEXPECTED
    return _INVALID


def write_reply(envelope: Frames, service: bytes, body: Frames) -> Frames:
    """Return the reply to a client."""
    return (*envelope, CLIENT, service, *(body or (b"",)))


def write_run(address: bytes, body: Frames) -> Frames:
    """Return the request to a worker."""
    return (b"", WORKER, _REQUEST, address, b"", *body)


# -- at the client


def write_request(service: bytes, body: Frames) -> Frames:
    """Return the request of a client."""
    return (b"", CLIENT, service, *body)


def read_reply(frames: Frames) -> tuple[bytes, Frames] | None:
    """Return service and body of a reply; None for any other message."""
    if not 4 <= len(frames) <= MAX_FRAMES or frames[0] or frames[1] != CLIENT or not frames[2]:
        return None
    return bytes(frames[2]), frames[3:]


# -- at the worker


def write_ready(service: bytes) -> Frames:
    """Return READY."""
    return (b"", WORKER, _READY, service)


def write_worker_reply(address: bytes, body: Frames) -> Frames:
    """Return the reply of a worker."""
    return (b"", WORKER, _REPLY, address, b"", *(body or (b"",)))


def read_request(frames: Frames) -> BrokerNotice:
    """Read a message of a broker to a worker."""
    count = len(frames)
    if not 3 <= count <= MAX_FRAMES or frames[0] or frames[1] != WORKER:
        return _INVALID_HERE
    command = bytes(frames[2])
    if command == _REQUEST:
        if count < 6 or not frames[3] or frames[4]:
            return _INVALID_HERE
        return BrokerNotice(BrokerCommand.REQUEST, bytes(frames[3]), frames[5:])
    if count == 3:
        return _SHORT_HERE.get(command, _INVALID_HERE)
    if command == _READY:
        return _UNEXPECTED_HERE if count == 4 else _INVALID_HERE
    if command == _REPLY and count >= 6 and frames[3] and not frames[4]:
        return _UNEXPECTED_HERE
    return _INVALID_HERE
