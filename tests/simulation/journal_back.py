"""Turns lines of a journal back into events and actions without payloads.

A reader of the journal cannot know the parts that are lost in the two conversions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from wmp.actions import Drop, End, Resolve, Run, Send
from wmp.events import Cancelled, Disconnected, Finished, Received, Submitted, Ticked, Undelivered
from wmp.journal.reader import Line
from wmp.message import Columns, Command, Field, Kind, Message, Path, Peer

_FIELDS = {
    "number": Field.NUMBER,
    "ack": Field.ACK,
    "session": Field.SESSION,
    "again": Field.AGAIN,
    "ready": Field.READY,
    "needs": Field.NEEDS,
    "resources": Field.RESOURCES,
    "window": Field.WINDOW,
    "credit": Field.CREDIT,
    "lock": Field.LOCK,
    "want": Field.WANT,
    "more": Field.MORE,
    "idle": Field.IDLE,
}


def identity_of(name: str) -> bytes:
    """Return the identity for which a name stands."""
    return bytes.fromhex(name[2:]) if name.startswith("0x") else name.encode()


def peer_of(line: Line, name: str) -> Peer:
    """Return (identity, epoch) of two columns."""
    return identity_of(line[name]), line[f"{name}_epoch"]


def steps(lines: Iterable[Line]) -> Iterator[tuple[float, object, list[object]]]:
    """Return (now, event, actions) of each step of one epoch of a node, in order."""
    numbered = sorted((line for line in lines if line["n"]), key=lambda line: line["n"])
    for number, group in groupby(numbered, key=lambda line: line["step"]):
        first, *rest = group
        if number and first["what"] != "stop":
            actions = [action for line in rest if (action := _action(line)) is not None]
            if first["what"] == "received" and "reason" in first:
                actions.insert(0, Drop(first["reason"]))
            yield first["at"] / 1e6, _event(first), actions


def _event(line: Line) -> object:
    match line["what"]:
        case "received":
            return Received(line["link"], message_of(line))
        case "undelivered":
            return Undelivered(line["link"], message_of(line))
        case "submitted":
            kind = Kind(line["role"], tuple(line["needs"].items()), line.get("codec", ""))
            timeout = line["timeout"] / 1e6 if "timeout" in line else None
            ids = line["ids"]
            return Submitted(
                ids, [b""] * len(ids), kind, line["priority"], timeout, line["max_worker_losses"]
            )
        case "disconnected":
            return Disconnected(line["link"])
        case "cancelled":
            return Cancelled(line["ids"])
        case "finished":
            ids = line["ids"]
            return Finished(line["lane"], ids, spread(line, "outcomes"), [b""] * len(ids))
        case "ticked":
            return Ticked()
    return line["what"]


def _action(line: Line) -> object:
    match line["what"]:
        case "send":
            return Send(0, message_of(line))
        case "resolve":
            ends = [End(end) for end in spread(line, "ends")]
            return Resolve(line["ids"], ends, [b""] * len(ends), spread(line, "attempts"))
        case "run":
            kind, owner = Kind(line["role"], tuple(line["needs"].items())), peer_of(line, "owner")
            jobs = line["ids"], spread(line, "attempts")
            return Run(line["lane"], kind, owner, *jobs, None, [b""] * len(line["ids"]))
    return None


def spread(line: Line, name: str) -> list[Any]:
    """Return a column with as many entries as there are jobs."""
    values: list[Any] = line[name]
    return values * len(line["ids"]) if len(values) == 1 else values


def message_of(line: Line) -> Message:
    """Return the message of a line."""
    fields: dict[int | str, Any] = {
        key: line[name] for name, key in _FIELDS.items() if name in line
    }
    if "owner" in line:
        fields[Field.MANAGER] = peer_of(line, "owner")
    columns = None
    if "ids" in line:
        outcomes = spread(line, "outcomes") if "outcomes" in line else None
        columns = Columns(line["ids"], spread(line, "attempts"), outcomes=outcomes)
    return Message(Command[line["command"]], _to(line), _source(line), fields, columns)


def _source(line: Line) -> Path:
    source: Path = peer_of(line, "source") if "source" in line else ()
    for device in line.get("via", ())[: line["hops"]]:
        source += (identity_of(device), 0, 0)
    return source


def _to(line: Line) -> Path:
    if "target" not in line:
        return ()
    ahead = line.get("via", ())[line["hops"] :]
    hops = tuple(item for device in ahead for item in (0, 0, identity_of(device)))
    return (*hops, *peer_of(line, "target")[::-1])
