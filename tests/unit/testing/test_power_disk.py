"""The disk of power cuts: what survives, and in which order; and the lines of strace."""

from __future__ import annotations

import random

import pytest

from wmp.errors import ConfigError
from wmp.testing.power import system_calls
from wmp.testing.power.disk import KINDS, SECTOR, PowerDisk
from wmp.testing.power.system_calls import FileCall

A, B, FOLDER = "/d/a", "/d/b", "/d"


def written(file: int, data: bytes, at: int = 0) -> FileCall:
    return FileCall("write", A, at=at, data=data, file=file)


def survivors(disk: PowerDisk, kind: str) -> list[dict[str, bytes]]:
    """Return the different files of many cuts of a kind."""
    states: list[dict[str, bytes]] = []
    for seed in range(60):
        files, _ = disk.cut(kind, random.Random(seed))
        if files not in states:
            states.append(files)
    return states


def played(*calls: FileCall) -> PowerDisk:
    disk = PowerDisk()
    for call in calls:
        disk.play(call)
    return disk


MADE = FileCall("create", A, file=1)
SYNCED = FileCall("sync", A, file=1)
FOLDER_SYNCED = FileCall("sync", FOLDER, file=9)


def test_bytes_survive_by_their_sync_and_names_by_that_of_the_folder():
    assert survivors(played(MADE, written(1, b"x"), SYNCED), "none") == [{}]
    assert survivors(played(MADE, FOLDER_SYNCED, written(1, b"x")), "none") == [{A: b""}]
    disk = played(MADE, written(1, b"x"), SYNCED, FOLDER_SYNCED)
    assert disk.settled
    for kind in KINDS:
        assert survivors(disk, kind) == [{A: b"x"}]


def test_writes_without_a_sync_survive_in_any_order():
    disk = played(MADE, FOLDER_SYNCED, written(1, b"x"), written(1, b"y", at=1))
    assert survivors(disk, "all") == [{A: b"xy"}]
    some = [state[A] for state in survivors(disk, "some")]
    assert sorted(some) == [b"", b"\0y", b"x", b"xy"]


def test_names_survive_in_their_order():
    disk = played(MADE, FOLDER_SYNCED, FileCall("link", A, B), FileCall("unlink", A))
    names = [sorted(state) for state in survivors(disk, "some")]
    assert sorted(names) == [[A], [A, B], [B]]
    moved = played(MADE, FOLDER_SYNCED, FileCall("rename", A, B))
    assert sorted(sorted(state) for state in survivors(moved, "some")) == [[A], [B]]


def test_a_torn_write_has_whole_sectors():
    disk = played(MADE, FOLDER_SYNCED, written(1, b"x" * (3 * SECTOR)))
    torn = {bytes(state[A]) for state in survivors(disk, "torn")}
    for data in torn:
        parts = {data[start : start + SECTOR] for start in range(0, len(data), SECTOR)}
        assert parts <= {b"x" * SECTOR, b"\0" * SECTOR}
    assert any(data[:1] == b"\0" for data in torn)
    assert any(len(data) == SECTOR for data in torn)


def test_sizes_change():
    grown = FileCall("size", A, at=4, grows=True, file=1)
    cut = FileCall("size", A, at=1, file=1)
    disk = played(MADE, FOLDER_SYNCED, written(1, b"xy"), grown)
    assert survivors(disk, "all") == [{A: b"xy\0\0"}]
    disk.play(cut)
    assert survivors(disk, "all") == [{A: b"x"}]


def quoted(text: str) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'


def test_lines_of_strace_become_calls():
    lines = [
        f"7 openat(AT_FDCWD, {quoted(A)}, O_RDWR|O_CREAT, 0600) = 3",
        f"7 openat(AT_FDCWD, {quoted('/other')}, O_RDWR) = 4",
        f"7 write(4, {quoted('no')}, 2) = 2",
        f"7 write(3, {quoted('ab')}, 2) = 2",
        f"7 write(3, {quoted('cd')}, 2) = 1",
        f"7 pwrite64(3, {quoted('e')}, 1, 9) = 1",
        "7 fdatasync(3) = 0",
        "7 ftruncate(3, 5) = 0",
        f"7 unlink({quoted(B)}) = -1 ENOENT (No such file or directory)",
        f"7 rename({quoted(A)}, {quoted(B)}) = 0",
        "7 close(3) = 0",
        "7 fsync(3) = -1 EBADF (Bad file descriptor)",
        "7 +++ exited with 0 +++",
    ]
    calls = list(system_calls._parsed(iter(lines), FOLDER))
    assert calls == [
        FileCall("create", A, file=1),
        FileCall("write", A, data=b"ab", file=1),
        FileCall("write", A, at=2, data=b"c", file=1),
        FileCall("write", A, at=9, data=b"e", file=1),
        FileCall("sync", A, file=1),
        FileCall("size", A, at=5, file=1),
        FileCall("rename", A, B),
    ]
    strange = [lines[0], "7 writev(3, [], 0) = 0"]
    with pytest.raises(ConfigError, match="writev of /d/a, which the replay does not know"):
        list(system_calls._parsed(iter(strange), FOLDER))


def test_a_missing_strace_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(system_calls.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="apt-get install strace"):
        system_calls.record(["true"], tmp_path)
