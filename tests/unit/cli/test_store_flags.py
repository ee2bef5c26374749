"""The flags about the file of a store, on the command line, in TOML and in the environment."""

from __future__ import annotations

import grp
import os

import pytest
from click.testing import CliRunner

from wmp.cli.program import command
from wmp.errors import ConfigError
from wmp.store.opening import store_opener


def test_the_settings_reach_the_store(tmp_path):
    path = tmp_path / "jobs.db"
    group = grp.getgrgid(os.getgid()).gr_name
    open_file = store_opener(str(path), reserve=1 << 20, group=group)
    assert open_file is not None
    store = open_file()
    try:
        assert store._link.reserve._size == 1 << 20
        assert path.stat().st_mode & 0o777 == 0o660
    finally:
        store.close()
    assert store_opener(str(path)) is None


def test_a_database_has_no_such_settings():
    with pytest.raises(ConfigError, match="has no reserve and no group"):
        store_opener("postgresql://host/db", reserve=0, group="jobs")


def run(path, *args, env=None):
    arguments = ["map", "--bind", "tcp://127.0.0.1:*", "--wait", "0.01", "--store", str(path)]
    return CliRunner().invoke(
        command, [*arguments, *args, "-"], input="x\n", env=env, prog_name="wmp"
    )


@pytest.mark.parametrize("sort", ["flag", "variable", "file"])
def test_each_source_of_settings_has_the_reserve(tmp_path, sort):
    path, kept = tmp_path / "jobs.db", tmp_path / "jobs.db-reserve"
    args, env = [], {}
    if sort == "flag":
        args = ["--reserve", "2097152"]
    elif sort == "variable":
        env = {"WMP_MAP_RESERVE": "2097152"}
    else:
        (tmp_path / "map.toml").write_text("[map]\nreserve = 2097152\n", encoding="utf-8")
        args = ["--config", str(tmp_path / "map.toml")]
    result = run(path, *args, env=env)
    assert 2 << 20 <= kept.stat().st_size < 16 << 20, result.output


def test_the_flags_need_a_store():
    result = CliRunner().invoke(command, ["map", "--reserve", "0", "-"], input="", prog_name="wmp")
    assert isinstance(result.exception, ConfigError) or "--store" in result.output
