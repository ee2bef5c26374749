"""One step of a machine, as lines of its journal: a function of values, without I/O.

A step is what a driver does with a machine: it handles an event, and actions come back. The
event makes a line and each action makes one, however many jobs they carry; a look at the clock of
which nothing comes makes none.

Lines are put together from templates and not by an encoder of objects: a message costs about as
much as its number of fields. What is the same from line to line (who writes, paths, needs,
names) is made into JSON once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Any, Final

from attrs import asdict, define, field, frozen

from wmp.actions import Drop, Halt, Interrupt, Note, Notify, Recall, Reconnect, Resolve, Run, Send
from wmp.core.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.events import (
    Cancelled,
    Connected,
    Finished,
    Garbled,
    Recalled,
    Received,
    Reported,
    Submitted,
    Ticked,
    Undelivered,
)
from wmp.journal.names import name_of_link, name_of_peer
from wmp.journal.schema import VERSION
from wmp.message import Command, Field, Frame, Kind, Link, Message, Path

__all__ = ["Author", "Scribe"]

_TEXT: Final = 200
"""Characters of a text for people."""

_REMEMBERED: Final = 4096
"""Paths, links and the like whose JSON is kept at most."""


@frozen(kw_only=True)
class Author:
    """Who writes a journal: what its ``start`` lines say."""

    kind: str
    """``manager``, ``worker`` or ``device``."""
    identity: bytes
    epoch: int
    label: str = ""
    roles: Sequence[str] = ()
    """Of a worker."""
    resources: Mapping[str, int] | None = None
    """Of a worker."""
    settings: Mapping[str, float] = field(factory=dict)
    """The machine's settings that are numbers."""
    endpoints: Sequence[str] = ()
    host: str | None = None
    pid: int | None = None
    release: str | None = None

    @classmethod
    def of(cls, settings: ManagerSettings | WorkerSettings | DeviceSettings, **more: Any) -> Author:
        """The author whose machine has these settings; ``more`` are fields of this class."""
        numbers = {
            name: value
            for name, value in asdict(settings, recurse=False).items()
            if isinstance(value, int | float) and name != "epoch"
        }
        if isinstance(settings, WorkerSettings):
            more |= {"roles": settings.roles, "resources": settings.resources}
        return cls(
            kind=_KINDS[type(settings)],
            identity=settings.identity,
            epoch=settings.epoch,
            label=settings.label,
            settings=numbers,
            **more,
        )

    def start(self, segment: int, at: int, wall: int) -> str:
        """The first line of a segment. Its number is 0: segments begin when their writer likes."""
        text = f'"kind":{quote(self.kind)},"segment":{segment},"settings":{_object(self.settings)}'
        for name in ("label", "host", "release"):
            if value := getattr(self, name):
                text += f',"{name}":{quote(value)}'
        if self.pid is not None:
            text += f',"pid":{self.pid}'
        if self.roles:
            text += f',"roles":{_texts(self.roles)}'
        if self.resources is not None:
            text += f',"resources":{_object(self.resources)}'
        if self.endpoints:
            text += f',"endpoints":{_texts(self.endpoints)}'
        return f'{self.begin}0,"step":0,"at":{at},"wall":{wall},"what":"start",{text}}}'

    @property
    def begin(self) -> str:
        """How each line begins, up to its number."""
        node = quote(name_of_peer(self.identity))
        return f'{{"v":{VERSION},"node":{node},"epoch":{self.epoch},"n":'


