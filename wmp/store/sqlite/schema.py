"""Tables of the store in SQLite, their versions, and the steps from one version to the next."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from wmp.errors import StoreUnusable

APPLICATION: Final = 0x574D5053
"""``application_id`` of a store: WMPS in ASCII."""

VERSION: Final = 3002
"""Version of the schema: 1000 x major + minor."""

_MAJOR: Final = 1000

_FAILURES: Final = """CREATE TABLE failures(
        id INTEGER NOT NULL, place INTEGER NOT NULL, attempt INTEGER NOT NULL,
        worker TEXT NOT NULL, at INTEGER NOT NULL, error TEXT NOT NULL,
        PRIMARY KEY(id, place)) WITHOUT ROWID"""

# `jobs.role` is the role of a job with a key, else NULL: a key belongs to a role. A job that is
# being cancelled (state 2) does not have its key for itself.
_KEYS: Final = (
    "CREATE UNIQUE INDEX jobs_key ON jobs(key, role) WHERE state < 2 AND key IS NOT NULL",
    "CREATE INDEX jobs_kept ON jobs(key, role, ended, id) WHERE state >= 2 AND key IS NOT NULL",
)

_WAITING: Final = (
    """CREATE TABLE waits(
        id INTEGER PRIMARY KEY, splice INTEGER, delay INTEGER NOT NULL, timeout INTEGER,
        expires INTEGER)""",
    """CREATE TABLE parents(
        id INTEGER NOT NULL, place INTEGER NOT NULL, parent INTEGER NOT NULL,
        PRIMARY KEY(id, place)) WITHOUT ROWID""",
    "CREATE INDEX parents_parent ON parents(parent, id)",
)

# `ran` is the attempt to which the other columns belong. `watchers` has the instances that wait for
# the end of a job which they did not submit.
_RUNS: Final = (
    "ALTER TABLE jobs ADD COLUMN worker TEXT",
    "ALTER TABLE jobs ADD COLUMN begun INTEGER",
    "ALTER TABLE jobs ADD COLUMN ran INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE jobs ADD COLUMN fraction REAL",
    "ALTER TABLE jobs ADD COLUMN note TEXT",
    """CREATE TABLE watchers(
        id INTEGER NOT NULL, instance INTEGER NOT NULL, PRIMARY KEY(id, instance)) WITHOUT ROWID""",
)

# `jobs.payload` is NULL when the payload is in `bodies`: SQLite writes a whole row anew at every
# change, so that large payloads stand apart.
_TABLES: Final = (
    """CREATE TABLE meta(
        one INTEGER PRIMARY KEY CHECK (one = 1), identity BLOB NOT NULL,
        generation INTEGER NOT NULL, copied INTEGER NOT NULL, inode INTEGER NOT NULL,
        next_id INTEGER NOT NULL, next_instance INTEGER NOT NULL, last_epoch INTEGER NOT NULL)""",
    """CREATE TABLE instances(
        instance INTEGER PRIMARY KEY, identity BLOB NOT NULL, epoch INTEGER NOT NULL,
        label TEXT NOT NULL, valid_until INTEGER NOT NULL, ended INTEGER,
        batch INTEGER NOT NULL)""",
    """CREATE TABLE kinds(
        kind INTEGER PRIMARY KEY, role TEXT NOT NULL, needs TEXT NOT NULL, codec TEXT NOT NULL,
        checksum INTEGER NOT NULL, UNIQUE(role, needs, codec, checksum))""",
    """CREATE TABLE terms(
        terms INTEGER PRIMARY KEY, spec TEXT NOT NULL, keep INTEGER NOT NULL,
        keep_dead INTEGER NOT NULL, UNIQUE(spec, keep, keep_dead))""",
    """CREATE TABLE jobs(
        id INTEGER PRIMARY KEY, state INTEGER NOT NULL, kind INTEGER NOT NULL,
        priority INTEGER NOT NULL, due INTEGER NOT NULL, attempt INTEGER NOT NULL,
        lost INTEGER NOT NULL, failed INTEGER NOT NULL, terms INTEGER NOT NULL,
        instance INTEGER, submitter INTEGER, deadline INTEGER, expires INTEGER,
        created INTEGER NOT NULL, ended INTEGER, purge INTEGER, key TEXT, payload BLOB,
        over INTEGER NOT NULL DEFAULT 0, role TEXT,
        unbegun INTEGER NOT NULL DEFAULT 0)""",
    "CREATE TABLE bodies(id INTEGER PRIMARY KEY, payload BLOB NOT NULL)",
    "CREATE TABLE results(id INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, payload BLOB NOT NULL)",
    _FAILURES,
    "CREATE INDEX jobs_ready ON jobs(kind, priority DESC, due, id) WHERE state = 0",
    "CREATE INDEX jobs_held ON jobs(instance, state) WHERE state IN (1, 2)",
    """CREATE INDEX jobs_news ON jobs(submitter)
        WHERE state >= 3 AND submitter IS NOT NULL""",
    "CREATE INDEX jobs_deadline ON jobs(deadline) WHERE state < 3 AND deadline IS NOT NULL",
    "CREATE INDEX jobs_expires ON jobs(expires) WHERE state = 0 AND expires IS NOT NULL",
    "CREATE INDEX jobs_purge ON jobs(purge) WHERE state >= 3",
    *_KEYS,
    *_WAITING,
    *_RUNS,
)

_FILL_ROLES: Final = (
    "UPDATE jobs SET role = (SELECT role FROM kinds WHERE kinds.kind = jobs.kind)"
    " WHERE key IS NOT NULL"
)

_MIGRATIONS: Final[Mapping[int, tuple[int, Sequence[str]]]] = {
    1000: (2000, ("ALTER TABLE jobs ADD COLUMN over INTEGER NOT NULL DEFAULT 0", _FAILURES)),
    2000: (
        3000,
        (
            "ALTER TABLE jobs ADD COLUMN role TEXT",
            _FILL_ROLES,
            "DROP INDEX jobs_key",
            "DROP INDEX jobs_kept",
            *_KEYS,
            *_WAITING,
        ),
    ),
    3000: (3001, _RUNS),
    # A program of 3.1 can use this store too: it leaves the new column as it is.
    3001: (3002, ("ALTER TABLE jobs ADD COLUMN unbegun INTEGER NOT NULL DEFAULT 0",)),
}
"""For each older version: the next version, and the statements that lead there."""


def create(connection: sqlite3.Connection, identity: bytes, now: int, inode: int) -> None:
    """Make all tables of a new store, inside the caller's transaction."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(
        "INSERT INTO meta(one, identity, generation, copied, inode, next_id, next_instance,"
        " last_epoch) VALUES(1, ?, ?, 0, ?, 1, 1, 0)",
        (identity, now, inode),
    )
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def check_version(version: int, name: str) -> None:
    """Check that this program may use a store of a version.

    Raises:
        StoreUnusable: The version has a higher major number.
    """
    if version // _MAJOR > VERSION // _MAJOR:
        raise StoreUnusable(
            f"the store {name} has schema {_dotted(version)}, and this wmp knows up to "
            f"{VERSION // _MAJOR}.x; install a newer wmp"
        )


def migrate(connection: sqlite3.Connection, version: int, name: str) -> None:
    """Bring an older store to this version, inside the caller's transaction.

    Raises:
        StoreUnusable: The version is not known.
    """
    while version < VERSION:
        if version not in _MIGRATIONS:
            raise StoreUnusable(
                f"the store {name} has schema {_dotted(version)}, which no version of wmp made; "
                "restore a backup"
            )
        version, statements = _MIGRATIONS[version]
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")


def _dotted(version: int) -> str:
    return f"{version // _MAJOR}.{version % _MAJOR}"
