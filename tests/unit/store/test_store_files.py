"""The files of a store: a log beside the wrong file, first starts, restorations, and modes."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.unit.store.stores import Client, fork, sqlite_store
from wmp.errors import ConfigError, StoreError, StoreUnavailable, StoreUnusable
from wmp.store.opening import restore_store
from wmp.store.sqlite import file_access, new_file, restoration
from wmp.store.sqlite.sqlite_reader import SqliteReader
from wmp.store.sqlite.sqlite_store import SqliteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


def killed_with_a_log(path: Path, clock, jobs: int) -> None:
    """Add jobs in a process that is killed, so that its log stays."""
    child = fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            client = Client(sqlite_store(path, clock))
            client.add(*[b"x%d" % job for job in range(jobs)])
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert Path(f"{path}-wal").stat().st_size


def payloads(path: Path, clock) -> list[bytes]:
    store = sqlite_store(path, clock)
    try:
        assert store.check() == []
        return [job.payload for job in store.list(payloads=True)]
    finally:
        store.close()


def put_by_move(copy: Path, path: Path) -> None:
    os.replace(shutil.copy(copy, f"{copy}2"), path)


def put_by_copy(copy: Path, path: Path) -> None:
    shutil.copyfile(copy, path)


@pytest.mark.rule("STORE-9.9")
@pytest.mark.parametrize("put", [put_by_move, put_by_copy])
@pytest.mark.parametrize("backup", [True, False])
def test_a_log_is_not_copied_into_another_file(path, tmp_path, clock, put, backup):
    source = path if backup else tmp_path / "other.db"
    store = sqlite_store(source, clock)
    Client(store).add(b"old")
    store.backup(tmp_path / "copy.db")
    store.close()
    if not backup:  # a store of its own, not a backup
        (tmp_path / "copy.db").unlink()
        shutil.copy(source, tmp_path / "copy.db")
    killed_with_a_log(path, clock, 50)
    log = Path(f"{path}-wal").read_bytes()
    put(tmp_path / "copy.db", path)
    for act in (lambda: sqlite_store(path, clock), lambda: SqliteReader.open(path)):
        with pytest.raises(StoreUnusable, match=r"log jobs.db-wal does not belong to the file"):
            act()
    assert path.read_bytes() == (tmp_path / "copy.db").read_bytes()
    assert Path(f"{path}-wal").read_bytes() == log


@pytest.mark.rule("STORE-9.9")
def test_a_folder_that_was_copied_whole_is_used(tmp_path, clock):
    first = tmp_path / "first"
    first.mkdir()
    killed_with_a_log(first / "jobs.db", clock, 3)
    shutil.copytree(first, tmp_path / "second")
    assert payloads(tmp_path / "second" / "jobs.db", clock) == [b"x0", b"x1", b"x2"]
    assert payloads(first / "jobs.db", clock) == [b"x0", b"x1", b"x2"]


@pytest.mark.rule("STORE-9.9")
def test_a_backup_that_was_opened_may_be_killed(path, tmp_path, clock):
    store = sqlite_store(tmp_path / "first.db", clock)
    Client(store).add(b"old")
    store.backup(path)
    store.close()
    killed_with_a_log(path, clock, 1)
    assert payloads(path, clock) == [b"old", b"x0"]


@pytest.mark.rule("STORE-10.6")
def test_a_backup_takes_the_place_of_a_store_with_a_log(path, tmp_path, clock):
    store = sqlite_store(path, clock)
    Client(store).add(b"old")
    generation = store.generation
    store.backup(tmp_path / "copy.db")
    with pytest.raises(StoreUnavailable, match="a process uses the store"):
        restore_store(tmp_path / "copy.db", path)
    store.close()
    killed_with_a_log(path, clock, 2)
    kept = restore_store(tmp_path / "copy.db", path)
    assert kept is not None
    assert payloads(path, clock) == [b"old"]
    assert payloads(kept, clock) == [b"old", b"x0", b"x1"]
    restored = sqlite_store(path, clock)
    assert restored.generation > generation
    restored.close()


@pytest.mark.rule("STORE-10.6")
def test_a_restoration_that_was_interrupted_is_done_again(path, tmp_path, clock, monkeypatch):
    store = sqlite_store(path, clock)
    Client(store).add(b"old")
    store.backup(tmp_path / "copy.db")
    store.close()
    killed_with_a_log(path, clock, 2)

    def interrupted(part, target):
        if Path(target) == path:
            raise OSError("interrupted")
        replace(part, target)

    replace = os.replace
    with monkeypatch.context() as patched:
        patched.setattr(restoration.os, "replace", interrupted)
        with pytest.raises(StoreError):
            restore_store(tmp_path / "copy.db", path)
    with pytest.raises(StoreUnusable, match="was interrupted; run `wmp jobs restore"):
        sqlite_store(path, clock)
    restore_store(tmp_path / "copy.db", path)
    assert payloads(path, clock) == [b"old"]


@pytest.mark.rule("STORE-10.6")
def test_only_a_whole_copy_is_restored(path, tmp_path, clock):
    sqlite_store(path, clock).close()
    with pytest.raises(ConfigError, match="there is no store"):
        restore_store(tmp_path / "none.db", path)
    with pytest.raises(ConfigError, match="is the store itself"):
        restore_store(path, path)
    (tmp_path / "text.db").write_bytes(b"text" * 5000)
    with pytest.raises(StoreError):
        restore_store(tmp_path / "text.db", path)
    with pytest.raises(ConfigError, match="tools of the server"):
        restore_store("copy.db", "postgresql://host/db")
    assert payloads(path, clock) == []


@pytest.mark.rule("STORE-9.10")
@pytest.mark.parametrize("step", ["create", "fsync", "write_mark", "publish", "sync"])
def test_a_first_start_that_is_killed_at_any_step_leaves_a_usable_path(
    path, clock, monkeypatch, step
):
    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    where = {
        "create": (new_file.schema, "create"),
        "fsync": (new_file.os, "fsync"),
        "write_mark": (new_file.FileMark, "write"),
        "publish": (new_file, "publish"),
        "sync": (new_file, "sync_folder"),
    }[step]
    child = fork()
    if child == 0:
        setattr(*where, die)
        with contextlib.suppress(BaseException):
            sqlite_store(path, clock)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.exists() is (step == "sync")
    assert payloads(path, clock) == []
    assert not path.with_name("jobs.db-new").exists()


@pytest.mark.rule("STORE-9.10")
@pytest.mark.parametrize("wal", [True, False])
def test_a_file_without_tables_is_new(path, clock, wal):
    if wal:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    else:
        path.touch()
    store = sqlite_store(path, clock)
    assert Client(store).add(b"x") == [1]
    store.close()


@pytest.mark.rule("STORE-9.10")
def test_processes_that_start_at_once_make_one_store(path, clock):
    reading, writing = os.pipe()
    children = []
    for number in range(8):
        child = fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                os.close(writing)
                os.read(reading, 1)  # until the parent closes the pipe
                store = SqliteStore(path)
                Client(store, b"%d" % number).add(b"x")
                store.close()
                code = 0
            os._exit(code)
        children.append(child)
    os.close(writing)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(reading)
    assert codes == [0] * 8
    assert payloads(path, clock) == [b"x"] * 8


@pytest.mark.rule("STORE-9.8")
def test_the_files_of_a_new_store_are_private(path, clock):
    mask = os.umask(0)
    try:
        store = sqlite_store(path, clock)
        Client(store).add(b"x")
        store.backup(path.with_name("copy.db"))
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        instance = next(path.with_name("jobs.db-instances").iterdir())
        modes["instance"] = instance.stat().st_mode & 0o777
        store.close()
    finally:
        os.umask(mask)
    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-lock", "jobs.db-mark"} <= set(modes)
    assert modes.pop("jobs.db-instances") == 0o700
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.rule("STORE-9.8")
def test_a_group_may_share_a_new_store(path, clock):
    group = os.getgid() if os.geteuid() else 65534
    mask = os.umask(0o077)
    try:
        store = sqlite_store(path, clock, group=group)
        Client(store).add(b"x")
        files = {file.name: file.stat() for file in path.parent.iterdir()}
        store.close()
    finally:
        os.umask(mask)
    assert {status.st_gid for status in files.values()} == {group}
    assert files.pop("jobs.db-instances").st_mode & 0o777 == 0o770
    assert {status.st_mode & 0o777 for status in files.values()} == {0o660}
    with pytest.raises(ConfigError, match="there is no group 'none-of-this-host'"):
        sqlite_store(path, clock, group="none-of-this-host")


@pytest.mark.rule("STORE-9.8")
def test_an_open_store_gets_one_warning_and_keeps_its_mode(path, clock, caplog):
    sqlite_store(path, clock).close()
    path.chmod(0o644)
    file_access._warned.discard(path)
    with caplog.at_level(logging.WARNING, logger="wmp"):
        for _ in range(2):
            sqlite_store(path, clock).close()
    texts = [record.getMessage() for record in caplog.records if "has the mode" in record.message]
    assert len(texts) == 1
    assert "other users can read payloads and results; chmod 600" in texts[0]
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.rule("STORE-9.9", "STORE-12.1")
@pytest.mark.parametrize("shift", range(-6, 7))
def test_a_torn_page_of_a_checkpoint_is_mended_by_the_log(path, clock, shift):
    killed_with_a_log(path, clock, 20)
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as file:
        (root,) = file.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'meta'").fetchone()
        (size,) = file.execute("PRAGMA page_size").fetchone()
    # The pointer to the row is of one version of the page, and the row of another version.
    with path.open("r+b") as file:
        file.seek(size * (root - 1) + 8)
        pointer = int.from_bytes(file.read(2), "big") + shift
        file.seek(size * (root - 1) + 8)
        file.write(min(pointer, size - 1).to_bytes(2, "big"))
    assert len(payloads(path, clock)) == 20
