"""A manager that keeps the leases of a silent worker is accused if it could see the silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark.folds.killed import accusations
from tests.spark.folds.worlds import save

SECOND = 1_000_000
FROM_WORKER = {
    "link": "a", "hops": 0, "source": "w", "source_epoch": 1, "target": "m", "target_epoch": 1,
}  # fmt: skip
READY = {"command": "READY", "ready": 1, "credit": 1, "window": 0, "roles": ["r"], "resources": {}}
TAKE = {
    "command": "TAKE", "link": "a", "hops": 0, "source": "m", "source_epoch": 1, "target": "w",
    "target_epoch": 1, "session": 1, "number": 1, "lock": 1, "role": "r", "needs": {}, "owner": "m",
    "owner_epoch": 1, "ids": [1], "attempts": [1], "bytes": 0,
}  # fmt: skip
JOB = {"ids": [1], "role": "r", "needs": {}, "priority": 0, "max_worker_losses": 3}


def journal(*between: tuple[float, str]) -> list[str]:
    """Return the lines of a manager whose worker is silent from second 1 to second 10.

    Args:
        between: The time and kind of each line in between.
    """
    lines: list[tuple[float, str, dict[str, Any]]] = [
        (0.5, "submitted", JOB),
        (1.0, "received", READY | FROM_WORKER),
        (1.0, "send", TAKE),
        *((at, what, {"lines": 0} if what == "beat" else {}) for at, what in between),
        (10.0, "received", READY | FROM_WORKER),
    ]
    start = {"kind": "manager", "segment": 1, "settings": {"max_silence": 5.0}}
    texts, step = [line(0, 0, 0, "start", start)], 0
    for n, (at, what, columns) in enumerate(lines, 1):
        step += what not in ("send", "beat")
        texts.append(line(n, step, int(at * SECOND), what, columns))
    return texts


def line(n: int, step: int, at: int, what: str, columns: dict[str, Any]) -> str:
    head = {"v": 1, "node": "m", "epoch": 1, "n": n, "step": step, "at": at, "wall": at}
    return json.dumps({**head, "what": what, **columns})


@pytest.mark.parametrize(
    ("between", "accused"),
    [
        ([], False),
        ([(9.0, "beat")], False),  # the manager may have been stopped before and after this line
        ([(9.3, "beat"), (9.9, "beat")], False),  # it reads what waits before it looks at its clock
        ([(6.5, "beat"), (6.8, "beat")], False),
        ([(3.0, "beat"), (8.0, "beat")], False),  # the first line came before the silence was long
        ([(7.0, "beat"), (8.0, "beat")], True),
        ([(9.9, "ticked")], True),
    ],
)
def test_a_manager_that_could_see_a_silence_must_act(tmp_path: Path, between, accused):
    save(tmp_path / "journal" / "m-1-000001.jsonl", journal(*between))

    names = {name for name, _ in accusations(tmp_path / "journal", tmp_path / "out")}

    assert names == ({"WMP-9.3"} if accused else set())
