"""Parts of lines: values as JSON, and the fields of a head by templates.

All heads with the same keys use one template. Most fields are integers, which the template formats
itself. Values that repeat from message to message are cached as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any, Final

from attrs import define, field

from wmp.journal.schema import MAX_JOBS, name_of_peer
from wmp.message import Command, Field, Frame

TEXT: Final = 200
"""Limit of the characters of a text for people."""

_RUN: Final = 4
"""Length up to which lists of numbers are written in full."""

REMEMBERED: Final = 4096
"""Maximum number of paths, templates and similar values that are kept."""


def size_of(payloads: Sequence[Frame]) -> int:
    """Return the number of bytes of all payloads together."""
    return sum(map(len, payloads))


def array(values: Sequence[int]) -> str:
    """Return integers as an array. Python's text of a list is JSON, and the fastest way."""
    return str(values if type(values) is list else list(values))


def jobs_of(ids: Sequence[int]) -> str:
    """Return the columns of the numbers of jobs.

    Most numbers are consecutive; then two numbers stand for all.
    """
    count = len(ids)
    if count < _RUN or count > MAX_JOBS:
        return f'"ids":{array(ids)}'
    first, last = ids[0], ids[-1]
    if type(ids) is range:
        consecutive = ids.step == 1
    elif last - first != count - 1:
        consecutive = False
    else:
        consecutive = (ids if type(ids) is list else list(ids)) == list(range(first, last + 1))
    return f'"ids":[{first}],"last":{last}' if consecutive else f'"ids":{array(ids)}'


def column(values: Sequence[Any], entry: Callable[[Any], str] | None = None) -> str:
    """Return a column: an array, with a single entry when all entries are equal.

    Args:
        values: The entries.
        entry: Makes JSON of an entry that is not a plain integer.
    """
    if not values:
        return "[]"
    first = values[0]
    if len(values) == 1 or values.count(first) == len(values):
        return f"[{first if entry is None else entry(first)}]"
    return array(values) if entry is None else f"[{','.join(map(entry, values))}]"


def array_of_texts(values: Sequence[str]) -> str:
    """Return texts as an array."""
    return f"[{','.join(map(quote, values))}]"


def object_of(values: Mapping[str, float]) -> str:
    """Return amounts by name as an object."""
    return f"{{{','.join(f'{quote(name)}:{value}' for name, value in values.items())}}}"


def peer_of(name: str, peer: Sequence[Any]) -> str:
    """Return (identity, epoch) as two columns."""
    return f'"{name}":{quote(name_of_peer(peer[0]))},"{name}_epoch":{peer[1]}'


def reason_of(reason: str, detail: str) -> str:
    """Return the reason as a column that follows other columns."""
    text = f',"reason":{quote(reason)}'
    return f'{text},"text":{quote(detail[:TEXT])}' if detail else text


_NAMES: Final[Mapping[int, str]] = {
    Field.NUMBER: "number",
    Field.ACK: "ack",
    Field.SESSION: "session",
    Field.AGAIN: "again",
    Field.READY: "ready",
    Field.CREDIT: "credit",
    Field.WINDOW: "window",
    Field.ROLES: "roles",
    Field.RESOURCES: "resources",
    Field.COUNT: "count",
    Field.ROLE: "role",
    Field.NEEDS: "needs",
    Field.LOCK: "lock",
    Field.WANT: "want",
    Field.HOLD: "hold",
    Field.MORE: "more",
    Field.CODEC: "codec",
    Field.UNSTARTED: "unstarted",
    Field.MAX_SILENCE: "max_silence",
    Field.CODE: "code",
    Field.TEXT: "text",
    Field.ABOUT: "about",
    Field.ABOUT_NUMBER: "about_number",
    Field.LABEL: "label",
    Field.IDLE: "idle",
    Field.STANDBY: "standby",
    Field.CHALLENGE: "challenge",
    Field.ANSWER: "answer",
    Field.KEEP: "keep",
    Field.SERVES: "serves",
    Field.KEPT: "kept",
    Field.SENT: "sent",
    Field.VERSIONS: "versions",
    Field.FORWARDS: "forwards",
    Field.PASSED: "passed",
    Field.BEAT_KEY: "beat_key",
    Field.BEAT: "beat",
    Field.MAX_STALL: "max_stall",
}
"""Fields that make one column each."""

