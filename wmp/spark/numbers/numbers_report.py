"""``wmp report --numbers``: load, latency and throughput of journals, without a check of rules.

The numbers are those of a whole report, made by Arrow and numpy in a small part of the CPU time: no
line becomes an object of Python. The clocks of processes are not compared, so times on two clocks
(those of stored jobs with several managers) are as wrong as the wall clocks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import frozen

from wmp.actions import End
from wmp.errors import ConfigError
from wmp.spark.journals.byte_ranges import ByteRange
from wmp.spark.journals.journals import find_segments
from wmp.spark.journals.schema import NUMBERS, TABLES
from wmp.spark.journals.tables import Tables
from wmp.spark.numbers.job_events import (
    ABSENT,
    DECLINED,
    ENDS,
    FINISHED,
    GRANTED,
    RESOLVED,
    RUN,
    SUBMITTED,
    JobEvents,
    Numbers,
    changes,
)
from wmp.spark.numbers.kept_lines import LineCount, kept_lines
from wmp.spark.pipeline.totals import SHARES, stretch
from wmp.spark.reports.report_folder import alone, check_out
from wmp.spark.session.arrow import Values

_HOUR: Final = 3_600_000_000
"""In µs."""
_NEVER: Final = 1 << 62
_BY: Final = ("role", "manager", "worker", "hour")


@frozen
class NumbersReport:
    """The numbers of journals."""

    where: str
    """The folder of the tables."""
    summary: dict[str, float]
    """The rows of the table ``summary``: those numbers that need no check of rules."""
    latency: Sequence[dict[str, Any]]
    """The rows of the table ``latency``."""
    seconds: float
    """Seconds in which the numbers were counted."""


@frozen
class _JobColumns:
    """All jobs, as columns."""

    submitted: Numbers
    granted: Numbers
    ended: Numbers
    """Times in µs since 1970, _NEVER if no line shows them."""
    role: Numbers
    word: Numbers
    manager: Numbers
    worker: Numbers
    """The worker of the newest lease."""
    again: Numbers
    """Whether there was more than one lease."""

    @property
    def whole(self) -> Any:
        """Whether a line shows the submission."""
        return self.submitted < _NEVER


def report_numbers(journals: str | Path | Sequence[str | Path], out: str | Path) -> NumbersReport:
    """Count load, latency and throughput in journals, and write them as tables.

    The tables ``summary``, ``latency`` and ``activity`` are those of a whole report. No rule is
    checked, and no page is written. The journals may have any size; a job needs about 400 bytes of
    memory.

    Args:
        journals: Folders and files of this machine, one or several.
        out: Folder of this machine for the tables; tables of earlier numbers are replaced.

    Raises:
        ConfigError: A journal does not exist, is a URL, or has an unknown version; another report
        is being written to ``out``, or ``out`` has a whole report.
        WMPError: A segment was removed while it was read.
    """
    began = time.monotonic()
    paths = [journals] if isinstance(journals, (str, Path)) else list(journals)
    spans = find_segments(paths)
    far = [span for span in spans if not isinstance(span, ByteRange)]
    if far or "://" in str(out):
        raise ConfigError(
            f"the numbers of {far[0] if far else out} cannot be counted: expected folders and "
            "files of this machine; leave out --numbers, and Spark reads the URL"
        )
    where = check_out(out)
    if Path(where, "findings").is_dir():
        raise ConfigError(
            f"{out} has a whole report, whose tables the numbers would replace; name another folder"
        )
    count, events = LineCount(), JobEvents()
    with alone(where):
        for lines in kept_lines([span for span in spans if isinstance(span, ByteRange)], count):
            events.add(lines)
        columns = events.arrays()
        jobs = _jobs(columns)
        latency = list(_latency(columns, jobs, events))
        summary = _summary(count, events, jobs)
        tables = Tables(_no_session, where)
        tables.write_rows("latency", latency)
        tables.write_rows("activity", _activity(jobs, events, summary["seconds"]))
        rows = [(name, value, NUMBERS[name]) for name, value in summary.items()]
        tables.write_rows("summary", rows)
    names = [column.name for column in TABLES["latency"].columns]
    named = [dict(zip(names, row, strict=True)) for row in latency]
    return NumbersReport(where, summary, named, time.monotonic() - began)


def _no_session() -> Any:
    raise AssertionError("tables in a folder need no session")


def _jobs(events: dict[str, Numbers]) -> _JobColumns:
    """Fold the events of each job."""
    of_jobs = events["event"] != FINISHED
    kind, owner, job, when, attempt = (
        events[name][of_jobs] for name in ("event", "owner", "job", "time", "attempt")
    )
    role, word, worker = (events[name][of_jobs] for name in ("role", "word", "worker"))
    # Of the events of a job, the last grant is that of the newest lease.
    order = np.lexsort((when, np.where(kind == GRANTED, attempt, 0), job, owner))
    kind, owner, job, when, attempt, role, word, worker = (
        column[order] for column in (kind, owner, job, when, attempt, role, word, worker)
    )
    if not len(kind):
        return _JobColumns(*[np.zeros(0, np.int64)] * 8)
    begins = np.flatnonzero(np.concatenate([[True], changes(owner, job)]))
    position = np.arange(len(kind))

    def earliest(event: int) -> Any:
        return np.minimum.reduceat(np.where(kind == event, when, _NEVER), begins)

    def first(event: int) -> Any:
        return np.minimum.reduceat(np.where(kind == event, position, _NEVER), begins)

    def of(event: int, column: Numbers, rows: Any) -> Any:
        there = (rows >= 0) & (rows < _NEVER)
        return np.where(there, column[np.where(there, rows, 0)], ABSENT)

    newest = np.maximum.reduceat(np.where(kind == GRANTED, position, ABSENT), begins)
    oldest = first(GRANTED)
    declined = np.maximum.reduceat(kind == DECLINED, begins)
    jobs = (
        earliest(SUBMITTED), earliest(GRANTED), earliest(RESOLVED),
        of(SUBMITTED, role, first(SUBMITTED)), of(RESOLVED, word, first(RESOLVED)),
        owner[begins], of(GRANTED, worker, newest),
        of(GRANTED, attempt, newest) != of(GRANTED, attempt, oldest),
    )  # fmt: skip
    return _JobColumns(*[column[~declined] for column in jobs])


def _handlers(events: dict[str, Numbers]) -> dict[str, Numbers]:
    """Return the runs of handlers: how long each job of a lane took, with its role and worker.

    The jobs of a lane run one after the other, and a line about the ends of several shares the time
    since the line before evenly.
    """
    lanes = (events["event"] == RUN) | (events["event"] == FINISHED)
    lines = {name: column[lanes] for name, column in events.items()}
    order = np.lexsort((lines["part"], lines["n"], lines["lane"], lines["process"]))
    lines = {name: column[order] for name, column in lines.items()}
    if not len(order):
        return {**lines, "took": lines["at"]}
    position = np.arange(len(order))
    lane = np.concatenate([[True], changes(lines["process"], lines["lane"])])
    begin = np.maximum.accumulate(np.where(lane, position, 0))
    heads = np.concatenate([[True], changes(lines["process"], lines["lane"], lines["n"])])
    head = np.maximum.accumulate(np.where(heads, position, 0))
    run = np.maximum.accumulate(np.where(lines["event"] == RUN, position, ABSENT))
    ran = (lines["event"] == FINISHED) & (head > begin) & (run >= begin)
    since, size = lines["at"][np.maximum(head - 1, 0)], np.maximum(lines["size"], 1)
    lines["took"] = ((lines["at"] - since) / size).astype(np.int64)
    lines["role"] = lines["role"][np.maximum(run, 0)]
    lines["owner"] = lines["owner"][np.maximum(run, 0)]
    return {name: column[ran] for name, column in lines.items()}


def _latency(events: dict[str, Numbers], jobs: _JobColumns, names: JobEvents) -> Iterator[Values]:
    """Return the rows of ``latency``."""
    words = {number: word for word, number in names.words.items()}
    nodes = {number: node for (node, _), number in names.processes.items()}
    waited = jobs.whole & (jobs.granted < _NEVER)
    over = jobs.whole & (jobs.ended < _NEVER)
    runs = _handlers(events)
    workers = np.array(
        [names.words.setdefault(nodes[number], len(names.words)) for number in range(len(nodes))],
        np.int64,
    )
    words |= {number: word for word, number in names.words.items()}
    phases = {
        "handler": (
            runs["took"], runs["role"], runs["owner"], workers[runs["process"]], runs["time"],
        ),
        "queue wait": tuple(
            column[waited]
            for column in (
                jobs.granted - jobs.submitted, jobs.role, jobs.manager, jobs.worker,
                jobs.submitted,
            )
        ),
        "total": tuple(
            column[over]
            for column in (
                jobs.ended - jobs.submitted, jobs.role, jobs.manager, jobs.worker, jobs.ended,
            )
        ),
    }  # fmt: skip
    names_of = {
        "role": words.__getitem__,
        "manager": nodes.__getitem__,
        "worker": words.__getitem__,
        "hour": _hour,
    }
    for phase, (took, role, manager, worker, when) in phases.items():
        if len(took):
            yield (phase, "all", "", *_spread(np.sort(took)))
        for by, keys in zip(_BY, (role, manager, worker, when // _HOUR), strict=True):
            order = np.lexsort((took, keys))
            values, sorted_keys = took[order], keys[order]
            bounds = [0, *(np.flatnonzero(changes(sorted_keys)) + 1).tolist(), len(order)]
            rows: dict[str, list[Numbers]] = {}
            for begin, end in pairwise(bounds):
                if begin < end and (key := int(sorted_keys[begin])) != ABSENT:
                    rows.setdefault(str(names_of[by](key)), []).append(values[begin:end])
            for name, samples in sorted(rows.items()):
                yield (phase, by, name, *_spread(np.sort(np.concatenate(samples))))


def _hour(hour: int) -> str:
    return f"{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%d %H:00}"


def _spread(values: Numbers) -> Values:
    """Return the columns of a spread, as :func:`wmp.spark.pipeline.totals.spread` of rounded µs."""
    percentiles = []
    for share in SHARES:
        sample = int(values[math.ceil(round(share * len(values), 6)) - 1])
        unit = 1
        while sample >= 1000 * unit:
            unit *= 10
        after = sample // unit * unit + unit  # all samples before it were rounded to one value
        percentiles.append(int(values[np.searchsorted(values, after) - 1]))
    return (len(values), float(values.sum() / len(values)), *percentiles, int(values[-1]))


def _activity(jobs: _JobColumns, names: JobEvents, seconds: float) -> Iterator[Values]:
    """Return the rows of ``activity``."""
    words, length = {number: word for word, number in names.words.items()}, stretch(seconds)
    rows: dict[tuple[int, int], list[int]] = {}
    whole, over = jobs.whole, jobs.whole & (jobs.ended < _NEVER)
    bad = jobs.word != ENDS.index(End.OK.value)
    total = np.where(over, jobs.ended - jobs.submitted, 0)
    ones = np.ones(len(whole), np.int64)
    for column, when, chosen, amount in (
        (0, jobs.submitted, whole, ones), (1, jobs.ended, over, ones),
        (2, jobs.ended, over & bad, ones), (3, jobs.ended, over, total),
    ):  # fmt: skip
        parts = np.stack([jobs.role[chosen], when[chosen] // length], axis=1)
        keys, where = np.unique(parts, axis=0, return_inverse=True)
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, where.reshape(-1), amount[chosen])
        for (role, part), number in zip(keys.tolist(), sums.tolist(), strict=True):
            rows.setdefault((role, part), [0, 0, 0, 0])[column] = number
    for (role, part), (came, ended, failed, took) in sorted(rows.items()):
        mean = took / ended if ended else None
        yield words[role], part * length, length, came, ended, failed, mean


def _summary(count: LineCount, events: JobEvents, jobs: _JobColumns) -> dict[str, float]:
    """Return the numbers of ``summary`` that need no check."""
    times = events.times.values()
    kinds = [life.kind for life in times]
    first = min((life.first + life.wall[1] for life in times), default=0)
    last = max((life.last + life.wall[1] for life in times), default=0)
    ended = jobs.ended < _NEVER
    over = jobs.whole & ended
    took = (
        (int(jobs.ended[over].max()) - int(jobs.submitted[jobs.whole].min())) if over.any() else 0
    )
    ends = {word: int((ended & (jobs.word == index)).sum()) for index, word in enumerate(ENDS)}
    numbers = {
        "nodes": len(kinds),
        **{f"{kind}s": kinds.count(kind) for kind in ("manager", "worker", "device")},
        "lines": count.lines,
        "seconds": (last - first) / 1e6,
        "bad lines": count.bad,
        "jobs": len(ended),
        **{f"jobs {word}": number for word, number in ends.items()},
        "jobs open": int((~ended).sum()),
        "jobs partly known": int((~jobs.whole).sum()),
        "jobs tried again": int(jobs.again.sum()),
        "jobs per second": int(ended.sum()) / took * 1e6 if took else 0,
    }
    return {name: float(value) for name, value in numbers.items()}
