"""The journal's schema: lines, columns, types and meanings.

A journal has a line of JSON for each event and action of a node. ``specs/journal.md`` states the
promises about the lines, and this module states their content. All readers (the programs, the
tests, the data pipeline) take names and types from here.

``VERSION`` grows when a column changes its meaning or type, or is removed. A new column or a new
kind of line needs no new version, because a reader ignores unknown columns and kinds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Any, Final

from attrs import frozen

from wmp.actions import End
from wmp.message import Link

VERSION: Final = 1
"""Version of this schema, the first column of every line."""

SUFFIX: Final = ".jsonl"
"""End of a segment's name. The name of an unfinished segment begins with a dot."""

MAX_JOBS: Final = 1 << 24
"""Maximum number of jobs in one line."""

MAX_TIME: Final = 2**53
"""Bound of ``at`` and ``wall`` in µs, 285 years: no clock shows such a time."""

ENDS: Final = frozenset(end.value for end in End)
"""The words of the column ``ends``."""

NULLABLE: Final = frozenset({"left", "expires", "limits", "failed", "waits", "checksums", "begun"})
"""The columns of integers in which an entry may be null."""

OF_JOBS: Final = ("attempts", "outcomes", "ends", "since_call")
"""Columns with one entry for each job in ``ids``, or one for all."""

_MAX: Final = 2**63 - 1

_EXACT: Final = 2**53 - 1
"""The greatest whole number that is never the rounded value of another whole number."""

_PLAIN: Final = re.compile(rb"(?!0x)[A-Za-z0-9._:@-]{1,64}")

_FOR_FILES: Final = re.compile(r"[A-Za-z0-9._-]{1,80}")


class Type(Enum):
    """Types of columns."""

    INTEGER = "integer"
    """From -2⁶³ to 2⁶³-1."""
    TEXT = "text"
    TRUTH = "truth"
    """``true`` or absent."""
    INTEGERS = "integers"
    """An array; entries may be null only where the column allows it."""
    TEXTS = "texts"
    """An array."""
    AMOUNTS = "amounts"
    """An object: text to integer."""
    NUMBERS = "numbers"
    """An object: text to integer or real number."""


@frozen
class Column:
    """One column. A line to which the column does not apply lacks the column; no column is null."""

    name: str
    type: Type
    on: str
    """The lines that have the column, in words."""
    doc: str
    """Meaning of the column, with its unit."""


_I, _T, _B = Type.INTEGER, Type.TEXT, Type.TRUTH
_MESSAGE: Final = "lines with a message"
_JOBS: Final = "lines with jobs"

