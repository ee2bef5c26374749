"""Journals of simulated worlds, and the facts that the worlds themselves recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from attrs import frozen

from wmp.testing.invariants import Violation
from wmp.testing.journals import Journals
from wmp.testing.world import World

Switch = Callable[[pytest.MonkeyPatch], None]

_NAMES = ("node", "source", "target", "owner", "about_peer")


@frozen
class Played:
    """A world that was played."""

    name: str
    """First characters of every identity in the journal of the world."""
    violation: Violation | None
    lines: list[str]
    world: World


def play(seed: int, folder: Path, *switches: Switch, name: str | None = None) -> Played:
    """Play the world of a seed without these safeguards, and read its journals.

    Worlds have the same names of nodes in them. So that many of them make one journal, each is
    given names of its own.
    """
    name = name or f"s{seed}"
    world = World(seed=seed, journals=Journals(folder / name))
    with pytest.MonkeyPatch.context() as patch:
        for switch in switches:
            switch(patch)
        violation = world.play().violation
    lines = [
        renamed(line, f"{name}.")
        for path in sorted((folder / name).iterdir())
        for line in path.read_text(encoding="ascii").splitlines()
    ]
    if violation is not None and violation.name not in ("every job ends", "the newest epoch lives"):
        # It was broken off in the middle: nobody had the time to end anything.
        lines = [line for line in lines if '"what":"stop"' not in line]
    return Played(name, violation, lines, world)


def renamed(line: str, prefix: str) -> str:
    """A line with other names of nodes."""
    row = json.loads(line)
    for column in _NAMES:
        if column in row:
            row[column] = prefix + row[column]
    if "via" in row:
        row["via"] = [prefix + device for device in row["via"]]
    return json.dumps(row, separators=(",", ":"))


def write(played: Iterable[Played], folder: Path, segments: int = 2) -> Path:
    """One journal of all, in a few segments: Spark has a task a file."""
    folder.mkdir(parents=True)
    parts: list[list[str]] = [[] for _ in range(segments)]
    for number, one in enumerate(played):
        parts[number % segments] += one.lines
    for number, part in enumerate(parts):
        save(folder / f"part-{number}.jsonl", part)
    return folder


def save(path: Path, lines: Sequence[str]) -> Path:
    """A segment."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return path
