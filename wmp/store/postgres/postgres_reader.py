"""A store on PostgreSQL as its readers see it."""

from __future__ import annotations

import os

from wmp.errors import ConfigError
from wmp.store.contract import KnownInstance
from wmp.store.postgres.driver import StoreUrl
from wmp.store.postgres.pg_connection import PostgresConnection
from wmp.store.postgres.pg_rows import PostgresRows
from wmp.store.postgres.pg_terms import as_text
from wmp.store.sql.sql_reader import SqlReader


class PostgresReader(SqlReader[PostgresConnection]):
    """Reads a store, and changes nothing; :meth:`open` opens one."""

    ROWS = PostgresRows

    @classmethod
    def open(cls, url: str) -> PostgresReader:
        """Open a store to read it.

        Raises:
            ConfigError: The URL is wrong, the extra is missing, or there is no store.
            StoreError: The store cannot be read.
        """
        reader = PostgresReader(PostgresConnection(StoreUrl.of(url), read_only=True))
        try:
            (table,) = reader._link.open().execute("SELECT to_regclass('meta')").fetchone()
            if table is None:
                raise ConfigError(
                    f"there is no store {reader.name}; wmp.Manager(store=…) makes one"
                )
            reader._identify()
        except BaseException:
            reader.close()
            raise
        return reader

    def instances(self) -> list[KnownInstance]:
        """Return the instances that the store knows, oldest first."""
        with self._link.reading() as connection:
            rows = connection.execute(
                "SELECT instance, label, ended FROM instances ORDER BY instance"
            ).fetchall()
        return [
            KnownInstance(number, as_text(label), ended, ended is None)
            for number, label, ended in rows
        ]

    def size(self) -> int:
        """Return the bytes of the tables and their indexes on the server."""
        with self._link.reading() as connection:
            (total,) = connection.execute(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'"
                " AND relnamespace = to_regnamespace(current_schema())"
            ).fetchone()
        return int(total or 0)

    def check(self) -> list[str]:
        """Return nothing: the server checks its pages (``data_checksums``, ``pg_amcheck``)."""
        return []

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Refuse: the tools of the server make backups.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f"a store on PostgreSQL is not copied into the file {os.fspath(path)}; use pg_dump "
            "with the schema of the store, or the backups of the server"
        )
