"""The lines of a conversation, as values and as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import frozen

from wmp.message import FIELD_NAMES, Frame, Message, Outcome, counted

_LONGEST = 40
_ACCUSED = "the message above breaks"


@frozen
class TranscriptLine:
    """One line of a conversation: a message or a remark."""

    at: float
    """Units since the case began."""
    who: str
    """The peer that the kit plays, or ``""`` for none."""
    way: str
    """``>`` to the testee, ``<`` from the testee, ``#`` for a remark."""
    frames: tuple[Frame, ...] = ()
    message: Message | None = None
    """The message in ``frames``; None when they are not a message."""
    text: str = ""
    """The line as text."""


@frozen
class ReportedFrame:
    """One frame of a reported line."""

    size: int
    hex: str
    """The first bytes in hex."""


@frozen
class ReportedLine:
    """A line of a conversation as a report keeps it: frames are cut to their first bytes."""

    at: float
    who: str
    way: str
    text: str
    frames: tuple[ReportedFrame, ...] = ()


def describe(message: Message | None, frames: Sequence[Frame]) -> str:
    """Return a message in one line: its command, fields and jobs."""
    if message is None:
        shown = " ".join(bytes(frame[:_LONGEST]).hex() or "(empty)" for frame in frames[:4])
        return f"{counted(len(frames), 'frame that is', 'frames that are')} not a message: {shown}"
    parts = [message.command.name, f"epoch={_show(message.source[1])}"]
    parts.append(f"to_epoch={_show(message.to[-2])}" if message.to else "to all")
    for key, value in message.fields.items():
        name = FIELD_NAMES.get(key, key)
        parts.append(f"{name}={_show(value)}")
    columns = message.columns
    if columns is not None:
        for row, id in enumerate(columns.ids[:8]):
            job = f"job {id}.{columns.attempts[row]}"
            if columns.outcomes is not None:
                number = columns.outcomes[row]
                known = number in list(Outcome)
                job += f" {Outcome(number).name.lower() if known else number}"
            if columns.payloads is not None:
                job += f" {_show(columns.payloads[row])}"
            parts.append(f"[{job}]")
        if len(columns.ids) > 8:
            parts.append(f"… {len(columns.ids)} jobs")
    return " ".join(parts)


def accusing(
    lines: Sequence[TranscriptLine], accused: int | None, rule: str
) -> list[TranscriptLine]:
    """Return a conversation with a remark after the message that breaks a rule, if there is one."""
    if accused is None or not 0 <= accused < len(lines):
        return list(lines)
    remark = TranscriptLine(lines[accused].at, "", "#", text=f"{_ACCUSED} {rule}")
    return [*lines[: accused + 1], remark, *lines[accused + 1 :]]


def excerpt(lines: Sequence[ReportedLine], maximum: int) -> Sequence[ReportedLine]:
    """Return the last lines of a conversation. The accused message comes first if it is older."""
    last = lines[-maximum:]
    remark = next((at for at, line in enumerate(lines) if line.text.startswith(_ACCUSED)), -1)
    early = 0 <= remark < len(lines) - len(last)
    return [*lines[max(0, remark - 1) : remark + 1], *last] if early else last


def _show(value: Any) -> str:
    match value:
        case bytes() | memoryview():
            data = bytes(value)
            text = repr(data[:_LONGEST])[1:]
            return text if len(data) <= _LONGEST else f"{text}… {len(data)} bytes"
        case dict():
            return "{" + " ".join(f"{key}:{_show(entry)}" for key, entry in value.items()) + "}"
        case list() | tuple():
            return "(" + " ".join(map(_show, value[:8])) + (" …" if len(value) > 8 else "") + ")"
        case str():
            return value if value.isidentifier() else repr(value[:_LONGEST])
    return str(value)


def conversation(lines: Iterable[TranscriptLine | ReportedLine], testee: str = "testee") -> str:
    """Return a conversation as text: time, sender and receiver, and message of each line."""
    shown = []
    for line in lines:
        who = {">": f"{line.who} → {testee}", "<": f"{testee} → {line.who or '?'}"}
        shown.append(f"{line.at:9.3f}  {who.get(line.way, '#'):<22} {line.text}".rstrip())
    return "\n".join(shown)
