"""The fields and columns of each command: the tables of specs/wmp.md, section 2."""

from __future__ import annotations

from typing import Final

from wmp.message import VERSION, Command, Field

WITH_COLUMNS: Final = frozenset({Command.TAKE, Command.DONE, Command.STATUS, Command.CANCEL})
WITHOUT_TO: Final = frozenset(
    {Command.READY, Command.PING, Command.PONG, Command.BYE, Command.ERROR}
)
REQUIRED: Final[dict[Command, frozenset[int]]] = {
    Command.READY: frozenset({Field.READY, Field.CREDIT, Field.ROLES, Field.RESOURCES}),
    Command.WAKE: frozenset({Field.COUNT, Field.ROLE, Field.NEEDS}),
    Command.GIVE: frozenset({Field.LOCK, Field.WANT}),
    Command.TAKE: frozenset(
        {Field.NUMBER, Field.SESSION, Field.LOCK, Field.ROLE, Field.NEEDS, Field.MANAGER}
    ),
    Command.NO: frozenset({Field.NUMBER, Field.SESSION, Field.LOCK}),
    Command.DONE: frozenset({Field.NUMBER, Field.SESSION, Field.MANAGER}),
    Command.STATUS: frozenset({Field.NUMBER, Field.SESSION, Field.MANAGER}),
    Command.CANCEL: frozenset({Field.NUMBER, Field.SESSION, Field.MANAGER}),
    Command.PING: frozenset(),
    Command.PONG: frozenset({Field.MAX_SILENCE, Field.SESSION}),
    Command.BYE: frozenset(),
    Command.ERROR: frozenset({Field.CODE}),
}
REQUIRED_ANNOUNCEMENT: Final = frozenset({Field.MAX_SILENCE})
"""Fields that a PONG without ``to`` needs."""
REQUIRED_OPEN_GIVE: Final = frozenset({Field.ROLES, Field.NEEDS})
"""Further fields that a GIVE needs when ``want`` is above 0."""

IDS: Final = 1
ATTEMPTS: Final = 2
LEFT: Final = 3
OUTCOMES: Final = 4
PAYLOADS: Final = 5
FRACTIONS: Final = 6
TEXTS: Final = 7
EXPIRES: Final = 8
LIMITS: Final = 9
FAILED: Final = 10
WAITS: Final = 11
CHECKSUMS: Final = 12
BEGUN: Final = 13
COLUMN_NAMES: Final = {
    IDS: "ids",
    ATTEMPTS: "attempts",
    LEFT: "left",
    OUTCOMES: "outcomes",
    PAYLOADS: "payloads",
    FRACTIONS: "fractions",
    TEXTS: "texts",
    EXPIRES: "expires",
    LIMITS: "limits",
    FAILED: "failed",
    WAITS: "waits",
    CHECKSUMS: "checksums",
    BEGUN: "begun",
}
COLUMN_ATTRIBUTES: Final = {
    key: f"{name}_ms" if key in (LEFT, EXPIRES, LIMITS, WAITS) else name
    for key, name in COLUMN_NAMES.items()
}
"""The attribute of :class:`~wmp.message.Columns` for each column: its name, with its unit."""
NULLABLE: Final = frozenset({LEFT, EXPIRES, LIMITS, FAILED, WAITS, CHECKSUMS, BEGUN})
"""Columns of unsigned integers and null."""
REQUIRED_COLUMNS: Final[dict[Command, frozenset[int]]] = {
    Command.TAKE: frozenset({IDS, ATTEMPTS, PAYLOADS}),
    Command.DONE: frozenset({IDS, ATTEMPTS, OUTCOMES, PAYLOADS}),
    Command.STATUS: frozenset({IDS, ATTEMPTS}),
    Command.CANCEL: frozenset({IDS, ATTEMPTS}),
    Command.PING: frozenset({IDS, ATTEMPTS}),
}

PREFIXES: Final = {bytes((0x85, VERSION, command)): command for command in Command}
"""The first three bytes of a head (WMP-2.1)."""

LOWEST: Final = {
    Field.NUMBER: 1,
    Field.ACK: 0,
    Field.SESSION: 1,
    Field.READY: 1,
    Field.CREDIT: 0,
    Field.WINDOW: 0,
    Field.COUNT: 1,
    Field.LOCK: 1,
    Field.WANT: 0,
    Field.HOLD: 0,
    Field.MAX_SILENCE: 0,
    Field.ABOUT: 0,
    Field.ABOUT_NUMBER: 0,
    Field.CHALLENGE: 1,
    Field.ANSWER: 1,
    Field.KEEP: 0,
    Field.KEPT: 0,
    Field.SENT: 0,
    Field.BEAT_KEY: 1,
    Field.BEAT: 1,
    Field.MAX_STALL: 0,
}
"""The lowest value of each unsigned field."""
