"""`wmp demo` with real input: the jobs, the comparison of the results, and no leftovers."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.interop.programs.forks import wmp as program
from tests.waiting import RUN, WAIT, children, runs, wait_until
from wmp.cli.demo import chaos as demo_chaos
from wmp.cli.demo import runner as demo_runner
from wmp_programs import wmp as main

pytestmark = pytest.mark.interop


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")


@pytest.mark.parametrize(
    ("files", "workers"), [(60, 2), pytest.param(None, 4, marks=pytest.mark.deep)]
)
def test_every_file_of_the_standard_library_is_counted_once_and_right(files, workers, tmp_path):
    names = demo_runner.source_files(files)
    options = ["--files", str(files), "--workers", str(workers)] if files else []
    with program("demo", *options, "--journal", str(tmp_path)) as demo:
        code = demo.process.wait(RUN)
        demo.ends()
        output = demo.stdout.decode()

    assert (code, demo.stderr) == (0, ""), output
    assert len(names) == files or (files is None and len(names) > 300)
    assert f"{len(names)} files for {workers} workers" in output
    assert re.search(r"worker 2 was killed \(SIGKILL\) while it ran job \d+", output)
    assert f"{len(names)} of {len(names)} results are correct; lost: 0, duplicates: 0" in output
    # The worker held leases when it was killed, and other workers got those jobs.
    match = re.search(r"queued again: (\d+) \(.*silence", output)
    assert match, output
    requeued = int(match[1])
    again = int(re.search(r"second attempt: (\d+)", output)[1])
    assert 1 <= again <= requeued
    rows = re.findall(r"^(worker \d)  the (managers|device)\s+(\d+) ", output, re.MULTILINE)
    assert [way for _, way, _ in rows] == ["managers", "device"] * (workers // 2)
    assert sum(int(jobs) for _, _, jobs in rows) == len(names)
    # Each process but the killed worker has closed its journal.
    segments = [path.name for path in tmp_path.iterdir()]
    assert len([name for name in segments if name.startswith(".")]) == 1
    assert len(segments) >= workers + 3


def run_here(monkeypatch, capfd, *arguments):
    """Run ``wmp demo`` in this process; return its exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["wmp", "demo", *arguments])
    with pytest.raises(SystemExit) as raised:
        main()
    return raised.value.code, *capfd.readouterr()


@pytest.mark.deep  # a test of --chaos below has a wrong result too
def test_a_wrong_result_is_found_and_no_kill_kills_no_worker(monkeypatch, capfd):
    """The demo fails if one result differs from the demo's own result."""
    names = demo_runner.source_files(10)
    wrong = Path(names[7]).read_bytes()

    def count(data):
        return [-1, "nothing"] if data == wrong else real(data)

    real = demo_runner.count
    monkeypatch.setattr(demo_runner, "count", count)
    arguments = ("--files", "10", "--workers", "1", "--no-kill")
    code, out, err = run_here(monkeypatch, capfd, *arguments)

    assert code == 1
    assert f"wmp: {names[7]}: " in err
    assert "9 of 10 results are correct" in out
    assert "jobs queued again: 0" in out
    assert "killed" not in out


@pytest.mark.deep  # a test below interrupts the demo with --chaos
@needs_proc
@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_it_can_be_interrupted_and_leaves_nothing(number, code, message):
    with program("demo", "--workers", "1", "--no-kill") as demo:
        demo.wait_for_line("files for 1 worker of", on="stdout")
        pids = children(demo.process.pid)
        demo.signal(number)

        assert demo.ends() == code
        assert len(pids) == 4
        assert not [pid for pid in pids if runs(pid)]
        assert demo.stderr == f"wmp: {message}; nothing is left running\n"


@needs_proc
def test_its_processes_do_not_outlive_it_even_when_it_is_killed():
    with program("demo", "--workers", "1", "--no-kill") as demo:
        demo.wait_for_line("files for 1 worker of", on="stdout")
        pids = children(demo.process.pid)
        demo.signal(signal.SIGKILL)
        demo.process.wait(WAIT)

        assert len(pids) == 4
        wait_until(lambda: not any(map(runs, pids)), "all processes have ended")


@needs_proc
def test_the_unexpected_end_of_a_process_is_reported():
    with program("demo", "--workers", "1", "--no-kill") as demo:
        demo.wait_for_line("files for 1 worker of", on="stdout")
        first, *others = sorted(children(demo.process.pid))
        # The first process is a manager. Its jobs end with it, and the demo ends too.
        os.kill(first, signal.SIGKILL)

        assert demo.ends() == 1
        assert re.search(
            r"wmp: manager A ended unexpectedly with exit code -9; "
            r"add --verbose to see its output\n$",
            demo.stderr,
        )
        assert not [pid for pid in others if runs(pid)]


