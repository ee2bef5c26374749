"""The steps of a world: a hash of all steps, and the last steps in words."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence

from attrs import define, field

from wmp.actions import Drop, Halt, Interrupt, Note, Notify, Recall, Reconnect, Resolve, Run, Send
from wmp.events import (
    Cancelled,
    Connected,
    Disconnected,
    Finished,
    Garbled,
    Recalled,
    Received,
    Resized,
    Submitted,
    Undelivered,
)
from wmp.message import Field, Link, Message

_LAST = 30
_SHOWN = (
    ("number", Field.NUMBER),
    ("ack", Field.ACK),
    ("session", Field.SESSION),
    ("again", Field.AGAIN),
    ("ready", Field.READY),
    ("credit", Field.CREDIT),
    ("role", Field.ROLE),
    ("count", Field.COUNT),
    ("lock", Field.LOCK),
    ("want", Field.WANT),
    ("hold", Field.HOLD),
    ("more", Field.MORE),
    ("unstarted", Field.UNSTARTED),
    ("code", Field.CODE),
)

Step = tuple[float, str, object, Sequence[object]]
"""(time, node or empty text for the world, event or words, actions)"""


@define(eq=False)
class Trace:
    """The steps of a world.

    Args:
        keep: The number of steps that are kept; None for all.
    """

    keep: int | None = _LAST
    steps: int = 0
    _last: deque[Step] = field(init=False)
    _hash: hashlib.blake2b = field(factory=lambda: hashlib.blake2b(digest_size=8), init=False)

    def __attrs_post_init__(self) -> None:
        self._last = deque(maxlen=self.keep)

    def step(self, now: float, name: str, event: object, actions: Sequence[object]) -> None:
        """Record that a node handled an event."""
        self.steps += 1
        self._last.append((now, name, event, actions))
        self._hash.update(f"{now!r} {name} {type(event).__name__} {len(actions)}\n".encode())

    def sent(self, pipe: tuple[str, Link], frames: Sequence[bytes | memoryview]) -> None:
        """Record a message that was put on a pipe."""
        for frame in frames:
            self._hash.update(frame)

    def note(self, now: float, text: str) -> None:
        """Record an event of the world itself."""
        self._last.append((now, "", text, ()))
        self._hash.update(f"{now!r} {text}\n".encode())

    def digest(self) -> str:
        """Return the hash of all steps so far: equal for equal steps, on every machine."""
        return self._hash.hexdigest()

    def lines(self) -> list[str]:
        """Return the kept steps, in words."""
        lines = []
        for now, name, event, actions in self._last:
            if not name:
                lines.append(f"{now:10.4f}  * {event}")
                continue
            lines.append(f"{now:10.4f}  {name}: {words(event)}")
            lines += [f"{'':10}      → {words(action)}" for action in actions]
        return lines


def words(what: object) -> str:
    """Return an event or action in readable words."""
    match what:
        case Received(link, message):
            return f"got {_message(message)} on {_link(link)}"
        case Undelivered(link, message):
            return f"undelivered {_message(message)} on {_link(link)}"
        case Garbled(link, error):
            return f"garbled on {_link(link)}: {error}"
        case Send(link, message):
            return f"send {_message(message)} on {_link(link)}"
        case Drop(reason, _, _, detail):
            return f"drop: {reason}" + (f" ({detail})" if detail else "")
        case Note(reason, (identity, epoch), locks, _, ids, _):
            about = f"locks {_numbers(locks)}" if locks else f"jobs {_numbers(ids)}"
            return f"note: {reason}: {about} of {identity.decode(errors='replace')}:{epoch}"
        case Halt(error):
            return f"halt: {error or 'cleanly'}"
        case Submitted():
            return (
                f"submitted {_numbers(what.ids)} {_kind(what.kind)} priority={what.priority} "
                f"timeout={what.timeout} max_worker_losses={what.max_worker_losses}"
            )
        case Cancelled(ids, unstarted):
            return f"cancelled {_numbers(ids)}" + (" unless begun" if unstarted else "")
        case Resized(resources):
            return f"resized {dict(resources)}"
        case Connected(link) | Disconnected(link) | Reconnect(link):
            return f"{type(what).__name__.lower()} {_link(link)}"
        case Run():
            owner = f"{what.manager[0].decode()}:{what.manager[1]}"
            rows = [f"{i}/{a}" for i, a in zip(what.ids, what.attempts, strict=True)]
            return f"run lane {what.lane} {_kind(what.kind)} of {owner}: {' '.join(rows)}"
        case Recall(lane, ids) | Interrupt(lane, ids) | Recalled(lane, ids):
            return f"{type(what).__name__.lower()} lane {lane}: {_numbers(ids)}"
        case Finished(lane, ids, outcomes, _):
            ends = " ".join(f"{i} {o.name}" for i, o in zip(ids, outcomes, strict=True))
            return f"finished lane {lane}: {ends}"
        case Resolve(ids, ends, _, attempts):
            rows = [f"{i}/{a} {e.name}" for i, a, e in zip(ids, attempts, ends, strict=True)]
            return f"resolve {', '.join(rows)}"
        case Notify(id, fraction, text):
            return f"notify {id}: {fraction} {text}"
    return type(what).__name__.lower()


def _message(message: Message) -> str:
    fields = message.fields
    parts = [message.command.name]
    if message.source:
        parts.append(f"of {message.source[0]!r}:{message.source[1]}")  # type: ignore[str-bytes-safe]
    if message.to:
        parts.append(f"to {message.to[-1]!r}:{message.to[-2]}")  # type: ignore[str-bytes-safe]
    parts += [f"{name}={fields[key]}" for name, key in _SHOWN if key in fields]
    columns = message.columns
    if columns is not None:
        rows = [f"{i}/{a}" for i, a in zip(columns.ids, columns.attempts, strict=True)]
        if columns.outcomes is not None:
            rows = [f"{r}→{o}" for r, o in zip(rows, columns.outcomes, strict=True)]
        parts.append(f"[{' '.join(rows)}]")
    return " ".join(parts)


def _link(link: Link) -> str:
    return f"link {link}" if isinstance(link, int) else link.decode(errors="replace")


def _kind(kind: object) -> str:
    needs = "+".join(f"{amount} {name}" for name, amount in getattr(kind, "needs", ()))
    return f"{getattr(kind, 'role', kind)}({needs})"


def _numbers(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))
