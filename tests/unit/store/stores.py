"""Stores for tests: clocks that the test moves, and short calls."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wmp.message import Kind
from wmp.store.contract import JobFilter, Store, StoreInstance
from wmp.store.job_terms import StoredTerms
from wmp.store.sqlite.sqlite_store import SqliteStore
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import BatchAnswer, JobChanges, NewJobs, Reservation, WriteBatch

KIND = Kind("echo")
TERMS = StoredTerms()
START = 1_800_000_000.0


def fork() -> int:
    """Fork. Python 3.12 warns of this in a process with threads, as those of pytest-xdist are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Clock:
    """Wall and monotonic time in seconds, which only the test moves."""

    def __init__(self) -> None:
        self.wall, self.steady = START, 1000.0

    def move(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone."""
        self.wall += seconds


def sqlite_store(path: Path, clock: Clock, **more: Any) -> SqliteStore:
    """Open a store with the clocks of a test, without waits for the disk."""
    settings = {
        "durability": "process",
        "reserve": 0,
        "clock": lambda: clock.wall,
        "monotonic": lambda: clock.steady,
        **more,
    }
    return SqliteStore(path, **settings)


class Client:
    """One instance of a store, and short calls."""

    def __init__(self, store: Store, identity: bytes = b"m") -> None:
        self.store = store
        self.me: StoreInstance = store.begin(identity, "test")
        self.number = 0
        self.ids = iter(self.me.block)

    def apply(self, **parts: Any) -> BatchAnswer:
        self.number += 1
        return self.store.apply(self.me, self.number, WriteBatch(**parts))

    def add(self, *payloads: bytes, **more: Any) -> list[int]:
        """Add jobs; return their numbers."""
        ids = [next(self.ids) for _ in payloads]
        new = NewJobs(**{"kind": KIND, "terms": TERMS, "ids": ids, "payloads": payloads, **more})
        return list(self.apply(adds=[new]).adds[0].ids)

    def reserve(self, count: int = 100, size: int = 1 << 20, kind: Kind = KIND) -> Any:
        return self.apply(reservations=[Reservation(kind, count, size)]).reserved[0]

    def change(
        self, what: StoredJobInput, ids: Sequence[int], attempts: Any = None, **more: Any
    ) -> list[StoredJobState]:
        """Make one change; return the states after it."""
        changes = self.changed(what, ids, attempts, **more)
        return list(self.apply(changes=[changes]).changes[0].states)

    def changed(
        self, what: StoredJobInput, ids: Sequence[int], attempts: Any = None, **more: Any
    ) -> JobChanges:
        """Return one change."""
        return JobChanges(what, ids, attempts, **more)

    def sweep(self, limit: int = 100) -> Any:
        return self.apply(sweep=limit).swept

    def job(self, id: int) -> Any:
        """Return one job with its payload and result; None if it is absent."""
        return next(iter(self.store.list(JobFilter(ids=[id]), payloads=True)), None)
