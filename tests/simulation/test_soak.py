"""A short run of the soak test: counts add up, faults are reported, wrong usage is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from tests import soak
from wmp.checks.job_history import History
from wmp.testing.search.plan import PLANS
from wmp.testing.search.search import SearchBounds


def run(*arguments: str) -> int:
    return soak.main([*arguments, "--jobs", "1"])


def test_pieces_add_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = evolve(PLANS["heirs"], ticks=1), SearchBounds(states=150)
    monkeypatch.setitem(soak.WORLDS, "heirs", few)
    into = ("--into", str(tmp_path / "figures.jsonl"))
    assert run("schedules", "--seeds", "0:3", *into) == 0
    assert run("schedules", "--seeds", "3:6", *into) == 0
    for _ in range(2):  # a second search finds the same states
        assert run("states", "--worlds", "heirs", *into) == 0
    capsys.readouterr()

    assert run("report", "--json", *into) == 0
    pieces = json.loads(capsys.readouterr().out)
    assert run("schedules", "--seeds", "0:6", "--json") == 0
    whole = json.loads(capsys.readouterr().out)
    assert pieces["schedules"]["seeds"] == ["0:3", "3:6"]
    for same in ("schedules", "events", "messages", "jobs", "ends", "faults", "violations"):
        assert pieces["schedules"][same] == whole["schedules"][same]
    assert pieces["in all"]["schedules"] == 6
    assert pieces["in all"]["states"] == pieces["states"]["worlds"]["heirs"]["states"] > 100

    assert run("report", *into) == 0
    output = capsys.readouterr().out
    assert "(a whole run: 100,000)" in output
    assert f"heirs  states {pieces['in all']['states']:,}," in output


def test_a_violation_is_reported_and_sets_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(History, "waits", lambda self: ["job 1 of nobody"])
    assert run("schedules", "--seeds", "3") == 1
    output = capsys.readouterr()
    assert "every job ends: job 1 of nobody did not end" in output.err
    assert output.out.splitlines()[-1] == "python -m wmp.testing --seeds 3 --trace"


def test_a_piece_that_runs_out_of_time_reports_its_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("schedules", "--seeds", "5:5000", "--minutes", "0.001", "--json") == 0
    output = json.loads(capsys.readouterr().out)["schedules"]
    assert output["seeds"] == [f"5:{5 + output['schedules']}"]
    assert 1 <= output["schedules"] < 100

    assert run("states", "--worlds", "tiny", "--minutes", "0.001", "--json") == 0
    tiny = json.loads(capsys.readouterr().out)["states"]["worlds"]["tiny"]
    assert 1 <= tiny["states"] < 5_000
    assert not tiny["emptied"]


@pytest.mark.parametrize(
    "arguments", [["everything"], ["schedules", "--seeds", "x"], ["states", "--worlds", "none"]]
)
def test_wrong_usage_is_reported(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2


def test_the_largest_worlds_are_bounded_and_the_others_emptied() -> None:
    bounded = {name: how.states for name, (_, how) in soak.WORLDS.items() if how.states}
    assert set(soak.WORLDS) > set(bounded) > {"small"}
    assert sum(bounded.values()) >= soak.WANTED["states"]
