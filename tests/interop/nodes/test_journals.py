"""Journals of real nodes: complete on both sides, readable after a crash, and cheap."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

import wmp
from tests.interop.programs.forks import Ended, ForkedProgram
from tests.interop.programs.forks import wmp as program
from tests.interop.programs.forks import wmp_device as device_program
from tests.interop.programs.programs import WMP, WMP_DEVICE, Program
from tests.waiting import WAIT
from wmp import aio
from wmp.journal.reader import Line, Reader, find_segments, strands
from wmp.runtime.common.journal import Journal

pytestmark = pytest.mark.interop


def read(folder: Path) -> dict[str, list[Line]]:
    """Return the lines of each kind of node."""
    reader, violations = Reader(), defaultdict(list)
    for strand in strands(find_segments([folder])):
        lines = [line for segment in strand for line in reader.read(segment)]
        violations[lines[0]["kind"]] += lines
    assert not reader.bad
    return violations


def with_jobs(lines: list[Line], what: str) -> list[int]:
    return sorted(job for line in lines if line["what"] == what for job in line["ids"])


def test_both_ends_and_the_device_between_them_write_down_every_message(tmp_path):
    with (
        wmp.Manager(identity="m", journal=tmp_path) as manager,
        wmp.Device(
            bind="tcp://127.0.0.1:*",
            connect=manager.endpoints,
            identity="d",
            journal=str(tmp_path),
        ) as device,
        wmp.Worker(
            *device.endpoints, handlers=bytes.upper, identity="w", journal=Journal(tmp_path)
        ),
    ):
        assert len(list(manager.map([b"x"] * 500, timeout=WAIT))) == 500

    nodes = read(tmp_path)
    assert nodes.keys() == {"manager", "device", "worker"}
    for lines in nodes.values():
        assert lines[-1]["what"] == "stop"
        assert [line["n"] for line in lines] == [*range(len(lines))]
        assert not [line for line in lines if line.get("lines")]
    jobs = [*range(1, 501)]
    assert with_jobs(nodes["manager"], "submitted") == jobs
    assert with_jobs(nodes["manager"], "resolve") == jobs
    # A job that a slow bundle handed back before its start runs in another bundle.
    begun = Counter(with_jobs(nodes["worker"], "run"))
    begun.subtract(with_jobs(nodes["worker"], "recalled"))
    assert begun == Counter(jobs)
    assert with_jobs(nodes["worker"], "finished") == jobs

    def numbered(kind: str, what: str) -> Counter[tuple[object, ...]]:
        names = ("command", "source", "target", "session", "number")
        return Counter(
            tuple(line[name] for name in names)
            for line in nodes[kind]
            if line["what"] == what and "number" in line
        )

    sent = numbered("manager", "send") + numbered("worker", "send")
    assert sent
    assert sent == numbered("device", "received") == numbered("device", "send")
    received = numbered("manager", "received") + numbered("worker", "received")
    assert received <= sent
    # A manager may still send NO to a worker that has left.
    assert {command for command, *_ in sent - received} <= {"NO"}
    for line in nodes["device"]:
        assert "ids" not in line, "a device reads heads only"
        assert line["what"] != "send" or "number" not in line or line["hops"] == 1


def test_lines_that_are_lost_are_in_the_statistics_and_jobs_do_not_notice(tmp_path):
    with (
        wmp.Manager(journal=Journal(tmp_path, buffer=600)) as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper),
    ):
        assert list(manager.map([b"x"] * 500, timeout=WAIT)) == [b"X"] * 500
        dropped = manager.statistics().dropped["journal"]
        assert dropped > 0

    *_, stop = lines = read(tmp_path)["manager"]
    assert stop["what"] == "stop"
    assert stop["n"] + 1 - len(lines) == stop["lines"] >= dropped
    assert stop["lines"] == sum(line["lines"] for line in lines if line["what"] == "lost")


def test_without_a_journal_there_is_no_file_and_no_writer_thread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import threading

    with wmp.Manager():
        assert not [t for t in threading.enumerate() if t.name == "wmp-journal"]
    assert not list(tmp_path.iterdir())


def test_a_killed_process_leaves_lines_and_only_the_last_may_be_torn(tmp_path):
    folder = tmp_path / "journal"
    with wmp.Manager() as manager:
        argv = ("worker", "--connect", *manager.endpoints, "--journal", str(folder))
        with program(*argv, "--slots", "4", "--", "cat") as worker:
            for _ in islice(manager.map([b"x"] * 100_000, timeout=WAIT, in_flight=500), 100):
                pass
            worker.signal(signal.SIGKILL)
            worker.ends()

    (segment,) = folder.iterdir()
    assert segment.name.startswith("."), "nobody could give it its name"
    *lines, last = segment.read_bytes().split(b"\n")
    assert [json.loads(line)["n"] for line in lines] == [*range(len(lines))]
    reader = Reader()
    assert len(list(reader.read(segment))) == len(lines)
    assert reader.bad.total() == (last != b"")


def test_a_node_whose_files_may_not_grow_goes_on(tmp_path):
    """The system limits the size of a file, and real files reach this limit."""
    script = """
