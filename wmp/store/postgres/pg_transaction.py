"""The statements of PostgreSQL for the records beside the jobs."""

from __future__ import annotations

from wmp.store.sql.sql_transaction import SqlTransaction


class PostgresTransaction(SqlTransaction):
    """See :class:`~wmp.store.transaction.StoreTransaction`."""

    RECORD = "SELECT id, open, body FROM records WHERE sort = %s AND id = %s"
    RECORDS = "SELECT id, open, body FROM records WHERE sort = %s AND id > %s ORDER BY id LIMIT %s"
    OPEN_RECORDS = (
        "SELECT id, open, body FROM records WHERE sort = %s AND id > %s AND open"
        " ORDER BY id LIMIT %s"
    )
    PUT = (
        "INSERT INTO records(sort, id, open, body) VALUES(%s, %s, %s, %s)"
        " ON CONFLICT (sort, id) DO UPDATE SET open = excluded.open, body = excluded.body"
    )
    REMOVE = "DELETE FROM records WHERE sort = %s AND id = %s"
