"""Where the store of a run lives, and what may happen to it there: full disks, copies, servers."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.store_checker.small_mount import SmallMount, in_namespace
from wmp.store.opening import make_store, open_reader, restore_store

__all__ = ["Home", "PostgresHome", "SqliteHome", "home_of"]

_MOUNT = 512 << 20
"""Bytes of the small file system with the store."""


class Home:
    """The store of a run.

    Attributes:
        address: Address of the store for the checker.
        addresses: Addresses for four programs.
        kinds: The faults that only this kind of store has.
    """

    address: str
    addresses: list[str]
    kinds: tuple[str, ...]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mount = SmallMount(folder / "disk", _MOUNT) if in_namespace() else None
        self.disk = folder / "disk"
        self.disk.mkdir(exist_ok=True)

    def open(self) -> Any:
        """Open the store."""
        return make_store(self.address)

    def fill(self) -> None:
        """Fill the disk of the store."""
        assert self.mount is not None
        self.mount.fill()

    def free(self) -> None:
        """Make space on the disk of the store."""
        assert self.mount is not None
        self.mount.free()

    def exists(self) -> bool:
        """Return whether there is a store."""
        raise NotImplementedError

    def copy(self) -> None:
        """Make a backup while programs use the store."""
        raise NotImplementedError

    def restore(self) -> None:
        """Put the backup in the place of the store; no program uses the store."""
        raise NotImplementedError

    def close(self) -> None:
        """Release all resources."""
        if self.mount is not None:
            self.mount.close()


class SqliteHome(Home):
    """A store on SQLite, in a file on a small file system."""

    kinds = ("clock", "all", "all", "power")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = str(self.disk / "jobs.db")
        self.addresses = [self.address] * 4
        self._backup = folder / "backup.db"
        self.set_clock(0.0)

    def set_clock(self, offset: float) -> None:
        """Set the clock of the programs, which is ``offset`` seconds ahead."""
        part = self.folder / "clock.part"
        part.write_bytes(struct.pack("d", offset))
        part.replace(self.folder / "clock")

    def exists(self) -> bool:
        return Path(self.address).exists()

    def copy(self) -> None:
        self._backup.unlink(missing_ok=True)
        reader = open_reader(self.address)
        try:
            reader.backup(self._backup)
        finally:
            reader.close()

    def restore(self) -> None:
        self.set_clock(0.0)  # the clock of the operator
        kept = restore_store(self._backup, self.address)
        for end in ("", "-wal", "-shm", "-mark"):
            Path(f"{kept}{end}").unlink(missing_ok=True)


class PostgresHome(Home):
    """A store on PostgreSQL: a server on a small file system, and a proxy for each program."""

    kinds = ("server", "commit", "cut", "hole")

    def __init__(self, folder: Path) -> None:
        from tests.postgres.proxy import PostgresProxy
        from tests.postgres.server import PostgresServer

        super().__init__(folder)
        self.server = PostgresServer(self.disk)
        self.address = self.server.url
        self.proxies = [PostgresProxy(self.address) for _ in range(4)]
        self.addresses = [proxy.url for proxy in self.proxies]
        self._backup = folder / "backup"

    def exists(self) -> bool:
        import psycopg

        with psycopg.connect(self.address) as connection:
            row = connection.execute("SELECT to_regclass('wmp.meta') IS NOT NULL").fetchone()
        return bool(row and row[0])

    def restart(self) -> None:
        """Kill the server, and start it again."""
        self.server.kill()
        self.server.start()

    def free(self) -> None:
        super().free()
        # A server that cannot write its log ends, and does not come back by itself.
        time.sleep(0.5)
        if self.server.ended():
            self.server.start()

    def copy(self) -> None:
        """Copy the files of the server, which is killed before and started again."""
        shutil.rmtree(self._backup, ignore_errors=True)
        self.server.kill()
        subprocess.run(["cp", "-a", self.server.data, self._backup], check=True)
        self.server.start()

    def restore(self) -> None:
        self.server.kill()
        shutil.rmtree(self.server.data)
        subprocess.run(["cp", "-a", self._backup, self.server.data], check=True)
        self.server.start()
        store = self.open()
        store.restored()  # as `wmp jobs restore --in-place` does
        store.close()

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()
        self.server.stop()
        super().close()


def home_of(kind: str, folder: Path) -> SqliteHome | PostgresHome:
    """Return the home of a store on ``sqlite`` or ``postgres``."""
    return PostgresHome(folder) if kind == "postgres" else SqliteHome(folder)
