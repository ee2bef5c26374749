"""The file of a manager's store after a loss of power: its log is cut off at any frame."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from attrs import frozen

from tests.unit.core.manager.stored_manager import StoredManager, takes
from tests.unit.store.stores import START
from wmp.actions import End, ManagerAction
from wmp.message import Outcome
from wmp.retry import Retry
from wmp.store.contract import StoredJob
from wmp.store.sqlite.sqlite_store import SqliteStore
from wmp.store.stored_job import ENDED, StoredJobState
from wmp.testing.peers.scripted_worker import ScriptedWorker

State = StoredJobState

FRAME = 4096 + 24
"""Bytes of a frame of the log."""
HEAD = 32
"""Bytes of the log before its first frame."""

STATES = {End.OK: State.OK, End.ERROR: State.ERROR, End.CANCELLED: State.CANCELLED}


@frozen
class Mark:
    """The knowledge of the submitter when the log had so many bytes."""

    size: int
    acknowledged: frozenset[int]
    ends: dict[int, tuple[End, bytes]]


def opened(path: Path, clock: list[float]) -> SqliteStore:
    """Open the store with the clock of a test; its log is never copied into the file."""
    store = SqliteStore(
        path,
        durability="process",
        clock=lambda: START + clock[0],
        monotonic=lambda: clock[0],
    )
    store._link._open().execute("PRAGMA wal_autocheckpoint = 0")
    return store


def served(worker: ScriptedWorker, actions: Sequence[ManagerAction]) -> None:
    """Answer the jobs of all TAKEs: every seventh fails, and is tried again if its terms allow."""
    for id, attempt in takes(actions):
        if id % 7 or attempt > 1:
            worker.done([id], [b"r%d" % id], attempt=attempt)
        else:
            texts = ["no\nbuiltins.ValueError"]
            worker.done([id], [b"e"], outcome=Outcome.ERROR, attempt=attempt, texts=texts)


def run(path: Path) -> tuple[list[Mark], bytes]:
    """Run a manager with a worker; return what its submitter knew at each size, and the log."""
    clock = [1000.0]
    store = opened(path, clock)
    shutil.copy(path, path.with_suffix(".base"))
    manager = StoredManager(store=store, clock=clock)
    log = Path(f"{path}-wal")
    worker, marks = manager.worker(), list[Mark]()

    def mark() -> None:
        size = log.stat().st_size
        marks.append(Mark(size, frozenset(manager.acknowledged()), manager.ends()))

    def step(act: Callable[[], object]) -> None:
        """Note what is known before the writes of an act are answered, and after that."""
        manager.holds = True
        act()
        mark()
        manager.answer_all()
        mark()

    for turn in range(6):
        retry = Retry(times=1, on=ValueError, backoff=0.1, jitter=False) if turn % 2 else None
        payloads = [b"p%d" % turn * count for count in (1, 10, 700)]
        step(lambda: manager.submit(*payloads, retry=retry))  # noqa: B023 - called at once
        if turn == 3:
            step(lambda: manager.cancel(max(manager.acknowledged())))
        actions = worker.give(3, hold=30)
        step(lambda: served(worker, actions))  # noqa: B023 - called at once
        actions = manager.wait(0.5)
        step(lambda: served(worker, actions))  # noqa: B023 - called at once
    whole = log.read_bytes()
    store.close()
    return marks, whole


def goes_on(path: Path, mark: Mark) -> None:
    """Start a manager on the store; check what it has, and that every job ends."""
    clock = [1100.0]
    store = opened(path, clock)
    heir = StoredManager(store=store, clock=clock, identity=b"heir")
    rows: dict[int, StoredJob] = {row.id: row for row in heir.rows()}
    assert mark.acknowledged <= rows.keys()
    for id, (end, payload) in mark.ends.items():
        assert rows[id].state is STATES[end]
        assert (rows[id].result or b"") == payload
    worker = heir.worker()
    for _ in range(40):
        if all(row.state in ENDED for row in heir.rows()):
            break
        actions = heir.wake() + worker.give(3, hold=30) + heir.wait(1.0)
        served(worker, actions)
    after = {row.id: row for row in heir.rows()}
    assert after.keys() == rows.keys()
    for id, row in after.items():
        assert row.state in ENDED, row
        if rows[id].state in ENDED:
            assert (row.state, row.result) == (rows[id].state, rows[id].result)
        elif row.state is State.OK:
            assert row.result == b"r%d" % id
    assert store.check() == []
    store.close()


@pytest.mark.rule("STORE-12.1", "STORE-9.2", "STORE-9.7")
@pytest.mark.parametrize("samples", [5, pytest.param(10_000, marks=pytest.mark.deep)])
def test_a_manager_goes_on_with_every_acknowledged_job_after_a_power_cut(tmp_path, samples):
    path = tmp_path / "jobs.db"
    marks, whole = run(path)
    assert max(mark.size for mark in marks) == len(whole)
    frames = (len(whole) - HEAD) // FRAME
    assert {end for mark in marks for end, _ in mark.ends.values()} == set(STATES)
    step = max(1, frames // samples)
    for frame in range(frames, -1, -step):
        for name in ("-wal", "-shm"):
            Path(f"{path}{name}").unlink(missing_ok=True)
        path.write_bytes(path.with_suffix(".base").read_bytes())  # the inode stays
        cut = HEAD + frame * FRAME
        Path(f"{path}-wal").write_bytes(whole[:cut])
        known = [mark for mark in marks if mark.size <= cut]
        goes_on(path, known[-1] if known else Mark(0, frozenset(), {}))
