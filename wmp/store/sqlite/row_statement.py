"""Statements of SQLite for many jobs at a time.

One statement with the values of 256 jobs takes a third of the time of 256 statements, and the
thread gives the interpreter to other threads only once.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any, Final

from attrs import frozen

_SIZES: Final = (256, 64, 16, 4, 1)
"""Numbers of jobs that a statement may have: few, because SQLite prepares each text once."""

_NAME: Final = re.compile(r"\{(\w+)\}")


def parts(count: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the parts in which ``count`` jobs are written."""
    begin = 0
    for size in _SIZES:
        while count - begin >= size:
            yield begin, begin + size
            begin += size


@frozen
class RowStatement:
    """A statement with the values of several jobs, and with values that all jobs share."""

    head: str
    """The text before the values of the jobs."""
    tail: str
    """The text behind them."""
    before: tuple[str, ...]
    """Names of the shared values in the head."""
    each: tuple[str, ...]
    """Names of the values of each job."""
    after: tuple[str, ...]
    """Names of the shared values in the tail."""

    def text(self, count: int) -> str:
        """Return the statement for so many jobs."""
        return _text(self, count)

    def run(
        self,
        connection: sqlite3.Connection,
        count: int,
        columns: Mapping[str, Iterable[Any]],
        shared: Mapping[str, Any],
    ) -> int:
        """Execute the statement for ``count`` jobs; return the number of changed rows.

        Args:
            connection: The connection.
            count: Number of jobs.
            columns: A value for each job, by name; at least ``count`` of them.
            shared: The values that all jobs share, by name.
        """
        rows = zip(range(count), *[columns[name] for name in self.each], strict=False)
        width = len(self.each)
        values = list(chain.from_iterable(row[1:] for row in rows))
        before = [shared[name] for name in self.before]
        after = [shared[name] for name in self.after]
        changed = 0
        for begin, end in parts(count):
            given = [*before, *values[begin * width : end * width], *after]
            changed += connection.execute(_text(self, end - begin), given).rowcount
        return changed


@cache
def _text(statement: RowStatement, count: int) -> str:
    row = f"({', '.join('?' * len(statement.each))})"
    return f"{statement.head}{', '.join([row] * count)}{statement.tail}"


def row_statement(template: str, each: tuple[str, ...]) -> RowStatement:
    """Make a statement.

    Args:
        template: The text. ``{*}`` stands for the rows of values. A name in braces is a value:
            one of ``each`` is a column of the rows, which the text must name ``given``; any other
            name is a value that all jobs share.
        each: Names of the values that differ from job to job.
    """
    value_names = _NAME.findall(template)
    columns = tuple(name for name in each if name in value_names)
    names: list[list[str]] = []
    texts = []
    for part in template.split("{*}"):
        shared: list[str] = []

        def mark(match: re.Match[str], shared: list[str] = shared) -> str:
            name = match[1]
            if name in columns:
                return f"given.column{columns.index(name) + 1}"
            shared.append(name)
            return "?"

        texts.append(_NAME.sub(mark, part))
        names.append(shared)
    (head, tail), (before, after) = texts, names
    return RowStatement(head, tail, tuple(before), columns, tuple(after))
