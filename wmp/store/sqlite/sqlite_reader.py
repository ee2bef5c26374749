"""A store on SQLite as its readers see it."""

from __future__ import annotations

import builtins
import os
from pathlib import Path

from wmp.errors import ConfigError, StoreUnusable
from wmp.store.contract import JobFilter, KnownInstance, StoredJob
from wmp.store.sqlite import copies
from wmp.store.sqlite.connection import StoreFile, check_sqlite
from wmp.store.sqlite.file_lock import is_locked
from wmp.store.sqlite.file_system import check_file_system
from wmp.store.sqlite.interned import InternedTerms
from wmp.store.sqlite.row_reader import read_jobs
from wmp.store.stored_job import StoredJobState


class SqliteReader:
    """Reads a store, and changes nothing; :meth:`open` opens one.

    Attributes:
        path: The file.
        identity: Identity of the store.
        generation: Generation of the store.
    """

    identity: bytes
    generation: int

    def __init__(self, file: StoreFile) -> None:
        self.path = file.path
        self._file = file
        self._terms = InternedTerms()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SqliteReader:
        """Open a store to read it.

        Raises:
            ConfigError: There is no such file, or its file system is not fit for a store.
            StoreError: The file is no store, or cannot be read.
        """
        check_sqlite()
        place = Path(path).absolute()
        if not place.is_file():
            raise ConfigError(f"there is no store {place}; wmp.Manager(store=…) makes one")
        check_file_system(place)
        reader = SqliteReader(StoreFile(place, full=False, read_only=True))
        try:
            reader._identify()
        except BaseException:
            reader.close()
            raise
        return reader

    def _identify(self) -> None:
        """Read which store this is; from now on, another one at the path is refused."""
        with self._file.reading() as connection:
            found = connection.execute("SELECT identity, generation FROM meta").fetchone()
        self.identity, self.generation = found
        self._file.expected = (self.identity, self.generation)

    def list(
        self,
        where: JobFilter = JobFilter(),  # noqa: B008 - a frozen value
        *,
        after: int = 0,
        limit: int = 1000,
        payloads: bool = False,
    ) -> list[StoredJob]:
        """Return jobs; see :class:`~wmp.store.contract.Store`."""
        with self._file.reading() as connection:
            return read_jobs(
                connection, self._terms, where, after=after, limit=limit, payloads=payloads
            )

    def instances(self) -> builtins.list[KnownInstance]:
        """Return the instances that the store knows, oldest first."""
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT instance, label, ended FROM instances ORDER BY instance"
            ).fetchall()
        folder = self.path.with_name(self.path.name + "-instances")
        return [
            KnownInstance(number, label, ended, ended is None and is_locked(folder / str(number)))
            for number, label, ended in rows
        ]

    @property
    def place(self) -> str:
        """The path, for people."""
        return str(self.path)

    def size(self) -> int:
        """Return the bytes of the file."""
        return self.path.stat().st_size

    def counts(self) -> dict[StoredJobState, int]:
        """Return the number of jobs in each state. This reads all jobs."""
        with self._file.reading() as connection:
            rows = connection.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall()
        return {StoredJobState(state): count for state, count in rows}

    def check(self) -> builtins.list[str]:
        """Read the whole file; return what is damaged, in the words of SQLite."""
        try:
            with self._file.reading() as connection:
                rows = connection.execute("PRAGMA quick_check").fetchall()
        except StoreUnusable as error:
            return [str(error)]
        return [text for (text,) in rows if text != "ok"]

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a consistent copy of the store, while it is used.

        Raises:
            ConfigError: The path exists.
            StoreError: The copy cannot be written.
        """
        copies.write_copy(self.path, Path(path).absolute())

    def close(self) -> None:
        """Release all resources. Idempotent."""
        self._file.close()