import resource, sys, wmp
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with wmp.Manager(journal=sys.argv[1]) as m, wmp.Worker(*m.endpoints, handlers=bytes.upper):
    while not m.statistics().dropped.get("journal"):
        assert list(m.map([b"x"] * 100)) == [b"X"] * 100
print("done")
"""
    with ForkedProgram(sys.executable, "-c", script, str(tmp_path)) as running:
        assert running.ends() == 0
        assert "lines were lost" in running.stderr
        assert running.stdout == b"done\n"

    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000
    read(tmp_path)


def test_programs_write_journals(tmp_path):
    folder = tmp_path / "journal"
    (tmp_path / "device.toml").write_text(
        '[device]\nbind = "ipc://below"\nconnect = "ipc://above"\njournal = "journal"\n'
    )
    with (
        device_program("run", "device.toml", cwd=tmp_path) as device,
        program(
            *("worker", "--connect", "ipc://below", "--journal", "journal", "--", "cat"),
            cwd=tmp_path,
        ) as worker,
        program("map", "--bind", "ipc://above", "--journal", "journal", cwd=tmp_path) as manager,
    ):
        device.wait_for_line("is bound")
        manager.feed(b"one\ntwo\n")
        manager.end_input()
        assert manager.ends() == 0
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
        device.signal(signal.SIGTERM)
        assert device.ends() == 0

    nodes = read(folder)
    assert nodes.keys() == {"manager", "device", "worker"}
    assert {lines[-1]["what"] for lines in nodes.values()} == {"stop"}


@pytest.mark.parametrize("argv", [("worker", "--", "cat"), ("map",), ("demo",)])
def test_a_folder_that_cannot_be_is_bad_use(tmp_path, argv, forks):
    (tmp_path / "taken").touch()
    name, *rest = argv
    ended = forks.run(*WMP, name, "--journal", "taken", *rest, cwd=tmp_path)

    assert "cannot write a journal to" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 2


@pytest.mark.deep  # a test of the demo reads a journal too
def test_a_demo_records_itself_and_quiet_prints_nothing(tmp_path):
    words = ("demo", "--files", "20", "--workers", "2", "--journal", "journal", "--quiet")
    with program(*words, cwd=tmp_path) as demo:
        assert demo.ends() == 0, demo.stderr
        assert (demo.stdout, demo.stderr) == (b"", "")

    folder = tmp_path / "journal"
    nodes = read(folder)
    kinds = Counter(line["kind"] for lines in nodes.values() for line in lines if not line["n"])
    assert kinds == {"manager": 2, "device": 1, "worker": 2}
    assert len([path for path in folder.iterdir() if path.name.startswith(".")]) == 1
    ends = [line for line in nodes["manager"] if line["what"] == "resolve"]
    assert sum(len(line["ids"]) for line in ends) == 20
    lost = [line for line in nodes["manager"] if line["what"] == "note"]
    assert {line["reason"] for line in lost} == {"silence"}


def test_a_device_that_is_written_down_names_its_folder(tmp_path, forks):
    file = tmp_path / "device.toml"
    good = '[device]\nbind = "ipc://below"\nconnect = "ipc://above"\n'
    for text, code, message in (
        ("journal = 5", 2, "device.journal is 5"),
        ('journal = "j"', 0, "j\n"),
    ):
        file.write_text(good + text)
        ended = forks.run(*WMP_DEVICE, "check", "device.toml", cwd=tmp_path)
        assert ended.returncode == code
        assert message in ended.stderr + ended.stdout
    assert not (tmp_path / "j").exists(), "to check is to do nothing"


@pytest.fixture
def journal(tmp_path) -> Path:
    folder = tmp_path / "journal"
    with (
        wmp.Manager(identity="boss", label="the boss\x1b[2J", journal=folder) as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper, identity="hand", journal=folder),
    ):
        assert len(list(manager.map([b"x"] * 30, timeout=WAIT))) == 30
    return folder


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(forks, tmp_path) -> Run:
    """Return a function that runs ``wmp journal`` to its end."""

    def run(*argv: str) -> tuple[int, str, str]:
        ended = forks.run(*WMP, "journal", *argv, cwd=tmp_path)
        assert "Traceback" not in ended.stderr
        return ended

    return run


def test_cat_prints_readable_lines_in_the_order_of_time(journal, run):
    code, out, err = run("cat", str(journal))

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line[:21] for line in lines] == sorted(line[:21] for line in lines)
    assert any(" boss " in line and "send TAKE of boss to hand [1" in line for line in lines)
    assert any("label=the boss\\x1b[2J" in line for line in lines), "no control characters"
    assert any(" hand " in line and "received TAKE of boss to hand [1" in line for line in lines)


def test_cat_filters(journal, forks):
    def cat(*filters: str) -> Ended:
        return forks.run(*WMP, "journal", "cat", str(journal), *filters, cwd=journal)

    def lines(*filters: str) -> list[Line]:
        ended = cat("--json", *filters)
        assert ended.returncode == 0
        return [json.loads(line) for line in ended.stdout.splitlines()]

    every = lines()
    jobs = lines("--job", "7")
    assert {line["what"] for line in jobs} >= {"submitted", "send", "received", "run", "resolve"}
    assert all(7 in line["ids"] for line in jobs)
    assert lines("--job", "7", "--what", "resolve") == [x for x in jobs if x["what"] == "resolve"]
    assert {line["node"] for line in lines("--node", "hand")} == {"hand"}
    assert {line["node"] for line in lines("--node", "the b")} == {"boss"}
    assert {line["node"] for line in lines("--kind", "worker")} == {"hand"}
    takes_and_gives = lines("--command", "take", "--command", "GIVE")
    assert {line["command"] for line in takes_and_gives} == {"TAKE", "GIVE"}
    assert len(every) > len(takes_and_gives) > 0
    assert cat("--job", "999").stderr.startswith("wmp: none of")
    assert cat("--what", "sent").returncode == 2


def test_cat_can_be_cut_short(journal):
    script = (
        "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1] + ' | head -1', shell=True))"
    )
    command = f"{sys.executable} -m wmp journal cat {journal}"
    with Program(sys.executable, "-c", script, command) as running:
        running.ends()

    assert running.stdout.count(b"\n") == 1
    assert running.stderr == ""


def test_stat_adds_up(journal, run):
    code, out, _ = run("stat", str(journal), "--json")

    totals = json.loads(out)
    assert code == 0
    assert totals["submitted"] == 30
    assert totals["ends"] == {"ok": 30}
    assert (totals["missing"], totals["bad"]) == (0, {})
    assert {(row["node"], row["kind"], row["ended"]) for row in totals["nodes"]} == {
        ("boss", "manager", "halt"),
        ("hand", "worker", "halt"),
    }
    assert totals["sent"]["TAKE"] == totals["received"]["TAKE"] > 0
    code, out, _ = run("stat", str(journal))
    assert code == 0
    assert "30 submitted; ended: ok 30" in out


def test_unreadable_lines_are_counted_by_their_defect(journal, run):
    segment = max(journal.iterdir())
    whole = segment.read_bytes()
    deep = b"[" * 100_000
    numbers = b'{"v":1,"node":"x","epoch":1,"n":1,"step":1,"at":0,"wall":"now","what":"ticked"}'
    segment.write_bytes(
        whole + b"\n".join((b"\xff\xfe", b"5", b"{}", b'{"v":1}', deep, numbers, whole[:50]))
    )

    code, out, _ = run("stat", str(journal), "--json")
    assert code == 0
    assert json.loads(out)["bad"] == {
        "not JSON": 2,
        "no object": 1,
        "no v": 1,
        "no node": 1,
        "wall is not integer": 1,
        "torn": 1,
    }
    code, out, err = run("cat", str(journal))
    assert code == 0
    assert len(out.splitlines()) == json.loads(run("stat", str(journal), "--json")[1])["lines"]
    assert "these lines are not valid lines of a journal and were skipped: not JSON 2" in err


def test_a_schema_of_another_version_is_an_error(journal, run):
    segment = max(journal.iterdir())
    segment.write_bytes(segment.read_bytes().replace(b'{"v":1,', b'{"v":2,'))

    for command in ("cat", "stat"):
        code, _, err = run(command, str(journal))
        assert code == 2
        assert "has schema 2; this program reads schema 1" in err


def test_an_empty_journal_is_reported_and_a_missing_one_is_wrong_usage(tmp_path, run):
    (tmp_path / "m-1-000001.jsonl").touch()

    code, out, _ = run("stat", str(tmp_path))
    assert (code, out) == (0, "the journal is empty: it has 1 segment and no lines\n")
    code, out, err = run("cat", str(tmp_path))
    assert (code, out) == (0, "")
    assert "the journal is empty" in err
    os.remove(tmp_path / "m-1-000001.jsonl")
    assert run("stat", str(tmp_path))[0] == 2
    assert "there is no" in run("cat", str(tmp_path / "nowhere"))[2]


def test_the_journal_of_a_manager_has_the_time_since_each_submitter_called(tmp_path):
    """The loop of the manager takes both jobs together, when the function returns to it."""

    async def submit() -> None:
        async with aio.Manager("tcp://127.0.0.1:*", journal=tmp_path) as manager:
            manager.submit_nowait(b"")
            until = time.monotonic() + 0.05
            while time.monotonic() < until:
                pass
            manager.submit_nowait(b"")
            await manager.close(0.0)

    asyncio.run(submit())

    (submitted,) = (line for line in read(tmp_path)["manager"] if line["what"] == "submitted")
    first, second = submitted["since_call"]
    assert first >= second + 49_999
    assert second >= 0