@define(eq=False)
class Scribe:
    """Makes the lines of one node, in its epoch.

    Times are integers: ``at`` in µs on the node's monotonic clock, ``wall`` in µs since 1970. All
    methods return lines without their end. Strings are ASCII.
    """

    author: Author
    lines: int = 0
    """Lines made so far: the number of the last one."""
    steps: int = 0
    """Events written so far."""
    _begin: str = field(init=False)
    _ways: dict[tuple[Path, Path], str] = field(factory=dict, init=False)
    _links: dict[Link, str] = field(factory=dict, init=False)
    _amounts: dict[tuple[tuple[str, int], ...], str] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._begin = self.author.begin

    # -- a step

    def step(self, event: object, actions: Sequence[object], at: int, wall: int) -> list[str]:
        """The lines of one step: of the event, then of each action in its turn."""
        if not actions and type(event) is Ticked:
            return []
        self.steps += 1
        begin = self._begin
        middle = f',"step":{self.steps},"at":{at},"wall":{wall},"what":"'
        first, by, dropped = self._event(event, actions)
        self.lines += 1
        lines = [f"{begin}{self.lines}{middle}{first}}}"]
        for action in actions:
            if action is dropped:
                continue
            if type(action) is Send:
                text = f'send",{self._message(action.link, action.message)}'
            else:
                text = self._action(action, by)
            self.lines += 1
            lines.append(f"{begin}{self.lines}{middle}{text}}}")
        return lines

    def _event(self, event: object, actions: Sequence[object]) -> tuple[str, str, Drop | None]:
        """Its columns, those that say whose message it is, and the drop told along with it."""
        if type(event) is Received or type(event) is Undelivered:
            link, message = event.link, event.message
            text = f'{_what(event)}",{self._message(link, message)}'
            by = self._source(message.source) if type(event) is Received else ""
            for action in actions:
                if type(action) is Drop and action.message is message:
                    return text + _reason(action.reason, action.detail), by, action
            return text, by, None
        match event:
            case Garbled(link, error):
                dropped = next((a for a in actions if type(a) is Drop), None)
                text = f'garbled",{self._link(link)}{_reason(error.code, str(error))}'
                return text, "", dropped
            case Submitted():
                limit = event.timeout
                within = "" if limit is None else f',"timeout":{round(limit * 1e6)}'
                text = (
                    f'submitted",{self._kind(event.kind)},"ids":{_array(event.ids)},'
                    f'"bytes":{_size(event.payloads)},"priority":{event.priority}{within},'
                    f'"retries":{event.retries}'
                )
            case Cancelled(ids):
                text = f'cancelled","ids":{_array(ids)}'
            case Connected(link):
                text = f'connected",{self._link(link)}'
            case Finished(lane, ids, outcomes, payloads):
                text = (
                    f'finished","lane":{lane},"ids":{_array(ids)},'
                    f'"outcomes":{_same([int(o) for o in outcomes])},"bytes":{_size(payloads)}'
                )
            case Recalled(lane, ids):
                text = f'recalled","lane":{lane},"ids":{_array(ids)}'
            case Reported():
                text = f'reported","lane":{event.lane},"ids":[{event.id}]'
            case _:
                text = f'{_what(event)}"'
        return text, "", None

    def _action(self, action: object, by: str) -> str:
        match action:
            case Resolve(ids, ends, payloads, attempts):
                return (
                    f'resolve"{by},"ids":{_array(ids)},"attempts":{_same(attempts)},'
                    f'"ends":{_same([end.value for end in ends], quote)},'
                    f'"bytes":{_size(payloads)}'
                )
            case Run():
                return (
                    f'run","lane":{action.lane},{self._kind(action.kind)},'
                    f"{_owner(action.manager)},"
                    f'"ids":{_array(action.ids)},"attempts":{_same(action.attempts)},'
                    f'"bytes":{_size(action.payloads)}'
                )
            case Recall(lane, ids) | Interrupt(lane, ids):
                return f'{_what(action)}","lane":{lane},"ids":{_array(ids)}'
            case Drop(reason, link, message, detail):
                text = 'drop"'
                if message is not None and link is not None:
                    text += f",{self._message(link, message)}"
                elif link is not None:
                    text += f",{self._link(link)}"
                return text + _reason(reason, detail)
            case Note():
                text = f'note"{_reason(action.reason, "")},{_about(action.peer)}'
                if action.owner is not None:
                    text += f",{_owner(action.owner)}"
                if action.locks:
                    text += f',"locks":{_array(action.locks)}'
                if action.ids:
                    text += f',"ids":{_array(action.ids)},"attempts":{_same(action.attempts)}'
                return text
            case Reconnect(link):
                return f'reconnect",{self._link(link)}'
            case Notify():
                return f'notify","ids":[{action.id}]'
            case Halt(error):
                return 'halt"' + (
                    "" if error is None else _reason(type(error).__name__, str(error))
                )
            case _:
                return f'{_what(action)}"'

    # -- of the journal itself

    def beat(self, lost: int, at: int, wall: int) -> str:
        """Nothing happened, and time goes on."""
        return self._own(f'beat","lines":{lost}', at, wall)

    def lost(self, lines: int, reason: str, at: int, wall: int) -> str:
        """So many lines before this one were not written."""
        return self._own(f'lost","lines":{lines}{_reason(reason, "")}', at, wall)

    def stop(self, lost: int, at: int, wall: int) -> str:
        """The journal ends, in good order."""
        return self._own(f'stop","lines":{lost}', at, wall)

    def _own(self, text: str, at: int, wall: int) -> str:
        self.lines += 1
        return (
            f'{self._begin}{self.lines},"step":{self.steps},"at":{at},"wall":{wall},'
            f'"what":"{text}}}'
        )

    # -- parts of lines

    def _message(self, link: Link, message: Message) -> str:
        source, to = message.source, message.to
        way = self._ways.get((source, to))
        if way is None:
            if len(self._ways) >= _REMEMBERED:
                self._ways.clear()
            way = self._ways[source, to] = self._way(source, to)
        parts = [self._link(link), _COMMANDS[message.command], way]
        fields, columns = message.fields, message.columns
        for key, value in fields.items():
            make = _FIELDS.get(key)
            if make is not None:
                parts.append(make(value))
            elif key == Field.NEEDS:
                parts.append(self._needs(tuple(value.items())))
        if columns is not None:
            parts.append(f'"ids":{_array(columns.ids)},"attempts":{_same(columns.attempts)}')
            if columns.left is not None:
                parts.append(f'"left":{_same(columns.left, _or_null)}')
            if columns.outcomes is not None:
                parts.append(f'"outcomes":{_same([int(o) for o in columns.outcomes])}')
            if columns.payloads is not None:
                parts.append(f'"bytes":{_size(columns.payloads)}')
        elif message.frames:
            parts.append(f'"bytes":{_size(message.frames)}')
        return ",".join(parts)

    def _way(self, source: Path, to: Path) -> str:
        text = f'"hops":{max(0, (len(source) - 2) // 3)}'
        if _is_peer(source[:2]):
            text += self._source(source)
        if _is_peer(to[:-3:-1]):
            text += f",{_pair('target', to[:-3:-1])}"
        devices = [*source[2::3], *to[2:-2:3]]
        if devices and all(isinstance(device, bytes) for device in devices):
            text += f',"via":[{",".join(map(_peer, devices))}]'
        return text

    @staticmethod
    def _source(source: Path) -> str:
        if not _is_peer(source[:2]):
            return ""
        return f",{_pair('source', source)}"

    def _link(self, link: Link) -> str:
        text = self._links.get(link)
        if text is None:
            if len(self._links) >= _REMEMBERED:
                self._links.clear()
            text = self._links[link] = f'"link":{quote(name_of_link(link))}'
        return text

    def _needs(self, needs: tuple[tuple[str, int], ...]) -> str:
        text = self._amounts.get(needs)
        if text is None:
            if len(self._amounts) >= _REMEMBERED:
                self._amounts.clear()
            text = self._amounts[needs] = f'"needs":{_object(dict(needs))}'
        return text

    def _kind(self, kind: Kind) -> str:
        codec = f',"codec":{quote(kind.codec)}' if kind.codec else ""
        return f'"role":{quote(kind.role)},{self._needs(kind.needs)}{codec}'


