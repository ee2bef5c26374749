"""The store on SQLite when the disk, the file, the lock or another program fails it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from tests.unit.store.stores import KIND, TERMS, Client, Clock, fork, sqlite_store
from wmp.errors import ConfigError, StoreFull, StoreUnavailable, StoreUnusable
from wmp.message import Kind
from wmp.store.opening import open_reader
from wmp.store.sqlite import connection as connections
from wmp.store.sqlite import schema
from wmp.store.sqlite.file_lock import FileLock, is_locked
from wmp.store.sqlite.file_system import check_file_system, type_of
from wmp.store.sqlite.sqlite_store import SqliteStore
from wmp.store.stored_job import StoredJobInput, StoredJobState
from wmp.store.write_batch import JobChanges, NewJobs, StoredFailure, WriteBatch

State, Input = StoredJobState, StoredJobInput


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def client(path, clock, monkeypatch):
    monkeypatch.setattr(connections, "BUSY", 0.05)
    store = sqlite_store(path, clock)
    yield Client(store)
    store.close()


def batch_of(*ids: int, payload: bytes = b"x") -> WriteBatch:
    return WriteBatch(adds=[NewJobs(KIND, TERMS, ids, [payload] * len(ids))])


def fails_then_works(client: Client, error: type[Exception], text: str, mend) -> None:
    """Check that a batch fails whole, and that the same batch works after the repair."""
    batch, number = batch_of(50, 51), client.number + 1
    for _ in range(2):
        with pytest.raises(error, match=text):
            client.store.apply(client.me, number, batch)
    mend()
    assert client.store.apply(client.me, number, batch).adds[0].states == [State.QUEUED] * 2
    client.number = number
    assert [job.id for job in client.store.list() if job.id >= 50] == [50, 51]


# -- the disk --------------------------------------------------------------------------------


@pytest.mark.rule("STORE-8.1", "STORE-3.1")
def test_a_full_disk_refuses_a_batch_whole(client, monkeypatch):
    client.add(b"before")
    monkeypatch.setattr(client.store._link, "_empty_log", lambda: False)

    def limit(pages: int) -> None:
        client.store._link._open().execute(f"PRAGMA max_page_count = {pages}")

    (pages,) = client.store._link._open().execute("PRAGMA page_count").fetchone()
    big = batch_of(*range(50, 90), payload=bytes(3000))
    client.number += 1
    limit(pages + 1)
    with pytest.raises(StoreFull, match=r"no space for the store .*jobs.db"):
        client.store.apply(client.me, client.number, big)
    assert [job.payload for job in client.store.list(payloads=True)] == [b"before"]
    # The error closed the connection, and with it the limit.
    answer = client.store.apply(client.me, client.number, big)
    assert not answer.repeated
    assert len(client.store.list()) == 41


@pytest.mark.rule("STORE-8.2")
def test_a_store_of_its_largest_size_takes_ends_and_no_new_jobs(path, clock):
    store = sqlite_store(path, clock, max_bytes=400_000)
    client = Client(store)
    assert client.add(*[bytes(400)] * 100) != [0] * 100
    client.reserve(100)
    ids = client.add(*[bytes(1000)] * 300)
    assert ids == [0] * 300
    answer = client.apply(
        adds=[
            NewJobs(KIND, TERMS, range(1000, 1300), [bytes(1000)] * 300),
            NewJobs(KIND, TERMS, [2000], [b"small"]),
        ],
        changes=[JobChanges(Input.SUCCEED, [1], [1], [b"r"])],
    )
    assert [list(added.ids) for added in answer.adds] == [[0] * 300, [0]]
    assert answer.changes[0].states == [State.OK]
    assert len(store.list()) == 100
    store.close()


@pytest.mark.rule("STORE-3.3", "STORE-8.1")
@pytest.mark.parametrize("committed", [True, False])
def test_the_same_batch_again_shows_the_outcome_of_a_commit(client, monkeypatch, committed):
    (id,) = client.add(b"x")
    client.reserve()
    batch = WriteBatch(
        adds=[NewJobs(KIND, TERMS, [50], [b"new"])],
        changes=[JobChanges(Input.AGAIN, [id], [1])],
    )

    def fail(connection):
        if committed:
            connection.execute("COMMIT")
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(client.store._link, "commit", fail)
        with pytest.raises(StoreUnavailable, match="outcome of the last write is not known"):
            client.store.apply(client.me, 3, batch)
    answer = client.store.apply(client.me, 3, batch)
    assert answer.repeated is committed
    assert (client.job(id).failed, client.job(id).attempt) == (1, 1)
    assert client.job(50).payload == b"new"


@pytest.mark.rule("STORE-8.1")
def test_an_error_of_the_disk_names_what_to_check():
    """A limit of file sizes and a quota are such errors, and not a full disk."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = 778  # SQLITE_IOERR_WRITE
    words = connections.in_words(error, "jobs.db")
    assert isinstance(words, StoreUnavailable)
    assert "check the disk, its quotas and limits of file sizes" in str(words)


