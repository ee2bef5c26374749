"""Hypothesis strategies for paths, columns, messages and frames of the specification.

Every peer must accept every message drawn by :func:`messages`; :func:`broken_frames` draws any
frames.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st

from wmp.codec import encode
from wmp.message import Columns, Command, Field, Frame, Limits, Message, Outcome, Path, Peer


def texts(max_size: int | None = None) -> st.SearchStrategy[str]:
    """Draw text that UTF-8 can encode.

    ``st.text()`` draws the same texts. In a folder without Hypothesis' cache it first tries to
    encode each of a million characters, which takes two seconds.
    """
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)


def uints(minimum: int = 0) -> st.SearchStrategy[int]:
    """Draw unsigned integers of every width on the wire."""
    return st.one_of(
        st.integers(minimum, minimum + 30),
        st.integers(minimum, 70_000),
        st.integers(minimum, Limits.UINT),
    )


def identities() -> st.SearchStrategy[bytes]:
    """Draw identities and routing ids, mostly short ones."""
    return st.one_of(
        st.binary(min_size=1, max_size=6),
        st.binary(min_size=16, max_size=16),
        st.just(b"\xff" * Limits.IDENTITY),
    )


def epochs() -> st.SearchStrategy[int]:
    """Draw epochs."""
    return uints()


def peers() -> st.SearchStrategy[Peer]:
    """Draw (identity, epoch)."""
    return st.tuples(identities(), epochs())


def paths(max_hops: int = 3) -> st.SearchStrategy[Path]:
    """Draw a path for ``from``; reversed it is a path for ``to``."""
    hop = st.tuples(identities(), epochs(), st.one_of(identities(), uints()))
    return st.builds(
        lambda sender, hops: (*sender, *(item for hop in hops for item in hop)),
        st.tuples(identities(), epochs()),
        st.lists(hop, max_size=max_hops),
    )


def names() -> st.SearchStrategy[str]:
    """Draw roles, and names of resources and codecs."""
    return st.one_of(st.sampled_from(("default", "gpu", "cpu")), texts(12))


def resources() -> st.SearchStrategy[dict[str, int]]:
    """Draw mappings for ``resources`` and ``needs``."""
    return st.dictionaries(names(), uints(), max_size=3)


def plain_values() -> st.SearchStrategy[Any]:
    """Draw values for an application's fields and for payloads of the codec ``cbor``."""
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-Limits.UINT - 1, Limits.UINT),
        st.floats(allow_nan=False),
        st.binary(max_size=30),
        texts(30),
    )
    keys = st.one_of(st.integers(-Limits.UINT - 1, Limits.UINT), texts(5), st.binary(max_size=5))
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)
        ),
        max_leaves=8,
    )


def payloads() -> st.SearchStrategy[bytes]:
    """Draw payloads on both sides of the size above which a payload gets a frame of its own."""
    return st.one_of(
        st.binary(max_size=40),
        st.sampled_from((Limits.INLINE, Limits.INLINE + 1)).map(lambda size: b"\x80" * size),
    )


