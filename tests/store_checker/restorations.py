"""Backups that are put in the place of a store, by the command and by hand."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.store_checker.forked import Forked
from tests.store_checker.ledger import MANY, Broken, Ledger, some_sizes
from tests.unit.store.stores import Client
from wmp.errors import StoreError, StoreUnusable
from wmp.store.opening import open_reader, restore_store
from wmp.store.sqlite.sqlite_store import SqliteStore

__all__ = ["Restorations"]

_CALLS: Final = frozenset(
    {"open", "os.chmod", "os.link", "os.remove", "os.rename", "os.truncate", "sqlite3.connect"}
)
"""The events of Python that change files of a restoration, or come before a change."""

_WAYS: Final = (
    "by the command",
    "by the command, killed",
    "by the command, killed at a call",
    "by cp",
    "by mv",
    "by mv under a process",
    "by mv of another store and back",
)


def content(path: Path) -> dict[str | None, tuple[Any, ...]]:
    """Return the jobs of a store or of a copy."""
    reader = open_reader(path)
    try:
        jobs = reader.list(limit=MANY, payloads=True)
    finally:
        reader.close()
    return {job.key: (job.id, job.state, job.payload, job.result) for job in jobs}


def _restore_until(copy: Path, path: Path, calls: int) -> None:
    """Restore a store; kill this process before the call with a number that changes its files."""
    left = calls

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in _CALLS or not str(arguments[0]).startswith(str(path.parent)):
            return
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    sys.addaudithook(count)
    restore_store(copy, path)


class Restorations:
    """One store for each try: jobs, a backup, more jobs, and the backup in its place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._longest = 0.1
        """Seconds of a restoration that nobody killed."""
        self._calls = 0
        """Number of calls that change files in a restoration; 0 before the first."""

    def play(self, number: int, draw: random.Random) -> str:
        """Make one try; return the way of the restoration.

        Raises:
            Broken: The store did not keep its word.
        """
        folder = self._folder / str(number)
        folder.mkdir()
        path, copy = folder / "jobs.db", folder / "copy.db"
        logs = folder / "log", folder / "log2"
        # A process that ends without closing the store leaves a log beside it, often.
        self._run(path, logs[0], "a", draw, closes=draw.random() < 0.3)
        reader = open_reader(path)
        reader.backup(copy)
        generation = reader.generation
        reader.close()
        self._run(path, logs[1], "b", draw, closes=draw.random() < 0.3)
        backup, later = content(copy), content(path)
        way = draw.choice(_WAYS)
        outcome = self._restored(path, copy, way, draw, (backup, later))
        if not outcome.startswith("the earlier store"):
            if content(path) != backup:
                raise Broken(f"wrong: after a restoration {way} the store differs from its backup")
            self._use(path, generation, max(job[0] for job in later.values()))
        shutil.rmtree(folder)
        return f"{way}: {outcome}"

    def _run(self, path: Path, log: Path, name: str, draw: random.Random, closes: bool) -> None:
        seed = draw.randrange(1 << 30)
        if Forked(self._write, path, log, name, seed, closes).wait():
            raise Broken("unusable: a process cannot write")

    def _write(self, path: Path, log: Path, name: str, seed: int, closes: bool) -> None:
        draw, ledger = random.Random(seed), Ledger(log)
        store = SqliteStore(path, durability="process", reserve=1 << 16)
        client = Client(store, name.encode())
        for batch in range(draw.choice([1, 5, 30])):
            ledger.add(client, f"{name}.{batch}", some_sizes(draw, 3000))
            if draw.random() < 0.4:
                ledger.end_some(client, 4)
        if closes:
            store.close()

    def _restored(
        self,
        path: Path,
        copy: Path,
        way: str,
        draw: random.Random,
        contents: tuple[dict[Any, Any], dict[Any, Any]],
    ) -> str:
        if way == "by the command":
            began = time.monotonic()
            restore_store(copy, path)
            self._longest = max(self._longest, time.monotonic() - began)
            return "restored"
        if way == "by the command, killed at a call":
            if not self._calls:
                self._calls = self._count_calls(copy, path.with_name("other.db"))
            run = Forked(_restore_until, copy, path, draw.randrange(self._calls))
            return self._after_kill(path, copy, contents) if run.wait() < 0 else "not killed"
        if way == "by the command, killed":
            run = Forked(restore_store, copy, path)
            run.kill_at(draw.random() * self._longest * 1.1)
            killed = run.wait() < 0
            return self._after_kill(path, copy, contents) if killed else "not killed in time"
        part = path.with_name("part")
        shutil.copyfile(copy, part)
        if way == "by cp":
            shutil.copyfile(copy, path)
            return self._opened_or_refused(path, copy)
        if way == "by mv":
            os.replace(part, path)
            return self._opened_or_refused(path, copy)
        if way == "by mv under a process":
            return self._replaced_under_a_process(path, copy, part)
        return self._moved_and_back(path, part, contents[1])

    def _count_calls(self, copy: Path, path: Path) -> int:
        """Return the number of calls of a restoration over another store."""
        shutil.copyfile(copy, path)
        calls = 0
        while Forked(_restore_until, copy, path, calls).wait() < 0:
            calls += 1
            restore_store(copy, path)
        return calls

    def _after_kill(
        self, path: Path, copy: Path, contents: tuple[dict[Any, Any], dict[Any, Any]]
    ) -> str:
        backup, later = contents
        try:
            present = content(path)
        except StoreUnusable as error:
            if "interrupted" not in str(error):
                raise Broken(f"unusable: {error}") from error
            restore_store(copy, path)
            return "killed in the exchange, and restored again"
        if present not in (later, backup):
            raise Broken("wrong: a killed restoration left neither the store nor the backup")
        restore_store(copy, path)
        before = "before" if present == later else "after"
        return f"killed {before} the exchange, and restored again"

    def _opened_or_refused(self, path: Path, copy: Path) -> str:
        try:
            SqliteStore(path, durability="process", reserve=0).close()
        except StoreUnusable:
            restore_store(copy, path)
            return "refused, then restored by the command"
        return "taken as a copy"

    def _replaced_under_a_process(self, path: Path, copy: Path, part: Path) -> str:
        """A living process must notice, and change neither file."""
        store = SqliteStore(path, durability="process", reserve=0)
        client = Client(store, b"living")
        os.replace(part, path)
        try:
            client.add(b"new", keys=["new"])
        except StoreUnusable:
            store.close()
        else:
            raise Broken("lost: a process got an acknowledgement after its file was replaced")
        return self._opened_or_refused(path, copy)

    def _moved_and_back(self, path: Path, part: Path, later: dict[Any, Any]) -> str:
        """A store moved in for a while and back costs nothing."""
        aside = path.with_name("aside")
        os.replace(path, aside)
        os.replace(part, path)
        try:
            SqliteStore(path, durability="process", reserve=0).close()
            answer = "taken"
        except StoreError:
            answer = "refused"
        os.replace(path, part)
        os.replace(aside, path)
        if content(path) != later:
            raise Broken(f"lost: another store was moved in ({answer}) and back, and jobs are gone")
        return f"the earlier store, the other one was {answer}"

    def _use(self, path: Path, generation: int, highest: int) -> None:
        """Go on with a restored store: a new generation, new numbers, and all jobs end."""
        store = SqliteStore(path, durability="process", reserve=1 << 16, grace=0.0)
        try:
            if store.generation <= generation:
                raise Broken(f"wrong: the generation is {store.generation}, before {generation}")
            if damages := store.check():
                raise Broken(f"wrong: {damages}")
            client = Client(store, b"after")
            (id,) = client.add(b"after ", keys=["after"])
            if id <= highest:
                raise Broken(f"wrong: job {id} has a number that may have been given before")
            client.sweep(1000)
            while len(reserved := client.reserve(100).ids):
                if id in reserved:
                    return
            raise Broken("stuck: a new job is not reserved")
        finally:
            store.close()
