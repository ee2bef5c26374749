"""The tour for contributors: its files exist, and its commands find the fault that it makes."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.house import ROOT
from wmp.core.manager import job_lifecycle
from wmp.core.manager.job_lifecycle import JobInput, JobState
from wmp.testing import __main__ as worlds
from wmp.testing.search import explore

TOUR = (ROOT / "docs" / "contributing-tour.md").read_text(encoding="utf-8")

BROKEN = "ends have a cause"
"""The invariant that the fault of the tour breaks."""


def commands(program: str) -> list[list[str]]:
    """Return the arguments of each call of a program in a block for the shell."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", TOUR, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith(f"{program} ")]
    words = len(program.split())
    return [line[words : line.index(">") if ">" in line else None] for line in commands]


@pytest.fixture
def broken(monkeypatch):
    """The library with the fault that the tour makes."""
    wrong = {**job_lifecycle.TRANSITIONS, (JobState.LEASED, JobInput.LOSE): JobState.ENDED}
    monkeypatch.setattr(job_lifecycle, "TRANSITIONS", wrong)


def test_the_five_files_have_about_the_length_that_the_tour_states():
    rows = re.findall(r"^\| \[`(.+?)`\]\(\.\./\1\) \| (\d+) \|", TOUR, re.MULTILINE)

    assert len(rows) == 5
    for name, stated in rows:
        lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
        assert abs(lines - int(stated)) <= lines / 5, f"{name} has {lines} lines"


def test_the_line_that_the_tour_changes_is_in_the_file_that_it_names():
    (name,) = re.findall(r"^In `(.+?)`, let a job end", TOUR, re.MULTILINE)
    (before,) = re.findall(r"^-(    \(JobState.+)$", TOUR, re.MULTILINE)
    (after,) = re.findall(r"^\+(    \(JobState.+)$", TOUR, re.MULTILINE)

    assert before in (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert after == before.replace("JobState.QUEUED", "JobState.ENDED")


def test_a_range_of_seeds_finds_the_fault(broken, capsys):
    first, *others = commands("python -m wmp.testing")

    assert first[0] == "--seeds"
    assert len(others) == 2
    assert worlds.main(first) == 1
    assert f"broke “{BROKEN}”" in capsys.readouterr().out


def test_without_the_fault_the_same_seeds_pass(capsys):
    assert worlds.main(commands("python -m wmp.testing")[0]) == 0
    assert BROKEN not in capsys.readouterr().out


def test_the_seed_of_the_tour_fails_and_its_trace_shows_it(broken, capsys):
    """If this fails, quote the output of another seed in the tour."""
    (traced,) = [line for line in commands("python -m wmp.testing") if "--trace" in line]

    assert worlds.main(traced) == 1
    assert f"broke “{BROKEN}”" in capsys.readouterr().out


def test_the_explorer_finds_the_fault_and_plays_it_again(broken, capsys):
    search, replay = commands("python -m wmp.testing.search.explore")

    assert explore.main(search) == 1
    output = capsys.readouterr().out
    assert explore.main(replay) == 1
    assert BROKEN in capsys.readouterr().out
    assert output.splitlines()[-1].endswith(shlex.join(replay)), "quote the output in the tour anew"


def test_other_flags_of_the_tour_exist():
    known = worlds._parser().format_help() + explore._parser().format_help()
    quoted = re.findall(r"`(?:python -m wmp\.testing[^`]*?)?(--[a-z]+)", TOUR)

    assert {"--timed", "--dialed", "--paired", "--invariants"} <= set(quoted)
    for flag in set(quoted) - {"--help", "--wmp"}:
        assert flag in known, flag
