"""The secrets of a dispatcher: its token file, and the password of its database."""

from __future__ import annotations

import asyncio
import stat
import subprocess
from pathlib import Path

import pytest

from wmp.dispatcher import serving
from wmp.dispatcher.settings import DispatcherSettings
from wmp.dispatcher.tokens import read_token
from wmp.errors import ConfigError
from wmp.store.opening import make_store, printable_address
from wmp.store.sqlite.sqlite_store import SqliteStore


@pytest.mark.rule("DSP-6.13")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o666])
def test_a_token_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("abc\n")
    path.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        read_token(path)
    assert str(caught.value) == (
        f"the token in {path} can be read by other users (mode {mode:04o}); run: chmod 600 {path}"
    )


@pytest.mark.rule("DSP-6.13")
@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_token_file_of_its_user_alone_is_read(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("abc\n")
    path.chmod(mode)
    assert read_token(path) == "abc"


@pytest.mark.rule("DSP-6.13")
def test_a_token_of_a_secret_of_kubernetes_is_read_after_its_copy(tmp_path: Path) -> None:
    """The files of a Secret have the mode 0440; deploy/kubernetes copies them like this."""
    secret, keys = tmp_path / "secret", tmp_path / "keys"
    for folder in (secret, keys):
        folder.mkdir()
    (secret / "token").write_text("abc\n")
    (secret / "token").chmod(0o440)
    secret.chmod(0o555)
    line = f"install -m 600 {secret}/* {keys}/"
    subprocess.run(["sh", "-c", line], check=True)
    assert stat.S_IMODE((keys / "token").stat().st_mode) == 0o600
    assert read_token(keys / "token") == "abc"
    secret.chmod(0o755)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("jobs.db", "jobs.db"),
        ("/var/lib/a@b/jobs.db", "/var/lib/a@b/jobs.db"),
        ("postgresql://user:SECRET@host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://user@host/db?schema=jobs", "postgresql://host/db?schema=jobs"),
        ("postgresql://host/db?user=u&password=SECRET&schema=a", "postgresql://host/db?schema=a"),
        ("postgresql://host/db?PassWord=SEC@RET", "postgresql://host/db"),
        ("postgresql://host/db?%70assword=SEC@RET", "postgresql://host/db"),
        ("postgresql://host/db?a=b&p%41ssWor%64=SEC@RET&schema=a", "postgresql://host/db?schema=a"),
        ("postgresql://host/db?ssl%70assword=SEC@RET", "postgresql://host/db"),
        ("postgresql://u:a=SEC@RET@host/db?schema=a", "postgresql://host/db?schema=a"),
        ("postgresql://u:SEC/RET@host/db", "postgresql://host/db"),
        ("postgresql://u:SEC@RET@host/db", "postgresql://host/db"),
        ("postgresql://u:SEC?RET@host/db", "postgresql://host/db"),
        ("postgresql://u:SEC#RET@host/db", "postgresql://host/db"),
    ],
)
def test_a_place_for_people_has_no_password(address: str, shown: str) -> None:
    assert printable_address(address) == shown


def test_a_dispatcher_prints_its_store_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_open_store", lambda address: SqliteStore(tmp_path / "jobs.db"))
    lines: list[str] = []

    async def test() -> None:
        printed = asyncio.Event()

        def report(line: str) -> None:
            lines.append(line)
            printed.set()

        url = "postgresql://user:SECRET@127.0.0.1/db"
        serve = serving.serve_dispatcher(url, "127.0.0.1:0", DispatcherSettings(), report=report)
        task = asyncio.get_running_loop().create_task(serve)
        await printed.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(test())
    assert [line.partition(" with ")[2] for line in lines] == ["store postgresql://127.0.0.1/db"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:SEC/RET@h/db",
        "postgresql://u:SEC%RET@h/db",
        "postgresql://u:SEC[RET@h/db",
        "postgresql://u:SEC#RET@h/db",
        "postgresql://u:SEC?RET@h/db",
        "postgresql://u:SECRET@h/db?nothing",
    ],
)
def test_the_error_of_a_wrong_url_has_no_password(url: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ConfigError, match=r"URL of the store .*in a password, write") as caught:
        make_store(url)
    assert "SEC" not in str(caught.value).replace("in a password", "")
    assert "RET" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_repr_of_a_url_has_no_password() -> None:
    pytest.importorskip("psycopg")
    from wmp.store.postgres.driver import StoreUrl

    assert "SECRET" not in repr(StoreUrl.of("postgresql://u:SECRET@h/db"))
