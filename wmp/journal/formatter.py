"""One step of a machine as lines of its journal: a function of values, without I/O.

In a step a driver gives an event to a machine and gets actions. The event makes one line, and each
action makes one line, for any number of jobs. A tick without actions makes no line.

Templates make the lines, not an encoder of objects. So the cost of a message grows with its fields,
and the cost of a job with the digits of its number. Text that a step needs twice (for results that
arrive and end their jobs) is made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import Final

from attrs import define, field

from wmp.actions import (
    Acknowledge,
    Decline,
    Drop,
    End,
    Halt,
    Interrupt,
    Met,
    Note,
    Notify,
    Recall,
    Reconnect,
    Resolve,
    Run,
    Send,
)
from wmp.events import (
    Begun,
    Cancelled,
    Connected,
    Disconnected,
    Finished,
    Forwarded,
    Garbled,
    InstanceBegun,
    Leased,
    Recalled,
    Received,
    Reported,
    Resized,
    Returned,
    StoreFilled,
    Submitted,
    Ticked,
    Undelivered,
)
from wmp.journal.header import JournalHeader
from wmp.journal.json_fragments import (
    REMEMBERED,
    HeadFormatter,
    array,
    array_of_texts,
    column,
    jobs_of,
    object_of,
    peer_of,
    reason_of,
    size_of,
)
from wmp.journal.schema import name_of_link, name_of_peer
from wmp.message import Columns, Command, ForwardedKind, Kind, Link, Message, Path, Peer, hops


@define(eq=False)
class JournalFormatter:
    """Makes the lines of one node in its epoch.

    Times are integers: ``at`` in µs on the node's monotonic clock, ``wall`` in µs since 1970. All
    methods return lines without a line feed. Strings are ASCII.
    """

    header: JournalHeader
    lines: int = 0
    """Number of lines made so far, which is also the number of the last line."""
    steps: int = 0
    """Number of events written so far."""
    _begin: str = field(init=False)
    _heads: HeadFormatter = field(factory=HeadFormatter, init=False)
    _ways: dict[tuple[Path, Path], str] = field(factory=dict, init=False)
    _links: dict[Link, str] = field(factory=dict, init=False)
    _ids: list[int] | None = field(default=None, init=False)
    """Numbers of jobs that were written in this step, with their text."""
    _ids_text: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self._begin = self.header.begin

    # -- a step

    def step(self, event: object, actions: Sequence[object], at: int, wall: int) -> list[str]:
        """Return the lines of one step: a line of the event, then one of each action in order."""
        if not actions and type(event) is Ticked:
            return []
        self.steps += 1
        self._ids = None
        begin = self._begin
        middle = f',"step":{self.steps},"at":{at},"wall":{wall},"what":"'
        first, by, dropped = self._event(event, actions, at)
        self.lines += 1
        lines = [f"{begin}{self.lines}{middle}{first}}}"]
        for action in actions:
            if action is dropped or type(action) is Met:
                continue
            if type(action) is Send:
                text = f'send",{self._message(action.link, action.message)}'
            else:
                text = self._action(action, by)
            self.lines += 1
            lines.append(f"{begin}{self.lines}{middle}{text}}}")
        return lines

    def _event(
        self, event: object, actions: Sequence[object], at: int
    ) -> tuple[str, str, Drop | None]:
        """Return columns of the event, the sender of its message, and a drop in this step."""
        if type(event) is Received or type(event) is Undelivered:
            link, message = event.link, event.message
            text = f'{_what(event)}",{self._message(link, message)}'
            by = _source(message.source) if type(event) is Received else ""
            for action in actions:
                if type(action) is Drop and action.message is message:
                    return text + reason_of(action.reason, action.detail), by, action
            return text, by, None
        match event:
            case Garbled(link, error):
                dropped = next((a for a in actions if type(a) is Drop), None)
                text = f'garbled",{self._link(link)}{reason_of(error.code, str(error))}'
                return text, "", dropped
            case Submitted():
                within = "".join(
                    f',"{name}":{round(seconds * 1e6)}'
                    for name, seconds in (
                        ("timeout", event.timeout),
                        ("expires_in", event.expires),
                        ("run_limit", event.run_limit),
                        ("delay", event.delay or None),
                    )
                    if seconds is not None
                )
                if event.retry is not None:
                    within += f',"retries":{event.retry.times}'
                if event.called:
                    waits = [max(0, at - int(called * 1e6)) for called in event.called]
                    within += f',"since_call":{column(waits)}'
                text = (
                    f'submitted",{self._kind(event.kind)},{jobs_of(event.ids)},'
                    f'"priority":{event.priority}{within},"max_worker_losses":{event.max_worker_losses}'
                )
            case Forwarded():
                text = (
                    f'forwarded",{self._kind(event.kind)},{peer_of("owner", event.kind.owner)},'
                    f'{self._jobs(event.numbers)},"attempts":{column(event.attempts)}'
                )
            case Cancelled(ids):
                text = f'cancelled",{jobs_of(ids)}'
            case InstanceBegun(_, store):
                owner = "" if store is None else f",{peer_of('owner', store)}"
                text = f'instancebegun"{owner}'
            case Leased(role, ids, attempts, worker):
                text = (
                    f'leased","role":{quote(role)},{_about(worker)},{self._jobs(ids)},'
                    f'"attempts":{column(attempts)}'
                )
            case Returned(ids, attempts, outcomes, worker):
                by_whom = "" if worker is None else f"{_about(worker)},"
                text = (
                    f'returned",{by_whom}{self._jobs(ids)},"attempts":{column(attempts)},'
                    f'"outcomes":{column(outcomes, _integer)}'
                )
            case StoreFilled():
                text = f'storefilled"{reason_of("store full", event.text)}'
            case Begun(lane, id):
                text = f'begun","lane":{lane},"ids":[{id}]'
            case Connected(link) | Disconnected(link):
                text = f'{_what(event)}",{self._link(link)}'
            case Finished(lane, ids, outcomes, _):
                text = (
                    f'finished","lane":{lane},{self._jobs(ids)},'
                    f'"outcomes":{column(outcomes, _integer)}'
                )
            case Resized(resources):
                text = f'resized","resources":{object_of(resources)}'
            case Recalled(lane, ids):
                text = f'recalled","lane":{lane},{self._jobs(ids)}'
            case Reported():
                text = f'reported","lane":{event.lane},"ids":[{event.id}]'
            case _:
                text = f'{_what(event)}"'
        return text, "", None

    def _action(self, action: object, by: str) -> str:
        match action:
            case Resolve(ids, ends, _, attempts):
                return (
                    f'resolve"{by},{self._jobs(ids)},"attempts":{column(attempts)},'
                    f'"ends":{column(ends, _ENDS.__getitem__)}'
                )
            case Run():
                limits = action.limits
                maximum = "" if limits is None else f',"limits":{column(limits, _ms_or_null)}'
                begun = action.begun
                runs = "" if begun is None else f',"begun":{column(begun, _or_null)}'
                return (
                    f'run","lane":{action.lane},{self._kind(action.kind)},'
                    f"{peer_of('owner', action.manager)},"
                    f'{self._jobs(action.ids)},"attempts":{column(action.attempts)}{maximum}{runs}'
                )
            case Recall(lane, ids) | Interrupt(lane, ids):
                return f'{_what(action)}","lane":{lane},{jobs_of(ids)}'
            case Drop(reason, link, message, detail):
                text = 'drop"'
                if message is not None and link is not None:
                    text += f",{self._message(link, message)}"
                elif link is not None:
                    text += f",{self._link(link)}"
                return text + reason_of(reason, detail)
            case Note():
                return _note(action)
            case Reconnect(link):
                return f'reconnect",{self._link(link)}'
            case Notify():
                return f'notify","ids":[{action.id}]'
            case Acknowledge(ids):
                return f'acknowledge",{jobs_of(ids)}'
            case Decline(ids, text):
                return f'decline",{jobs_of(ids)}{reason_of("store full", text)}'
            case Halt(None):
                return 'halt"'
            case Halt(error):
                return f'halt"{reason_of(type(error).__name__, str(error))}'
            case _:
                return f'{_what(action)}"'

    # -- of the journal itself

    def beat(self, lost: int, at: int, wall: int) -> str:
        """Return a line without an event, which records the time."""
        return self._own(f'beat","lines":{lost}', at, wall)

    def lost(self, lines: int, reason: str, at: int, wall: int) -> str:
        """Return the line about ``count`` earlier lines that were not written."""
        return self._own(f'lost","lines":{lines}{reason_of(reason, "")}', at, wall)

    def stop(self, lost: int, at: int, wall: int) -> str:
        """Return the last line of a journal that ends in good order."""
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
            if len(self._ways) >= REMEMBERED:
                self._ways.clear()
            way = self._ways[source, to] = _way(source, to)
        text = (
            f"{self._link(link)}{_COMMANDS[message.command]}{way}{self._heads.text(message.fields)}"
        )
        if message.columns is not None:
            return text + self._columns(message.columns)
        return f'{text},"bytes":{size_of(message.frames)}' if message.frames else text

    def _columns(self, columns: Columns) -> str:
        text = f',{self._jobs(columns.ids)},"attempts":{column(columns.attempts)}'
        if columns.left_ms is not None:
            text += f',"left":{column(columns.left_ms, _or_null)}'
        for name, values in (
            ("expires", columns.expires_ms),
            ("limits", columns.limits_ms),
            ("failed", columns.failed),
            ("waits", columns.waits_ms),
            ("checksums", columns.checksums),
            ("begun", columns.begun),
        ):
            if values is not None:
                text += f',"{name}":{column(values, _or_null)}'
        if columns.outcomes is not None:
            text += f',"outcomes":{column(columns.outcomes, _integer)}'
        if columns.payloads is not None:
            text += f',"bytes":{size_of(columns.payloads)}'
        return text

    def _jobs(self, ids: Sequence[int]) -> str:
        """Return the columns of the numbers of jobs; a step often writes the same numbers twice."""
        jobs = ids if type(ids) is list else list(ids)
        if jobs != self._ids:
            self._ids, self._ids_text = jobs, jobs_of(jobs)
        return self._ids_text

    def _link(self, link: Link) -> str:
        text = self._links.get(link)
        if text is None:
            if len(self._links) >= REMEMBERED:
                self._links.clear()
            text = self._links[link] = f'"link":{quote(name_of_link(link))}'
        return text

    def _kind(self, kind: Kind) -> str:
        codec = f',"codec":{quote(kind.codec)}' if kind.codec else ""
        if type(kind) is ForwardedKind and kind.passed:
            codec += f',"passed":{array_of_texts([*map(name_of_peer, kind.passed)])}'
        return f'"role":{quote(kind.role)},"needs":{self._heads.needs(kind.needs)}{codec}'


def _way(source: Path, to: Path) -> str:
    """Return the columns of sender, receiver and devices of a message."""
    text = f',"hops":{hops(source)}{_source(source)}'
    if _is_peer(to[:-3:-1]):
        text += f",{peer_of('target', to[:-3:-1])}"
    devices = [device for device in (*source[2::3], *to[2:-2:3]) if isinstance(device, bytes)]
    return f'{text},"via":{array_of_texts([*map(name_of_peer, devices)])}' if devices else text


def _source(source: Path) -> str:
    return f",{peer_of('source', source)}" if _is_peer(source[:2]) else ""


def _is_peer(pair: Path) -> bool:
    return len(pair) == 2 and isinstance(pair[0], bytes) and isinstance(pair[1], int)


def _note(note: Note) -> str:
    text = f'note"{reason_of(note.reason, "")},{_about(note.peer)}'
    if note.owner is not None:
        text += f",{peer_of('owner', note.owner)}"
    if note.locks:
        text += f',"locks":{array(note.locks)}'
    if note.ids:
        text += f',{jobs_of(note.ids)},"attempts":{column(note.attempts)}'
    return text


def _about(peer: Peer) -> str:
    return f'"about_peer":{quote(name_of_peer(peer[0]))},"about_epoch":{peer[1]}'


def _what(value: object) -> str:
    return type(value).__name__.lower()


def _integer(value: int) -> str:
    return f"{int(value)}"


def _ms_or_null(seconds: float | None) -> str:
    return "null" if seconds is None else str(round(seconds * 1000))


def _or_null(value: int | None) -> str:
    return "null" if value is None else str(value)


_COMMANDS: Final = {command: f',"command":"{command.name}"' for command in Command}
_ENDS: Final = {end: quote(end.value) for end in End}
