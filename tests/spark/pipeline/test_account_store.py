"""The store of an account: a save writes what changed, and a kill leaves the save before."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import RUN
from wmp.errors import ConfigError, WMPError
from wmp.spark.folds.folds import Group, OpenGroup
from wmp.spark.pipeline import account_store
from wmp.spark.pipeline.account_store import AccountStore


def group(text: str) -> OpenGroup:
    return OpenGroup(text.encode(), {}, {}, {})


def loaded(folder: Path) -> tuple[object, dict[Group, bytes]]:
    saved = AccountStore(folder).load()
    assert saved is not None
    return saved[0], {key: group.state for key, group in saved[1].items()}


def test_nothing_was_saved(tmp_path):
    assert AccountStore(tmp_path / "account").load() is None


def test_an_account_of_another_release_is_an_error(tmp_path):
    AccountStore(tmp_path).save("saved", {})
    (own,) = tmp_path.iterdir()
    other = own.rename(tmp_path / "account.pickle")

    with pytest.raises(ConfigError) as raised:
        AccountStore(tmp_path).load()

    assert str(raised.value) == (
        f"{other} was saved by another release; expected {own.name}: remove the folder {tmp_path}, "
        "and the journals are read again from their beginning"
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"no database" * 100,
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(b"xxx", b"xyx", 1),
    ],
)
def test_a_damaged_file_is_an_error_with_a_remedy(tmp_path, damage):
    groups = {("fact", n, 0): group("x" * 100) for n in range(100)}
    AccountStore(tmp_path).save("saved", groups)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(ConfigError, match=rf"^the saved .* is damaged .*: remove the .*{tmp_path}"):
        AccountStore(tmp_path).load()


def test_a_file_that_cannot_be_read_is_not_a_damaged_file(tmp_path):
    AccountStore(tmp_path).save("saved", {})
    (path,) = tmp_path.iterdir()
    path.unlink()
    path.mkdir()

    with pytest.raises(WMPError, match=rf"^cannot read the saved report in {path}: unable to open"):
        AccountStore(tmp_path).load()


def test_a_save_writes_the_groups_that_changed(tmp_path, monkeypatch):
    store = AccountStore(tmp_path)
    groups = {("fact", n, 0): group("x") for n in range(50)}
    store.save("first", groups)
    written = []
    monkeypatch.setattr(
        account_store.pickle,
        "dumps",
        lambda state, _: written.append(state) or pickle._dumps(state),
    )

    del groups["fact", 7, 0]
    groups["fact", 8, 0] = group("new")
    store.save("second", groups)

    assert written == [groups["fact", 8, 0], "second"]
    rest, kept = loaded(tmp_path)
    assert rest == "second"
    assert kept == {key: state.state for key, state in groups.items()}


def test_many_saves_leave_few_bytes(tmp_path):
    store, groups = AccountStore(tmp_path), {("fact", n, 0): group("x" * 100) for n in range(20)}
    for number in range(200):
        groups["fact", number % 20, 0] = group(f"{number}" * 30)
        store.save(number, groups)

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 20 * 400
    assert loaded(tmp_path) == (199, {key: counted.state for key, counted in groups.items()})


KILLED = """
import os, sys
from pathlib import Path
from wmp.spark.pipeline.account_store import AccountStore
from wmp.spark.folds.folds import OpenGroup

class Kill:
    def __reduce__(self):
        os._exit(9)

store = AccountStore(Path(sys.argv[1]))
_, groups = store.load()
large = {key: OpenGroup(os.urandom(1 << 20), {}, {}, {}) for key in groups}
store.save(Kill(), large)
"""


def test_a_kill_during_a_save_leaves_the_save_before(tmp_path):
    """So much was written that a part of it is in the file."""
    groups = {("fact", n, 0): group("old") for n in range(8)}
    AccountStore(tmp_path).save("before", groups)
    (path,) = tmp_path.iterdir()
    size = path.stat().st_size

    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=RUN)

    assert killed.returncode == 9
    assert path.stat().st_size > size
    assert loaded(tmp_path) == ("before", dict.fromkeys(groups, b"old"))


def test_a_file_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    store = AccountStore(tmp_path / "account")
    store._path = tmp_path / "gone" / "account"

    with pytest.raises(WMPError, match=r"^cannot save .*gone/account: unable to open"):
        store.save("saved", {})