COLUMNS: Final[tuple[Column, ...]] = (
    # -- every line
    Column("v", _I, "all", "version of the schema"),
    Column("node", _T, "all", "identity of the node that wrote the line"),
    Column("epoch", _I, "all", "epoch of that node"),
    Column("n", _I, "all", "number of the line, from 1 in an epoch; 0 for start; each lost line "
           "leaves out a number"),
    Column("step", _I, "all", "number of the event that the node handled: the lines of the event "
           "and of its actions have the same number; 0 before the first event"),
    Column("at", _I, "all", "µs on the node's monotonic clock, which starts at an arbitrary time"),
    Column("wall", _I, "all", "µs since 1970 by the node's wall clock"),
    Column("what", _T, "all", "kind of the line"),
    # -- messages
    Column("command", _T, _MESSAGE, "the command: READY, WAKE, …"),
    Column("link", _T, f"{_MESSAGE}, garbled, connected, disconnected, reconnect",
           "the node's connection: `#0` is its first DEALER; others are routing ids of its ROUTER"),
    Column("source", _T, f"{_MESSAGE}, resolve", "identity of the end node that made the message, "
           "or a device that made an ERROR; in resolve, the sender of the message that ended "
           "the jobs"),
    Column("source_epoch", _I, "as source", "epoch of the source"),
    Column("target", _T, _MESSAGE, "identity of the end node that receives the message; absent "
           "if there is none"),
    Column("target_epoch", _I, "as target", "epoch of the target"),
    Column("hops", _I, _MESSAGE, "number of devices that the message has passed"),
    Column("via", Type.TEXTS, _MESSAGE, "identities of all devices on the message's route, in the "
           "order of the route; absent if there are none"),
    # -- fields of the head, by their names in specs/wmp.md
    Column("number", _I, "TAKE NO CANCEL DONE STATUS", "place in the numbered stream"),
    Column("ack", _I, "any command", "highest number of the other stream up to which all messages "
           "were received"),
    Column("session", _I, "any command", "number of the session of both streams"),
    Column("again", _B, "PING PONG", "whether the sender saw a gap in the stream"),
    Column("ready", _I, "READY PONG", "number of a READY"),
    Column("credit", _I, "READY PONG", "number of jobs that the worker may take now"),
    Column("window", _I, "READY GIVE", "number of the jobs in credit or want that would wait for "
           "resources"),
    Column("roles", Type.TEXTS, "READY GIVE, start", "roles that the worker offers"),
    Column("resources", Type.AMOUNTS, "READY, start, resized", "all resources of the worker"),
    Column("count", _I, "WAKE", "number of jobs that wait for this worker"),
    Column("role", _T, "WAKE TAKE, submitted, forwarded, run, leased", "role of the jobs"),
    Column("needs", Type.AMOUNTS, "WAKE GIVE TAKE, submitted, forwarded, run",
           "resources that one job takes"),
    Column("lock", _I, "GIVE TAKE NO PONG", "number of the lock"),
    Column("want", _I, "GIVE", "maximum number of jobs wanted; 0 withdraws the lock"),
    Column("hold", _I, "GIVE", "ms that the manager may keep the GIVE"),
    Column("more", _B, "TAKE PING", "the lock stays open; in PING, the list is not whole"),
    Column("owner", _T, "TAKE DONE STATUS CANCEL PING, run, note, instancebegun, forwarded",
           "identity of the manager or store that owns the jobs (`manager` of the head)"),
    Column("owner_epoch", _I, "as owner", "epoch of the owner"),
    Column("codec", _T, "TAKE DONE, submitted, run", "encoding of the payloads; absent for bytes"),
    Column("unstarted", _B, "CANCEL", "hand back only the jobs that have not begun"),
    Column("max_silence", _I, "PONG", "ms of silence after which the manager gives a worker up"),
    Column("code", _T, "ERROR", "kind of the error"),
    Column("text", _T, "ERROR BYE, drop, garbled, halt, lines with a reason",
           "text for readers: the value seen and the value expected; cut at 200 characters"),
    Column("about", _T, "ERROR", "the command that the error is about; a number if unknown"),
    Column("about_number", _I, "ERROR", "the number or lock that the error is about"),
    Column("about_peer", _T, "ERROR, note, leased, returned", "identity that the error or note is "
           "about; name of a worker that speaks another protocol"),
    Column("about_epoch", _I, "as about_peer", "epoch of that peer"),
    Column("label", _T, "READY PING PONG, start", "name of the node for readers"),
    Column("idle", _B, "PING", "the sender holds no job of the receiver"),
    Column("standby", _B, "PONG", "the manager grants no jobs, because the other manager of its "
           "pair does"),
    Column("challenge", _I, "PING PONG", "number that the receiver must answer"),
    Column("answer", _I, "PING PONG", "number of the challenge that is answered"),
    Column("keep", _I, "TAKE", "ms for which the worker keeps the jobs without a manager"),
    Column("serves", Type.TEXTS, "PONG", "stores that the manager serves: identity, a space, "
           "generation"),
    Column("kept", _I, "any command of a manager", "number up to which results of stored jobs are "
           "stored; absent for the ack"),
    Column("sent", _I, "PING with owner", "highest number of the worker's stream"),
    Column("versions", Type.INTEGERS, "ERROR", "versions that the sender reads"),
    Column("forwards", Type.TEXTS, "READY", "forwarding managers whose capacity the worker "
           "offers"),
    Column("passed", Type.TEXTS, "TAKE, run, forwarded",
           "forwarding managers that the jobs have passed"),
    Column("beat_key", _B, "PING", "another connection may send beats for the worker; the number "
           "itself is a secret and is not written"),
    Column("beat", _B, "PING", "the message is a beat: another connection sent it for the worker"),
    Column("max_stall", _I, "PONG", "ms for which beats count after the worker's own last message"),
    # -- jobs
    Column("ids", Type.INTEGERS, _JOBS, "numbers of the jobs at their owner; of consecutive "
           "numbers only the first, with `last`"),
    Column("last", _I, _JOBS, "the last of consecutive numbers that begin with the number in "
           "`ids`; absent when `ids` lists all"),
    Column("attempts", Type.INTEGERS, "TAKE DONE STATUS CANCEL PING, run, resolve, note, "
           "leased, returned", "number of the lease of each job; a single entry applies to all "
           "jobs"),
    Column("left", Type.INTEGERS, "TAKE", "ms until each job's deadline, null for no deadline; a "
           "single entry applies to all jobs; absent when no job has a deadline"),
    Column("expires", Type.INTEGERS, "TAKE", "ms in which each job may be begun, null for any "
           "time; a single entry applies to all jobs; absent when all are null"),
    Column("limits", Type.INTEGERS, "TAKE, run", "ms that each attempt may run, null for no limit; "
           "a single entry applies to all jobs; absent when no attempt has a limit"),
    Column("failed", Type.INTEGERS, "TAKE", "number of attempts of each job that ended as error or "
           "overrun, null when the job names the errors that are tried again; a single entry "
           "applies to all jobs; absent when all are 0"),
    Column("waits", Type.INTEGERS, "DONE", "ms after which each job must be granted again, "
           "null for no such request; a single entry applies to all jobs; absent when all are "
           "null"),
    Column("checksums", Type.INTEGERS, "TAKE DONE", "CRC-32 of each payload, null if there is "
           "none; a single entry applies to all jobs; absent if no payload has a CRC-32"),
    Column("begun", Type.INTEGERS, "TAKE, run", "number of earlier runs of each job that began "
           "or may have begun, null for all earlier leases; a single entry applies to all jobs; "
           "absent when all are null"),
    Column("outcomes", Type.INTEGERS, "DONE, finished, returned", "how each attempt ended: 0 ok, "
           "1 error, 2 refused, 3 cancelled, 4 lost, 5 overrun; a single entry applies to all "
           "jobs"),
    Column("ends", Type.TEXTS, "resolve", "ok, error, cancelled, timeout, lost: how each job ended "
           "for its submitter; a single entry applies to all jobs"),
    Column("bytes", _I, "TAKE DONE; at a device any command",
           "bytes of all payloads together; at a device, bytes after the head"),
    Column("priority", _I, "submitted", "jobs of a higher priority are granted first"),
    Column("timeout", _I, "submitted", "µs in which the jobs must end; absent without a limit"),
    Column("max_worker_losses", _I, "submitted", "number of lost leases after which a job is still "
           "queued again"),
    Column("expires_in", _I, "submitted", "µs in which the jobs may be begun; absent without a "
           "limit"),
    Column("retries", _I, "submitted", "maximum number of further attempts after errors; absent "
           "if the settings of the handlers decide"),
    Column("delay", _I, "submitted", "µs until the jobs may be granted; absent without a "
           "delay"),
    Column("run_limit", _I, "submitted", "µs that one attempt may run; absent without a limit"),
    Column("since_call", Type.INTEGERS, "submitted", "µs since the submitter called, for each job; "
           "a single entry applies to all jobs; absent if the call is not known"),
    Column("lane", _I, "run, recall, interrupt, begun, finished, recalled, reported",
           "number of the lane at the worker"),
    # -- causes
    Column("reason", _T, "received, undelivered, garbled, drop, note, halt, lost",
           "received, undelivered, garbled, drop: why the message was ignored, whole or in part; "
           "note: the cause; halt: the error that ended the node; lost: why lines were lost"),
    Column("locks", Type.INTEGERS, "note", "numbers of the locks that the note is about"),
    # -- of the node and its journal
    Column("kind", _T, "start", "manager, worker or device"),
    Column("host", _T, "start", "name of the machine; absent in a simulation"),
    Column("pid", _I, "start", "number of the process; absent in a simulation"),
    Column("release", _T, "start", "version of the program that wrote the journal"),
    Column("segment", _I, "start", "number of the segment that this line begins, from 1"),
    Column("endpoints", Type.TEXTS, "start", "addresses that the node binds and connects to"),
    Column("settings", Type.NUMBERS, "start", "the machine's settings that are numbers, by name; "
           "times in s"),
    Column("lines", _I, "lost, beat, stop", "number of lines that could not be written: since the "
           "line before (lost), in all (beat, stop)"),
)  # fmt: skip
"""All columns, in the order of display."""

