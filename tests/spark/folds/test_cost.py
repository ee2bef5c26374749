"""The work of folds grows with their lines, and not with the square of their lines."""

from __future__ import annotations

import json

from tests.spark.folds.plain import fold, table
from wmp.checks.observer import Observer
from wmp.spark.folds import manager_fold
from wmp.spark.folds.facts import Fact

ROUTES = {
    "m": {"source": "m", "source_epoch": 1, "target": "w", "target_epoch": 1},
    "w": {"source": "w", "source_epoch": 1, "target": "m", "target_epoch": 1},
}


def line(node: str, n: int, step: int, what: str, **columns: object) -> str:
    head = {"v": 1, "node": node, "epoch": 1, "n": n, "step": step, "at": n, "wall": n}
    return json.dumps({**head, "what": what, **columns})


def message(node: str, command: str, **columns: object) -> dict[str, object]:
    return {"command": command, "link": "a", "hops": 0, **ROUTES[node], "session": 1, **columns}


def many_errors_in_one_step(size: int) -> list[str]:
    """A DONE ends many jobs with an error."""
    jobs = {"ids": list(range(1, size + 1)), "attempts": [1]}
    owned = {**jobs, "owner": "m", "owner_epoch": 1}
    ready = message("w", "READY", ready=1, credit=size)
    take = message("m", "TAKE", number=1, lock=1, role="r", **owned)
    done = message("w", "DONE", number=1, outcomes=[1], **owned)
    return [
        line("m", 1, 1, "received", **ready),
        line("m", 2, 2, "send", **take),
        line("m", 3, 3, "received", **done),
        line("m", 4, 3, "resolve", source="w", source_epoch=1, ends=["error"], **jobs),
    ]


def a_job_with_many_violations(size: int) -> list[str]:
    """A worker gets each lease of a job, and answers what no lane reported."""
    lines = []
    for lease in range(1, size + 1):
        job = {"ids": [1], "attempts": [lease], "owner": "m", "owner_epoch": 1}
        take = message("m", "TAKE", number=lease, lock=lease, role="r", **job)
        done = message("w", "DONE", number=lease, outcomes=[0], **job)
        lines.append(line("w", 2 * lease - 1, 2 * lease - 1, "received", **take))
        lines.append(line("w", 2 * lease, 2 * lease, "send", **done))
    return lines


def test_the_errors_of_a_step_are_looked_up_in_a_set(monkeypatch):
    """In a list of the ended jobs the cost would grow with the square of the jobs."""
    kinds = set()

    class Recorded(Observer):
        def __setattr__(self, name, value):
            if name == "ended" and value:
                kinds.add(type(value))
            super().__setattr__(name, value)

    monkeypatch.setattr(manager_fold, "Observer", Recorded)

    assert len(table(fold(many_errors_in_one_step(10)), "attempts")) == 10

    assert kinds == {set}


def test_eight_times_the_violations_look_at_eight_times_the_facts(monkeypatch):
    """The lines of a job are collected once, and not for each of its violations."""
    looks = 0
    process = Fact.process.fget

    def counted(fact):
        nonlocal looks
        looks += 1
        return process(fact)

    monkeypatch.setattr(Fact, "process", property(counted))
    counts = []
    for size in (30, 240):
        looks = 0
        sink = fold(a_job_with_many_violations(size))
        assert sum(n for (kind, *_), (n, *_) in sink.counts.items() if kind == "violation") >= size
        counts.append(looks)

    assert counts[1] < 9 * counts[0]