def _what(value: object) -> str:
    return type(value).__name__.lower()


def _is_peer(pair: Path) -> bool:
    return len(pair) == 2 and isinstance(pair[0], bytes) and isinstance(pair[1], int)


def _peer(identity: Any) -> str:
    return quote(name_of_peer(identity))


def _pair(name: str, peer: Sequence[Any]) -> str:
    return f'"{name}":{_peer(peer[0])},"{name}_epoch":{peer[1]}'


def _owner(peer: Sequence[Any]) -> str:
    return _pair("owner", peer)


def _about(peer: Sequence[Any]) -> str:
    return f'"about_peer":{_peer(peer[0])},"about_epoch":{peer[1]}'


def _reason(reason: str, detail: str) -> str:
    text = f',"reason":{quote(reason)}'
    return f'{text},"text":{quote(detail[:_TEXT])}' if detail else text


def _size(payloads: Sequence[Frame]) -> int:
    return sum(map(len, payloads))


def _array(values: Sequence[int]) -> str:
    """Integers as an array. The text of a list is JSON, and the fastest there is."""
    return str(values if type(values) is list else list(values))


def _same(values: Sequence[Any], entry: Callable[[Any], str] = str) -> str:
    """An array, of a single entry when all are equal."""
    if not values:
        return "[]"
    first = values[0]
    if len(values) == 1 or values.count(first) == len(values):
        return f"[{entry(first)}]"
    if entry is str:
        return _array(values)
    return f"[{','.join(map(entry, values))}]"


