"""The statements of SQLite for the records beside the jobs."""

from __future__ import annotations

import sqlite3
from typing import Final

from wmp.store.sql.sql_transaction import SqlTransaction

_RECORDS: Final = (
    """CREATE TABLE IF NOT EXISTS records(
        sort TEXT NOT NULL, id INTEGER NOT NULL, open INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY(sort, id)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS records_open ON records(sort, id) WHERE open = 1",
)


def make_records(connection: sqlite3.Connection) -> None:
    """Make the table of records if the store has none, inside the caller's transaction."""
    for statement in _RECORDS:
        connection.execute(statement)


class SqliteTransaction(SqlTransaction):
    """See :class:`~wmp.store.transaction.StoreTransaction`."""

    RECORD = "SELECT id, open, body FROM records WHERE sort = ? AND id = ?"
    RECORDS = "SELECT id, open, body FROM records WHERE sort = ? AND id > ? ORDER BY id LIMIT ?"
    OPEN_RECORDS = (
        "SELECT id, open, body FROM records WHERE sort = ? AND id > ? AND open = 1"
        " ORDER BY id LIMIT ?"
    )
    PUT = "INSERT OR REPLACE INTO records(sort, id, open, body) VALUES(?, ?, ?, ?)"
    REMOVE = "DELETE FROM records WHERE sort = ? AND id = ?"
