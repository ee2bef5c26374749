"""A world's journals contain every fact that the invariants need."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.journal_back import steps
from wmp.checks.job_history import History
from wmp.checks.observer import Observer
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Submitted
from wmp.journal.reader import Line, Reader, find_segments, strands
from wmp.message import Peer
from wmp.testing.__main__ import main
from wmp.testing.simulator.journals import Journals
from wmp.testing.worlds.world import World

SEEDS = range(0, 120, 4)

FACTS = ("limited", "cancelled", "granted", "lost", "answered", "resolved")
"""Facts that an observer reports to a history; the world reports the other facts."""


class Noted(History):
    """A history that records the reported facts, by the peer that they concern."""

    def __init__(self, *, passes: bool) -> None:
        super().__init__()
        self.passes = passes
        """Whether it is held to the invariants as well."""
        self.facts: dict[Peer, list[tuple[Any, ...]]] = defaultdict(list)


def noting(name: str):
    def fact(self: Noted, peer: Peer, *more: Any, **named: Any) -> None:
        rows = list(more)
        if name == "resolved":
            del rows[2]  # no payload is in a journal
        # No text of a DONE is in a journal either, which shows whether a cancelled job had begun.
        kept = [item for item in named.items() if item[0] != "unbegun"]
        self.facts[peer].append((name, *rows, *kept))
        if self.passes:
            getattr(History, name)(self, peer, *more, **named)

    return fact


for name in FACTS:
    setattr(Noted, name, noting(name))


def play(seed: int, folder: Path) -> tuple[World, Noted]:
    """Run a world with journals; return the world and the facts that its observer reported."""
    noted = Noted(passes=True)
    world = World(seed=seed, journals=Journals(folder), history=noted)
    report = world.play()
    assert report.violation is None, f"seed {seed}: {report.violation}"
    return world, noted


def read(folder: Path) -> dict[tuple[str, Peer], list[Line]]:
    """Return the lines of each epoch of each node."""
    reader, rows = Reader(), {}
    for strand in strands(find_segments([folder])):
        lines = [line for segment in strand for line in reader.read(segment)]
        rows[lines[0]["kind"], (lines[0]["node"].encode(), lines[0]["epoch"])] = lines
    assert not reader.bad
    return rows


@pytest.mark.parametrize("seed", SEEDS)
def test_an_observer_of_the_journals_reports_the_facts_of_the_world(seed, tmp_path):
    _, live = play(seed, tmp_path)

    later = Noted(passes=False)
    observer = Observer(later)
    submitted = 0
    for (kind, me), lines in read(tmp_path).items():
        if kind == "manager":
            max_silence = lines[0]["settings"]["max_silence"]
            settings = ManagerSettings(identity=me[0], epoch=me[1], max_silence=max_silence)
            for now, event, actions in steps(lines):
                submitted += len(event.ids) if isinstance(event, Submitted) else 0
                # Rounding may make a deadline a µs earlier.
                observer.manager_did(settings, event, actions, now + 2e-6)
        elif kind == "worker":
            for now, event, actions in steps(lines):
                observer.worker_did(me, event, actions, now)

    def about(facts: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        # A journal rounds times to the µs.
        return [
            tuple(
                pytest.approx(value, abs=1e-5) if isinstance(value, float) else value
                for value in fact
            )
            for fact in facts
        ]

    assert submitted == sum(map(len, live.jobs.values()))
    assert later.facts.keys() == live.facts.keys()
    for peer, facts in live.facts.items():
        assert later.facts[peer] == about(facts), f"{peer} in seed {seed}"


def test_worlds_by_program_write_a_folder_each(tmp_path, capsys):
    assert main(["--seeds", "3:6", "--journal", str(tmp_path)]) == 0
    capsys.readouterr()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed-3", "seed-4", "seed-5"]
    for folder in tmp_path.iterdir():
        nodes = read(folder)
        assert {kind for kind, _ in nodes} >= {"manager", "worker"}
        for lines in nodes.values():
            assert lines[0]["what"] == "start"
            assert [line["n"] for line in lines] == [*range(len(lines))]
    assert main(["--seeds", "3:6", "--journal", str(tmp_path)]) == 2
    assert "has journals of other worlds" in capsys.readouterr().err


def test_journals_do_not_change_a_world(tmp_path):
    with_them = World(seed=17, journals=Journals(tmp_path)).play()

    assert with_them.digest == World(seed=17).play().digest


def test_the_journal_of_a_killed_node_has_no_stop(tmp_path):
    ends = set()
    for seed in range(8):
        play(seed, tmp_path / str(seed))
        for lines in read(tmp_path / str(seed)).values():
            ends.add((lines[-1]["what"] == "stop", any(x["what"] == "halt" for x in lines)))

    assert (False, False) in ends, "nobody was killed"
    assert (True, False) in ends, "nobody lived to the end"
