"""The messages of the worker's side of a foreign protocol: reading and writing."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from attrs import frozen

from wmp.foreign import Frames


class Meaning(Enum):
    """The meaning of a message to a worker."""

    REQUEST = "request"
    SIGN = "sign"
    """A sign of life, and nothing else."""
    EXIT = "exit"
    """The worker must end."""
    INVALID = "invalid"


@frozen
class Incoming:
    """A message as the worker reads it."""

    meaning: Meaning
    envelope: Frames = ()
    """The frames that the reply has before its body."""
    body: Frames = ()


class WorkerWire(Protocol):
    """The messages of one protocol."""

    @property
    def ready(self) -> Frames:
        """The message READY."""

    @property
    def sign(self) -> Frames | None:
        """The sign of life of an idle worker; None for a protocol without such a message."""

    @property
    def goodbye(self) -> Frames | None:
        """The last message of a worker; None for a protocol without such a message."""

    @property
    def ready_after_reply(self) -> bool:
        """Whether a reply on a connection without READY is followed by READY."""

    def read(self, frames: Frames) -> Incoming:
        """Return the meaning of any frames."""

    def reply(self, envelope: Frames, body: Frames) -> Frames | None:
        """Return the reply with this body; None if the peer would read another message."""
