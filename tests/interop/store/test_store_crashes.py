"""Stores of processes that are killed, and logs that are cut off: no acknowledged batch is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import struct
from pathlib import Path

import pytest

from tests.unit.store.stores import KIND, TERMS, Client, Clock, fork, sqlite_store
from wmp.store.sqlite.sqlite_store import SqliteStore
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, NewJobs, Reservation, WriteBatch

State, Input = StoredJobState, StoredJobInput

GROUP = 5
"""Jobs of a batch."""

BATCHES = 8
"""Batches in the log that is cut off."""


def works_until_killed(path: Path, acknowledged: int) -> None:
    """In a child: add, reserve and end jobs; write the number of each acknowledged batch."""
    store = SqliteStore(path, durability="process")
    me = store.begin(b"child", "child")
    ids = list(me.block)
    number, attempts = 0, []
    held: list[int] = []
    while True:
        number += 1
        new = [ids.pop(0) for _ in range(GROUP)]
        payloads = [b"%d/%d" % (me.number, number)] * GROUP
        batch = WriteBatch(
            adds=[NewJobs(KIND, TERMS, new, payloads)],
            changes=[JobChanges(Input.SUCCEED, held, attempts, [b"r"] * len(held))],
            reservations=[Reservation(KIND, GROUP, 1 << 20)],
            sweep=10,
        )
        answer = store.apply(me, number, batch)
        held, attempts = list(answer.reserved[0].ids), list(answer.reserved[0].attempts)
        os.write(acknowledged, struct.pack("<QQQ", me.number, number, len(held)))


def run_and_kill(path: Path, batches: int) -> tuple[int, int]:
    """Fork a child, kill it after some batches; return instance and last acknowledged batch."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            os.close(reading)
            works_until_killed(path, writing)
        finally:
            os._exit(1)
    os.close(writing)
    instance = last = 0
    for _ in range(batches):
        data = os.read(reading, 24)
        assert len(data) == 24, "the child ended by itself"
        instance, last, _ = struct.unpack("<QQQ", data)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while data := os.read(reading, 24):
        instance, last, _ = struct.unpack("<QQQ", data)
    os.close(reading)
    return instance, last


def check_whole(path: Path, acknowledged: dict[int, int]) -> None:
    """Check that each acknowledged batch is whole, and that none is half."""
    store = SqliteStore(path, durability="process")
    groups: dict[bytes, int] = {}
    for job in store.list(limit=1_000_000, payloads=True):
        assert job.payload is not None
        groups[job.payload] = groups.get(job.payload, 0) + 1
        assert (job.result is not None) == (job.state is State.OK)
        assert job.attempt >= (job.state is not State.QUEUED)
    assert set(groups.values()) == {GROUP}
    for instance, last in acknowledged.items():
        for number in range(1, last + 1):
            assert b"%d/%d" % (instance, number) in groups
        # One batch more may have been committed and not acknowledged.
        assert b"%d/%d" % (instance, last + 2) not in groups
    assert store.check() == []
    store.close()


@pytest.mark.interop
@pytest.mark.rule("STORE-3.1", "STORE-9.2")
@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.deep)])
def test_no_acknowledged_batch_is_lost_or_half_when_a_process_is_killed(tmp_path, kills):
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    print(f"seed {seed}")
    path, acknowledged = tmp_path / "jobs.db", {}
    for _ in range(kills):
        instance, last = run_and_kill(path, draw.randint(1, 40))
        acknowledged[instance] = last
    check_whole(path, acknowledged)

    # All jobs of the killed processes run, and each once to its end.
    clock = Clock()
    clock.wall += 10 * 365 * 86400
    store = sqlite_store(path, clock)
    heir = Client(store)
    open_jobs = {job.id: job for job in store.list(limit=1_000_000) if job.state < State.OK}
    heir.sweep(1_000_000)
    clock.move(11)
    heir.sweep(1_000_000)
    reserved = heir.reserve(1_000_000, 1 << 30)
    assert set(reserved.ids) == open_jobs.keys()
    for id, attempt, lost in zip(reserved.ids, reserved.attempts, reserved.lost, strict=True):
        assert (attempt, lost) == (open_jobs[id].attempt + 1, 0)
    states = heir.change(
        Input.SUCCEED, reserved.ids, reserved.attempts, payloads=[b"r"] * len(reserved.ids)
    )
    assert set(states) <= {State.OK}
    store.close()


