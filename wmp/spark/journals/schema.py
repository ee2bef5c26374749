"""The tables of the pipeline: their columns, types and meanings.

The page ``tables.md`` describes them for people, and this module reads that page. The columns of
``events`` are those of :mod:`wmp.journal.schema`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final

from attrs import frozen

from wmp.journal import schema as journal
from wmp.journal.schema import Type


@frozen
class TableColumn:
    """A column of a table."""

    name: str
    type: str
    """Name of the type in Spark: ``string``, ``bigint``, ``timestamp``, …"""
    doc: str


@frozen
class Table:
    """A table: the meaning of a row, and the columns."""

    name: str
    row: str
    """Meaning of one row, as a sentence."""
    columns: tuple[TableColumn, ...]


_TYPES: Final[Mapping[Type, str]] = {
    Type.INTEGER: "bigint",
    Type.TEXT: "string",
    Type.TRUTH: "boolean",
    Type.INTEGERS: "array<bigint>",
    Type.TEXTS: "array<string>",
    Type.AMOUNTS: "map<string,bigint>",
    Type.NUMBERS: "map<string,double>",
}
_SECTIONS: Final = dict(
    text.split("\n", 1)
    for text in files("wmp.spark.journals")
    .joinpath("tables.md")
    .read_text("utf-8")
    .split("\n## ")[1:]
)
"""The sections of the page of all tables, by title."""


def _columns(title: str) -> Iterator[TableColumn]:
    """Return the columns in a section of the page."""
    if title == "(line)":
        yield from (
            TableColumn(column.name, _TYPES[column.type], column.doc) for column in journal.COLUMNS
        )
        return
    for line in _SECTIONS[title].splitlines()[5:]:
        names, kind, doc = (cell.strip() for cell in line.strip("|").split("|"))
        if names.startswith("("):
            yield from _columns(names)
        for name in re.findall("`(.*?)`", names):
            if kind == "`process`":
                yield TableColumn(name, "string", f"identity of {doc}")
                epoch = "epoch" if name == "node" else f"{name}_epoch"
                yield TableColumn(epoch, "bigint", "epoch of the same node")
            else:
                yield TableColumn(name, kind.strip("`"), doc)


TABLES: Final[Mapping[str, Table]] = {
    title: Table(title, text.splitlines()[1], tuple(_columns(title)))
    for title, text in _SECTIONS.items()
    if not title.startswith("(")
}
"""All tables by name, in the order of their making."""

PHASES: Final = {phase.name: phase.doc for phase in _columns("(phase)")}
"""Measured phases with their begin and end."""

NUMBERS: Final = {number.name: number.doc for number in _columns("(number)")}
"""The numbers of the table ``summary``, with their meanings."""


def ddl(table: str) -> str:
    """Return the schema of a table in Spark's syntax."""
    return ", ".join(f"`{column.name}` {column.type}" for column in TABLES[table].columns)
