"""A store on SQLite as its readers see it."""

from __future__ import annotations

import os
from pathlib import Path

from wmp.errors import ConfigError, StoreUnusable
from wmp.store.contract import KnownInstance
from wmp.store.sql.sql_reader import SqlReader
from wmp.store.sqlite import copies
from wmp.store.sqlite.connection import StoreFile, check_sqlite
from wmp.store.sqlite.file_lock import is_locked
from wmp.store.sqlite.file_system import check_file_system
from wmp.store.sqlite.row_reader import SqliteRows


class SqliteReader(SqlReader[StoreFile]):
    """Reads a store, and changes nothing; :meth:`open` opens one."""

    ROWS = SqliteRows

    @property
    def path(self) -> Path:
        """The file."""
        return self._link.path

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SqliteReader:
        """Open a store to read it.

        Raises:
            ConfigError: There is no such file, or its file system is not fit for a store.
            StoreError: The file is not a store, or cannot be read.
        """
        check_sqlite()
        real_path = Path(os.path.realpath(path))
        if not real_path.is_file():
            raise ConfigError(f"there is no store {real_path}; wmp.Manager(store=…) makes one")
        check_file_system(real_path)
        reader = SqliteReader(StoreFile(real_path, full=False, read_only=True))
        try:
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
        folder = self.path.with_name(self.path.name + "-instances")
        return [
            KnownInstance(number, label, ended, ended is None and is_locked(folder / str(number)))
            for number, label, ended in rows
        ]

    def size(self) -> int:
        """Return the bytes of the file."""
        return self.path.stat().st_size

    def check(self) -> list[str]:
        """Read the whole file; return what is damaged, in the words of SQLite."""
        try:
            with self._link.reading() as connection:
                rows = connection.execute("PRAGMA integrity_check").fetchall()
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