def works_until_done(path: Path, begun: int) -> None:
    """In a child: reserve jobs and end them, until none is left; write each reserved attempt."""
    store = SqliteStore(path, durability="process")
    me = store.begin(b"child", "child")
    number, done = 0, []
    while True:
        number += 1
        batch = WriteBatch(changes=done, reservations=[Reservation(KIND, 7, 1 << 20)])
        (reserved,) = store.apply(me, number, batch).reserved
        if not reserved.ids and not done:
            return
        for id, attempt in zip(reserved.ids, reserved.attempts, strict=True):
            os.write(begun, struct.pack("<QQ", id, attempt))
        done = [JobChanges(Input.SUCCEED, reserved.ids, reserved.attempts, reserved.payloads)]
        if not reserved.ids:
            done = []


@pytest.mark.interop
@pytest.mark.rule("STORE-2.4", "STORE-9.3")
def test_processes_that_share_a_store_are_given_each_attempt_once(tmp_path):
    path = tmp_path / "jobs.db"
    client = Client(SqliteStore(path, durability="process"))
    ids = client.add(*[b"%d" % number for number in range(400)])
    reading, writing = os.pipe()
    children = []
    for _ in range(3):
        child = fork()
        if child == 0:
            try:
                works_until_done(path, writing)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        begun = [struct.unpack("<QQ", data) for data in iter(lambda: file.read(16), b"")]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert sorted(begun) == [(id, 1) for id in ids]
    assert {job.state for job in client.store.list()} == {State.OK}
    client.store.close()


@pytest.mark.rule("STORE-3.1", "STORE-9.2", "STORE-9.7")
def test_a_log_that_is_cut_off_anywhere_has_every_whole_batch_before_the_cut(tmp_path):
    path, log = tmp_path / "jobs.db", tmp_path / "jobs.db-wal"
    clock = Clock()
    store = sqlite_store(path, clock)
    client = Client(store)
    store._link._open().execute("PRAGMA wal_autocheckpoint = 0")
    shutil.copy(path, tmp_path / "base.db")
    sizes = []
    """Bytes of the log when each batch was acknowledged."""
    for number in range(1, BATCHES + 1):
        reserve = [Reservation(KIND, 2, 999)] if number % 3 == 0 else []
        ids = [next(client.ids) for _ in range(GROUP)]
        payloads = [b"%d" % number * draw for draw in (1, 100, 600, 3000, 5000)]
        client.apply(adds=[NewJobs(KIND, TERMS, ids, payloads)], reservations=reserve)
        sizes.append(log.stat().st_size)
    whole = log.read_bytes()
    store.close()

    frame = 4096 + 24
    assert (len(whole) - 32) % frame == 0
    ends = range(32, len(whole) + 1, frame)
    cut = tmp_path / "cut.db"
    seen = set()
    for end in [*ends, *(end + 1000 for end in ends[:-1])]:
        for name in ("cut.db-wal", "cut.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        shutil.copy(tmp_path / "base.db", cut)
        (tmp_path / "cut.db-wal").write_bytes(whole[:end])
        connection = sqlite3.connect(cut)
        count = dict.fromkeys(range(1, BATCHES + 1), 0)
        for (id,) in connection.execute("SELECT id FROM jobs"):
            count[(id - 1) // GROUP + 1] += 1
        row = connection.execute("SELECT batch FROM instances").fetchone()
        bodies = connection.execute(
            "SELECT count(*) FROM jobs LEFT JOIN bodies USING(id)"
            " WHERE jobs.payload IS NULL AND bodies.payload IS NULL"
        ).fetchone()
        connection.close()
        applied = 0 if row is None else row[0]
        assert [applied >= number for number in count] == [bool(ended) for ended in count.values()]
        assert set(count.values()) <= {0, GROUP}
        assert bodies == (0,)
        acknowledged = sum(size <= end for size in sizes)
        assert applied >= acknowledged
        seen.add(applied)
    assert seen == set(range(BATCHES + 1))
