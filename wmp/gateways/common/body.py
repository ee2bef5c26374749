"""The parts of a foreign message: envelope and body, and the body as the payload of a job."""

from __future__ import annotations

from typing import Final

from wmp.codec import pack_frames, unpack_frames
from wmp.errors import DecodeError
from wmp.events import Finished
from wmp.foreign import Frames
from wmp.message import Frame, named

MAX_FRAMES: Final = 1024
"""Maximum number of frames of a message (PIRATE-1.1, PING-1.2)."""

TOO_MANY_FRAMES: Final = "too many frames"
"""The reason for which a longer message is dropped."""

FRAME_COST: Final = 64
"""Bytes by which each further frame of a body counts, in addition to its content."""

MAX_HOPS: Final = 8
"""Maximum number of frames before the empty frame of an envelope (PIRATE-1.2)."""

FRAMES_CODEC: Final = "frames"
"""Name of the codec of a body that is a list of frames."""


def split(frames: Frames) -> tuple[Frames, Frames] | None:
    """Divide a message behind its first empty frame (PIRATE-1.2).

    Returns:
        The envelope with its empty frame, and the body; None if the message has no envelope, or no
        frame behind it.
    """
    if frames and not frames[0]:  # mostly
        return (frames[:1], frames[1:]) if len(frames) > 1 else None
    for index, frame in enumerate(frames[: MAX_HOPS + 1]):
        if not frame:
            body = frames[index + 1 :]
            return (frames[: index + 1], body) if body else None
    return None


def explain_invalid(frames: Frames, peer: bytes, limit: int = MAX_FRAMES) -> tuple[str, str]:
    """Return the reason and the text for a message of which a door can make no use.

    A message with too many frames may be meant well, so it has a reason of its own, and a text
    with the limit and the sender. The text is empty for any other message.

    Args:
        frames: The message.
        peer: Routing id of the sender.
        limit: Maximum number of frames.
    """
    if len(frames) <= limit:
        return "invalid", ""
    text = f"dropped a message of {len(frames)} frames from {named(peer)}; expected {limit} at most"
    return TOO_MANY_FRAMES, text


def size_of(body: Frames) -> int:
    """Return the bytes for which a body counts."""
    if len(body) == 1:
        return len(body[0])
    return sum(map(len, body)) + FRAME_COST * (len(body) - 1)


def to_payload(body: Frames, *, as_list: bool) -> tuple[str, Frame]:
    """Return the codec and the payload of a job with this body.

    Args:
        body: One frame or more.
        as_list: Whether the handler gets a list also for a body of one frame.
    """
    if len(body) == 1 and not as_list:
        return "", body[0]
    return FRAMES_CODEC, pack_frames(body)


def from_payload(codec: str, payload: Frame) -> Frames:
    """Return the body of a result."""
    return unpack_frames(payload) if codec == FRAMES_CODEC else (payload,)


def result_body(event: Finished, codec: str) -> Frames:
    """Return the body of the result of the only job of a lane.

    Args:
        event: The end of the job.
        codec: Codec of the job, which is that of the result unless the event names another.
    """
    return from_payload(codec if event.codec is None else event.codec, event.payloads[0])


def read_payload(codec: str, payload: Frame) -> Frames | None:
    """Return the body in a payload that a peer sent; None if the payload is not of the codec."""
    try:
        return from_payload(codec, payload)
    except DecodeError:
        return None
