"""No process is accused because another process, or the process itself, was killed.

A killed process loses the lines of its last moment. So a message of it may arrive without a line
that sent the message, and an end of a process may be missing.
"""

from __future__ import annotations

import random

import pytest

from tests.spark.folds.killed import WORKERS, accusations, by_process, cut, report_on, run_and_kill
from tests.spark.folds.worlds import play, save


def found_after_cuts(tmp_path, seed: int, stride: int, several: int) -> list[object]:
    """Cut the journals of a world, and return the violations that reports of them name.

    Args:
        tmp_path: An empty folder.
        seed: The seed of the world and of the cuts.
        stride: The journal of each process is cut at each such line.
        several: Number of the reports for which the journals of several processes are cut at once.
    """
    kind = {"paired": True} if seed % 3 == 2 else {"timed": bool(seed % 2)}
    played = play(seed, tmp_path, **kind)
    processes, draw = by_process(played.lines), random.Random(seed)
    cuts = [
        {key: left}
        for key, lines in processes.items()
        for left in range(1 + draw.randrange(stride), len(lines), stride)
    ]
    cuts += [
        {
            key: 1 + draw.randrange(len(lines))
            for key, lines in processes.items()
            if draw.random() < 0.5
        }
        for _ in range(several)
    ]
    wrong = []
    for left in cuts:
        save(tmp_path / "cut" / "all-1-000001.jsonl", list(cut(processes, left)))
        some = accusations(tmp_path / "cut", tmp_path / "out")
        if some:
            wrong.append((left, some[:3]))
    assert cuts
    return wrong


@pytest.mark.parametrize(("seed", "stride"), [(0, 40), (9, 60), (10, 60), (16, 7), (23, 11)])
def test_a_journal_cut_at_a_line_accuses_nobody(tmp_path, seed, stride):
    assert found_after_cuts(tmp_path, seed, stride, 3) == []


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(50))
def test_a_journal_cut_at_any_line_accuses_nobody(tmp_path, seed):
    assert found_after_cuts(tmp_path, seed, 1, 40) == []


@pytest.mark.interop
def test_killed_busy_workers_are_not_accused(tmp_path):
    assert run_and_kill(tmp_path / "journal", 2, seed=1) == 180
    assert accusations(tmp_path / "journal", tmp_path / "out") == []


@pytest.mark.deep
@pytest.mark.interop
@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_killed_busy_workers_are_not_accused(tmp_path, seed):
    kills = 1000 // WORKERS // 5
    assert run_and_kill(tmp_path / "journal", kills, seed) == 60 * (kills + 1)
    assert accusations(tmp_path / "journal", tmp_path / "out") == []


def test_jobs_of_a_manager_that_was_killed_early_are_counted(tmp_path):
    """The jobs that only workers know have a row, and the report names them as partly known."""
    played = play(0, tmp_path)
    processes = by_process(played.lines)
    managers = [key for key in processes if key[0].startswith("s0.m")]
    save(tmp_path / "whole" / "all-1-000001.jsonl", played.lines)
    save(tmp_path / "cut" / "all-1-000001.jsonl", list(cut(processes, dict.fromkeys(managers, 2))))

    whole = report_on(tmp_path / "whole", tmp_path / "out").summary
    result = report_on(tmp_path / "cut", tmp_path / "out2")

    columns = ["owner", "owner_epoch", "job"]
    jobs, executed = (
        {tuple(row.values()) for row in result.tables.dataset(name).to_table(columns).to_pylist()}
        for name in ("jobs", "executions")
    )
    assert whole["jobs partly known"] == 0
    assert executed
    assert executed <= jobs
    assert result.summary["jobs"] == len(jobs)
    assert result.summary["jobs partly known"] >= len(executed)
    assert result.summary["without an end"] >= len(managers)
