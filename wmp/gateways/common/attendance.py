"""The life of a foreign worker at a door, as a table of states and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class Attendance(IntEnum):
    """The state of a foreign worker at its door."""

    UNKNOWN = 0
    """The worker has not reported, or was silent for too long."""
    IDLE = 1
    """The worker waits for a request."""
    BUSY = 2
    """The worker has a request."""
    LATE = 3
    """The worker has a request whose result is not wanted any more."""


class AttendanceInput(IntEnum):
    """The events in the life of a foreign worker at its door."""

    READY = 0
    SIGN = 1
    """A sign of life, and nothing else."""
    REPLY = 2
    """The reply to the request that the worker has."""
    OTHER = 3
    """Any other reply."""
    RUN = 4
    """The worker gets a request."""
    INTERRUPT = 5
    """The result is not wanted any more, or took too long."""
    SILENT = 6
    LEAVE = 7
    """The connection ended, or the worker took leave."""


def make_token(epoch_ms: int, number: int) -> bytes:
    """Return the token of an attempt, which stands for the address of the client.

    Some workers keep the address as a C string, and others print it. So a token has printable
    characters: 16 hexadecimal digits.

    Args:
        epoch_ms: Time of the start, so that no token is one of an earlier start.
        number: Number of the attempt since the start.
    """
    return b"%016x" % ((epoch_ms << 20) + number & 2**64 - 1)


_S = Attendance
_I = AttendanceInput

TRANSITIONS: Final[Mapping[tuple[Attendance, AttendanceInput], Attendance]] = {
    (_S.UNKNOWN, _I.READY): _S.IDLE,
    (_S.IDLE, _I.READY): _S.IDLE,
    (_S.IDLE, _I.SIGN): _S.IDLE,
    (_S.IDLE, _I.RUN): _S.BUSY,
    (_S.IDLE, _I.SILENT): _S.UNKNOWN,
    (_S.IDLE, _I.LEAVE): _S.UNKNOWN,
    (_S.BUSY, _I.READY): _S.IDLE,  # its request is lost
    (_S.BUSY, _I.SIGN): _S.BUSY,
    (_S.BUSY, _I.REPLY): _S.IDLE,
    (_S.BUSY, _I.INTERRUPT): _S.LATE,
    (_S.BUSY, _I.LEAVE): _S.UNKNOWN,  # its request is lost
    (_S.LATE, _I.READY): _S.IDLE,
    (_S.LATE, _I.SIGN): _S.LATE,
    (_S.LATE, _I.REPLY): _S.IDLE,  # the reply is dropped
    (_S.LATE, _I.OTHER): _S.IDLE,
    (_S.LATE, _I.LEAVE): _S.UNKNOWN,
}
"""The state that follows from each state by each input."""

_STRANGER = "the door does not know the worker"
_NO_REQUEST = "the worker has no request"
_HONEST = "a worker may be silent while it has a request"

IGNORED: Final[Mapping[tuple[Attendance, AttendanceInput], str]] = {
    (_S.UNKNOWN, _I.SIGN): _STRANGER,
    (_S.UNKNOWN, _I.REPLY): _STRANGER,
    (_S.UNKNOWN, _I.OTHER): _STRANGER,
    (_S.UNKNOWN, _I.RUN): _STRANGER,
    (_S.UNKNOWN, _I.INTERRUPT): _STRANGER,
    (_S.UNKNOWN, _I.SILENT): _STRANGER,
    (_S.UNKNOWN, _I.LEAVE): _STRANGER,
    (_S.IDLE, _I.REPLY): _NO_REQUEST,
    (_S.IDLE, _I.OTHER): _NO_REQUEST,
    (_S.IDLE, _I.INTERRUPT): _NO_REQUEST,
    (_S.BUSY, _I.OTHER): "the reply is not to the request that the worker has",
    (_S.BUSY, _I.RUN): "a worker has one request at a time",
    (_S.BUSY, _I.SILENT): _HONEST,
    (_S.LATE, _I.RUN): "the worker has not answered its last request",
    (_S.LATE, _I.INTERRUPT): "the result is not wanted already",
    (_S.LATE, _I.SILENT): _HONEST,
}
"""Every other pair, and the reason why it changes nothing."""
