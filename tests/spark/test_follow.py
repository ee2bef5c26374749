"""The report of a follower that is killed during its work equals a report of the whole journal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.spark.worlds import rows_of
from wmp.errors import ConfigError
from wmp.spark import follow, following, report
from wmp.spark.journals import Source
from wmp.spark.reporting import alone, check_out
from wmp.spark.schema import TABLES
from wmp.testing.journals import Journals
from wmp.testing.world import World


@pytest.mark.parametrize("make", [report, lambda *where: follow(*where, lambda made, lines: False)])
def test_one_report_at_a_time_is_written_into_a_directory(make, tmp_path):
    journal, out = tmp_path / "journal", tmp_path / "out"
    journal.mkdir()
    with alone(check_out(out)), pytest.raises(ConfigError, match="another process writes a report"):
        make(journal, out)
    with alone(check_out(out)):
        pass  # the file was removed


def kill_in_the_middle(journal: Path, out: Path, batches: int) -> None:
    """Follow in small batches in another process, and kill that process after `batches` of them."""
    script = f"""
        from wmp.spark import follow, following
        from wmp.spark.session import start_session
        following._BYTES = 20_000
        spark = start_session("local[1]", confs={{"spark.driver.memory": "1g"}})
        follow({str(journal)!r}, {str(out)!r}, lambda made, lines: True, spark=spark)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        start_new_session=True,  # the kill must also reach Java
        stderr=subprocess.PIPE,
    )
    account, seen = out / "_account" / "account.pickle", set()
    try:
        while len(seen) < batches:
            assert process.poll() is None, process.stderr.read().decode()[-3000:]
            if account.exists():
                seen.add(account.stat().st_mtime_ns)
            time.sleep(0.005)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.deep
def test_following_continues_after_a_kill_without_gaps(spark, tmp_path):
    world = tmp_path / "world"
    World(seed=8, journals=Journals(world)).play()
    contents = [(path.name.removeprefix("."), path.read_bytes()) for path in world.iterdir()]
    journal, out = tmp_path / "journal", tmp_path / "out"
    journal.mkdir()
    for name, text in contents:
        (journal / f".{name}").write_bytes(text[: len(text) * 2 // 3])
    assert sum(len(text) for _, text in contents) > 100_000  # several batches

    kill_in_the_middle(journal, out, batches=2)
    for name, text in contents:
        with (journal / f".{name}").open("ab") as file:
            file.write(text[len(text) * 2 // 3 :])
        (journal / f".{name}").rename(journal / name)
    total = sum(text.count(b"\n") for _, text in contents)
    seen = []

    def enough(made, lines):
        seen.append(lines)
        return lines < total

    last = follow(journal, out, enough, spark=spark)

    assert seen[-1] == total
    assert last.page.read_text().endswith("</html>")
    whole = report(journal, tmp_path / "whole", spark=spark)
    assert last.result.summary == whole.result.summary
    for table in TABLES:
        assert rows_of(out, table) == rows_of(tmp_path / "whole", table), table


@pytest.mark.parametrize("here", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_the_tables_of_a_growing_journal_equal_those_of_a_report(
    spark, tmp_path, monkeypatch, here
):
    """Three calls each continue the call before; the last finds a segment that came twice."""
    monkeypatch.setattr(Source, "is_small", here)
    world = tmp_path / "world"
    World(seed=8, journals=Journals(world)).play()
    contents = [(path.name.removeprefix("."), path.read_bytes()) for path in world.iterdir()]
    journal, out = tmp_path / "journal", tmp_path / "out"
    journal.mkdir()
    lines = []
    for part in (1, 2, 3):
        for name, text in contents:
            (journal / f".{name}").write_bytes(text[: len(text) * part // 3])
        last = follow(journal, out, lambda made, n: lines.append(n) or True, idle=0, spark=spark)
    longest = max((text for _, text in contents), key=len)
    copied = longest.splitlines(keepends=True)[1:21]
    (journal / "copied-1-000001.jsonl").write_bytes(b"".join(copied))
    last = follow(journal, out, lambda made, n: True, idle=0, spark=spark)

    assert lines == sorted(set(lines))
    assert last.result.summary["lines repeated"] == 20
    whole = report(journal, tmp_path / "whole", spark=spark)
    assert last.result.summary == whole.result.summary
    for table in set(TABLES) - {"events"}:
        assert rows_of(out, table) == rows_of(tmp_path / "whole", table), table


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_it_ends_when_nothing_is_added(spark, tmp_path, monkeypatch, whole):
    if not whole:  # test_report.py makes the tables of an empty journal
        made = SimpleNamespace(summary={"lines": 0})
        monkeypatch.setattr(following, "publish", lambda *_, **__: made)
        monkeypatch.setattr(following, "write_page", lambda *_: tmp_path / "report.html")
    (tmp_path / "journal").mkdir()
    counts = []

    def count(made, lines):
        counts.append(lines)
        return True

    last = follow(tmp_path / "journal", tmp_path / "out", count, idle=0, spark=spark)

    assert counts == [0]
    assert last.result.summary["lines"] == 0
    assert not whole or "The journal is empty" in last.page.read_text()


def test_another_version_ends_it_with_a_line(spark, tmp_path):
    journal = tmp_path / "journal"
    journal.mkdir()
    (journal / "a.jsonl").write_text('{"v":99,"node":"a"}\n')

    with pytest.raises(ConfigError, match=r"^the journal has an unknown version: 99 in a\.jsonl; "):
        follow(journal, tmp_path / "out", lambda made, lines: True, idle=0, spark=spark)
