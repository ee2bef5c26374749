"""The report of a follower that is killed during its work equals a report of the whole journal."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from tests.spark.folds.corruptions import CORRUPTIONS, Journal, corrupted, sound_journal
from tests.spark.folds.worlds import rows_of
from wmp.errors import ConfigError
from wmp.message import Outcome
from wmp.spark import follow, report
from wmp.spark.journals import byte_ranges
from wmp.spark.journals.journals import Source
from wmp.spark.journals.schema import TABLES
from wmp.spark.pipeline import account, account_store, publishing
from wmp.spark.pipeline.account import Account
from wmp.spark.pipeline.publishing import Publisher
from wmp.spark.reports import following
from wmp.spark.reports.report_folder import alone, check_out
from wmp.spark.reports.reporting import JournalReport
from wmp.testing.simulator.journals import Journals
from wmp.testing.worlds.world import World


@pytest.mark.parametrize(
    "make", [report, lambda *where: follow(*where, lambda result, lines: False)]
)
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
        from wmp.spark import follow
        from wmp.spark.reports import following
        from wmp.spark.session.session import start_session
        following._BYTES = 20_000
        spark = start_session("local[1]", confs={{"spark.driver.memory": "1g"}})
        follow({str(journal)!r}, {str(out)!r}, lambda report, lines: True, spark=spark)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        start_new_session=True,  # the kill must also reach Java
        stderr=subprocess.PIPE,
    )
    account, seen = out / "_account" / f"account-{account_store._VERSION}.sqlite", set()
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

    def enough(result, lines):
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
        last = follow(journal, out, lambda result, n: lines.append(n) or True, idle=0, spark=spark)
    longest = max((text for _, text in contents), key=len)
    copied = longest.splitlines(keepends=True)[1:21]
    (journal / "copied-1-000001.jsonl").write_bytes(b"".join(copied))
    last = follow(journal, out, lambda result, n: True, idle=0, spark=spark)

    assert lines == sorted(set(lines))
    assert last.result.summary["lines repeated"] == 20
    whole = report(journal, tmp_path / "whole", spark=spark)
    assert last.result.summary == whole.result.summary
    for table in set(TABLES) - {"events"}:
        assert rows_of(out, table) == rows_of(tmp_path / "whole", table), table


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_it_ends_when_nothing_is_added(spark, tmp_path, monkeypatch, whole):
    if not whole:  # test_report.py makes the tables of an empty journal
        result = SimpleNamespace(summary={"lines": 0})
        monkeypatch.setattr(Publisher, "publish", lambda *_: result)
        monkeypatch.setattr(following, "write_page", lambda *_: tmp_path / "report.html")
    (tmp_path / "journal").mkdir()
    counts = []

    def count(result, lines):
        counts.append(lines)
        return True

    last = follow(tmp_path / "journal", tmp_path / "out", count, idle=0, spark=spark)

    assert counts == [0]
    assert last.result.summary["lines"] == 0
    assert not whole or "The journal is empty" in last.page.read_text()


def test_a_report_of_other_journals_is_not_continued(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        Path(name).mkdir()
    World(seed=8, journals=Journals(tmp_path / "a")).play()
    Path("b", "b.jsonl").write_text("garbage\n")

    def reported(*journals):
        return follow(journals, "out", lambda result, n: True, idle=0).result.summary["lines"]

    lines = reported("a")
    assert lines > 0
    text = (
        f"the report in {tmp_path}/out follows {tmp_path}/a; this call names {tmp_path}/b, "
        f"{tmp_path}/c: name another folder for the report, or all of its journals, or remove the "
        f"folder {tmp_path}/out/_account to begin anew"
    )
    with pytest.raises(ConfigError, match=re.escape(text)):
        reported("b", "c")
    assert reported(tmp_path / "a", "b") == lines  # the same journal, and a further one
    with pytest.raises(ConfigError, match=r"follows .*/a, .*/b; this call names .*/a:"):
        reported("a")


def test_lines_that_keep_coming_are_reported_at_once_and_read_once_a_second(tmp_path, monkeypatch):
    """While a line is read, the next line is written."""
    sleeps = []
    # Other threads sleep with the real clock.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleeps.append)
    monkeypatch.setattr(following, "time", clock)
    monkeypatch.setattr(following, "_REST", 0.0)
    monkeypatch.setattr(following, "write_page", lambda *_: Path())
    journal, counts, numbers = tmp_path / "journal", [], itertools.count()
    journal.mkdir()

    def write(name: str, done: int, total: int) -> None:
        if name == "events" and (n := next(numbers)) < 9:
            head = {"v": 1, "node": "m", "epoch": 1, "n": n, "step": n, "at": n, "wall": n}
            with (journal / ".m-1-000001.jsonl").open("a") as file:
                file.write(json.dumps({**head, "what": "ticked"}) + "\n")

    write("events", 0, 6)

    def is_complete(_: JournalReport, count: int) -> bool:
        counts.append(count)
        return len(counts) < 3

    follow(journal, tmp_path / "out", is_complete, progress=write)

    assert counts == [1, 2, 3]
    assert sleeps == [1.0, 1.0]


def test_the_last_lines_of_a_segment_that_is_finished_during_a_look_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "write_page", lambda *_: Path())
    lines = [json.dumps({"v": 1, "node": "m", "epoch": 1, "n": n, "step": n, "at": n, "wall": n,
                         "what": "ticked"}) + "\n" for n in range(1, 5)]  # fmt: skip
    path, times = tmp_path / "journal" / ".m-1-000001.jsonl", itertools.count()
    path.parent.mkdir()
    path.write_text("".join(lines[:2]))

    def write(*_: object) -> None:
        if next(times) == 0:
            with path.open("a") as file:
                file.writelines(lines[2:])
            path.rename(path.with_name("m-1-000001.jsonl"))

    last = follow(path.parent, tmp_path / "out", lambda result, n: True, idle=0, progress=write)

    assert last.result.summary["lines"] == 4


def test_another_version_ends_it_with_a_line(spark, tmp_path):
    journal = tmp_path / "journal"
    journal.mkdir()
    (journal / "a.jsonl").write_text('{"v":99,"node":"a"}\n')

    with pytest.raises(ConfigError, match=r"^the journal has an unknown version: 99 in a\.jsonl; "):
        follow(journal, tmp_path / "out", lambda result, lines: True, idle=0, spark=spark)


def grow(journal: Path, out: Path, parts: Sequence[Mapping[str, bytes]]) -> JournalReport:
    """Follow a journal that grows by these parts of segments; each part is a call of its own."""
    journal.mkdir()
    for part in parts:
        for name, text in part.items():
            with (journal / f".{name}").open("ab") as file:
                file.write(text)
        last = follow(journal, out, lambda result, n: True, idle=0)
    return last


@pytest.mark.parametrize("title", ["a_done_that_nobody_sent", "a_job_without_end"])
def test_lines_of_one_end_settle_what_the_other_end_left_open(tmp_path, monkeypatch, title):
    """The journals of the managers come first, and then those of the workers and of the device."""
    rows = sound_journal(tmp_path / "sound")
    ends: list[defaultdict[str, bytes]] = [defaultdict(bytes), defaultdict(bytes)]
    for line in corrupted(rows, CORRUPTIONS[title][1]):
        node = json.loads(line)["node"]
        ends[not node.startswith("m")][f"{node}-1-000001.jsonl"] += f"{line}\n".encode()

    last = grow(tmp_path / "journal", tmp_path / "out", ends)
    whole = report(tmp_path / "journal", tmp_path / "whole")

    assert whole.result.violations > 0
    assert last.result.summary == whole.result.summary
    for table in TABLES:
        assert rows_of(tmp_path / "out", table) == rows_of(tmp_path / "whole", table), table


def ends_as_whole(tmp_path, ends, names=()):
    """Check that a journal that grows by these parts gives the tables of the whole journal.

    ``names`` are the names of the violations.
    """
    last = grow(tmp_path / "journal", tmp_path / "out", ends)
    whole = report(tmp_path / "journal", tmp_path / "whole")

    assert {row["name"] for row in whole.result.findings} == set(names)
    assert last.result.summary == whole.result.summary
    for table in TABLES:
        assert rows_of(tmp_path / "out", table) == rows_of(tmp_path / "whole", table), table


def test_a_further_receiver_of_a_settled_message_makes_the_tables_anew(tmp_path):
    """The device lacks its lines for the second manager, whose journal comes last."""
    journal = Journal(sound_journal(tmp_path / "sound"))
    link = journal.find("send", "READY", at="d", target="m2.0")["link"]
    for command in ("READY", "PING"):
        journal.blank(journal.find("send", command, at="d", target=None, link=link))
    ends: list[defaultdict[str, bytes]] = [defaultdict(bytes), defaultdict(bytes)]
    for row in journal.rows:
        line = json.dumps(row).encode() + b"\n"
        ends[row["node"] == "m2.0"][f"{row['node']}-1-000001.jsonl"] += line

    ends_as_whole(tmp_path, ends, ["WMP-8.1"])


def test_a_message_to_a_process_that_is_over_may_be_received_by_the_next(tmp_path):
    """The journal of the manager's second process comes after those of all processes that ended."""
    message = {"command": "PING", "link": "a", "hops": 0, "session": 1, "source": "w",
               "source_epoch": 1, "target": "m", "target_epoch": 1}  # fmt: skip
    parts: list[dict[str, bytes]] = [{}, {}]
    for part, node, epoch, kind, what in (
        (0, "m", 1, "manager", "ticked"),
        (0, "w", 1, "worker", "send"),
        (1, "m", 2, "manager", "received"),
    ):
        lines = [{"what": "start", "kind": kind, "segment": 1, "settings": {}},
                 {"what": what, **(message if what != "ticked" else {})},
                 {"what": "stop", "lines": 0}]  # fmt: skip
        head = {"v": 1, "node": node, "epoch": epoch}
        step = int(what != "send")
        text = [json.dumps({**head, "n": n, "step": n and step, "at": n, "wall": n, **line}) + "\n"
                for n, line in enumerate(lines)]  # fmt: skip
        parts[part][f"{node}-{epoch}-000001.jsonl"] = "".join(text).encode()

    last = grow(tmp_path / "journal", tmp_path / "out", parts)

    assert last.result.summary["lines"] == 9
    assert last.result.summary["violations"] == 0


