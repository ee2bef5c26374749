"""The events of jobs in lines of journals, as arrays: one entry for each job of a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow
import pyarrow.compute as pc
from attrs import define, field

from wmp.actions import JOINED, End
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.journal.schema import MAX_JOBS
from wmp.spark.folds.facts import ProcessKey

Numbers = np.ndarray[Any, np.dtype[np.int64]]

SUBMITTED, RESOLVED, RUN, FINISHED, DECLINED, GRANTED = range(6)
"""The events. A job that a manager declined, or has under another number, does not count."""
_EVENTS: Final[Mapping[str, int]] = {
    "submitted": SUBMITTED, "resolve": RESOLVED, "run": RUN, "finished": FINISHED,
    "decline": DECLINED, "note": DECLINED, "send": GRANTED, "leased": GRANTED,
}  # fmt: skip
ENDS: Final = tuple(end.value for end in End)
"""The words of the column ``word``."""
_COLUMNS: Final = (
    "event", "process", "n", "part", "at", "job", "owner", "role", "attempt", "worker", "word",
    "lane", "size", "since_call",
)  # fmt: skip
ABSENT: Final = -1
"""Stands for a null in every column."""


@define(eq=False)
class ProcessTimes:
    """A process that wrote lines."""

    kind: str | None = None
    first: int = 1 << 62
    """The least ``at`` of the lines that were not dropped."""
    last: int = -(1 << 62)
    """The greatest."""
    wall: tuple[int, int] = (1 << 62, 0)
    """(number, wall clock minus ``at``) of the first line."""


@define(eq=False)
class JobEvents:
    """Collects the events of jobs."""

    processes: dict[ProcessKey, int] = field(factory=dict)
    """The number of each process that a line names."""
    words: dict[str | None, int] = field(factory=lambda: {None: ABSENT})
    """The number of each role and each identity of a worker."""
    times: dict[int, ProcessTimes] = field(factory=dict)
    """The processes that wrote lines, by number."""
    _stores: dict[int, int] = field(factory=dict)
    """The store that owns the stored jobs of a manager."""
    _parts: list[dict[str, Numbers]] = field(factory=list)

    def add(self, lines: pyarrow.Table) -> None:
        """Add the events of lines."""
        if not len(lines):
            return
        lines = lines.combine_chunks()
        process = self._process_numbers(lines["node"], lines["epoch"])
        self._add_times(lines, process)
        self._add_stores(lines, process)
        what = lines["what"]
        wanted = pc.is_in(what, pyarrow.array(list(_EVENTS)))
        sent = pc.equal(what, "send")
        own = pc.and_(
            pc.equal(lines["source"], lines["node"]),
            pc.equal(lines["source_epoch"], lines["epoch"]),
        )
        take = pc.and_(pc.equal(lines["command"], "TAKE"), own)
        mask = pc.and_(wanted, pc.or_(pc.invert(sent), pc.fill_null(take, False)))
        # The first and last line of a piece may be any note.
        joined = pc.fill_null(pc.equal(lines["reason"], JOINED), False)
        mask = pc.and_(mask, pc.or_(pc.not_equal(what, "note"), joined))
        self._add_events(lines.filter(mask).combine_chunks(), process[np.asarray(mask)])

    def _add_events(self, lines: pyarrow.Table, process: Numbers) -> None:
        """Add lines with jobs: each job gets an entry."""
        if not len(lines):
            return
        counts, flat, begins = _lists(lines["ids"])
        last = _integers(lines["last"])
        first = flat[np.minimum(begins, len(flat) - 1)] if len(flat) else np.zeros_like(last)
        ranged = np.asarray(pc.is_valid(lines["last"]))
        span = last - first
        fits = (counts == 1) & (span > 0) & (span < MAX_JOBS)
        counts = np.where(ranged, np.where(fits, span + 1, 0), counts)
        row = np.repeat(np.arange(len(lines)), counts)
        part = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        listed = np.where(ranged[row], begins[row], begins[row] + part)
        kinds, texts = _dictionary(lines["what"])
        event = np.array([_EVENTS[text] for text in texts], np.int64)[kinds]
        job = flat[listed] + np.where(ranged[row], part, 0)
        event = event[row]
        roles, attempts = self._word_numbers(lines["role"]), _each(lines["attempts"], row, part)
        owner = self._process_numbers(lines["owner"], lines["owner_epoch"])
        entries = {
            "event": event, "process": process[row], "n": _integers(lines["n"])[row],
            "part": part, "at": _integers(lines["at"])[row], "job": job, "owner": owner[row],
            "role": roles[row], "attempt": attempts,
            "worker": self._word_numbers(pc.coalesce(lines["target"], lines["about_peer"]))[row],
            "word": _ends(lines["ends"], row, part), "lane": _integers(lines["lane"])[row],
            "size": counts[row],
            "since_call": np.maximum(_each(lines["since_call"], row, part), 0),
        }  # fmt: skip
        self._parts.append(entries)

    def arrays(self) -> dict[str, Numbers]:
        """Return all events by column, in the order of the lines of each process.

        Of lines with one number one counts. The owner is the manager, or its store, or, of an event
        of a worker, the owner in the line. ``time`` is ``at`` on the wall clock of the process, or
        when the submitter called.
        """
        if not self._parts:
            return {name: np.zeros(0, np.int64) for name in (*_COLUMNS, "time")}
        whole = {name: np.concatenate([part[name] for part in self._parts]) for name in _COLUMNS}
        self._parts = [whole]
        order = np.lexsort((whole["part"], whole["n"], whole["process"]))
        whole = {name: column[order] for name, column in whole.items()}
        new = np.ones(len(order), bool)
        new[1:] = changes(whole["process"], whole["n"], whole["part"])
        whole = {name: column[new] for name, column in whole.items()}
        process, managers = whole["process"], whole["event"] != RUN
        stores = np.arange(max(self.processes.values(), default=0) + 1)
        for manager, store in self._stores.items():
            stores[manager] = store
        stored = np.where(whole["job"] < FIRST_UNSTORED, stores[process], process)
        whole["owner"] = np.where(managers, stored, whole["owner"])
        clocks = np.zeros(len(stores), np.int64)
        for number, times in self.times.items():
            clocks[number] = times.wall[1]
        whole["time"] = whole["at"] + clocks[process] - whole["since_call"]
        return whole

    def _add_times(self, lines: pyarrow.Table, process: Numbers) -> None:
        n, at, wall = (_integers(lines[name]) for name in ("n", "at", "wall"))
        alone = process[:1] if (process == process[0]).all() else np.unique(process)
        for number in alone.tolist():
            own = process == number
            life = self.times.setdefault(number, ProcessTimes())
            times, numbers = at[own], n[own]
            life.first = min(life.first, int(times.min()))
            life.last = max(life.last, int(times.max()))
            index = int(numbers.argmin())
            life.wall = min(life.wall, (int(numbers[index]), int(wall[own][index] - times[index])))
        begins = lines.filter(pc.equal(lines["what"], "start"))
        for node, epoch, kind in zip(
            *(begins[name].to_pylist() for name in ("node", "epoch", "kind")), strict=True
        ):
            self.times[self.processes[node, epoch]].kind = kind

    def _add_stores(self, lines: pyarrow.Table, process: Numbers) -> None:
        """Remember which store owns the jobs of a manager."""
        named = pc.and_(
            pc.is_in(lines["what"], pyarrow.array(["instancebegun", "send"])),
            pc.fill_null(pc.not_equal(lines["owner"], lines["node"]), False),
        )
        if not pc.any(named).as_py():
            return
        of_store = lines.filter(named)
        stores = self._process_numbers(of_store["owner"], of_store["owner_epoch"])
        managers = process[np.asarray(named)]
        self._stores.update(zip(managers.tolist(), stores.tolist(), strict=True))

    def _process_numbers(self, nodes: pyarrow.ChunkedArray, epochs: Any) -> Numbers:
        """Return the number of each (node, epoch)."""
        names, words = _dictionary(nodes)
        ages, values = _dictionary(epochs)
        pairs = names * len(values) + ages
        alone = len(words) == len(values) == 1  # as in a segment, which sorting would cost much
        distinct, where = (pairs[:1], pairs) if alone else np.unique(pairs, return_inverse=True)
        numbers = [ABSENT] * len(distinct)
        for index, pair in enumerate(distinct.tolist()):
            name, age = divmod(pair, len(values))
            if words[name] is not None:
                key = (words[name], values[age] or 0)
                numbers[index] = self.processes.setdefault(key, len(self.processes))
        return np.array(numbers, np.int64)[where]

    def _word_numbers(self, texts: pyarrow.ChunkedArray) -> Numbers:
        places, words = _dictionary(texts)
        return np.array([self.words.setdefault(word, len(self.words)) for word in words], np.int64)[
            places
        ]


def changes(*columns: Numbers) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return of each entry but the first whether it differs from the entry before."""
    differs = np.zeros(max(len(columns[0]) - 1, 0), np.bool_)
    for column in columns:
        differs |= column[1:] != column[:-1]
    return differs