# -- locks -----------------------------------------------------------------------------------


@pytest.mark.rule("STORE-8.1", "STORE-8.3")
def test_a_lock_of_another_program_is_named(client, path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    fails_then_works(client, StoreUnavailable, "another program has locked", other.close)


@pytest.mark.rule("STORE-9.3")
def test_a_transaction_waits_for_the_lock_of_all_processes(client, path):
    lock = FileLock(path.with_name("jobs.db-lock"), path)
    assert lock.try_acquire()
    fails_then_works(client, StoreUnavailable, "another process has locked", lock.close)


@pytest.mark.rule("STORE-9.3")
def test_a_process_that_waits_is_not_overtaken(client, path):
    turn = FileLock(path.with_name("jobs.db-turn"), path)
    assert turn.try_acquire()  # as a process that waits
    fails_then_works(client, StoreUnavailable, "another process has locked", turn.close)


# -- the file --------------------------------------------------------------------------------


@pytest.mark.rule("STORE-8.1", "STORE-8.3")
def test_a_file_that_is_gone_is_missed_and_used_when_it_is_back(client, path):
    client.add(b"before")
    away = path.with_name("away.db")
    path.rename(away)
    batch = batch_of(50)
    client.number += 1
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=r"gone|cannot be opened"):
            client.store.apply(client.me, client.number, batch)
    assert not path.exists()
    away.rename(path)
    client.store.apply(client.me, client.number, batch)
    assert [job.id for job in client.store.list()] == [1, 50]


@pytest.mark.rule("STORE-8.1", "STORE-10.5")
@pytest.mark.parametrize("copied", [True, False])
def test_another_store_at_the_path_is_refused(client, path, clock, copied):
    others: list[SqliteStore] = []
    client.add(b"x")
    away = path.with_name("away.db")
    for end in ("", "-wal", "-shm"):
        os.rename(f"{path}{end}", f"{away}{end}")
    if copied:
        for end in ("", "-wal"):
            shutil.copy(f"{away}{end}", f"{path}{end}")
    else:
        others.append(sqlite_store(path, clock))
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="start the process again"):
            client.apply()
    for other in others:
        assert other.check() == other.list() == []
        other.close()


@pytest.mark.rule("STORE-8.3")
def test_a_log_without_its_store_is_no_new_store(path, clock):
    log = path.with_name("jobs.db-wal")
    log.write_bytes(b"the log of a store whose file is gone")
    with pytest.raises(StoreUnusable, match="put the file back, or remove the log"):
        sqlite_store(path, clock)
    assert log.exists()
    assert not path.exists()


@pytest.mark.rule("STORE-8.1")
def test_a_read_only_store_is_named_and_goes_on_when_it_is_writable(clock, monkeypatch):
    monkeypatch.setattr(connections, "BUSY", 0.05)
    folder = Path(tempfile.mkdtemp(prefix="wmp-store-"))
    path = folder / "jobs.db"
    store = sqlite_store(path, clock)
    client = Client(store)
    client.add(b"x")
    store._link.reset()  # an open file stays writable
    root = os.geteuid() == 0
    folder.chmod(0o555)
    path.chmod(0o444)
    if root:
        os.seteuid(65534)

    def mend() -> None:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        path.chmod(0o644)

    try:
        fails_then_works(client, StoreUnavailable, "read-only|cannot be opened", mend)
    finally:
        mend()
        store.close()
        shutil.rmtree(folder)


@pytest.mark.rule("STORE-8.1")
def test_a_connection_that_may_not_write_is_named(client):
    def forbid() -> None:
        client.store._link._open().execute("PRAGMA query_only = ON")

    forbid()
    with pytest.raises(StoreUnavailable, match="is read-only; make the file"):
        client.add(b"x")


