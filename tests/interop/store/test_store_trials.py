"""Many tries of one kind of fault, and the faults that such tries find."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.interop.programs.programs import ENVIRON, ROOT
from tests.postgres.server import why_no_server
from tests.store_checker.first_starts import FirstStarts
from tests.store_checker.ledger import Broken
from tests.store_checker.restorations import Restorations
from tests.waiting import RUN
from wmp.store.sqlite import connection as store_file
from wmp.store.sqlite import schema
from wmp.store.sqlite.replaced_file import FileMark
from wmp.store.sqlite.sqlite_store import SqliteStore

pytestmark = pytest.mark.interop

NO_NAMESPACE = 2


def tried(kind: str, store: str, tries: int) -> dict[str, Any]:
    """Make tries in a process of their own; skip where they are not possible."""
    if store == "postgres" and (reason := why_no_server()):
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.store_checker.trials", kind, "--store", store]
    done = subprocess.run(
        [*command, "--tries", str(tries)],
        cwd=ROOT,
        env=ENVIRON,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN,
    )
    if done.returncode == NO_NAMESPACE:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert sum(report["what happened"].values()) == tries
    return report


@pytest.mark.rule("STORE-9.10")
def test_a_store_is_as_good_as_new_after_kills_in_its_first_start() -> None:
    assert any("killed" in what for what in tried("first-start", "sqlite", 12)["what happened"])


@pytest.mark.rule("STORE-10.6", "STORE-9.9")
def test_a_backup_is_put_in_place_whole_or_not_at_all() -> None:
    assert len(tried("restore", "sqlite", 8)["what happened"]) > 1


@pytest.mark.rule("STORE-8.4")
def test_jobs_end_on_a_full_disk_also_after_a_kill() -> None:
    tried("full-disk", "sqlite", 4)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("kind", ["first-start", "restore", "full-disk"])
def test_a_hundred_tries_of_each_kind_find_no_fault(kind: str, store: str) -> None:
    tried(kind, store, 100)


def broken_by(play: Any, tries: int) -> str:
    """Make tries until a store breaks its word; return how."""
    for number in range(tries):
        try:
            play(number, random.Random(number))
        except Broken as broken:
            return str(broken)
    return ""


def test_tries_find_a_store_that_is_not_made_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_in_steps(path: Path, _access: Any, identity: bytes, now: int) -> bool:
        if path.exists():
            return False
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        time.sleep(0.1)  # the window, held open
        schema.create(connection, identity, now, path.stat().st_ino)
        connection.close()
        return True

    monkeypatch.setattr(store_file, "make_if_new", make_in_steps)

    def opened(number: int) -> SqliteStore:
        return SqliteStore(tmp_path / f"{number}.db", durability="process", reserve=0, grace=0.0)

    assert broken_by(FirstStarts(opened, tmp_path).play, 200).startswith("unusable")


def test_tries_find_a_store_whose_log_is_played_into_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileMark, "check", lambda self: None)
    assert broken_by(Restorations(tmp_path).play, 60)
