"""Tables of the store in PostgreSQL, and their version.

Texts of users are bytes: the encoding and the collation of the database do not matter then, and a
text may contain NUL.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Mapping
from typing import Any, Final

from wmp.errors import StoreUnusable

VERSION: Final = 2002
"""Version of the tables: 1000 x major + minor."""

_MAJOR: Final = 1000

_LOCKS: Final = 0x574D5053
"""First number of the advisory locks of stores: WMPS in ASCII."""

HOME: Final = (
    "(SELECT system_identifier FROM pg_control_system())::text || '/' ||"
    " (SELECT oid FROM pg_database WHERE datname = current_database())"
    " || '/' || 'jobs'::regclass::oid"
)
"""An expression that differs in every copy of the tables."""

# A digest of the key is in the indexes, because an entry of an index has at most 2,700 bytes. The
# database compresses no payload: payloads may be compressed already.
_TABLES: Final = """
CREATE TABLE meta(
    one INT PRIMARY KEY CHECK (one = 1), version BIGINT NOT NULL, identity BYTEA NOT NULL,
    generation BIGINT NOT NULL, home TEXT NOT NULL, next_id BIGINT NOT NULL,
    next_instance BIGINT NOT NULL, last_epoch BIGINT NOT NULL);
CREATE TABLE instances(
    instance BIGINT PRIMARY KEY, identity BYTEA NOT NULL, epoch BIGINT NOT NULL,
    label BYTEA NOT NULL, begun BIGINT NOT NULL, valid_until BIGINT NOT NULL, ended BIGINT,
    batch BIGINT NOT NULL, bytes BIGINT NOT NULL) WITH (fillfactor = 50);
CREATE TABLE kinds(
    kind BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, digest BYTEA NOT NULL UNIQUE,
    role BYTEA NOT NULL, needs TEXT NOT NULL, codec BYTEA NOT NULL, checksum BOOLEAN NOT NULL);
CREATE TABLE terms(
    terms BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, digest BYTEA NOT NULL UNIQUE,
    spec TEXT NOT NULL, keep BIGINT NOT NULL, keep_dead BIGINT NOT NULL);
CREATE TABLE jobs(
    id BIGINT PRIMARY KEY, state INT NOT NULL, kind BIGINT NOT NULL, priority BIGINT NOT NULL,
    due BIGINT NOT NULL, attempt BIGINT NOT NULL, lost BIGINT NOT NULL, failed BIGINT NOT NULL,
    terms BIGINT NOT NULL, instance BIGINT, submitter BIGINT, deadline BIGINT, expires BIGINT,
    created BIGINT NOT NULL, ended BIGINT, purge BIGINT, key BYTEA, payload BYTEA NOT NULL,
    over BOOLEAN NOT NULL DEFAULT FALSE, role BYTEA, unbegun BIGINT NOT NULL DEFAULT 0)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
ALTER TABLE jobs ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE results(id BIGINT PRIMARY KEY, attempt BIGINT NOT NULL, payload BYTEA NOT NULL);
ALTER TABLE results ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE failures(
    id BIGINT NOT NULL, place BIGINT NOT NULL, attempt BIGINT NOT NULL, worker BYTEA NOT NULL,
    at BIGINT NOT NULL, error BYTEA NOT NULL, PRIMARY KEY(id, place));
CREATE TABLE records(
    sort TEXT NOT NULL, id BIGINT NOT NULL, open BOOLEAN NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY(sort, id));
CREATE INDEX jobs_ready ON jobs(kind, priority DESC, due, id) WHERE state = 0;
CREATE INDEX jobs_held ON jobs(instance, state, id) WHERE state IN (1, 2);
CREATE INDEX jobs_news ON jobs(submitter, id) WHERE state >= 3 AND submitter IS NOT NULL;
CREATE INDEX jobs_deadline ON jobs(deadline, id) WHERE state < 3 AND deadline IS NOT NULL;
CREATE INDEX jobs_expires ON jobs(expires, id) WHERE state = 0 AND expires IS NOT NULL;
CREATE INDEX jobs_purge ON jobs(purge, id) WHERE state >= 3;
CREATE INDEX records_open ON records(sort, id) WHERE open;
"""

# `jobs.role` is the role of a job with a key, else NULL: a key belongs to a role. A job that is
# being cancelled (state 2) does not have its key for itself.
_KEYS: Final = """
CREATE UNIQUE INDEX jobs_key ON jobs(sha256(key), sha256(role))
    WHERE state < 2 AND key IS NOT NULL;
