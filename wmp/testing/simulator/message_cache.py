"""Messages in many copied worlds: each message is read and outlined once."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from wmp import codec
from wmp.checks.canonical import Outline, outline_message
from wmp.message import Frame, Message


@define(eq=False)
class MessageCache:
    """Messages on their way. Each is read and outlined only once, even if many worlds have it."""

    read: dict[tuple[tuple[Frame, ...], bool], Message] = field(factory=dict)
    drawn: dict[tuple[Frame, ...], Outline] = field(factory=dict)

    def message(self, frames: Sequence[Frame], *, peek: bool) -> Message:
        """Read a message from its frames."""
        key = tuple(frames), peek
        message = self.read.get(key)
        if message is None:
            message = self.read[key] = (codec.peek if peek else codec.decode)(key[0])
        return message

    def outline(self, frames: Sequence[Frame]) -> Outline:
        """Return the outline of a message."""
        key = tuple(frames)
        outline = self.drawn.get(key)
        if outline is None:
            outline = self.drawn[key] = outline_message(self.message(frames, peek=False))
        return outline
