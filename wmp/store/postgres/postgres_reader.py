"""A store on PostgreSQL as its readers see it."""

from __future__ import annotations

import builtins
import os

from wmp.errors import ConfigError
from wmp.store.contract import JobFilter, KnownInstance, StoredJob
from wmp.store.postgres.driver import StoreUrl
from wmp.store.postgres.pg_connection import PostgresConnection
from wmp.store.postgres.pg_rows import select_jobs
from wmp.store.postgres.pg_terms import as_text
from wmp.store.stored_job import StoredJobState


class PostgresReader:
    """Reads a store, and changes nothing; :meth:`open` opens one.

    Attributes:
        place: The URL of the store without a password.
        identity: Identity of the store.
        generation: Generation of the store.
    """

    identity: bytes
    generation: int

    def __init__(self, link: PostgresConnection) -> None:
        self.place = link.name
        self._link = link
        self._terms = link.terms

    @classmethod
    def open(cls, url: str) -> PostgresReader:
        """Open a store to read it.

        Raises:
            ConfigError: The URL is wrong, the extra is missing, or there is no store.
            StoreError: The store cannot be read.
        """
        reader = PostgresReader(PostgresConnection(StoreUrl.of(url), read_only=True))
        try:
            (found,) = reader._link.open().execute("SELECT to_regclass('meta')").fetchone()
            if found is None:
                raise ConfigError(
                    f"there is no store {reader.place}; wmp.Manager(store=…) makes one"
                )
            reader._identify()
        except BaseException:
            reader.close()
            raise
        return reader

    def _identify(self) -> None:
        """Read which store this is; from now on, another one at the URL is refused."""
        with self._link.reading() as connection:
            identity, generation = connection.execute(
                "SELECT identity, generation FROM meta"
            ).fetchone()
        self.identity, self.generation = bytes(identity), generation
        self._link.expected = (self.identity, self.generation)

    def list(
        self,
        where: JobFilter = JobFilter(),  # noqa: B008 - a frozen value
        *,
        after: int = 0,
        limit: int = 1000,
        payloads: bool = False,
    ) -> list[StoredJob]:
        """Return jobs; see :class:`~wmp.store.contract.Store`."""
        with self._link.reading() as connection:
            return select_jobs(
                connection, self._terms, where, after=after, limit=limit, payloads=payloads
            )

    def instances(self) -> builtins.list[KnownInstance]:
        """Return the instances that the store knows, oldest first."""
        with self._link.reading() as connection:
            rows = connection.execute(
                "SELECT instance, label, ended FROM instances ORDER BY instance"
            ).fetchall()
        return [
            KnownInstance(number, as_text(label), ended, ended is None)
            for number, label, ended in rows
        ]

    def counts(self) -> dict[StoredJobState, int]:
        """Return the number of jobs in each state. This reads all jobs."""
        with self._link.reading() as connection:
            rows = connection.execute(
                "SELECT state, count(*) FROM jobs GROUP BY state ORDER BY state"
            ).fetchall()
        return {StoredJobState(state): count for state, count in rows}

    def size(self) -> int:
        """Return the bytes of the tables and their indexes on the server."""
        with self._link.reading() as connection:
            (found,) = connection.execute(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'"
                " AND relnamespace = to_regnamespace(current_schema())"
            ).fetchone()
        return int(found or 0)

    def check(self) -> builtins.list[str]:
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

    def close(self) -> None:
        """Release all resources. Idempotent."""
        self._link.close()