def _or_null(value: int | None) -> str:
    return "null" if value is None else str(value)


def _texts(values: Sequence[str]) -> str:
    return f"[{','.join(map(quote, values))}]"


def _object(values: Mapping[str, float]) -> str:
    return f"{{{','.join(f'{quote(name)}:{value}' for name, value in values.items())}}}"


def _number(name: str) -> Callable[[Any], str]:
    begin = f'"{name}":'
    return lambda value: f"{begin}{value}"


def _truth(name: str) -> Callable[[Any], str]:
    texts = (f'"{name}":false', f'"{name}":true')
    return lambda value: texts[value]


def _word(name: str, most: int | None = None) -> Callable[[Any], str]:
    begin = f'"{name}":'
    return lambda value: f"{begin}{quote(value[:most])}"


_KINDS: Final = {ManagerSettings: "manager", WorkerSettings: "worker", DeviceSettings: "device"}

_COMMANDS: Final = {command: f'"command":"{command.name}"' for command in Command}

_FIELDS: Final[Mapping[int | str, Callable[[Any], str]]] = {
    **{
        key: _number(name)
        for key, name in (
            (Field.NUMBER, "number"),
            (Field.ACK, "ack"),
            (Field.SESSION, "session"),
            (Field.READY, "ready"),
            (Field.CREDIT, "credit"),
            (Field.WINDOW, "window"),
            (Field.COUNT, "count"),
            (Field.LOCK, "lock"),
            (Field.WANT, "want"),
            (Field.HOLD, "hold"),
            (Field.EXPIRE, "expire"),
            (Field.ABOUT_NUMBER, "about_number"),
        )
    },
    **{
        key: _truth(name)
        for key, name in (
            (Field.AGAIN, "again"),
            (Field.MORE, "more"),
            (Field.UNSTARTED, "unstarted"),
            (Field.IDLE, "idle"),
        )
    },
    **{
        key: _word(name)
        for key, name in (
            (Field.ROLE, "role"),
            (Field.CODEC, "codec"),
            (Field.CODE, "code"),
            (Field.LABEL, "label"),
        )
    },
    Field.TEXT: _word("text", _TEXT),
    Field.ROLES: lambda value: f'"roles":{_texts(value)}',
    Field.RESOURCES: lambda value: f'"resources":{_object(value)}',
    Field.MANAGER: _owner,
    Field.ABOUT: lambda value: f'"about":{quote(_command(value))}',
    Field.ABOUT_PEER: _about,
}


def _command(number: int) -> str:
    return Command(number).name if 1 <= number <= len(Command) else str(number)
