"""The CPU time of folds grows with their lines, and not with the square of their lines."""

from __future__ import annotations

import json
import time

import pytest

from tests.spark.plain import fold, table

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


@pytest.mark.parametrize(
    ("make", "size"), [(many_errors_in_one_step, 6000), (a_job_with_many_violations, 300)]
)
def test_eight_times_the_lines_cost_about_eight_times_as_much(make, size):
    took = []
    for lines in (make(size), make(8 * size)):
        began = time.process_time()
        sink = fold(lines)
        took.append(time.process_time() - began)
        assert table(sink, "attempts")

    assert took[1] < 14 * took[0]
