"""The words of the specification that are constants: commands, fields, outcomes, limits.

:mod:`wmp.message` exports them too, with the messages that consist of them. A worker process needs
no message, and starts sooner without that module.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

__all__ = [
    "DEFAULT_NEEDS",
    "DEFAULT_ROLE",
    "ERROR_CODES",
    "FIELD_NAMES",
    "NUMBERED_BY_MANAGERS",
    "NUMBERED_BY_WORKERS",
    "SENT_BY_MANAGERS",
    "SENT_BY_WORKERS",
    "VERSION",
    "Command",
    "ErrorCode",
    "Field",
    "Frame",
    "Limits",
    "Link",
    "Outcome",
    "Path",
    "Peer",
]

VERSION: Final = 1
"""Version of the protocol, the first number of every head."""

DEFAULT_ROLE: Final = "default"
"""Role of a job or a handler without a role of its own."""

DEFAULT_NEEDS: Final[tuple[tuple[str, int], ...]] = (("slots", 1),)
"""Needs of a job without needs of its own: one slot."""

Frame = bytes | memoryview
"""One ZeroMQ frame. A large payload stays a memoryview of the received frame."""

Path = tuple[bytes | int, ...]
"""A ``from``: ``(identity, epoch)`` of the sender, then ``(device, epoch, local id)`` for each hop.

A ``to`` is such a path reversed item by item, so that an answer's ``to`` is
``source[::-1]``: it begins with the nearest device's ``local id, epoch, device`` and ends
with the receiver's ``epoch, identity``.
"""

Link = int | bytes
"""One connection of a node, as it appears in a path as a local id.

An ``int`` is a DEALER socket, counted from 0 in the order of the endpoints. ``bytes`` are a
connection of the ROUTER socket: at a manager its routing id, at a device the local id that stands
for the routing id.
"""

Peer = tuple[bytes, int]
"""(identity, epoch)."""


class Command(IntEnum):
    """The twelve commands."""

    READY = 1
    WAKE = 2
    GIVE = 3
    TAKE = 4
    NO = 5
    DONE = 6
    STATUS = 7
    CANCEL = 8
    PING = 9
    PONG = 10
    BYE = 11
    ERROR = 12


SENT_BY_WORKERS: Final = frozenset(
    {
        Command.READY,
        Command.GIVE,
        Command.DONE,
        Command.STATUS,
        Command.PING,
        Command.BYE,
        Command.ERROR,
    }
)
"""Commands that go upward: a manager receives them, and a device receives them from below."""

SENT_BY_MANAGERS: Final = frozenset(
    {
        Command.WAKE,
        Command.TAKE,
        Command.NO,
        Command.CANCEL,
        Command.PONG,
        Command.ERROR,
    }
)
"""Commands that go downward: a worker receives them, and a device receives them from above."""

NUMBERED_BY_WORKERS: Final = frozenset({Command.DONE, Command.STATUS})
"""Commands that a worker numbers in its stream (WMP-7.1)."""

NUMBERED_BY_MANAGERS: Final = frozenset({Command.TAKE, Command.NO, Command.CANCEL})
"""Commands that a manager numbers in its stream (WMP-7.1)."""


class Outcome(IntEnum):
    """How an attempt ended at its worker (DONE, column ``outcomes``)."""

    OK = 0
    ERROR = 1
    REFUSED = 2
    CANCELLED = 3
    LOST = 4
    """The process of the job died. The attempt is spent; the job may be tried again."""
    OVERRUN = 5
    """The attempt ran for longer than the job's limit."""