_HEAD = ("v", "node", "epoch", "n", "step", "at", "wall", "what")
_WITH_MESSAGE = ("command", "link", "hops")

EVENT_LINES: Final[Mapping[str, tuple[str, ...]]] = {
    "received": _WITH_MESSAGE,
    "garbled": ("link", "reason"),
    "undelivered": _WITH_MESSAGE,
    "ticked": (),
    "drained": (),
    "closed": (),
    "submitted": ("ids", "role", "needs", "priority", "max_worker_losses"),
    "forwarded": ("role", "needs", "owner", "owner_epoch", "ids", "attempts"),
    "retracted": (),
    "cancelled": ("ids",),
    "connected": ("link",),
    "begun": ("lane", "ids"),
    "disconnected": ("link",),
    "finished": ("lane", "ids", "outcomes"),
    "recalled": ("lane", "ids"),
    "relieved": (),
    "reported": ("lane", "ids"),
    "resized": ("resources",),
    "instancebegun": (),
    "leased": ("role", "ids", "attempts", "about_peer", "about_epoch"),
    "returned": ("ids", "attempts", "outcomes"),
    "written": (),
    "storefilled": ("reason",),
    "woken": (),
}
"""Kinds of lines about events: the names of :mod:`wmp.events`, in lower case."""