def _dictionary(column: pyarrow.ChunkedArray) -> tuple[Numbers, list[Any]]:
    """Return the place of each value in the list of different values, and the list."""
    array = _array(column).dictionary_encode(null_encoding="encode")
    return np.asarray(array.indices).astype(np.int64), array.dictionary.to_pylist()


def _array(column: pyarrow.ChunkedArray) -> pyarrow.Array:
    array = column.combine_chunks()
    return array.chunk(0) if isinstance(array, pyarrow.ChunkedArray) else array


def _integers(column: pyarrow.ChunkedArray) -> Numbers:
    """Return integers, with ABSENT in place of null."""
    return np.asarray(pc.fill_null(column, ABSENT)).astype(np.int64)


def _lists(column: pyarrow.ChunkedArray) -> tuple[Numbers, Any, Numbers]:
    """Return the length of each list, all values, and the place of the first value of each list."""
    array = _array(column)
    counts = _integers(pc.fill_null(pc.list_value_length(array), 0))
    values = array.flatten()
    if pyarrow.types.is_integer(values.type):
        values = _integers(values)
    return counts, values, np.cumsum(counts) - counts


def _each(column: pyarrow.ChunkedArray, row: Numbers, part: Numbers) -> Numbers:
    """Return the integer of each job: a single integer stands for all jobs of its line."""
    counts, values, begins = _lists(column)
    index = begins[row] + np.where(counts[row] == 1, 0, part)
    there = (counts[row] == 1) | (part < counts[row])
    if not len(values):
        return np.full(len(row), ABSENT)
    return np.where(there, values[np.minimum(index, len(values) - 1)], ABSENT)


def _ends(column: pyarrow.ChunkedArray, row: Numbers, part: Numbers) -> Numbers:
    """Return the end of each job as a place in ENDS."""
    values = pc.fill_null(pc.index_in(_array(column).flatten(), pyarrow.array(ENDS)), ABSENT)
    numbers = pyarrow.ListArray.from_arrays(
        pyarrow.array(np.concatenate([[0], np.cumsum(_lists(column)[0])]), pyarrow.int32()),
        pc.cast(values, pyarrow.int64()),
    )
    return _each(pyarrow.chunked_array([numbers]), row, part)