_FIELDS: dict[int, st.SearchStrategy[Any]] = {
    Field.NUMBER: uints(1),
    Field.ACK: uints(),
    Field.SESSION: uints(1),
    Field.AGAIN: st.booleans(),
    Field.READY: uints(1),
    Field.CREDIT: uints(),
    Field.WINDOW: uints(),
    Field.ROLES: st.lists(names(), max_size=3).map(tuple),
    Field.RESOURCES: resources(),
    Field.COUNT: uints(1),
    Field.ROLE: names(),
    Field.NEEDS: resources(),
    Field.LOCK: uints(1),
    Field.WANT: uints(),
    Field.HOLD: uints(),
    Field.MORE: st.booleans(),
    Field.MANAGER: peers(),
    Field.CODEC: names(),
    Field.UNSTARTED: st.booleans(),
    Field.IDLE: st.booleans(),
    Field.STANDBY: st.booleans(),
    Field.CHALLENGE: uints(1),
    Field.ANSWER: uints(1),
    Field.MAX_SILENCE: uints(),
    Field.CODE: names(),
    Field.TEXT: texts(40),
    Field.ABOUT: uints(),
    Field.ABOUT_NUMBER: uints(),
    Field.ABOUT_PEER: peers(),
    Field.LABEL: texts(40),
    Field.KEEP: uints(),
    Field.SERVES: st.lists(peers(), max_size=3).map(tuple),
    Field.FORWARDS: st.lists(identities(), max_size=3).map(tuple),
    Field.PASSED: st.lists(identities(), max_size=3).map(tuple),
    Field.KEPT: uints(),
    Field.SENT: uints(),
    Field.BEAT_KEY: uints(1),
    Field.BEAT: uints(1),
    Field.MAX_STALL: uints(),
}

_STREAM = (Field.NUMBER, Field.SESSION)
_USES: dict[Command, tuple[tuple[int, ...], tuple[int, ...]]] = {
    # (required, optional)
    Command.READY: (
        (Field.READY, Field.CREDIT, Field.ROLES, Field.RESOURCES),
        (Field.WINDOW, Field.LABEL, Field.FORWARDS),
    ),
    Command.WAKE: ((Field.COUNT, Field.ROLE, Field.NEEDS), (Field.ACK, Field.SESSION)),
    Command.GIVE: (
        (Field.LOCK, Field.WANT, Field.ROLES, Field.NEEDS),
        (Field.ACK, Field.SESSION, Field.WINDOW, Field.HOLD),
    ),
    Command.TAKE: (
        (*_STREAM, Field.LOCK, Field.ROLE, Field.NEEDS, Field.MANAGER),
        (Field.ACK, Field.MORE, Field.CODEC, Field.KEEP, Field.KEPT, Field.PASSED),
    ),
    Command.NO: ((*_STREAM, Field.LOCK), (Field.ACK,)),
    Command.DONE: ((*_STREAM, Field.MANAGER), (Field.ACK, Field.CODEC)),
    Command.STATUS: ((*_STREAM, Field.MANAGER), (Field.ACK,)),
    Command.CANCEL: ((*_STREAM, Field.MANAGER), (Field.ACK, Field.UNSTARTED)),
    Command.PING: (
        (),
        (
            *(Field.ACK, Field.SESSION, Field.AGAIN, Field.LABEL, Field.IDLE),
            *(Field.CHALLENGE, Field.ANSWER, Field.MANAGER, Field.SENT, Field.MORE),
            *(Field.BEAT_KEY, Field.BEAT),
        ),
    ),
    Command.PONG: (
        (Field.MAX_SILENCE, Field.SESSION),
        (
            *(Field.ACK, Field.AGAIN, Field.READY, Field.CREDIT, Field.LABEL),
            *(Field.CHALLENGE, Field.ANSWER, Field.SERVES, Field.KEPT, Field.STANDBY),
            Field.MAX_STALL,
        ),
    ),
    Command.BYE: ((), (Field.ACK, Field.SESSION, Field.TEXT)),
    Command.ERROR: (
        (Field.CODE,),
        (Field.TEXT, Field.ABOUT, Field.ABOUT_NUMBER, Field.ABOUT_PEER),
    ),
}


def fields(command: Command) -> st.SearchStrategy[dict[int | str, Any]]:
    """Draw the fields of a command, sometimes with unknown keys."""
    required, optional = _USES[command]
    known: st.SearchStrategy[dict[Any, Any]] = st.fixed_dictionaries(
        {key: _FIELDS[key] for key in required}, optional={key: _FIELDS[key] for key in optional}
    )
    unknown = st.dictionaries(
        st.one_of(st.integers(max(_FIELDS) + 1, Limits.UINT), texts(6)),
        plain_values(),
        max_size=2,
    )

    def join(fields: dict[Any, Any], unknown_fields: dict[Any, Any]) -> dict[int | str, Any]:
        if Field.SESSION not in fields:
            fields.pop(Field.ACK, None)  # an ack belongs to a session
        return {**fields, **unknown_fields}

    return st.builds(join, known, st.one_of(st.just({}), unknown))