CREATE INDEX jobs_kept ON jobs(sha256(key), sha256(role), ended, id)
    WHERE state >= 2 AND key IS NOT NULL;
"""

_WAITING: Final = """
CREATE TABLE waits(
    id BIGINT PRIMARY KEY, splice BIGINT, delay BIGINT NOT NULL, timeout BIGINT, expires BIGINT);
CREATE TABLE parents(
    id BIGINT NOT NULL, place BIGINT NOT NULL, parent BIGINT NOT NULL, PRIMARY KEY(id, place));
CREATE INDEX parents_parent ON parents(parent, id);
"""

# `ran` is the attempt to which the other columns belong. `watchers` has the instances that wait for
# the end of a job which they did not submit.
_RUNS: Final = """
ALTER TABLE jobs ADD COLUMN worker BYTEA, ADD COLUMN begun BIGINT,
    ADD COLUMN ran BIGINT NOT NULL DEFAULT 0, ADD COLUMN fraction DOUBLE PRECISION,
    ADD COLUMN note BYTEA;
CREATE TABLE watchers(
    id BIGINT NOT NULL, instance BIGINT NOT NULL, PRIMARY KEY(id, instance));
"""

_MIGRATIONS: Final[Mapping[int, tuple[int, str]]] = {
    1000: (
        2000,
        f"""ALTER TABLE jobs ADD COLUMN role BYTEA;
            UPDATE jobs SET role = (SELECT role FROM kinds WHERE kinds.kind = jobs.kind)
                WHERE key IS NOT NULL;
            DROP INDEX jobs_key; DROP INDEX jobs_kept; {_KEYS} {_WAITING}""",
    ),
    2000: (2001, _RUNS),
    # A program of 2.1 can use this store too: it leaves the new column as it is.
    2001: (2002, "ALTER TABLE jobs ADD COLUMN unbegun BIGINT NOT NULL DEFAULT 0"),
}
"""For each older version: the next version, and the statements that lead there."""


def store_lock(schema: str) -> str:
    """Return the numbers of the lock under which the transactions of a store run."""
    return f"{_LOCKS}, {_signed(schema)}"


def creation_lock(schema: str) -> str:
    """Return the numbers of the lock under which a store is made."""
    return f"{_LOCKS + 1}, {_signed(schema)}"


def instance_locks(schema: str) -> int:
    """Return the first number of the locks that the sessions of living instances hold."""
    return _signed(f"instances of {schema}")


def _signed(schema: str) -> int:
    return zlib.crc32(schema.encode()) - (1 << 31)


def make_tables(connection: Any, generation: int) -> None:
    """Make all tables of a new store, inside the caller's transaction."""
    connection.execute(_TABLES + _KEYS + _WAITING + _RUNS)
    connection.execute(
        "INSERT INTO meta(one, version, identity, generation, home, next_id, next_instance,"
        f" last_epoch) SELECT 1, %s, %s, %s, {HOME}, 1, 1, 0",
        (VERSION, secrets.token_bytes(16), generation),
    )


def migrate(connection: Any, version: int) -> None:
    """Bring an older store to this version, inside the caller's transaction."""
    while version in _MIGRATIONS and version < VERSION:
        version, statements = _MIGRATIONS[version]
        connection.execute(statements)
        connection.execute("UPDATE meta SET version = %s", (version,))


def raise_generation(connection: Any, now: int, first: int) -> None:
    """Begin a new generation, inside the caller's transaction. All instances end.

    Args:
        connection: The connection.
        now: Time in milliseconds.
        first: A number above every number that was given after the copy was made.
    """
    connection.execute(
        f"UPDATE meta SET generation = greatest(generation + 1, %s), home = {HOME},"
        " next_id = greatest(next_id, %s)",
        (now, first),
    )
    connection.execute("UPDATE instances SET ended = %s WHERE ended IS NULL", (now,))


def check_version(version: int, name: str) -> None:
    """Check that this program may use a store of a version.

    Raises:
        StoreUnusable: The version has another major number.
    """
    if version // _MAJOR != VERSION // _MAJOR:
        raise StoreUnusable(
            f"the store {name} has schema {version // _MAJOR}.{version % _MAJOR}, and this wmp "
            f"knows {VERSION // _MAJOR}.x; install the wmp that fits the store"
        )