@pytest.mark.rule("STORE-8.1")
def test_a_file_of_another_program_is_refused(tmp_path, clock):
    text = tmp_path / "notes.txt"
    text.write_text("no database " * 1000)
    with pytest.raises(StoreUnusable, match="corrupted"):
        sqlite_store(text, clock)
    theirs = tmp_path / "theirs.db"
    with sqlite3.connect(theirs) as connection:
        connection.execute("CREATE TABLE bills(id)")
    connection.close()
    before = theirs.read_bytes()
    with pytest.raises(StoreUnusable, match="another program"):
        sqlite_store(theirs, clock)
    assert theirs.read_bytes() == before


@pytest.mark.rule("STORE-8.1", "STORE-9.7")
def test_a_damaged_page_is_an_error_when_it_is_read(path, clock):
    store = sqlite_store(path, clock)
    client = Client(store)
    client.add(*[bytes(400)] * 2000)
    assert store.check() == []
    store.close()
    with path.open("r+b") as file:
        for page in range(20, 60):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    store = sqlite_store(path, clock)
    with pytest.raises(StoreUnusable, match=r"corrupted .*restore a backup"):
        store.list(limit=10_000)
    assert store.check()
    store.close()


def test_a_store_needs_its_folder_and_right_settings(tmp_path, clock):
    with pytest.raises(ConfigError, match="there is no folder"):
        sqlite_store(tmp_path / "none" / "jobs.db", clock)
    with pytest.raises(ConfigError, match="expected 'power' or 'process'"):
        sqlite_store(tmp_path / "jobs.db", clock, durability="none")


def test_a_closed_store_states_that_it_is_closed(client):
    client.store.close()
    client.store.close()
    with pytest.raises(StoreUnusable, match="is closed"):
        client.apply()


@pytest.mark.rule("STORE-9.6")
def test_an_old_sqlite_is_refused(path, monkeypatch):
    monkeypatch.setattr(connections, "MIN_SQLITE", (99, 1, 0))
    with pytest.raises(StoreUnusable, match=r"a store needs 99.1.0"):
        SqliteStore(path)


@pytest.mark.rule("STORE-9.2")
@pytest.mark.parametrize(("durability", "level"), [("power", 2), ("process", 1)])
def test_the_durability_is_that_of_the_log(path, clock, durability, level):
    store = sqlite_store(path, clock, durability=durability)
    connection = store._link._open()
    assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


@pytest.mark.rule("STORE-9.5")
def test_a_fork_cannot_use_the_store_and_does_not_keep_its_locks(client, path):
    reading, writing = os.pipe()
    closed, closing = os.pipe()
    child = fork()
    if child == 0:
        code = 1
        try:
            os.close(writing)
            client.store.close()  # as a program does at its end
            os.write(closing, b"x")
            client.apply()
        except StoreUnusable as error:
            code = 0 if "in the parent process" in str(error) else 2
        finally:
            os.read(reading, 1)  # live on until the parent has looked
            os._exit(code)
    os.close(reading)
    lock = path.with_name("jobs.db-instances") / str(client.me.number)
    assert os.read(closed, 1) == b"x"
    assert is_locked(lock)
    client.store._locks[client.me.number].close()
    assert not is_locked(lock)
    for descriptor in (writing, closed, closing):
        os.close(descriptor)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.apply()


# -- the file system -------------------------------------------------------------------------

MOUNTS = """\
22 27 0:21 / /proc rw shared:5 - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 27 0:50 / /data rw - nfs4 host:/data rw
41 40 0:51 / /data/fast rw - ext4 /dev/vdb rw
42 27 0:52 / /my\\040data rw - fuse.sshfs host: rw
43 27 0:53 / /data2 rw - xfs /dev/vdc rw
44 43 0:54 / /data2 rw - cifs //host/x rw
short line - x
"""


