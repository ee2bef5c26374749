"""The traced program: a real store that adds, reserves and ends jobs, and a log of what it knows.

``python -m wmp.testing.power.workload STORE LOG BATCHES SEED DURABILITY``
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any, Final, Literal, cast

from wmp.message import Kind
from wmp.store.job_terms import StoredTerms
from wmp.store.sqlite.sqlite_store import SqliteStore
from wmp.store.stored_job import StoredJobInput
from wmp.store.write_batch import JobChanges, NewJobs, Reservation, WriteBatch

KIND: Final = Kind("power")
TERMS: Final = StoredTerms()

_CHECKPOINT: Final = 40
"""Pages of the log after which SQLite copies the log into the file: soon, so that cuts hit it."""


def payload_of(id: int) -> bytes:
    """Return the payload of a job: its size follows from its number."""
    return b"p%d " % id * (1 + id * 37 % 900)


def result_of(id: int) -> bytes:
    """Return the result of a job."""
    return b"r%d " % id * (1 + id * 53 % 700)


class _Party:
    """One instance, which writes to the log before and after each batch."""

    def __init__(self, store: SqliteStore, log: int) -> None:
        self._store = store
        self._log = log
        self._me = store.begin(b"power", "power")
        self._ids = iter(self._me.block)
        self._number = 0

    def apply(self, note: dict[str, list[int]], **parts: Any) -> Any:
        """Apply a batch; the log has its jobs before, and its number after that."""
        self._number += 1
        name = f"{self._me.number}.{self._number}"
        _note(self._log, {"asks": name, **note})
        answer = self._store.apply(self._me, self._number, WriteBatch(**parts))
        _note(self._log, {"knows": name})
        return answer

    def play(self, draw: random.Random, batches: int) -> None:
        """Apply batches: adds, and then reservations and ends."""
        for _ in range(batches):
            ids = [next(self._ids) for _ in range(draw.choice([1, 1, 3, 12]))]
            new = NewJobs(KIND, TERMS, ids, [payload_of(id) for id in ids])
            self.apply({"adds": ids}, adds=[new])
            if draw.random() < 0.5:
                wanted = Reservation(KIND, draw.choice([1, 4]), 1 << 24)
                (reserved,) = self.apply({}, reservations=[wanted]).reserved
                results = [result_of(id) for id in reserved.ids]
                ends = JobChanges(StoredJobInput.SUCCEED, reserved.ids, reserved.attempts, results)
                self.apply({"ends": list(reserved.ids)}, changes=[ends])


def _note(log: int, line: dict[str, Any]) -> None:
    os.write(log, json.dumps(line).encode() + b"\n")


def main() -> None:
    """Play on a new store, close and open it, play on, and end without closing it."""
    path, log, batches, seed, durability = sys.argv[1:]
    draw = random.Random(int(seed))
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for last in (False, True):
        store = SqliteStore(
            Path(path),
            durability=cast(Literal["power", "process"], durability),
            reserve=1 << 16,
        )
        store._link._open().execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")
        _Party(store, descriptor).play(draw, max(1, int(batches) // 2))
        if not last:
            store.close()
    os._exit(0)


if __name__ == "__main__":
    main()