# -- chaos


@pytest.mark.parametrize("store", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_everything_is_killed_in_turn_and_nothing_is_lost(store):
    kind = "--store" if store else "--chaos"
    with program("demo", kind, "--files", "48", "--workers", "1", "--seed", "5") as demo:
        code = demo.process.wait(RUN)
        demo.ends()
        output = demo.stdout.decode()

    assert (code, demo.stderr) == (0, ""), output
    everybody = ["manager A", "manager B", "device", "worker 1"]
    # Each process was killed twice and started again twice.
    for label in everybody:
        assert output.count(f"%  {label} was killed (SIGKILL)") == 2, output
        assert output.count(f"  {label} is back after") == 2, output
    rows = re.findall(
        r"^(manager \w|device|worker \d)  +2 +\d+\.\d s( +\d+)?", output, re.MULTILINE
    )
    assert [label for label, _ in rows] == everybody, output
    # The jobs that the managers held were submitted again.
    assert sum(int(jobs) for label, jobs in rows if label.startswith("manager")) > 0
    assert "48 of 48 results are correct; lost: 0, duplicates: 0\n" in output
    end = "8 processes were killed (SIGKILL) and started again; seed 5\n"
    if store:
        stored = f"{end}the store has 48 jobs, one for each file, and all are ok\n"
        assert stored in output
        assert re.fullmatch(r"\d+ jobs? w\w+ done in the first attempt\n", output.split(stored)[1])
    else:
        assert rows[3][1].strip() == "48"
        assert output.endswith(end)


def test_a_pair_of_managers_takes_over_twice(tmp_path):
    with program("demo", "--star", "--files", "60", "--workers", "2") as demo:
        code = demo.process.wait(RUN)
        demo.ends()
        output = demo.stdout.decode()
    assert (code, demo.stderr) == (0, ""), output
    steps = re.findall(
        r"(manager [AB]) (was killed|is active|is back)", output.partition("60 files,")[0]
    )
    assert [step for step in steps if step[1] != "is back"] == [
        ("manager A", "is active"),
        ("manager A", "was killed"),
        ("manager B", "is active"),
        ("manager B", "was killed"),
        ("manager A", "is active"),
    ]
    assert output.count("and the other took over after") == 2
    assert output.endswith("60 of 60 replies are correct; lost: 0\n")


def test_chaos_reports_wrong_results_and_duplicates(monkeypatch, capfd):
    names = demo_runner.source_files(12)
    wrong = Path(names[7]).read_bytes()

    def count(data):
        return [-1, "nothing"] if data == wrong else real(data)

    def give(course, manager, files):
        give_one(course, manager, files | {0})  # both managers have the file now

    real, give_one = demo_runner.count, demo_chaos.Chaos._give
    monkeypatch.setattr(demo_runner, "count", count)
    monkeypatch.setattr(demo_chaos.Chaos, "_give", give)
    monkeypatch.setattr(demo_chaos.Chaos, "_plan", lambda course, rounds: iter(()))
    arguments = ("--chaos", "--files", "12", "--workers", "1", "--seed", "1")
    code, out, err = run_here(monkeypatch, capfd, *arguments)

    assert code == 1, out
    assert f"wmp: {names[7]}: " in err
    assert f"wmp: {names[0]}: a second result came; expected one\n" in err
    assert "11 of 12 results are correct; lost: 0, duplicates: 1" in out


@needs_proc
def test_chaos_can_be_interrupted_and_leaves_nothing():
    with program("demo", "--chaos", "--files", "200", "--workers", "1", "--seed", "2") as demo:
        demo.wait_for_line("is back after", on="stdout")
        pids = children(demo.process.pid)
        demo.signal(signal.SIGINT)

        assert demo.ends() == 130
        assert len(pids) >= 3
        wait_until(lambda: not any(map(runs, pids)), "all processes have ended")
        assert demo.stderr == "wmp: interrupted; nothing is left running\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--chaos", "--no-kill"],
            "--chaos and --no-kill exclude each other; give only one of them",
        ),
        (
            ["--star", "--chaos"],
            "--star excludes --chaos, --store and --spark; leave out these flags",
        ),
        (
            ["--star", "--files", "5"],
            "5 files are too few for two kills: set --files to 20 or more, or add --no-kill",
        ),
        (["--seed", "3"], "--seed needs --chaos; add --chaos, or leave out --seed"),
        (
            ["--chaos", "--files", "20"],
            (
                "20 files are too few to kill 7 processes: set --files to 21 or more, "
                "or lower --workers"
            ),
        ),
    ],
)
def test_chaos_that_cannot_be_is_refused(arguments, complaint, monkeypatch, capfd):
    assert run_here(monkeypatch, capfd, *arguments) == (2, "", f"wmp: {complaint}\n")
