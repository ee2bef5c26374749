"""The lines that are folded in Python, in the order of their numbers.

A group has the lines of one worker, or the lines of one manager with one worker. The latter bounds
the share of one task: a manager writes about half of all lines of its fleet.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

__all__ = ["LineRow", "in_order", "steps"]


class LineRow:
    """A line of a worker or manager; the names are those of the journal's columns.

    The columns are the attributes of the instance, so that a line costs no copy.
    """

    node: str
    epoch: int
    n: int
    at: int
    step: int
    what: str
    command: str | None = None
    source: str | None = None
    source_epoch: int | None = None
    target: str | None = None
    target_epoch: int | None = None
    session: int | None = None
    number: int | None = None
    ack: int | None = None
    ready: int | None = None
    credit: int | None = None
    standby: bool | None = None
    announced: int | None = None
    """The column ``count``."""
    role: str | None = None
    lock: int | None = None
    want: int | None = None
    hold: int | None = None
    more: bool | None = None
    owner: str | None = None
    owner_epoch: int | None = None
    unstarted: bool | None = None
    code: str | None = None
    about: str | None = None
    about_number: int | None = None
    about_peer: str | None = None
    about_epoch: int | None = None
    reason: str | None = None
    lane: int | None = None
    priority: int | None = None
    retries: int | None = None
    ids: list[int] | None = None
    attempts: list[int] | None = None
    outcomes: list[int] | None = None
    ends: list[str] | None = None
    roles: list[str] | None = None
    locks: list[int] | None = None
    needs: dict[str, int] | None = None
    resources: dict[str, int] | None = None
    via: list[str] | None = None
    due: int | None = None
    """µs on the manager's clock before which no submitted job may time out."""

    def __init__(self, columns: dict[str, Any]) -> None:
        """Make a line of its columns; others are absent."""
        self.__dict__ = columns

    def each(self, values: list[Any] | None) -> list[Any]:
        """Return the column with one entry for each job; a single entry stands for all jobs."""
        size = len(self.ids or ())
        if values is None:
            return [None] * size
        return values if len(values) == size else values[:1] * size


def in_order(parts: Iterable[bytes]) -> Iterator[LineRow]:
    """Return the lines of parts that come in the order of their first lines.

    Parts hardly overlap, so only the lines that may follow a later line wait.
    """
    waiting: list[LineRow] = []
    for part in parts:
        lines = [LineRow(columns) for columns in marshal.loads(part)]
        first = lines[0].n
        if waiting and waiting[-1].n >= first:
            ready = [line for line in waiting if line.n < first]
            yield from ready
            waiting = sorted(waiting[len(ready) :] + lines, key=attrgetter("n"))
        else:
            yield from waiting
            waiting = lines
    yield from waiting


def steps(group: Iterable[LineRow]) -> Iterator[list[LineRow]]:
    """Return the lines of each step."""
    for _, some in groupby(group, attrgetter("step")):
        yield list(some)
