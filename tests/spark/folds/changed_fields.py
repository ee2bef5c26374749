"""Each field of each kind of line of two sound fleets, changed in one line at a time.

A change gives a field of one line another value. No line is added, and no number is left out. So
each finding must be certain.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

from tests.spark.folds.corruptions import STORY
from tests.spark.folds.killed import report_on
from tests.spark.folds.story_fleet import Fleet
from tests.spark.folds.worlds import renamed, save
from wmp.events import Drained, Reported, Resized
from wmp.journal.schema import COLUMNS, Column, Type
from wmp.message import Kind, Outcome
from wmp.testing.simulator.journals import Journals

Row = dict[str, Any]
Where = tuple[str, str, str | None]
"""The kind of a node (m, w or d), the kind of a line, and its command."""

FLOW = ("flow", 40)
FURTHER: Final = [
    ("happen", "w2", Resized({"slots": 3, "gpu": 1})), FLOW, ("settle",),
    ("submit_with", "m1", Kind("cook"), {"run_limit": 0.3, "timeout": 60.0}), FLOW, ("report",),
    FLOW, ("wait", 8.0), FLOW, ("settle",),
    ("submit", "m1", 3, Kind(), None, 3), ("until", "TAKE", "repeat"), FLOW, ("settle",),
    ("submit", "m2", 3, Kind(), None, 3), ("until", "TAKE", "refuse"), FLOW, ("wait", 4.0),
    ("settle",),
    ("submit", "m2", 3, Kind(), None, 3), FLOW, ("until", "DONE", "drop"), ("settle",),
    ("wait", 4.0), ("settle",),
    ("submit", "m1", 2, Kind(), None, 3), FLOW, ("finish", 0, Outcome.LOST), FLOW, ("settle",),
    ("submit", "m1", 4, Kind(), None, 3), FLOW, ("silence", "w1", 8.0), ("wait", 2.0), FLOW,
    ("settle",), ("wait", 3.0), ("settle",),
    ("submit", "m2", 4, Kind(), None, 3), FLOW, ("happen", "w2", Drained()), FLOW, ("settle",),
    ("wait", 3.0), ("settle",),
]  # fmt: skip
"""The steps of the second fleet, for the kinds of lines that those of ``STORY`` do not cause."""

HEADER: Final = ("v", "what")
"""Columns that state what a line is: another version is an error, another kind another line."""
POSITION: Final = ("n", "step", "at", "wall")
"""Columns that differ in every line."""
_TIMES: Final = frozenset({
    "at", "wall", "timeout", "expires_in", "delay", "run_limit", "left", "expires", "limits",
    "waits", "hold", "keep", "max_silence", "max_stall",
})  # fmt: skip
_LATER: Final = 3_600_000_000
"""An hour in µs. A time that is changed by less than its rounding contradicts nothing."""


@define(eq=False)
class WideFleet(Fleet):
    """A fleet whose steps may be any events."""

    def handled(self, name, event, actions):
        """Write the step, and compare no tables: some steps are not those of ``Seen``."""
        self.journals.step(name, self.nodes[name].settings, event, actions, self.now)

    def do_happen(self, name, event):
        self.happen(name, event)

    def do_report(self):
        """Let each running handler report its progress."""
        for name, lane in list(self.running()):
            self.happen(name, Reported(lane.run.lane, lane.left[0], 0.5, "half"))


def sound_fleets(folder: Path) -> list[list[Row]]:
    """Return the lines of each fleet."""
    fleets = []
    for number, story in enumerate((STORY, FURTHER)):
        fleet = WideFleet(number=0, journals=Journals(folder / str(number)))
        for step in story:
            fleet.step(*step)
        fleet.journals.close(lambda name: True)
        paths = sorted((folder / str(number)).iterdir())
        lines = [line for path in paths for line in path.read_text(encoding="ascii").splitlines()]
        fleets.append(list(map(json.loads, lines)))
    return fleets


@frozen
class FieldChange:
    """A change of one field of one line."""

    where: Where
    column: str
    fleet: int = field(repr=False)
    """The place of the fleet among all fleets."""
    index: int = field(repr=False)
    """The place of the line among all lines of the fleet."""
    value: Any = field(repr=False)
    """The new value."""

    @property
    def title(self) -> str:
        """The change in words."""
        node, what, command = self.where
        return f"{node} {what}{f' {command}' if command else ''}: {self.column}"

    def apply(self, fleets: Sequence[Sequence[Row]]) -> list[Row]:
        """Return the lines of the fleet with the change."""
        rows = fleets[self.fleet]
        row = {**rows[self.index], self.column: self.value}
        if self.column == "ids":
            row.pop("last", None)
        return [*rows[: self.index], row, *rows[self.index + 1 :]]


def kind_of(row: Row) -> Where:
    """Return the kind of a line."""
    return row["node"][0], row["what"], row.get("command")


def field_changes(fleets: Sequence[Sequence[Row]]) -> Iterator[FieldChange]:
    """Yield a change of each field of each kind of line, mostly in the first line of the kind.

    Lines of a kind are taken of the first fleet that has the kind.
    """
    seen: set[Where] = set()
    for number, rows in enumerate(fleets):
        places: defaultdict[Where, list[int]] = defaultdict(list)
        for index, row in enumerate(rows):
            if kind_of(row) not in seen:
                places[kind_of(row)].append(index)
        seen |= places.keys()
        yield from _changes_of(number, rows, places)


def _changes_of(
    fleet: int, rows: Sequence[Row], places: Mapping[Where, Sequence[int]]
) -> Iterator[FieldChange]:
    """Yield the changes of a fleet, by the places of the lines of each kind.

    Of two equal messages without a number, one explains the receipt of both. So a line that no
    other line of the kind equals is changed, if there is one.
    """
    for where, some in places.items():
        alike = Counter(_content(rows[index]) for index in some)
        some = sorted(some, key=lambda index: alike[_content(rows[index])] > 1)
        for column in COLUMNS:
            if column.name in HEADER:
                continue
            having = [index for index in some if column.name in rows[index]]
            if having:
                value = _other(column, rows[having[0]][column.name])
                yield FieldChange(where, column.name, fleet, having[0], value)


def _content(row: Row) -> str:
    """Return a line without its position."""
    return json.dumps({name: row[name] for name in row if name not in POSITION}, sort_keys=True)


def _other(column: Column, value: Any) -> Any:
    """Return another value of a column."""
    step = 1 if column.name not in _TIMES else _LATER
    match column.type:
        case Type.INTEGER:
            return value + step
        case Type.TEXT:
            return f"{value}x"
        case Type.TRUTH:
            return not value
        case Type.INTEGERS:
            return [7 if entry is None else entry + step for entry in value]
        case Type.TEXTS:
            return [*value[1:], "strange"]
        case Type.AMOUNTS | Type.NUMBERS:
            return {name: amount + 1 for name, amount in value.items()} or {"strange": 7}


def named(
    fleets: Sequence[Sequence[Row]], changes: Iterable[FieldChange], folder: Path, size: int = 24
) -> dict[str, set[str]]:
    """Return the names of the certain violations that each change causes, by its title.

    The lines without a change have an empty title.

    Some changed fleets are one journal of several fleets, beside the sound fleet: a report shows at
    most a hundred violations of a name. A line that was lost is a finding, too.
    """
    rules_named: dict[str, set[str]] = {}
    left = iter(changes)
    while some := tuple(islice(left, size)):
        lines = [
            renamed(json.dumps(row), f"{name}.")
            for name, rows in [
                *((f"sound{at}", rows) for at, rows in enumerate(fleets)),
                *((f"c{at}", change.apply(fleets)) for at, change in enumerate(some)),
            ]
            for row in rows
        ]
        save(folder / "journal" / "all-1-000001.jsonl", lines)
        result = report_on(folder / "journal", folder / "out")
        shown = result.tables.dataset("violations").to_table().to_pylist()
        names = [(row["node"], row["name"]) for row in shown if row["certain"]]
        missing = result.tables.dataset("nodes").to_table(["node", "missing"]).to_pylist()
        names += [(row["node"], "a line is missing") for row in missing if row["missing"]]
        for change in some:
            rules_named[change.title] = set()
        for node, name in names:
            fleet = node.partition(".")[0]
            title = "" if fleet.startswith("sound") else some[int(fleet[1:])].title
            rules_named.setdefault(title, set()).add(name)
    return rules_named
