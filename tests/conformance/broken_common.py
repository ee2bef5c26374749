"""Bends for managers, workers and devices alike: faults in writing, refusing and answering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from tests.conformance.broken_peers import Bend, Link, changed
from wmp import codec
from wmp.conformance.wire.frame_check import FIELDS
from wmp.message import Command, ErrorCode, Field, Frame, Message

C = Command


class WritesALongVersion(Bend):
    def writes(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        head = bytes(frames[0])
        return [b"\x85\x18\x01" + head[2:], *frames[1:]]


class SortsItsKeysTheWrongWay(Bend):
    def writes(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        head = bytes(frames[0])
        message = codec.peek(frames)
        empty = len(bytes(codec.encode(evolve(message, fields={}, frames=()))[0])) - 1
        pairs = [
            bytes(codec.encode(evolve(message, fields={key: value}, frames=()))[0])[empty + 1 :]
            for key, value in message.fields.items()
        ]
        body = b"".join(reversed(pairs))
        return [head[:empty] + bytes((0xA0 | len(pairs),)) + body, *frames[1:]]


class Ignores(Bend):
    """Ignores wrong messages instead of answering them."""

    codes: tuple[str, ...] = (ErrorCode.MALFORMED,)
    word = ""

    def says(self, link: Link, message: Message) -> Message | None:
        wrong = message.command is C.ERROR and message.fields[Field.CODE] in self.codes
        return None if wrong and self.word in message.fields.get(Field.TEXT, "") else message


class IgnoresWhatIsNoHead(Ignores):
    word = "five"


class IgnoresTags(Ignores):
    word = "tag"


class TakesIndefiniteLengths(Ignores):
    word = "indefinite"


class IgnoresWrongTypes(Ignores):
    word = "field"


class IgnoresSendersWithoutPath(Ignores):
    word = "path"


class IgnoresWhatHasNoReceiver(Ignores):
    word = "'to' is empty"


class IgnoresBadColumns(Ignores):
    word = "column"


class IgnoresPayloadFramesTooMany(Ignores):
    word = "payload"


class TakesLongIdentities(Ignores):
    codes = (ErrorCode.LIMIT,)
    word = "an id of"


class HasAnotherCodeForLimits(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.fields.get(Field.CODE) == ErrorCode.LIMIT:
            return changed(message, code=ErrorCode.UNKNOWN)
        return message


class RefusesUnknownKeys(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        known = all(key in FIELDS for key in message.fields)
        return message if known else None


class ForgetsToReverse(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return evolve(message, to=message.to[:2][::-1] + message.to[2:])

    def writes(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        return frames


class NamesNoReceiver(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return evolve(message, to=()) if message.command is not C.ERROR else message


class ActsOnWhatIsForOthers(Bend):
    """Accepts a message with any ``to`` as its own."""

    def __attrs_post_init__(self) -> None:
        self.me: Any = None

    def says(self, link: Link, message: Message) -> Message:
        self.me = message.source[::-1]
        return message

    def wait_for(self, link: Link, message: Message) -> Message:
        return evolve(message, to=self.me) if message.to and self.me else message


class ForgetsTheAttempts(Bend):
    def writes(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        if len(frames) == 1 or bytes(frames[0])[2] not in (C.TAKE, C.DONE):
            return frames
        return [frames[0], b"\xa3\x01\x81\x01\x04\x81\x00\x05\x81\x41x"]


class AcknowledgesNothing(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return changed(message, ack=0) if Field.ACK in message.fields else message


class AcknowledgesOneTooFew(Bend):
    def says(self, link: Link, message: Message) -> Message:
        ack: int = message.fields.get(Field.ACK, 0)
        return changed(message, ack=ack - 1) if ack else message


class WritesAPayloadFrameTooMany(Bend):
    def writes(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        return frames if len(frames) == 1 else [*frames, b"one more"]


class WritesLargePayloadsInsideTheColumns(Bend):
    """Breaks a SHOULD: the verdict is NON-STRICT."""

    def writes(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        if len(frames) != 3:
            return frames
        head, columns, payload = map(bytes, frames)
        size = len(payload)
        initial = b"\x59" + size.to_bytes(2) if size < 1 << 16 else b"\x5a" + size.to_bytes(4)
        return [head, columns.replace(b"\x05\x81\xf6", b"\x05\x81" + initial + payload)]


class StopsAtNoise(Bend):
    def reads(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        if bytes(frames[0][:1]) != b"\x85":
            raise ValueError("what is that?")
        return frames


class SendsErrorsToTheNeighbor(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return evolve(message, to=()) if message.command is C.ERROR else message


class NeverSaysError(Bend):
    def says(self, link: Link, message: Message) -> Message | None:
        return None if message.command is C.ERROR else message


class AnswersErrors(Bend):
    """Replaces a received ERROR by a forbidden command, so that the machine answers with ERROR."""

    def wait_for(self, link: Link, message: Message) -> Message:
        if message.command is not C.ERROR:
            return message
        stands = evolve(message, command=C.PONG if isinstance(link, bytes) else C.BYE)
        fields: dict[int | str, Any] = {Field.MAX_SILENCE: 1, Field.SESSION: 1}
        return evolve(stands, to=message.to or (1, b"me"), fields=fields)


class HasOneCodeForEverything(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is C.ERROR:
            return changed(message, code=ErrorCode.MALFORMED)
        return message


FORMS: tuple[tuple[str, type[Bend]], ...] = (
    ("WMP-1.1", TakesLongIdentities),
    ("WMP-2.1", WritesALongVersion),
    ("WMP-2.1", IgnoresWhatIsNoHead),
    ("WMP-2.2", SortsItsKeysTheWrongWay),
    ("WMP-2.2", IgnoresTags),
    ("WMP-2.2", TakesIndefiniteLengths),
    ("WMP-2.3", RefusesUnknownKeys),
    ("WMP-2.4", IgnoresWrongTypes),
    ("WMP-2.5", IgnoresSendersWithoutPath),
    ("WMP-2.5", ForgetsToReverse),
    ("WMP-2.6", IgnoresWhatHasNoReceiver),
    ("WMP-2.6", NamesNoReceiver),
    ("WMP-2.7", ActsOnWhatIsForOthers),
    ("WMP-2.8", IgnoresBadColumns),
    ("WMP-2.8", ForgetsTheAttempts),
    ("WMP-2.9", IgnoresPayloadFramesTooMany),
    ("WMP-2.9", WritesAPayloadFrameTooMany),
    ("WMP-2.9", WritesLargePayloadsInsideTheColumns),
    ("WMP-2.10", HasAnotherCodeForLimits),
    ("WMP-12.3", IgnoresTags),
)
"""Faults in the frames that end nodes write and read."""

ERRORS: tuple[tuple[str, type[Bend]], ...] = (
    ("WMP-10.1", StopsAtNoise),
    ("WMP-10.2", SendsErrorsToTheNeighbor),
    ("WMP-10.2", NeverSaysError),
    ("WMP-10.3", AnswersErrors),
    ("WMP-10.4", HasOneCodeForEverything),
)
"""Faults in the ERROR replies of all roles."""