@pytest.mark.rule("STORE-9.1")
def test_a_network_file_system_is_refused_with_the_reason(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    expected = {
        "/data": "nfs4",
        "/data/a/b": "nfs4",
        "/data/fast/x": "ext4",
        "/data22": "ext4",
        "/my data/x": "fuse.sshfs",
        "/data2": "cifs",
        "/srv": "ext4",
    }
    assert {folder: type_of(Path(folder), mounts) for folder in expected} == expected
    with pytest.raises(ConfigError, match="of type nfs4, which several hosts can share"):
        check_file_system(Path("/data/jobs.db"), mounts)
    check_file_system(Path("/data/fast/jobs.db"), mounts)
    check_file_system(tmp_path / "jobs.db", tmp_path / "none")
    assert type_of(tmp_path)


# -- versions and copies ---------------------------------------------------------------------


def migration(*statements: str) -> dict[int, tuple[int, tuple[str, ...]]]:
    return {schema.VERSION: (schema.VERSION + 1, statements)}


@pytest.mark.rule("STORE-10.1")
def test_an_older_store_is_migrated_when_it_is_opened(path, clock, monkeypatch):
    store = sqlite_store(path, clock)
    Client(store).add(b"x")
    store.close()
    steps = migration("ALTER TABLE jobs ADD COLUMN memo TEXT NOT NULL DEFAULT ''")
    monkeypatch.setattr(schema, "_MIGRATIONS", steps)
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    store = sqlite_store(path, clock)
    with store._link.reading() as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
        assert connection.execute("SELECT memo FROM jobs").fetchall() == [("",)]
    Client(store).add(b"y")
    store.close()


@pytest.mark.rule("STORE-10.1")
def test_a_store_of_the_first_version_gets_the_failures_of_its_jobs(path, clock):
    store = sqlite_store(path, clock)
    ids = Client(store).add(b"x")
    store.close()
    # Made by hand, as version 1.0 was.
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.execute("DROP TABLE failures")
        old.execute("ALTER TABLE jobs DROP COLUMN over")
        old.execute("DROP INDEX jobs_key")
        old.execute("DROP INDEX jobs_kept")
        old.execute("ALTER TABLE jobs DROP COLUMN role")
        old.execute("ALTER TABLE jobs DROP COLUMN unbegun")
        old.execute("CREATE UNIQUE INDEX jobs_key ON jobs(key) WHERE state < 3")
        old.execute("CREATE INDEX jobs_kept ON jobs(key, ended, id) WHERE state >= 3")
        old.execute("DROP TABLE waits")
        old.execute("DROP TABLE parents")
        old.execute("DROP TABLE watchers")
        for column in ("worker", "begun", "ran", "fraction", "note"):
            old.execute(f"ALTER TABLE jobs DROP COLUMN {column}")
        old.execute("PRAGMA user_version = 1000")
    clock.move(20)
    store = sqlite_store(path, clock)
    client = Client(store)
    assert client.reserve().attempts == [1]
    failures = [StoredFailure(1, "w", "ValueError: no")]
    client.change(StoredJobInput.AGAIN, ids, [1], failures=failures)
    assert client.reserve().attempts == [2]
    assert [failure.error for failure in client.job(ids[0]).history] == ["ValueError: no"]
    store.close()


@pytest.mark.rule("STORE-10.1")
@pytest.mark.parametrize("version", ["2_0", "3_0", "3_1"])
def test_a_reader_names_an_older_version_and_leaves_the_store_as_it_is(path, version):
    with contextlib.closing(sqlite3.connect(path)) as old:
        text = (Path(__file__).parent / f"store_{version}.sql").read_text(encoding="utf-8")
        old.executescript(text)
    before = path.read_bytes()
    reader = open_reader(path)
    assert sum(reader.counts().values()) > 0
    seen = version.replace("_", ".")
    expected = f"has schema {seen}, and this wmp reads the jobs of 3.2.*start a manager"
    with pytest.raises(StoreUnusable, match=expected):
        reader.list()
    reader.close()
    assert path.read_bytes() == before


@pytest.mark.rule("STORE-10.1")
def test_a_migration_that_fails_leaves_the_old_version(path, clock, monkeypatch):
    sqlite_store(path, clock).close()
    with monkeypatch.context() as patched:
        steps = migration("ALTER TABLE jobs ADD COLUMN memo TEXT", "DROP TABLE absent")
        patched.setattr(schema, "_MIGRATIONS", steps)
        patched.setattr(schema, "VERSION", schema.VERSION + 1)
        with pytest.raises(StoreUnusable, match="no such table"):
            sqlite_store(path, clock)
        patched.setattr(schema, "_MIGRATIONS", {})
        with pytest.raises(StoreUnusable, match=r"schema 3.2, which no version of wmp made"):
            sqlite_store(path, clock)
    store = sqlite_store(path, clock)
    with store._link.reading() as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
        columns = [row[1] for row in connection.execute("PRAGMA table_info(jobs)")]
    assert "memo" not in columns
    store.close()


@pytest.mark.rule("STORE-10.2", "STORE-8.1")
def test_a_higher_minor_version_is_shared_and_a_higher_major_one_refused(client, path, clock):
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 3007")
    client.add(b"x")
    sqlite_store(path, clock).close()
    other.execute("PRAGMA user_version = 4000")
    with pytest.raises(StoreUnusable, match=r"schema 4.0, and this wmp knows up to 3.x"):
        client.add(b"y")
    with pytest.raises(StoreUnusable, match="install a newer wmp"):
        sqlite_store(path, clock)
    other.execute("PRAGMA user_version = 3001")
    assert len(client.store.list()) == 1
    other.close()


@pytest.mark.rule("STORE-10.3", "STORE-10.4", "STORE-5.1")
def test_a_backup_is_consistent_and_begins_a_generation_when_it_is_opened(client, clock, tmp_path):
    ids = client.add(b"a", b"b" * 1000, b"c")
    client.reserve(1)
    copy = tmp_path / "copy.db"
    client.store.backup(copy)
    with pytest.raises(ConfigError, match="exists"):
        client.store.backup(copy)
    later = client.add(b"later")
    clock.move(5)
    restored = sqlite_store(copy, clock)

    assert restored.identity == client.store.identity
    assert restored.generation >= int(clock.wall * 1000) > client.store.generation
    assert [job.id for job in restored.list()] == ids
    heir = Client(restored)
    assert heir.me.block.start > max(client.me.block)
    assert heir.me.block.start > later[0]
    assert heir.me.block.stop < 2**62
    clock.move(11)
    heir.sweep()
    assert heir.reserve().ids == ids
    # The original goes on.
    client.add(b"x")
    generation = restored.generation
    restored.close()
    again = sqlite_store(copy, clock)
    assert again.generation == generation
    again.close()


@pytest.mark.rule("STORE-10.3", "STORE-10.4")
def test_a_copy_by_other_means_is_noticed_by_its_inode(path, clock, tmp_path):
    store = sqlite_store(path, clock)
    Client(store).add(b"x")
    generation = store.generation
    store.close()
    shutil.copy(path, tmp_path / "copy.db")
    path.rename(tmp_path / "moved.db")
    for name, expected in (("copy.db", True), ("moved.db", False)):
        opened = sqlite_store(tmp_path / name, clock)
        assert (opened.generation > generation) is expected
        opened.close()


@pytest.mark.rule("STORE-10.3", "STORE-10.5")
def test_a_generation_is_raised_by_hand(client, path, clock):
    generation = client.store.generation
    other = sqlite_store(path, clock)
    other.restored()
    assert other.generation > generation
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="start the process again"):
            client.apply()
        client.store._link.reset()
    heir = Client(other)
    heir.add(b"x")
    other.close()


