"""The store of an account: a save writes what changed, and a kill leaves the save before."""

from __future__ import annotations

from pathlib import Path

import pytest

from wmp.errors import ConfigError
from wmp.spark.account_store import AccountStore
from wmp.spark.folds import Group, OpenGroup


def group(text: str) -> OpenGroup:
    return OpenGroup(text.encode(), {}, {}, {})


def loaded(folder: Path) -> tuple[object, dict[Group, bytes]]:
    saved = AccountStore(folder).load()
    assert saved is not None
    return saved[0], {key: one.state for key, one in saved[1].items()}


def test_nothing_was_saved(tmp_path):
    assert AccountStore(tmp_path / "account").load() is None


def test_an_account_of_another_release_is_an_error(tmp_path):
    AccountStore(tmp_path).save("saved", {})
    (own,) = tmp_path.glob("*.pickle")
    other = own.rename(tmp_path / "account.pickle")

    with pytest.raises(ConfigError) as raised:
        AccountStore(tmp_path).load()

    assert str(raised.value) == (
        f"{other} was saved by another release; expected {own.name}: remove the folder {tmp_path}, "
        "and the journals are read again from their beginning"
    )


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("*.pickle", lambda path: path.write_bytes(b"")),
        ("*.pickle", lambda path: path.write_bytes(path.read_bytes()[:-9])),
        ("*.groups", lambda path: path.write_bytes(b"")),
        ("*.groups", Path.unlink),
    ],
)
def test_a_damaged_file_is_an_error_with_a_remedy(tmp_path, name, damage):
    AccountStore(tmp_path).save("saved", {("fact", 1, 0): group("x")})
    (path,) = tmp_path.glob(name)
    damage(path)

    with pytest.raises(ConfigError, match=rf"^the saved .* is damaged .*: remove the .*{tmp_path}"):
        AccountStore(tmp_path).load()


def test_a_save_writes_the_groups_that_changed(tmp_path):
    store = AccountStore(tmp_path)
    groups = {("fact", n, 0): group("x" * 1000) for n in range(50)}
    store.save("first", groups)
    (first,) = tmp_path.glob("*.groups")

    del groups["fact", 7, 0]
    groups["fact", 8, 0] = group("new")
    store.save("second", groups)

    (second,) = set(tmp_path.glob("*.groups")) - {first}
    assert second.stat().st_size < first.stat().st_size / 20
    rest, found = loaded(tmp_path)
    assert rest == "second"
    assert found == {key: one.state for key, one in groups.items()}


def test_many_saves_leave_few_bytes(tmp_path):
    store, groups = AccountStore(tmp_path), {("fact", n, 0): group("x" * 100) for n in range(20)}
    for number in range(200):
        groups["fact", number % 20, 0] = group(f"{number}" * 30)
        store.save(number, groups)

    files = list(tmp_path.glob("*.groups"))
    assert sum(path.stat().st_size for path in files) < 3 * 20 * 200
    assert loaded(tmp_path) == (199, {key: one.state for key, one in groups.items()})


@pytest.mark.parametrize("size", [1, 50], ids=["a new file of all", "a file of what changed"])
def test_a_kill_before_the_end_of_a_save_leaves_the_save_before(tmp_path, monkeypatch, size):
    store, groups = AccountStore(tmp_path), {("fact", n, 0): group("old") for n in range(size)}
    store.save("before", groups)
    before = loaded(tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            store.save("after", {**groups, ("fact", 0, 0): group("new" * 500)})
    assert loaded(tmp_path) == before

    again = AccountStore(tmp_path)
    rest, found = again.load()
    again.save("later", {**found, ("fact", 0, 0): group("later")})
    assert (rest, loaded(tmp_path)[1]["fact", 0, 0]) == ("before", b"later")