_PEERS: Final[Mapping[int, tuple[str, str]]] = {
    Field.MANAGER: ("owner", "owner_epoch"),
    Field.ABOUT_PEER: ("about_peer", "about_epoch"),
}
"""Fields that make two columns each: an identity and an epoch."""

WRITTEN_FIELDS: Final = _NAMES.keys() | _PEERS.keys()
"""Keys of the fields that lines have; fields of applications are left out."""

_Make = Callable[[Any], str]


@define(eq=False)
class HeadFormatter:
    """Writes the fields of heads, and caches templates."""

    _templates: dict[tuple[int | str, ...], tuple[str, tuple[tuple[int, _Make], ...]]] = field(
        factory=dict
    )
    """A template for ``%``, and the fields whose values must be made into JSON first, by keys."""
    _amounts: dict[tuple[tuple[str, int], ...], str] = field(factory=dict)

    def text(self, fields: Mapping[int | str, Any]) -> str:
        """Return the columns of these fields, each behind a comma."""
        keys = tuple(fields)
        known = self._templates.get(keys)
        if known is None:
            if len(self._templates) >= REMEMBERED:
                self._templates.clear()
            known = self._templates[keys] = self._template(keys)
        template, makes = known
        values = list(fields.values())
        for index, make in makes:
            values[index] = make(values[index])
        return template % tuple(values)

    def needs(self, needs: tuple[tuple[str, int], ...]) -> str:
        """Return resources and amounts as an object."""
        text = self._amounts.get(needs)
        if text is None:
            if len(self._amounts) >= REMEMBERED:
                self._amounts.clear()
            text = self._amounts[needs] = object_of(dict(needs))
        return text

    def _template(self, keys: tuple[int | str, ...]) -> tuple[str, tuple[tuple[int, _Make], ...]]:
        parts, makes = [], []
        for index, key in enumerate(keys):
            if key in _PEERS:
                parts.append(f',"{_PEERS[key][0]}":%s')  # type: ignore[index]
                makes.append((index, self._peer_maker(_PEERS[key][1])))  # type: ignore[index]
            elif key not in _NAMES:
                parts.append("%s")
                makes.append((index, _nothing))
            else:
                parts.append(f',"{_NAMES[key]}":%s')  # type: ignore[index]
                if key == Field.NEEDS:
                    makes.append((index, lambda value: self.needs(tuple(value.items()))))
                elif key in _MAKES:
                    makes.append((index, _MAKES[key]))  # type: ignore[index]
        return "".join(parts), tuple(makes)

    def _peer_maker(self, epoch: str) -> _Make:
        """Return a function that makes the text of an identity and of the column of its epoch."""

        def make(value: Sequence[Any]) -> str:
            return f'{quote(name_of_peer(value[0]))},"{epoch}":{value[1]}'

        def remembered(value: Sequence[Any]) -> str:
            peer = (value[0], value[1])
            text = known.get(peer)
            if text is None:
                if len(known) >= REMEMBERED:
                    known.clear()
                text = known[peer] = make(peer)
            return text

        known: dict[tuple[bytes, int], str] = {}
        return remembered


def _nothing(value: object) -> str:
    return ""


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _command(number: int) -> str:
    return quote(Command(number).name if 1 <= number <= len(Command) else str(number))


_MAKES: Final[Mapping[int, _Make]] = {
    **dict.fromkeys((Field.AGAIN, Field.MORE, Field.UNSTARTED, Field.IDLE, Field.STANDBY), _truth),
    **dict.fromkeys((Field.ROLE, Field.CODEC, Field.CODE, Field.LABEL), quote),
    Field.TEXT: lambda value: quote(value[:TEXT]),
    Field.ROLES: array_of_texts,
    Field.SERVES: lambda value: array_of_texts(
        [f"{name_of_peer(name)} {number}" for name, number in value]
    ),
    Field.RESOURCES: object_of,
    Field.ABOUT: _command,
    Field.VERSIONS: lambda value: f"[{','.join(map(str, value))}]",
    **dict.fromkeys(
        (Field.FORWARDS, Field.PASSED),
        lambda value: array_of_texts([*map(name_of_peer, value)]),
    ),
    **dict.fromkeys((Field.BEAT_KEY, Field.BEAT), _truth),
}
"""Functions that make JSON of values that are not integers."""