class Field:
    """Registered keys of a head's ``fields``. They are plain ints for fast lookup."""

    NUMBER: Final = 0
    """Place of this message in its numbered stream, from 1 (TAKE NO CANCEL, DONE STATUS)."""
    ACK: Final = 1
    """Highest number of the other stream up to which all messages were received."""
    SESSION: Final = 2
    """Number of the session of both streams; the manager chooses it, and it grows."""
    AGAIN: Final = 3
    """True: the sender saw a gap; send all messages from ``ACK`` + 1 again (PING, PONG)."""
    READY: Final = 4
    """Number of a READY; in PONG the number of the remembered READY."""
    CREDIT: Final = 5
    """Number of jobs that the worker may take now (READY); the rest of this credit (PONG)."""
    WINDOW: Final = 6
    """Number of jobs of ``CREDIT`` or ``WANT`` that would wait at the worker without resources."""
    ROLES: Final = 7
    """Roles that the worker offers: an array of text (READY, GIVE)."""
    RESOURCES: Final = 8
    """All resources of the worker: text to unsigned (READY)."""
    COUNT: Final = 9
    """Number of jobs that wait for this worker (WAKE)."""
    ROLE: Final = 10
    """Role of the jobs (WAKE, TAKE)."""
    NEEDS: Final = 11
    """Resources that one job takes: text to unsigned (WAKE, GIVE, TAKE)."""
    LOCK: Final = 12
    """Number of the lock, growing within the worker's epoch (GIVE, TAKE, NO); in PONG the
    highest lock number that the manager received, absent for none."""
    WANT: Final = 13
    """Maximum number of jobs wanted; 0 withdraws the lock (GIVE)."""
    HOLD: Final = 14
    """Milliseconds for which the manager may keep the GIVE before it answers (GIVE)."""
    MORE: Final = 15
    """True: the lock stays open for the other jobs of ``WANT`` (TAKE); the list is not whole
    (PING)."""
    MANAGER: Final = 16
    """Owner of the jobs: ``[identity, epoch]`` (TAKE, DONE, STATUS, CANCEL, PING)."""
    CODEC: Final = 17
    """Name of the payloads' encoding; absent means bytes (TAKE, DONE)."""
    UNSTARTED: Final = 18
    """True: hand back the jobs that have not begun, let the others run (CANCEL)."""
    MAX_SILENCE: Final = 19
    """Milliseconds of silence after which the manager gives a worker up (PONG)."""
    CODE: Final = 20
    """Kind of the error: a word of :class:`ErrorCode` (ERROR)."""
    TEXT: Final = 21
    """Text for people: the value seen and the value expected (ERROR, BYE)."""
    ABOUT: Final = 22
    """Number of the command that the error is about (ERROR)."""
    ABOUT_NUMBER: Final = 23
    """The ``NUMBER`` or ``LOCK`` of the message that the error is about (ERROR)."""
    ABOUT_PEER: Final = 24
    """``[identity, epoch]`` of the peer that the error is about (ERROR)."""
    LABEL: Final = 25
    """Name of the sender for people: host and process (READY, PING, PONG)."""
    IDLE: Final = 26
    """True: the sender holds no job of the receiver (PING)."""
    STANDBY: Final = 27
    """True: the manager grants no jobs, because the other manager of its pair does (PONG)."""
    CHALLENGE: Final = 28
    """Number that the receiver must answer over the same route (PING, PONG)."""
    ANSWER: Final = 29
    """Number of the challenge that is answered (PING, PONG)."""
    KEEP: Final = 30
    """Milliseconds for which a worker keeps the jobs when it has forgotten their manager (TAKE)."""
    SERVES: Final = 31
    """Stores for whose jobs the manager takes lists and results: ``[identity, generation]`` each
    (PONG)."""
    KEPT: Final = 32
    """Number up to which the results of stored jobs are stored; absent: the ack."""
    SENT: Final = 33
    """Highest number of the worker's stream (PING with ``MANAGER``)."""
    VERSIONS: Final = 35
    """Versions that the sender reads (ERROR with code ``version``)."""
    FORWARDS: Final = 36
    """Identities of the forwarding managers whose capacity the worker offers (READY)."""
    PASSED: Final = 37
    """Identities of the forwarding managers that the jobs have passed (TAKE)."""
    BEAT_KEY: Final = 42
    """Number by which another connection may send beats for the worker (PING)."""
    BEAT: Final = 43
    """The ``BEAT_KEY`` of the worker for which this PING is a beat (PING)."""
    MAX_STALL: Final = 44
    """Milliseconds for which beats count after the worker's own last message (PONG)."""


class ErrorCode:
    """Words of ``Field.CODE``."""

    MALFORMED: Final = "malformed"
    """The frames are not a message: bad CBOR, wrong types, missing fields."""
    VERSION: Final = "version"
    """The message has another version of the protocol."""
    COMMAND: Final = "command"
    """The command is unknown."""
    DIRECTION: Final = "direction"
    """This kind of node does not receive the command."""
    LIMIT: Final = "limit"
    """A length or a number is above a limit of the receiver."""
    MISROUTED: Final = "misrouted"
    """``to`` names another node."""
    SUPERSEDED: Final = "superseded"
    """Another process holds the identity of the peer in ``ABOUT_PEER``."""
    UNREACHABLE: Final = "unreachable"
    """A device could not pass the message on."""
    LOOP: Final = "loop"
    """The message passed a device twice, or passed too many devices."""
    UNKNOWN: Final = "unknown"
    """No GIVE had the lock, or no TAKE had the job."""


FIELD_NAMES: Final[Mapping[int | str, str]] = {
    number: name.lower() for name, number in vars(Field).items() if name.isupper()
}
"""Name of each registered field, for people."""

ERROR_CODES: Final[frozenset[str]] = frozenset(
    word for name, word in vars(ErrorCode).items() if name.isupper()
)


class Limits:
    """Upper limits that every decoder applies; settings can change most of them.

    The limits are far above the sizes of ordinary messages, and low enough to protect the receiver.
    """

    IDENTITY: Final = 255
    """Bytes of an identity: ZeroMQ's limit of a routing id."""
    HOPS: Final = 16
    """Number of devices on a path."""
    MANAGERS: Final = 1000
    """Number of managers that may dial in to a device (WMP-8.13)."""
    HEAD: Final = 16 * 1024
    """Bytes of a head: 16 hops of two ids of 255 bytes are 8 kB."""
    COLUMNS: Final = 16 * 1024 * 1024
    """Bytes of a columns frame."""
    JOBS: Final = 4096
    """Number of jobs in one message."""
    FRAMES: Final = 2 + JOBS
    """Number of frames of one message."""
    PAYLOAD: Final = 256 * 1024 * 1024
    """Bytes of one payload."""
    ROLES: Final = 256
    """Number of roles that a worker offers."""
    TEXT: Final = 255
    """Bytes of a role, a resource's name or a codec's name."""
    LONG_TEXT: Final = 1024
    """Bytes of ``TEXT`` and ``LABEL``."""
    INLINE: Final = 4096
    """Payloads up to this many bytes go into the columns.

    Each longer payload has a frame of its own.
    """
    UINT: Final = 2**63 - 1
    """Maximum integer in a message. Every language, and Spark, has a signed 64-bit type."""
