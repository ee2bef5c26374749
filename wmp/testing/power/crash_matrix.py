"""Cuts the power after every call of a trace, and compares the store with the acknowledgements."""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from wmp.errors import StoreError
from wmp.store.contract import JobFilter
from wmp.store.sqlite.sqlite_store import SqliteStore
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, Reservation, WriteBatch
from wmp.testing.power.disk import KINDS, PowerDisk, write_files
from wmp.testing.power.system_calls import FileCall, record
from wmp.testing.power.workload import KIND, payload_of, result_of

_MANY: Final = 1_000_000


@frozen
class Knowledge:
    """The log of the program at one moment."""

    begun: dict[str, dict[str, Any]] = field(factory=dict)
    """The jobs of each batch that was begun."""
    known: set[str] = field(factory=set)
    """The batches that were acknowledged."""

    def read(self, data: bytes) -> None:
        """Read the lines of one write."""
        for line in data.splitlines():
            note = json.loads(line)
            if "asks" in note:
                self.begun[note["asks"]] = note
            else:
                self.known.add(note["knows"])

    def known_jobs(self, what: str) -> set[int]:
        """Return the jobs of the acknowledged batches: ``adds`` or ``ends``."""
        return {id for name in self.known for id in self.begun[name].get(what, ())}


@frozen
class PowerCut:
    """One power cut and what was wrong after it; ``fault`` is empty if nothing was."""

    call: int
    kind: str
    fault: str = ""
    detail: str = ""


@frozen
class CrashMatrix:
    """A recorded trace, which can be cut anywhere.

    Attributes:
        calls: The calls of the program.
        store: Path of the store in the trace.
        log: Path of the log in the trace.
        folder: Path of the folder in the trace.
        seed: Number from which the program and the cuts are drawn.
    """

    calls: Sequence[FileCall]
    store: str
    log: str
    folder: str
    seed: int

    @classmethod
    def recorded(cls, batches: int, seed: int, durability: str) -> CrashMatrix:
        """Run the program of :mod:`wmp.testing.power.workload` and record its calls.

        Raises:
            ConfigError: The calls cannot be recorded.
        """
        folder = Path(tempfile.mkdtemp(prefix="wmp-power-")).resolve()
        store, log = str(folder / "jobs.db"), str(folder / "log")
        program = [sys.executable, "-m", "wmp.testing.power.workload", store, log]
        try:
            calls = record([*program, str(batches), str(seed), durability], folder)
        finally:
            shutil.rmtree(folder)
        return cls(calls, store, log, str(folder), seed)

    def batches(self) -> int:
        """Return the number of acknowledged batches."""
        knowledge = Knowledge()
        for call in self.calls:
            if call.path == self.log:
                knowledge.read(call.data)
        return len(knowledge.known)

    def drawn_calls(self, count: int) -> tuple[int, ...]:
        """Return the numbers of calls that are drawn from the seed, for :meth:`cuts`."""
        numbers = [number for number, call in enumerate(self.calls) if call.path != self.log]
        return tuple(random.Random(self.seed).sample(numbers, min(count, len(numbers))))

    def cuts(self, chosen: Container[int] | None = None) -> Iterator[PowerCut]:
        """Cut the power after every call, or after the chosen ones; yield each cut."""
        disk, knowledge = PowerDisk(), Knowledge()
        for number, call in enumerate(self.calls):
            if call.path == self.log:
                knowledge.read(call.data)
                continue
            disk.play(call)
            if call.what == "open" or (chosen is not None and number not in chosen):
                continue
            for kind in ("all",) if disk.settled else KINDS:
                draw = random.Random(f"{self.seed} {number} {kind}")
                yield self._cut(number, kind, *disk.cut(kind, draw), knowledge)

    def _cut(
        self,
        number: int,
        kind: str,
        files: dict[str, bytes],
        folders: set[str],
        knowledge: Knowledge,
    ) -> PowerCut:
        fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with tempfile.TemporaryDirectory(prefix="wmp-power-", dir=fast) as name:

            def move(path: str) -> Path:
                return Path(name) / Path(path).relative_to(self.folder)

            write_files(files, sorted(folders), move)
            try:
                fault, detail = compared(move(self.store), knowledge)
            except StoreError as error:
                fault, detail = "unusable", str(error)
        return PowerCut(number, kind, fault, detail)


def compared(path: Path, knowledge: Knowledge) -> tuple[str, str]:
    """Open a store after a power cut, compare it with a log, and do its jobs.

    Returns:
        The fault and its detail: ``lost``, ``half``, ``wrong``, ``damaged`` or ``stuck``; empty
        texts if nothing is wrong.

    Raises:
        StoreError: The store cannot be used.
    """
    store = SqliteStore(path, durability="process", reserve=0, grace=0.0)
    try:
        if damages := store.check():
            return "damaged", str(damages)
        jobs = {job.id: job for job in store.list(limit=_MANY, payloads=True)}
        if lost := knowledge.known_jobs("adds") - jobs.keys():
            return "lost", f"acknowledged jobs {sorted(lost)[:9]}"
        for id in knowledge.known_jobs("ends"):
            if jobs[id].state is not StoredJobState.OK:
                return "lost", f"the acknowledged end of job {id}"
        for name, note in knowledge.begun.items():
            stored = [id in jobs for id in note.get("adds", ())]
            ended = [
                jobs[id].state is StoredJobState.OK for id in note.get("ends", ()) if id in jobs
            ]
            if len(set(stored)) > 1 or len(set(ended)) > 1:
                return "half", f"batch {name}"
        for id, job in jobs.items():
            result = result_of(id) if job.state is StoredJobState.OK else None
            if (job.payload, job.result) != (payload_of(id), result):
                return "wrong", f"job {id} in state {job.state.name}"
        return _finished(store, len(jobs))
    finally:
        store.close()


def _finished(store: SqliteStore, count: int) -> tuple[str, str]:
    """Do all jobs; return the fault if some do not end."""
    me = store.begin(b"after", "after")
    numbers: Callable[[], int] = iter(range(1, _MANY)).__next__
    for _ in range(2):
        store.apply(me, numbers(), WriteBatch(sweep=1000))
        wanted = [Reservation(KIND, _MANY, 1 << 40)]
        (reserved,) = store.apply(me, numbers(), WriteBatch(reservations=wanted)).reserved
        results = [result_of(id) for id in reserved.ids]
        ends = JobChanges(StoredJobInput.SUCCEED, reserved.ids, reserved.attempts, results)
        store.apply(me, numbers(), WriteBatch(changes=[ends]))
    states = Counter(job.state for job in store.list(JobFilter(), limit=_MANY))
    # The grace of workers: jobs that the instance of the trace has reserved lapse later.
    left = count - states[StoredJobState.OK] - states[StoredJobState.RESERVED]
    return ("stuck", f"{left} jobs: {dict(states)}") if left else ("", "")