@st.composite
def columns(draw: st.DrawFn, command: Command, max_jobs: int = 40) -> Columns:
    """Draw the columns of a command that has columns."""
    count = draw(st.one_of(st.just(1), st.integers(1, max_jobs)))

    def column(entries: st.SearchStrategy[Any]) -> list[Any]:
        if draw(st.booleans()):
            return [draw(entries)] * count
        return draw(st.lists(entries, min_size=count, max_size=count))

    def maybe() -> list[int | None] | None:
        return column(st.none() | uints()) if draw(st.booleans()) else None

    ids = draw(st.lists(uints(1), min_size=count, max_size=count))
    attempts = column(uints(1))
    if command is Command.TAKE:
        return Columns(
            ids,
            attempts,
            left_ms=maybe(),
            payloads=column(payloads()),
            expires_ms=maybe(),
            limits_ms=maybe(),
            failed=maybe(),
            begun=maybe(),
            checksums=maybe(),
        )
    if command is Command.DONE:
        outcomes = column(st.sampled_from([int(outcome) for outcome in Outcome]))
        return Columns(
            ids,
            attempts,
            outcomes=outcomes,
            payloads=column(payloads()),
            waits_ms=maybe(),
            checksums=maybe(),
        )
    if command is Command.STATUS:
        fractions = column(st.none() | st.floats(allow_nan=False)) if draw(st.booleans()) else None
        drawn = column(st.none() | texts(20)) if draw(st.booleans()) else None
        return Columns(ids, attempts, fractions=fractions, texts=drawn)
    return Columns(ids, attempts)


@st.composite
def messages(
    draw: st.DrawFn, commands: Collection[Command] = tuple(Command), max_hops: int = 3
) -> Message:
    """Draw a message that every peer must accept."""
    command = draw(st.sampled_from(list(commands)))
    may_be_empty = command in (Command.READY, Command.PING, Command.ERROR)
    to = () if may_be_empty and draw(st.booleans()) else draw(paths(max_hops))[::-1]
    has_columns = command in (Command.TAKE, Command.DONE, Command.STATUS, Command.CANCEL) or (
        command is Command.PING and to and draw(st.booleans())
    )
    return Message(
        command,
        to,
        draw(paths(max_hops)),
        draw(fields(command)),
        draw(columns(command)) if has_columns else None,
    )


@st.composite
def broken_frames(draw: st.DrawFn) -> list[Frame]:
    """Draw noise, or the frames of a message after a random change."""
    if draw(st.booleans()):
        start = draw(st.sampled_from((b"", b"\x85\x01", b"\x85\x01\x04", b"\x85\x01\x06")))
        rest = draw(st.lists(st.binary(max_size=60), max_size=4))
        noise = draw(st.binary(max_size=60))
        return [start + noise, *rest] if draw(st.booleans()) else list(rest)
    frames = encode(draw(messages(max_hops=1)))
    for _ in range(draw(st.integers(1, 3))):
        if not frames:
            break
        index = draw(st.integers(0, len(frames) - 1))
        data = bytearray(frames[index])
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(("flip", "cut", "insert", "drop", "double", "swap"))):
            case "flip" if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=9))
            case "drop":
                del frames[index]
                continue
            case "double":
                frames.insert(index, frames[index])
                continue
            case "swap":
                other = draw(st.integers(0, len(frames) - 1))
                frames[index], frames[other] = frames[other], frames[index]
                continue
            case _:
                pass
        frames[index] = bytes(data)
    return frames