@pytest.mark.rule("STORE-10.1", "STORE-7.1")
def test_a_store_of_version_2_gets_keys_of_roles(path, clock):
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript((Path(__file__).parent / "store_2_0.sql").read_text(encoding="utf-8"))
    store = sqlite_store(path, clock)
    client = Client(store)
    states = {job.id: (job.state.name, job.kind.role, job.key) for job in store.list()}
    assert states == {
        1: ("CANCELLING", "a", "k"),
        2: ("QUEUED", "b", "other"),
        3: ("RESERVED", "a", None),
        4: ("OK", "a", "ended"),
    }
    a, b = Kind("a"), Kind("b")
    assert client.add(b"x", kind=b, keys=["other"]) == [2]
    assert client.add(b"x", kind=a, keys=["other"]) != [2]
    assert client.add(b"x", kind=a, keys=["ended"], unique="kept") == [4]
    assert client.add(b"x", kind=b, keys=["ended"], unique="kept") != [4]
    assert client.job(client.add(b"r:", kind=b, after=[4], splice=2)[0]).payload == b"r:three"
    store.close()


@pytest.mark.rule("STORE-10.1", "STORE-10.2", "STORE-12.14")
def test_a_store_of_version_3_0_gets_the_workers_of_its_jobs(path, clock):
    with contextlib.closing(sqlite3.connect(path)) as old:
        old.executescript((Path(__file__).parent / "store_3_0.sql").read_text(encoding="utf-8"))
    store = sqlite_store(path, clock)
    client = Client(store)
    states = {job.id: (job.state.name, job.running, job.worker) for job in store.list()}
    assert states == {
        1: ("RESERVED", False, None),
        2: ("OK", False, None),
        3: ("WAITING", False, None),
    }
    clock.move(30)
    client.sweep()
    clock.move(30)
    client.sweep()
    reserved = client.reserve(kind=Kind("a"))
    client.change(
        StoredJobInput.SUCCEED,
        reserved.ids,
        reserved.attempts,
        payloads=[b"one"],
        workers=["pi:7"],
        ages_ms=[250],
    )
    job = client.job(1)
    assert (job.worker, job.begun, job.ended) == ("pi:7", job.ended - 250, job.ended)
    assert client.job(3).payload == b"r:one"
    store.close()