ACTION_LINES: Final[Mapping[str, tuple[str, ...]]] = {
    "send": _WITH_MESSAGE,
    "drop": ("reason",),
    "note": ("reason",),
    "halt": (),
    "resolve": ("ids", "ends", "attempts"),
    "answer": (),
    "notify": ("ids",),
    "write": (),
    "acknowledge": ("ids",),
    "decline": ("ids", "reason"),
    "run": ("lane", "role", "needs", "owner", "owner_epoch", "ids", "attempts"),
    "recall": ("lane", "ids"),
    "interrupt": ("lane", "ids"),
    "reconnect": ("link",),
}
"""Kinds of lines about actions: the names of :mod:`wmp.actions`, in lower case."""

LINES: Final[Mapping[str, tuple[str, ...]]] = {
    **EVENT_LINES,
    **ACTION_LINES,
    "start": ("kind", "segment", "settings"),
    "beat": ("lines",),
    "lost": ("lines", "reason"),
    "stop": ("lines",),
}
"""Kinds of lines, and the columns of each kind besides the columns of every line."""

_BY_NAME: Final = {column.name: column for column in COLUMNS}


def what_is_wrong(line: Mapping[str, Any]) -> str | None:
    """Return the reason why an object is not a line of this schema, in short constant words; None
    for a line.

    The caller has checked the version. Unknown columns and unknown kinds of lines are accepted.
    """
    for name in _HEAD:
        if name not in line:
            return f"no {name}"
    for name, value in line.items():
        column = _BY_NAME.get(name)
        if column is not None and not _fits(column.type, value):
            return f"{name} is not {column.type.value}"
        numbers = column is not None and column.type is Type.INTEGERS
        if numbers and None in value and name not in NULLABLE:
            return f"{name} has a null"
    if not ENDS.issuperset(line.get("ends", ())):
        return "ends has an unknown end"
    if line["n"] < 0:
        return "n is less than 0"
    if not (-MAX_TIME < line["at"] < MAX_TIME and 0 <= line["wall"] < MAX_TIME):
        return "no clock shows this time"
    for name in LINES.get(line["what"], ()):
        if name not in line:
            return f"{line['what']} without {name}"
    last = line.get("last")
    if last is not None:
        ids = line.get("ids")
        if ids is None or len(ids) != 1 or not 0 < last - ids[0] < MAX_JOBS:
            return "last does not belong to ids"
    jobs = len(line.get("ids", ())) if last is None else last - line["ids"][0] + 1
    for name in OF_JOBS:
        if name in line and len(line[name]) not in (1, jobs):
            return f"{name} does not belong to ids"
    return None


def _fits(type: Type, value: Any) -> bool:
    match type:
        case Type.INTEGER:
            return _is_integer(value)
        case Type.TEXT:
            return isinstance(value, str)
        case Type.TRUTH:
            return isinstance(value, bool)
        case Type.INTEGERS:
            return _is_array(value) and all(v is None or _is_integer(v) for v in value)
        case Type.TEXTS:
            return _is_array(value) and all(isinstance(v, str) for v in value)
        case Type.AMOUNTS:
            return isinstance(value, Mapping) and all(map(_is_integer, value.values()))
        case Type.NUMBERS:
            return isinstance(value, Mapping) and all(
                isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= _EXACT
                for v in value.values()
            )


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_MAX - 1 <= value <= _MAX


def _is_array(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


# -- names of peers, connections and files -----------------------------------------------------


def name_of_peer(identity: bytes) -> str:
    """Return an identity as text: itself if it is a plain word, else ``0x`` and hex digits."""
    if _PLAIN.fullmatch(identity):
        return identity.decode("ascii")
    return f"0x{identity.hex()}"


def name_of_link(link: Link) -> str:
    """Return a link as text: ``#`` and the number of a DEALER, or a routing id as text."""
    return f"#{link}" if isinstance(link, int) else name_of_peer(link)


def name_of_file(identity: bytes, epoch: int, segment: int) -> str:
    """Return the name of a finished segment; names sort by the segment's number.

    An identity that is long, or has characters that some file systems refuse, is shortened. A
    digest of the identity keeps the names apart.
    """
    name = name_of_peer(identity)
    if not _FOR_FILES.fullmatch(name):
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:60]
        name = f"{plain}~{blake2b(identity, digest_size=6).hexdigest()}"
    return f"{name}-{epoch}-{segment:06}{SUFFIX}"
