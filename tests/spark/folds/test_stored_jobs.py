"""Journals of managers that share a store: no job is accused because another manager went on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from tests.simulation.test_store_worlds import RESTARTS
from tests.spark.folds.plain import fold, table
from wmp.actions import JOINED
from wmp.testing.simulator.journals import Journals
from wmp.testing.simulator.network import Action
from wmp.testing.store_worlds.store_world import StoreFaults, StoreWorld

STORE = {"owner": "s", "owner_epoch": 7}


@define(eq=False)
class JournaledWorld(StoreWorld):
    """A world whose nodes keep journals."""

    journals: Journals = field(kw_only=True)

    def handled(self, name: str, event: object, actions: Sequence[Action]) -> None:
        settings: Any = self.nodes[name].settings  # type: ignore[union-attr]
        self.journals.step(name, settings, event, actions, self.now)
        super().handled(name, event, actions)


def folded(folder: Path, seed: int, faults: StoreFaults, seconds: float, **more: int) -> Any:
    """Play a world, and fold its journals."""
    world = JournaledWorld(seed=seed, faults=faults, journals=Journals(folder), **more)
    world.play(seconds)
    world.journals.close(world.alive)
    texts = [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
    return world, fold(texts)


def line(node: str, n: int, what: str, **columns: object) -> str:
    head = {"v": 1, "node": node, "epoch": 1, "n": n, "step": n, "at": n, "wall": n}
    return json.dumps({**head, "what": what, **columns})


def begun(node: str) -> list[str]:
    start = {"kind": "manager", "segment": 1, "settings": {}}
    return [line(node, 0, "start", **start), line(node, 1, "instancebegun", **STORE)]


def granted(node: str, n: int, worker: str) -> str:
    route = {"source": node, "source_epoch": 1, "target": worker, "target_epoch": 1}
    where = {"command": "TAKE", "link": "a", "hops": 0, **route, **STORE}
    return line(node, n, "send", **where, session=1, number=1, lock=1, ids=[1], attempts=[1])


def violations_of(texts: list[str]) -> set[str]:
    return {row["name"] for row in table(fold(texts), "violations")}


@pytest.mark.parametrize("managers", [1, 2])
def test_a_job_that_goes_on_under_a_successor_breaks_no_rule(tmp_path, managers):
    world, sink = folded(tmp_path / "j", managers, RESTARTS, 3.0, managers=managers)

    assert world.instances > managers
    assert table(sink, "violations") == []
    jobs = table(sink, "jobs")
    assert {row["owner"] for row in jobs} == {"reference"}
    assert len(jobs) >= len(world.acknowledged)


def test_a_store_with_all_faults_is_accused_of_nothing(tmp_path):
    _, sink = folded(tmp_path / "j", 3, StoreFaults(jumps=0), 3.0, managers=2)

    assert table(sink, "violations") == []


def test_an_attempt_that_two_managers_grant_to_two_workers_is_found():
    texts = [*begun("m1"), granted("m1", 2, "w1"), *begun("m2"), granted("m2", 2, "w2")]

    assert violations_of(texts) == {"WMP-14.2"}
    assert violations_of(texts[:3]) == set()


def test_two_ends_of_a_stored_job_are_found():
    ends = [("m1", "ok"), ("m2", "error")]
    texts = [
        text
        for node, end in ends
        for text in (*begun(node), line(node, 2, "resolve", ids=[1], attempts=[1], ends=[end]))
    ]

    assert violations_of(texts) == {"one end for each job"}


def test_a_submission_that_joined_a_stored_job_is_no_job_of_its_own():
    submitted = line("m1", 2, "submitted", role="default", ids=[1], priority=0, max_worker_losses=3)
    peer = {"about_peer": "s", "about_epoch": 7}
    note = line("m1", 3, "note", reason=JOINED, ids=[1], attempts=[0], **peer, **STORE)

    assert len(table(fold([*begun("m1"), submitted]), "jobs")) == 1
    assert table(fold([*begun("m1"), submitted, note]), "jobs") == []
