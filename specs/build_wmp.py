"""Write the generated parts of the specifications: state tables and annotated conversations.

A generated part stands between two comments, for example ``<!-- begin: lock -->`` and
``<!-- end: lock -->``. ``python specs/build_wmp.py`` writes all parts, ``--check`` exits 1 when one
is stale.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import cbor2
from annotated_stories import stories

from wmp import codec
from wmp.actions import Run, Send
from wmp.balance import least_recently_used
from wmp.codec.message_tables import COLUMN_NAMES
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Finished, Received, Submitted
from wmp.message import FIELD_NAMES, Columns, Field, Kind, Message, Outcome
from wmp.testing.search.star_search import StarFault, StarSearch

SPEC = Path(__file__).parent / "wmp.md"
CONVERSATIONS = Path(__file__).parent / "conversations.md"
PING_PONG = Path(__file__).parent / "ping-pong.md"
PIRATES = Path(__file__).parent / "pirates.md"
BINARY_STAR = Path(__file__).parent / "binary-star.md"

MEANINGS: Mapping[str, Mapping[str, str]] = {
    "wmp.core.manager.job_lifecycle": {
        "QUEUED": "the job waits for a worker",
        "DELAYED": "the job waits for its time",
        "LEASED": "a worker holds the job",
        "CANCELLING": "CANCEL was sent, and the answer is still to come",
        "ENDED": "the manager reported the end of the job",
        "GRANT": "the job goes out in a TAKE",
        "RESULT": "DONE *ok* or *error* of the current attempt",
        "AGAIN": "DONE *error* or *overrun* of the current attempt, and the job is tried again",
        "REFUSE": "DONE *refused* of the current attempt",
        "RETURN": "DONE *cancelled* of the current attempt",
        "LOSE": "the lease is lost, and `max_worker_losses` allows this loss",
        "SPEND": "the lease is lost, and `max_worker_losses` does not allow this loss",
        "CANCEL": "the submitter wants no result any more",
        "EXPIRE": "the deadline passes, or the expiry of a job without a lease",
        "DUE": "the time of the job comes",
    },
    "wmp.core.worker.locks": {
        "UNUSED": "no GIVE has had this lock number",
        "OPEN": "GIVE without `hold` was sent",
        "HELD": "GIVE with `hold` was sent",
        "WITHDRAWN": "a held GIVE was withdrawn, and the answer is still to come",
        "CLOSED": "the lock keeps no resources any more",
        "GIVE": "GIVE without `hold` is sent",
        "HOLD": "GIVE with `hold` is sent",
        "TAKE": "TAKE that closes the lock",
        "MORE": "TAKE with `more`",
        "NO": "NO",
        "TIMEOUT": "`lock_timeout` passes, or PONG shows that the GIVE was lost",
        "WITHDRAW": "GIVE with `want` 0 is sent",
        "FORGET": "the session, the epoch or the route of the manager is lost",
    },
    "wmp.core.worker.execution_lifecycle": {
        "ABSENT": "the job is not held",
        "PARKED": "the job waits for resources",
        "STARTED": "the job was handed over to be run",
        "RECALLING": "the job was handed over, and is taken back if it has not begun",
        "INTERRUPTED": "the job was handed over, and its result is not wanted any more",
        "OVERDUE": "the job runs for longer than its limit, and was interrupted",
        "TAKE": "TAKE with the job, in the held attempt or a higher one",
        "START": "resources are free",
        "FINISH": "the handler ends",
        "RECALLED": "the job comes back and never began",
        "CANCEL": "CANCEL",
        "UNSTARTED": "CANCEL with `unstarted`",
        "EXPIRE": "the deadline or the expiry passes",
        "HAND_BACK": "the worker ends",
        "FORGET": "the session or the epoch of the manager is lost",
        "OVERRUN": "the run limit passes",
        "ABANDON": "`overrun_grace` passes after that",
    },
    "wmp.gateways.common.worker_lifecycle": {
        "CLOSED": "the socket is not connected yet",
        "IDLE": "READY was sent, and no handler runs",
        "BUSY": "a handler runs",
        "WAITING": "the other side was silent for too long, and the socket will be replaced",
        "CONNECTED": "the socket is connected, for the first time or again",
        "REQUEST": "a request or a job",
        "SIGN": "any other message, also an invalid one",
        "FINISHED": "the handler ends",
        "SILENT": "the silence lasts too long",
        "DUE": "the wait is over. The socket is replaced",
    },
    "wmp.gateways.common.attendance": {
        "UNKNOWN": "the worker has not sent READY, or was silent for too long",
        "IDLE": "the worker waits for a request",
        "BUSY": "the worker has a request",
        "LATE": "the worker has a request whose result is not wanted any more",
        "READY": "READY, or a message that counts as READY",
        "SIGN": "any other sign of life",
        "REPLY": "the reply to the request that the worker has",
        "OTHER": "any other reply",
        "RUN": "the worker gets a request",
        "INTERRUPT": "the result is not wanted any more, or took too long",
        "SILENT": "the silence lasts too long",
        "LEAVE": "the connection ends, or a goodbye arrives",
    },
    "wmp.gateways.common.request_lifecycle": {
        "ENDED": "no request is in progress",
        "PENDING": "the request waits for a connection",
        "SENT": "the client waits for the reply",
        "REQUEST": "the next request of the application",
        "CONNECTED": "the socket is connected. The request is sent",
        "UNSENT": "the request could not be sent",
        "REPLY": "a reply",
        "TIMEOUT": "`timeout` passes, and tries are left. The socket is replaced",
        "SPENT": "`timeout` passes in the last try. The socket is replaced",
        "WITHDRAW": "the application wants no reply any more",
    },
    "wmp.gateways.binary_star.election": {
        "HALTED": "the node has ended with an error",
        "PRIMARY": "the primary has started, and knows nothing of its peer",
        "BACKUP": "the backup has started, and knows nothing of its peer",
        "ACTIVE": "the node serves the clients",
        "PASSIVE": "the peer serves the clients",
        "PEER_PRIMARY": "the peer reports PRIMARY, and this node is the backup",
        "PEER_BACKUP": "the peer reports BACKUP, and this node is the primary",
        "PEER_ACTIVE": "the peer reports ACTIVE",
        "PEER_PASSIVE": "the peer reports PASSIVE",
        "SAME_ROLE": "the peer reports the role of this node",
        "REQUEST": "a request of a client, and the peer is not silent",
        "VOTE": "a request of a client, and the peer is silent",
    },
    "wmp.store.stored_job": {
        "ABSENT": "the store has no such job",
        "WAITING": "the job waits for the results of other jobs",
        "QUEUED": "the job waits for an instance, or for its time",
        "RESERVED": "an instance has the job, to grant it to a worker",
        "CANCELLING": "the job was cancelled while it was reserved",
        "OK": "the job ended with a result",
        "ERROR": "the job ended with the error of its handler",
        "CANCELLED": "the job was cancelled",
        "TIMEOUT": "a time limit of the job passed",
        "LOST": "more leases were lost than `max_worker_losses` allows",
        "ADD": "a submitter adds the job",
        "ADD_RESERVED": "the same, and reserves the job in the same transaction",
        "ADD_WAITING": "the same, and the job waits for other jobs",
        "PROCEED": "all jobs for which the job waits ended with results",
        "INHERIT_ERROR": "a job for which the job waits ended with an error",
        "INHERIT_CANCEL": "a job for which the job waits was cancelled",
        "INHERIT_TIMEOUT": "a time limit of a job for which the job waits passed",
        "INHERIT_LOSS": "a job for which the job waits was lost, or is not in the store",
        "RESERVE": "an instance reserves the job",
        "REPEAT": "the attempt ended without an outcome, and the instance keeps the job",
        "RELEASE": "the attempt ended without an outcome, or was never granted",
        "SPEND": "the attempt is lost, and `max_worker_losses` does not allow this loss",
        "AGAIN": "the attempt failed, and the job is tried again",
        "BEGIN": "a worker has the attempt, or reports its progress",
        "ADOPT": "a worker holds the attempt, and an instance takes the job over",
        "SUCCEED": "DONE *ok*",
        "FAIL": "DONE *error*, and the job is not tried again",
        "OVERRUN": "DONE *overrun*, and the job is not tried again",
        "LAPSE": "the instance of the job ended, and `grace` passed",
        "CANCEL": "somebody wants no result any more",
        "EXPIRE": "the deadline passes, or the expiry of a queued job",
        "REVIVE": "an operator wants the job to run again",
        "FORGET": "somebody removes the job",
        "PURGE": "the time to live passes",
    },
}
"""The meaning of each state and input, for readers of the specification."""

_WORKER = ("A worker", "wmp.gateways.common.worker_lifecycle")
_ATTENDANCE = ("A worker at its queue or broker", "wmp.gateways.common.attendance")

STATES: Mapping[Path, Mapping[str, tuple[str, str]]] = {
    SPEC: {
        "job": ("A job at its manager", "wmp.core.manager.job_lifecycle"),
        "lock": ("A lock at its worker", "wmp.core.worker.locks"),
        "execution": ("A job at a worker", "wmp.core.worker.execution_lifecycle"),
    },
    BINARY_STAR: {"star": ("A node", "wmp.gateways.binary_star.election")},
    PING_PONG: {"foreign worker": _WORKER, "attendance": _ATTENDANCE},
    PIRATES: {
        "request": ("A request at its client", "wmp.gateways.common.request_lifecycle"),
        "foreign worker": _WORKER,
        "attendance": _ATTENDANCE,
    },
}
"""Title and module of each table of states, by its page and its name."""


def table(title: str, path: str) -> str:
    """Return the states, the inputs and the transitions of one table."""
    module, meanings = importlib.import_module(path), MEANINGS[path]
    rows: dict[str, dict[str, str]] = {}
    for (state, what), target in module.TRANSITIONS.items():
        rows.setdefault(state.name, {})[what.name] = target.name
    state, what = next(iter(module.TRANSITIONS))
    states: type[Enum] = type(state)
    inputs: type[Enum] = type(what)
    lines = [f"**{title}.** An empty place leaves the state as it is.", ""]
    lines += ["| state | meaning |", "|---|---|"]
    lines += [f"| {state.name} | {meanings[state.name]} |" for state in states]
    lines += ["", "| input | meaning |", "|---|---|"]
    lines += [f"| {input_.name} | {meanings[input_.name]} |" for input_ in inputs]
    names = [state.name for state in states]
    lines += ["", f"| input | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for input_ in inputs:
        targets = [rows.get(name, {}).get(input_.name, "") for name in names]
        lines.append(f"| {input_.name} | {' | '.join(targets)} |")
    return "\n".join(lines)


# -- the conversation

NOTES = (
    "The worker connects, and reports capacity for one job (WMP-3.1).",
    "The worker looks for managers behind the link (WMP-9.1).",
    "The manager answers, and names the READY that it remembers and a session (WMP-9.2).",
    "The worker is in no session yet. It sends PING to the manager, without a session (WMP-7.10).",
    "The PONG that answers this PING names the session that the worker enters.",
    "A job was submitted. The WAKE for this job uses up the worker's credit (WMP-3.4).",
    "The worker locks its slot, and asks for one job (WMP-3.8, WMP-4.1).",
    "The manager grants the job. TAKE closes the lock (WMP-4.9).",
    "The worker has done the job. `ack` acknowledges the TAKE (WMP-6.6, WMP-7.2).",
    "The slot is free again, and the worker reports it (WMP-3.11).",
)
"""A remark before each message of the conversation."""


def conversation() -> Iterator[tuple[str, Message]]:
    """Yield the messages of one job from READY to its acknowledgement, each with its sender."""
    settings = ManagerSettings(identity=b"m", epoch=1000, label="desk")
    manager = ManagerMachine(settings, least_recently_used)
    chosen = WorkerSettings(identity=b"w", epoch=2000, roles=("add",), hold=0.0, window=0)
    worker = WorkerMachine(chosen, 1)
    runs: list[Run] = []

    def play(machine: Any, event: Any) -> Iterator[tuple[str, Message]]:
        todo = [(machine, event)]
        while todo:
            node, what = todo.pop(0)
            for action in node.handle(what, 0.0):
                if isinstance(action, Run):
                    runs.append(action)
                if isinstance(action, Send):
                    yield ("manager" if node is manager else "worker"), action.message
                    other, link = (worker, 0) if node is manager else (manager, b"connection")
                    todo.append((other, Received(link, action.message)))

    yield from play(worker, Connected(0))
    yield from play(manager, Submitted([1], [b"2+3"], Kind("add")))
    (run,) = runs
    yield from play(worker, Finished(run.lane, [1], [Outcome.OK], [b"5"]))


def annotated(sender: str, message: Message) -> str:
    """Return a message with a comment to each part of its frames."""
    command, frames = message.command, codec.encode(message)
    whole = bytes(frames[0])
    parts: list[tuple[bytes, str]] = [
        (whole[:1], "an array of five items: the head"),
        (whole[1:2], "version 1"),
        (whole[2:3], f"command {command.name}"),
        (_dump(list(message.to)), f"to: {_path(message.to) or 'empty'}"),
        (_dump(list(message.source)), f"from: {_path(message.source)}"),
    ]
    fields = message.fields
    parts.append((_dump(dict(fields))[:1], f"fields: a map of {len(fields)}"))
    for key in sorted(fields, key=_dump):
        name = FIELD_NAMES[key].replace("_", " ")
        shown = _path(fields[key]) if key == Field.MANAGER else _shown(fields[key])
        parts.append((_dump(key) + _dump(_plain(fields[key])), f"  {name}: {shown}"))
    assert b"".join(part for part, _ in parts) == whole, (command, parts, whole.hex())
    lines = [f"{sender}: {command.name}", *_lines(parts)]
    if message.columns is not None:
        lines += _columns(bytes(frames[1]), message.columns)
    return "\n".join(lines)


def _columns(frame: bytes, columns: Columns) -> Iterator[str]:
    table = dict(cbor2.loads(frame))
    parts = [(frame[:1], f"a map of {len(table)}: the columns")]
    for key, value in table.items():
        name = COLUMN_NAMES[key]
        parts.append((_dump(key) + _dump(value), f"  {name}: {_shown(value)}"))
    assert b"".join(part for part, _ in parts) == frame, frame.hex()
    assert list(columns.ids) == table[1]
    yield "  -- second frame"
    yield from _lines(parts)


def _lines(parts: Sequence[tuple[bytes, str]]) -> Iterator[str]:
    for part, comment in parts:
        yield f"  {part.hex():<36} {comment}".rstrip()


def _dump(value: Any) -> bytes:
    return cbor2.dumps(value, canonical=True)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _path(path: Sequence[Any]) -> str:
    return ", ".join(_shown(item) for item in path)


def _shown(value: Any) -> str:
    match value:
        case bytes():
            return f'"{value.decode()}"'
        case str():
            return f'"{value}"'
        case dict():
            inner = ", ".join(f"{_shown(key)}: {_shown(entry)}" for key, entry in value.items())
            return f"{{{inner}}}"
        case list() | tuple():
            return f"[{', '.join(map(_shown, value))}]"
    return str(value)


# -- the parts


def parts(page: Path) -> dict[str, str]:
    """Return the text of each generated part of a page by its name."""
    tables = STATES.get(page, {})
    texts = {name: table(title, path) for name, (title, path) in tables.items()}
    if page == BINARY_STAR:
        texts["traces"] = star_traces()
    if page != CONVERSATIONS:
        return texts
    steps = [
        f"{note}\n\n```\n{annotated(sender, message)}\n```"
        for note, (sender, message) in zip(NOTES, conversation(), strict=True)
    ]
    texts["conversation"] = "\n\n".join(steps)
    return texts | dict(stories())


def star_traces() -> str:
    """Return the shortest ways to two active nodes of a Binary Star, one for each fault."""
    lines = []
    for fault in (StarFault.PARTITION, StarFault.PAUSE, StarFault.LOSS):
        search = StarSearch(frozenset([fault]), ends=0)
        search.run()
        lines.append(f"- *{fault.value}*: {', '.join(search.shortest)}")
    return "\n".join(lines)


def filled(text: str, page: Path = SPEC) -> str:
    """Return the text of a page with its generated parts up to date."""
    for name, part in parts(page).items():
        mark = re.compile(rf"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.DOTALL)
        matches = list(mark.finditer(text))
        if len(matches) != 1:
            raise ValueError(f"{page.name} has {len(matches)} parts {name!r}, expected one")
        start, end = matches[0].end(1), matches[0].start(2)
        text = f"{text[:start]}\n{part}\n\n{text[end:]}"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 when stale")
    check = parser.parse_args(arguments).check
    stale = False
    for page in (*STATES, CONVERSATIONS):
        before = page.read_text(encoding="utf-8")
        after = filled(before, page)
        if check and before != after:
            print(f"{page} is stale; run python specs/build_wmp.py", file=sys.stderr)
            stale = True
        elif not check:
            page.write_text(after, encoding="utf-8")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
