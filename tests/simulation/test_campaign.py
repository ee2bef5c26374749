"""The campaign: many worlds keep every invariant, and every kind of fault occurs."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest

from tests.waiting import wait_until
from wmp.checks.job_history import INVARIANTS, History, Violation
from wmp.testing.__main__ import main
from wmp.testing.simulator.faults import Fault
from wmp.testing.worlds import campaign, world
from wmp.testing.worlds.campaign import CampaignResult, reports


@pytest.mark.rule(
    "WMP-4.1", "WMP-4.12", "WMP-6.1", "WMP-6.2", "WMP-6.3", "WMP-6.4", "WMP-6.10", "WMP-6.12"
)
@pytest.mark.rule("WMP-7.1", "WMP-7.3", "WMP-9.6", "WMP-9.7", "WMP-9.8", "WMP-9.12")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(3000), marks=pytest.mark.deep)])
def test_worlds_keep_every_invariant_under_every_fault(seeds):
    tally = CampaignResult()
    for report in reports(seeds):
        if report.violation is not None:
            lines = "\n".join(report.trace)
            command = campaign.replay_command(report)
            pytest.fail(f"seed {report.seed}: {report.violation}\n{lines}\nagain: {command}")
        tally.add(report)
    assert tally.schedules == len(seeds)
    assert tally.hours > len(seeds) / 2000
    assert tally.messages > 50 * len(seeds)
    assert all(tally.faults[fault.value] >= len(seeds) / 20 for fault in Fault), tally.faults
    assert set(tally.ends) == {"ok", "error", "cancelled", "timeout", "lost"}


@pytest.mark.rule("WMP-6.19", "WMP-6.20", "WMP-6.24", "WMP-6.26", "WMP-6.27")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "seeds", [range(24), pytest.param(range(24, 1500), marks=pytest.mark.deep)]
)
def test_worlds_with_times_and_failures_keep_every_invariant(seeds):
    tally = CampaignResult()
    for report in reports(seeds, timed=True):
        if report.violation is not None:
            lines = "\n".join(report.trace)
            command = campaign.replay_command(report)
            pytest.fail(f"seed {report.seed}: {report.violation}\n{lines}\nagain: {command}")
        tally.add(report)
    assert tally.executions > tally.ends["ok"] + tally.ends["error"], "jobs are tried again"
    assert min(tally.ends[end] for end in ("ok", "error", "cancelled", "timeout")) > len(seeds) / 5


@pytest.mark.rule("WMP-8.11", "WMP-8.12", "WMP-8.14")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "seeds", [range(16), pytest.param(range(16, 1000), marks=pytest.mark.deep)]
)
def test_worlds_with_managers_that_dial_in_keep_every_invariant(seeds):
    tally = CampaignResult()
    for report in reports(seeds, dialed=True):
        if report.violation is not None:
            lines = "\n".join(report.trace)
            command = campaign.replay_command(report)
            pytest.fail(f"seed {report.seed}: {report.violation}\n{lines}\nagain: {command}")
        tally.add(report)
    assert tally.ends["ok"] > 4 * len(seeds)
    assert tally.faults["kill manager"]
    assert tally.faults["restart device"]


@pytest.mark.rule("WMP-17.1", "WMP-17.2", "STAR-4.1", "STAR-4.2")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "seeds", [range(16), pytest.param(range(16, 1000), marks=pytest.mark.deep)]
)
def test_worlds_with_a_pair_of_managers_keep_every_invariant(seeds):
    tally, takeovers, conflicts = CampaignResult(), 0, 0
    for seed in seeds:
        played = world.World(seed=seed, paired=True)
        report = played.play()
        if report.violation is not None:
            lines = "\n".join(report.trace)
            command = campaign.replay_command(report)
            pytest.fail(f"seed {report.seed}: {report.violation}\n{lines}\nagain: {command}")
        tally.add(report)
        takeovers += played.pair.takeovers
        conflicts += played.pair.conflicts
    assert tally.ends["ok"] > 4 * len(seeds)
    assert tally.faults["kill manager"]
    assert takeovers > 1.2 * len(seeds), "managers take over from each other"
    assert conflicts > len(seeds) / 8, "two managers were active at the same time"


@pytest.mark.rule("WMP-19.3", "WMP-19.4", "WMP-19.5")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "seeds", [range(16), pytest.param(range(16, 1000), marks=pytest.mark.deep)]
)
@pytest.mark.parametrize("timed", [False, True], ids=["plain", "timed"])
def test_worlds_with_a_forwarding_manager_keep_every_invariant(seeds, timed):
    tally, forwarded = CampaignResult(), 0
    for seed in seeds:
        played = world.World(seed=seed, forwarded=True, timed=timed)
        report = played.play()
        if report.violation is not None:
            lines = "\n".join(report.trace)
            command = campaign.replay_command(report)
            pytest.fail(f"seed {report.seed}: {report.violation}\n{lines}\nagain: {command}")
        tally.add(report)
        upper = played.simulation.network.nodes["f1^"]
        forwarded += sum(upper.statistics().outcomes.values())
    assert tally.ends["ok"] > 4 * len(seeds)
    assert tally.faults["kill manager"]
    assert tally.faults["kill worker"]
    assert forwarded > 2 * len(seeds), "jobs pass the forwarding manager"


@pytest.mark.parametrize("seed", range(40))
def test_a_manager_that_dials_in_reaches_the_workers_behind_the_device(seed):
    topology = world.World(seed=seed, dialed=True).topology
    assert topology.dials
    for manager, devices in topology.dials.items():
        for device in devices:
            assert manager not in topology.uplinks[device]
            assert manager in topology.above(device)
        assert topology.kinds(manager)


@pytest.mark.parametrize("flag", ["--timed", "--dialed", "--paired", "--forwarded"])
def test_the_program_plays_other_worlds_by_a_flag(flag):
    command = [sys.executable, "-m", "wmp.testing", "--seeds", "3:6", flag]
    done = subprocess.run(command, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "schedules        3" in done.stdout


def test_the_program_prints_its_counts(capsys):
    assert main(["--seeds", "0:8"]) == 0
    output = capsys.readouterr()
    assert "schedules        8" in output.out
    assert "violations       0" in output.out
    for fault in Fault:
        assert f"  {fault.value} " in output.out
    assert "\x1b" not in output.err, "no terminal, no escapes"


def test_progress_is_a_line_every_ten_seconds(monkeypatch, capsys):
    clock = SimpleNamespace(monotonic=partial(next, itertools.count(0, 6)))
    monkeypatch.setattr("wmp.testing.__main__.time", clock)
    assert main(["--seeds", "0:4"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("1/4 worlds, ")
    assert lines[1].endswith(" simulated hours, 0 violations")


def test_json_from_two_processes_is_that_of_one(capsys):
    assert main(["--seeds", "0:8", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert main(["--seeds", "0:8", "--json", "--jobs", "2"]) == 0
    assert output == json.loads(capsys.readouterr().out)
    assert output["schedules"] == 8
    assert output["violations"] == {}
    assert set(output["faults"]) == {fault.value for fault in Fault}


def test_trace_prints_every_step_of_a_seed(capsys):
    assert main(["--seeds", "17", "--trace"]) == 0
    output = capsys.readouterr().out
    report = world.simulate(17, keep=None)
    assert f"seed 17, trace {report.digest}" in output
    assert "\n".join(report.trace) in output
    assert len(report.trace) > report.steps


def test_a_reader_that_closes_the_pipe_ends_the_program_quietly():
    command = [sys.executable, "-m", "wmp.testing", "--seeds", "17:20", "--trace"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline().startswith(b"seed 17, trace ")
        program.stdout.close()  # as `head -1` does; the rest is more than a pipe holds
        errors = program.stderr.read()
        assert program.wait(60) == 141
    assert errors == b""


@pytest.mark.parametrize("seeds", ["x", "5:5", "9:3", "-4:3", "1:x", ""])
def test_wrong_seeds_are_wrong_usage(seeds, capsys):
    with pytest.raises(SystemExit) as ended:
        main([f"--seeds={seeds}"])
    assert ended.value.code == 2
    assert "write 17, or 0:500" in capsys.readouterr().err


@pytest.mark.parametrize("jobs", ["0", "two", "-1"])
def test_wrong_numbers_of_processes_are_wrong_usage(jobs):
    with pytest.raises(SystemExit) as ended:
        main([f"--jobs={jobs}"])
    assert ended.value.code == 2


@pytest.fixture
def forgetful(monkeypatch):
    """A history that receives every second end twice."""
    resolved = History.resolved

    def twice(self, owner, id, *rest):
        resolved(self, owner, id, *rest)
        if id % 2 == 0:
            resolved(self, owner, id, *rest)

    monkeypatch.setattr(History, "resolved", twice)


@pytest.mark.usefixtures("forgetful")
def test_a_violation_is_reported_with_seed_steps_and_a_command_to_repeat_it(capsys):
    assert main(["--seeds", "5"]) == 1
    output = capsys.readouterr().out
    assert "seed 5 broke “one end for each job”" in output
    assert INVARIANTS["one end for each job"] in output
    assert "play it again: python -m wmp.testing --seeds 5 --trace" in output
    steps = [line for line in output.splitlines() if line.startswith("    ")]
    assert len(steps) >= 30
    assert any(": got " in line for line in steps)


@pytest.mark.usefixtures("forgetful")
def test_a_violation_in_json(capsys):
    assert main(["--seeds", "4:6", "--json"]) == 1
    output = json.loads(capsys.readouterr().out)
    assert output["violations"] == {"one end for each job": 2}
    assert [failed["seed"] for failed in output["failed"]] == [4, 5]
    assert output["failed"][0]["replay"] == "python -m wmp.testing --seeds 4 --trace"
    assert output["failed"][0]["last_steps"]


def interrupt_after(monkeypatch, count):
    """Raise Ctrl-C when this many worlds were played."""

    def play(seed, **how):
        if seed == count:
            raise KeyboardInterrupt
        return world.simulate(seed, **how)

    monkeypatch.setattr(campaign, "simulate", play)


def test_an_interrupted_run_reports_its_counts_and_does_not_pass(monkeypatch, capsys):
    interrupt_after(monkeypatch, 2)
    assert main(["--seeds", "0:50", "--json"]) == 130
    output = capsys.readouterr()
    assert json.loads(output.out)["schedules"] == 2
    assert "interrupted; these are the results so far" in output.err


def test_sigterm_ends_the_program_with_all_its_processes(tmp_path):
    command = [sys.executable, "-m", "wmp.testing", "--seeds", "0:1000000", "--jobs", "2"]
    command += ["--journal", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as played:
        wait_until(lambda: any(tmp_path.iterdir()), "a child process plays")
        played.terminate()
        output, errors = played.communicate(timeout=50)

    assert played.returncode == 143, errors
    assert "violations       0" in output
    assert "interrupted; these are the results so far" in errors
    assert "Traceback" not in errors


@pytest.mark.usefixtures("forgetful")
def test_a_violation_seen_before_the_interruption_counts(monkeypatch, capsys):
    interrupt_after(monkeypatch, 7)
    assert main(["--seeds", "5:50"]) == 1


def test_violations_travel_between_processes():
    """A violation reaches the main process from the process that played the world."""
    violation = pickle.loads(pickle.dumps(Violation("executions", "seen twice")))
    assert (violation.name, violation.detail) == ("executions", "seen twice")
    assert str(violation) == "executions: seen twice"


def test_violations_name_an_invariant():
    with pytest.raises(AssertionError):
        Violation("no such invariant", "detail")


def test_the_invariants_can_be_listed(capsys):
    assert main(["--invariants"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(INVARIANTS)