def test_a_step_of_which_half_was_used_makes_the_tables_anew(tmp_path):
    """The second half shows that an error was final, so no lease was lost."""
    journal = Journal(sound_journal(tmp_path / "sound"))
    done = journal.find("received", "DONE", at="m1", outcomes=[Outcome.ERROR])
    assert journal.find("resolve", ends=["error"])["step"] == done["step"]
    ends: list[defaultdict[str, bytes]] = [defaultdict(bytes), defaultdict(bytes)]
    for row in journal.rows:
        later = row["node"] == done["node"] and row["n"] > done["n"]
        ends[later][f"{row['node']}-1-000001.jsonl"] += json.dumps(row).encode() + b"\n"

    ends_as_whole(tmp_path, ends)


def test_a_step_that_is_being_written_waits_for_the_next_look(tmp_path):
    """The first look sees the middle of a line; the writer was killed there."""
    lines = [b'{"n":%d,"step":%d}\n' % (n, n // 3) for n in range(6)]
    path = tmp_path / "a-1-000001.jsonl"
    path.write_bytes(b"".join(lines)[:-4])
    ranges = byte_ranges.find([tmp_path])

    ends = [
        byte_ranges.advance({path.name: start}, ranges, None, growing)[path.name]
        for start, growing in ((0, {path.name}), (3 * len(lines[0]), {path.name}), (0, ()))
    ]

    assert [end // len(lines[0]) for end in ends] == [3, 3, 5]


def test_a_story_grows_with_the_lines_of_its_job(tmp_path):
    """The line of the lane comes after the report with the violation."""
    names = {"m": ("m", "w"), "w": ("w", "m")}
    job = {"ids": [1], "attempts": [1], "owner": "m", "owner_epoch": 1}
    lines: defaultdict[str, list[bytes]] = defaultdict(list)

    def add(node, what, command=None, by="", **columns):
        if command is not None:
            source, target = names[by]
            columns |= {"command": command, "link": "a", "hops": 0, "session": 1, "lock": 1,
                        "source": source, "source_epoch": 1, "target": target,
                        "target_epoch": 1}  # fmt: skip
        n = len(lines[node])
        head = {"v": 1, "node": node, "epoch": 1, "n": n, "step": n, "at": n, "wall": n}
        lines[node].append(json.dumps({**head, "what": what, **columns}).encode() + b"\n")

    for node, kind in (("m", "manager"), ("w", "worker")):
        add(node, "start", kind=kind, segment=1, settings={})
    add("m", "submitted", ids=[1], role="r", needs={}, priority=0, max_worker_losses=0)
    add("w", "send", "GIVE", "w", want=1, roles=["r"])
    add("m", "received", "GIVE", "w", want=1, roles=["r"])
    add("m", "send", "TAKE", "m", number=1, role="r", **job)
    add("w", "received", "TAKE", "m", number=1, role="r", **job)
    add("m", "resolve", ids=[1], attempts=[1], ends=["ok"], source="w", source_epoch=1)
    add("w", "run", lane=1, role="r", needs={}, **job)
    journal = tmp_path / "journal"
    journal.mkdir()
    last = lines["w"].pop()
    for node, some in lines.items():
        (journal / f".{node}-1-000001.jsonl").write_bytes(b"".join(some))

    def append(result, count):
        if count == sum(map(len, lines.values())):
            with (journal / ".w-1-000001.jsonl").open("ab") as file:
                file.write(last)
        return True

    follow(journal, tmp_path / "out", append, idle=0)
    report(journal, tmp_path / "whole")

    for table in ("violations", "violation_events"):
        assert rows_of(tmp_path / "out", table) == rows_of(tmp_path / "whole", table), table
    assert any("'run'" in row for row in rows_of(tmp_path / "out", "violation_events"))


def test_ten_lines_change_few_files(tmp_path, monkeypatch):
    """Ten lines do not write the rows of all open groups again, and the tables stay the same."""
    monkeypatch.setattr(publishing, "_SHELF", 4)
    monkeypatch.setattr(account, "_OPEN", 100)
    monkeypatch.setattr(following, "_LOOK", 0.01)
    monkeypatch.setattr(following, "_REST", 0.0)
    monkeypatch.setattr(following, "write_page", lambda *_: Path())
    World(seed=8, journals=Journals(tmp_path / "world")).play()
    journal, out = tmp_path / "journal", tmp_path / "out"
    journal.mkdir()
    left, kept, divided = {}, [], []
    for path in (tmp_path / "world").iterdir():
        lines = path.read_bytes().splitlines(keepends=True)
        tens = [b"".join(lines[-at:][:10]) for at in (30, 20, 10)]
        left[journal / f".{path.name.removeprefix('.')}"] = [
            b"".join(lines[:10]), b"".join(lines[10:-30]), *tens,
        ]  # fmt: skip
    divide = Account.divide

    def divide_and_note(*arguments):
        divided.append(divide(*arguments))
        return divided[-1]

    monkeypatch.setattr(Account, "divide", divide_and_note)

    def append(result, count):
        kept.append({path.name for path in (out / "links").iterdir()})
        more = len(next(iter(left.values()))) > 3
        paths = list(left) if more else [max(left, key=lambda path: len(left[path]))]
        for path in paths:
            with path.open("ab") as file:
                file.write(b"".join(left[path][:1]))
            del left[path][:1]
        return True

    whole = None
    for _ in range(2):  # the second call continues with the saved account
        last = follow(journal, out, append, idle=0.0)
        whole = whole or report(journal, tmp_path / "whole")
        assert last.result.summary == whole.result.summary
        for table in TABLES:
            assert rows_of(out, table) == rows_of(tmp_path / "whole", table), table
    assert any(divided)
    assert any(len(before & after) > 2 for before, after in itertools.pairwise(kept))


@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 60), marks=pytest.mark.deep)], ids=["few", "many"]
)
def test_uneven_reading_makes_the_tables_of_a_report(tmp_path, monkeypatch, seeds):
    """Steps come in any order of processes; rows without times are those of the whole journal."""
    for seed in seeds:
        print("seed", seed)
        random, folder = Random(seed), tmp_path / str(seed)
        World(seed=seed, timed=bool(seed % 2), journals=Journals(folder / "world")).play()
        journal, out = folder / "journal", folder / "out"
        journal.mkdir()
        steps = {}
        for path in (folder / "world").iterdir():
            lines = path.read_bytes().splitlines(keepends=True)
            by_step = itertools.groupby(lines, key=lambda line: json.loads(line)["step"])
            steps[journal / f".{path.name.removeprefix('.')}"] = [list(some) for _, some in by_step]
        with monkeypatch.context() as patch:  # only the last call makes a report
            patch.setattr(Publisher, "publish", lambda *_: SimpleNamespace(summary={}))
            patch.setattr(following, "write_page", lambda *_: Path())
            patch.setattr(following, "settle", lambda *_: None)
            while any(steps.values()):
                path = random.choice([path for path, left in steps.items() if left])
                count = random.choice((1, 5, 20, 60))
                with path.open("ab") as file:
                    file.writelines(itertools.chain.from_iterable(steps[path][:count]))
                del steps[path][:count]
                follow(journal, out, lambda result, n: False)
        last = follow(journal, out, lambda result, n: True, idle=0)
        whole = report(journal, folder / "whole")

        times = {"clock error": 0, "jobs per second": 0, "seconds": 0}
        assert last.result.summary | times == whole.result.summary | times
        tables = ["requeues", "findings", "drops"]
        if rows_of(out, "nodes") == rows_of(folder / "whole", "nodes"):  # the clocks are the same
            tables += ["jobs", "violations", "device_hops"]
        for table in tables:
            assert rows_of(out, table) == rows_of(folder / "whole", table), table


def test_a_step_is_not_divided(tmp_path):
    lines = [b'{"n":%d,"step":%d}\n' % (n, n // 3) for n in range(9)]
    path = tmp_path / "a-1-000001.jsonl"
    path.write_bytes(b"".join(lines))
    ranges = byte_ranges.find([tmp_path])

    ends = [
        byte_ranges.advance({}, ranges, maximum)[path.name]
        for maximum in range(1, 9 * len(lines[0]))
    ]

    assert {end // len(lines[0]) for end in ends} == {3, 6, 9}
