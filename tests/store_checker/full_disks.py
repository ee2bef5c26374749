"""Stores on a disk that is really full, and processes that are killed there."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any, Final

from tests.store_checker.forked import Forked
from tests.store_checker.ledger import Broken, Ledger, some_sizes
from tests.store_checker.small_mount import SmallMount
from tests.unit.store.stores import Client
from wmp.errors import StoreError, StoreFull
from wmp.store.sqlite.sqlite_store import SqliteStore
from wmp.store.stored_job import StoredJobInput

__all__ = ["FullDisks", "FullServers"]

_MIB: Final = 1 << 20


class FullDisks:
    """A store on SQLite for each try, on a file system of a few MiB.

    A process fills the disk by jobs, or by a file of another program. Then it ends and cancels jobs
    on the full disk, and is killed. Another process starts there, ends all jobs and purges them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def play(self, number: int, draw: random.Random) -> str:
        """Make one try; return what filled the disk, and what was killed.

        Raises:
            Broken: The store did not keep its word.
        """
        folder = self._folder / str(number)
        mount = SmallMount(folder / "disk", draw.choice([5, 6, 8]) * _MIB)
        path, log = mount.folder / "jobs.db", folder / "log"
        ledger = Ledger(log)
        by_jobs, seed = draw.random() < 0.5, draw.randrange(1 << 30)
        run = Forked(self._fill, path, log, seed, None if by_jobs else mount)
        try:
            while not any("full" in line for line in ledger.lines()):
                if run.ended():
                    raise Broken("unusable: the process that fills the disk failed")
                time.sleep(0.001)
            run.kill_after(draw.random() ** 2 * 0.1)
            code = run.wait()
            if code > 0:
                raise Broken("stuck: jobs cannot end on a full disk")
            taken = not by_jobs and draw.random() < 0.5
            if taken:
                mount.fill()  # what the killed process had freed
            waited = self._finish(path, ledger, mount, taken)
        finally:
            ledger.close()
            mount.close()
            shutil.rmtree(folder, ignore_errors=True)
        what = "jobs" if by_jobs else "another program"
        took = ", and the other program took the reserve" if waited else ""
        return f"filled by {what}, {'killed' if code else 'ended'}{took}"

    def _fill(self, path: Path, log: Path, seed: int, mount: SmallMount | None) -> None:
        draw, ledger = random.Random(seed), Ledger(log)
        store = SqliteStore(path, durability="process", reserve=_MIB, grace=0.0)
        client = Client(store, b"fills")
        size, batch = draw.choice([100, 3000, 20_000]), 0
        try:
            while mount is None or batch < 20:
                ids = ledger.add(client, f"a{batch}", some_sizes(draw, size))
                if not all(ids):
                    break
                batch += 1
        except StoreFull:
            client.number -= 1  # the store has nothing of the batch
        if mount is not None:
            mount.fill()
        ledger.note(full=True)
        while ledger.end_some(client, draw.choice([1, 3, 20])):
            if draw.random() < 0.1:
                reserved = client.reserve(2)
                client.change(StoredJobInput.RELEASE, reserved.ids, reserved.attempts)

    def _finish(self, path: Path, ledger: Ledger, mount: SmallMount, taken: bool) -> bool:
        """Start on the full disk and end all jobs there.

        Args:
            path: The path of the store.
            ledger: The log of its instances.
            mount: The disk.
            taken: Whether another program may have taken the reserve that the store had given up.
                Then the store may wait for space, and must lose nothing.

        Returns:
            Whether the store waited for space.
        """
        try:
            self._end_all(path, ledger, mount)
            return False
        except StoreFull as error:
            if not taken:
                raise Broken(f"unusable: {error}") from error
        except StoreError as error:
            raise Broken(f"unusable: {error}") from error
        mount.free()
        try:
            self._end_all(path, ledger, mount)
        except StoreError as error:
            raise Broken(f"unusable although there is space: {error}") from error
        return True

    def _end_all(self, path: Path, ledger: Ledger, mount: SmallMount) -> None:
        """End all jobs, purge them, and go on when there is space."""
        store = SqliteStore(path, durability="process", reserve=_MIB, grace=0.0)
        try:
            ledger.compare(store)
            client = Client(store, b"starts")
            ledger.finish(client)
            ledger.compare(store)
            while jobs := store.list(limit=500):
                client.change(StoredJobInput.FORGET, [job.id for job in jobs])
            mount.free()
            mount.resize(16 * _MIB)
            if not all(client.add(b"new ", keys=["new"])):
                raise Broken("stuck: there is space, and the store refuses a new job")
            if damages := store.check():
                raise Broken(f"wrong: {damages}")
        finally:
            store.close()


class FullServers:
    """A server of PostgreSQL on a small file system, which is filled for each try.

    The server refuses changes, or ends because it cannot write its log. When there is space, what
    was acknowledged is there, and the same batch learns its outcome.
    """

    def __init__(self, mount: SmallMount, server: Any, folder: Path) -> None:
        self._mount, self._server, self._folder = mount, server, folder

    def play(self, number: int, draw: random.Random) -> str:
        """Make one try; return what the server did.

        Raises:
            Broken: The store did not keep its word.
        """
        from wmp.store.postgres.postgres_store import PostgresStore

        ledger = Ledger(self._folder / f"{number}.log")
        store = PostgresStore(f"{self._server.url}&schema=t{number}", grace=0.0)
        client = Client(store, b"fills")
        ledger.add(client, "before", [100] * 5)
        self._mount.fill(draw.choice([0, 0, 1 << 14, 1 << 17, _MIB]))
        outcome = self._fill(client, ledger, draw)
        self._mount.free()
        if self._server.ended():
            self._server.start()
            outcome = "the server ended"
        try:
            filling, client = client, self._again(store)
            store.end(filling.me)  # its reserved jobs lapse
            ledger.compare(store)
            ledger.finish(client)
            ledger.compare(store)
        except StoreError as error:
            raise Broken(f"unusable: {error}") from error
        finally:
            store.close()
            ledger.close()
        self._drop(number)
        return outcome

    def _fill(self, client: Client, ledger: Ledger, draw: random.Random) -> str:
        size = draw.choice([100, 8000, 100_000])
        for batch in range(200):
            try:
                if draw.random() < 0.3:
                    ledger.end_some(client, 2)
                else:
                    ledger.add(client, f"a{batch}", some_sizes(draw, size))
            except StoreError as error:
                return f"refused: {type(error).__name__}"
        return "nothing was refused"

    def _again(self, store: Any) -> Client:
        """Begin an instance when the server is back."""
        until = time.monotonic() + 60.0
        while True:
            try:
                return Client(store, b"again")
            except StoreError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _drop(self, number: int) -> None:
        import psycopg

        with psycopg.connect(self._server.url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA t{number} CASCADE")
