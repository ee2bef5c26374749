"""From journals to tables: read, fold and write.

Spark runs two jobs. The first reads lines, writes events and makes parts for the folds. The second
folds the lines of each process and the messages, and then the facts of each job
(:mod:`wmp.spark.folds`); its tasks write the large tables. This process makes the small tables from
counts.

All that these steps learned of the lines is an :class:`Account`. A report of complete journals
begins with an empty account; a report that follows journals continues its account.
"""

from __future__ import annotations

import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import define, field, frozen

from wmp.errors import ConfigError
from wmp.spark.arrow import Values
from wmp.spark.clocks import Clock, ClockSamples, clocks
from wmp.spark.engines import Engine, InProcess, OnSpark
from wmp.spark.facts import ALWAYS, FoldSink, KnownProcess, Process, Window, is_certain
from wmp.spark.folds import STATE, FoldTask, Group, OpenGroup
from wmp.spark.journals import Source, find_segments
from wmp.spark.lines import UNKNOWN_VERSION
from wmp.spark.message_fold import GONE
from wmp.spark.process_lines import LineNumbers
from wmp.spark.processes import check_lives, known_processes, nodes
from wmp.spark.reading import Numbered, ReadPart, process_number
from wmp.spark.schema import TABLES
from wmp.spark.stories import check_silences, find_lines, first_of_each_name, stories
from wmp.spark.tables import Parts, Tables, Written
from wmp.spark.totals import Totals, drops, missing_nodes, stretch

if typing.TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "LARGE",
    "STEPS",
    "Account",
    "PipelineResult",
    "Progress",
    "build",
    "build_tables",
    "publish",
    "settle",
    "take_in",
]

Progress = Callable[[str, int, int], None]
"""Called before each step with its name, its number from 0, and the number of steps."""

STEPS: Final = ("events", "clocks", "jobs", "violations", "totals")
"""The steps in the order in which they are reported."""
LARGE: Final = (
    "events", "links", "locks", "wakes", "conversations", "jobs", "attempts", "executions",
)  # fmt: skip
"""The tables that tasks write."""
_BUCKET: Final = 4 << 20
"""Bytes of the lines whose messages, or whose jobs, make one part."""
_BUCKETS: Final = 64
"""Number of the parts in a report that follows journals."""
_SHARED: Final = 256
"""Number of rows of an open group from which they are in a file of their own."""
_ROWS: Final = 2048
"""Largest number of violations of all names that an account keeps."""
_OLD: Final = ("_lines", "_jobs", "_messages", "_stream", "_account")
"""Folders that earlier releases and calls leave beside the tables."""


@frozen
class PipelineResult:
    """The result of a run."""

    tables: Tables
    violations: int
    """Number of the certain violations."""
    uncertain: int
    """Number of the violations that gaps in the journals may explain."""
    summary: dict[str, float]
    """The table ``summary``: values by name."""


@define(eq=False)
class Account:
    """All that the lines so far show, except the rows of the large tables."""

    window: Window = ALWAYS
    follows: bool = False
    """Whether more lines may come."""
    found: ReadPart = field(factory=ReadPart)
    """The processes and the bad lines."""
    samples: ClockSamples = field(factory=ClockSamples)
    totals: Totals = field(factory=Totals)
    rows: dict[str, list[Values]] = field(factory=lambda: {"violations": [], "silence": []})
    files: dict[str, list[Written]] = field(factory=lambda: {name: [] for name in LARGE})
    """The files of the large tables whose rows do not change any more."""
    open: dict[Group, OpenGroup] = field(factory=dict)
    """The groups that may still get lines."""
    closed: dict[Process, LineNumbers] = field(factory=dict)
    """The jobs whose rows do not change any more."""
    clocks: dict[Process, Clock] = field(factory=dict)
    twice: dict[Process, list[tuple[int, int]]] = field(factory=dict)
    """Ranges of numbers that several different lines of a process have."""
    repeated: int = 0
    """Number of lines that were left out, because an identical line was read."""
    stale: bool = False
    """Whether the tables must be made again of all lines: rows that were final have changed."""
    stories: dict[str, list[Values]] = field(factory=dict)
    """The story of each violation that was shown."""

    def known(self) -> dict[Process, KnownProcess]:
        """Return the facts of all processes that folds need."""
        return known_processes(self.found.processes.values(), self.clocks, self.twice)

    def add_files(self, written: Iterable[Written]) -> None:
        """Add files of the large tables."""
        for one in written:
            self.files[one[0]].append(one)

    def add_lines(self, new: ReadPart) -> None:
        """Add what was found in new lines, and compare the clocks of their processes."""
        old, folded = dict(self.found.processes), {group[1] for group in new.groups}
        latest = max((one.last + self.clocks[key].clock for key, one in old.items()), default=0)
        for key in old.keys() & new.processes.keys():
            runs = new.processes[key].numbers.runs
            again = bool(runs) and runs[0][0] <= old[key].numbers.highest
            over = old[key].is_over and process_number(*key) in folded
            self.stale = self.stale or again or over  # a line came late, or again
        self.add_files(new.written)
        self.samples.add(new.samples)
        self.found.merge(ReadPart(new.processes, new.bad))
        processes = self.found.processes
        for key in new.processes:
            processes[key].numbers.tidy()
        if not new.samples and new.processes.keys() <= self.clocks.keys():
            return
        self._compare_clocks()
        if self.follows:
            self.samples.condense(
                lambda key, at: processes[key].is_over or processes[key].last > at + GONE
            )
        fresh = [
            one.first + self.clocks[key].clock for key, one in processes.items() if key not in old
        ]
        if old and fresh and min(fresh) < latest - GONE:
            self.stale = True  # the journal of a process came late

    def _compare_clocks(self) -> None:
        """Find the clocks of all processes.

        A clock that was used stays within its error, so that rows with its times stay right.
        """
        new = clocks(list(self.found.processes.values()), self.samples.offsets())
        for key, clock in new.items():
            old = self.clocks.get(key)
            if old is not None and clock.clock != old.clock:
                error = max(clock.error or 0, old.error or 0)
                near = old.error is not None and abs(clock.clock - old.clock) <= error
                self.stale = self.stale or not near
                new[key] = old if near else clock
        self.clocks = new


def build(
    spark: SparkSession,
    journals: Sequence[str | Path],
    out: str | Path,
    *,
    progress: Progress | None = None,
    window: Window = ALWAYS,
) -> PipelineResult:
    """Read journals and write all tables.

    Args:
        spark: Any session: :func:`wmp.spark.session.start_session` makes one.
        journals: Files and directories.
        out: Directory or URL of the tables; existing tables are replaced.
        progress: Called before each step.
        window: The tables have the jobs submitted in this time, and the locks, WAKEs and load in
        it. All lines are read, and all rules are checked.

    Raises:
        ConfigError: A journal does not exist, or has an unknown version.
    """
    tables, source = Tables(lambda: spark, str(out)), Source.of(find_segments(journals))
    return build_tables(tables, OnSpark(spark), source, progress, window)


def build_tables(
    tables: Tables,
    engine: Engine,
    source: Source,
    progress: Progress | None = None,
    window: Window = ALWAYS,
) -> PipelineResult:
    """Read complete journals with an engine, and write all tables; see :func:`build`."""
    account = Account(window)
    take_in(tables, engine, source, account, progress)
    tables.remove(*_OLD)
    return publish(tables, account, progress)


def take_in(
    tables: Tables,
    engine: Engine,
    source: Source,
    account: Account,
    progress: Progress | None = None,
) -> None:
    """Read new lines, fold them and write the rows that do not change any more.

    The tables have the new files only after :func:`publish`.

    Raises:
        ConfigError: A line has an unknown version.
    """
    report = _reporter(progress)
    report("events")
    buckets = _BUCKETS if account.follows else max(1, source.bytes // _BUCKET)
    try:
        new = _read(engine, tables.where, source, account, buckets)
        report("clocks")
        account.add_lines(new)
        known = account.known()
        since = max(
            min((one.first + one.clock for one in known.values()), default=0), account.window[0]
        )
        until = min(
            max((one.last + one.clock for one in known.values()), default=0), account.window[1]
        )
        length = stretch(max(until - since, 0) / 1e6)
        account.totals.window = account.window
        if length > account.totals.length:
            account.totals.lengthen(length)
        report("jobs")
        _fold(engine, tables.where, account, _states(account, new), buckets)
    except Exception as error:
        text = str(error)
        if UNKNOWN_VERSION not in text:
            raise
        raise ConfigError(text[text.index(UNKNOWN_VERSION) :].splitlines()[0]) from None
    finally:
        engine.close()


def settle(tables: Tables, account: Account) -> None:
    """Fold all open groups again, without new lines.

    A group is folded when it gets lines. Whether a job or message is over, or was lost with a
    killed process, may depend on later lines of other groups.
    """
    states: list[Numbered] = [(*key, STATE, one.state) for key, one in account.open.items()]
    _fold(InProcess(), tables.where, account, states, _BUCKETS, settles=True)


def _read(engine: Engine, where: str, source: Source, account: Account, buckets: int) -> ReadPart:
    """Read lines, and return what was found in them; identical lines count once."""
    new, twice = _read_once(engine, where, source, buckets)
    if twice:
        before = sum(one.lines for one in new.processes.values())
        new, twice = _read_once(engine, where, source, buckets, distinct=True)
        account.repeated += before - sum(one.lines for one in new.processes.values())
    for key, runs in twice.items():
        account.twice.setdefault(key, []).extend(runs)
    return new


def _read_once(
    engine: Engine, where: str, source: Source, buckets: int, *, distinct: bool = False
) -> tuple[ReadPart, dict[Process, list[tuple[int, int]]]]:
    """Return what was found, and the ranges of numbers that several lines have."""
    new = ReadPart()
    for one in engine.read(source, where, buckets, distinct=distinct):
        new.merge(one)
    return new, {key: runs for key, one in new.processes.items() if (runs := one.numbers.tidy())}


def _states(account: Account, new: ReadPart) -> list[Numbered]:
    """Return the states of the groups that got new lines, and those of all open jobs."""
    touched = {process_number(*key) for key in new.processes}
    return [
        (*group, STATE, one.state)
        for group, one in account.open.items()
        if group[0] == "fact" or group in new.groups or (group[0] == "line" and group[1] in touched)
    ]


def _fold(
    engine: Engine, where: str, account: Account, states: Sequence[Numbered], buckets: int, *,
    settles: bool = False,
) -> None:  # fmt: skip
    """Fold the lines that the engine has read, and add what was found to the account."""
    sink = FoldSink(account.known(), account.totals.length, account.window)
    follows, closed = account.follows, account.closed
    for one in engine.fold(
        lambda: FoldTask(sink, Parts(where), buckets, follows, settles, closed), states
    ):
        account.totals.add(one.counts)
        for name, rows in one.rows.items():
            account.rows[name] += rows
        account.add_files(one.written)
        for group, state in one.open.items():
            if state is None:
                account.open.pop(group, None)
            else:
                account.open[group] = state
        for process, jobs in one.closed.items():
            account.closed.setdefault(process, LineNumbers()).runs += jobs.runs
            account.closed[process].tidy()
        account.stale = account.stale or one.late > 0
    violations = account.rows["violations"]
    if len(violations) > _ROWS:
        account.rows["violations"] = first_of_each_name(violations)


def _reporter(progress: Progress | None) -> Callable[[str], None]:
    return lambda name: (
        None if progress is None else progress(name, STEPS.index(name), len(STEPS) + 1)
    )


def publish(tables: Tables, account: Account, progress: Progress | None = None) -> PipelineResult:
    """Make the tables equal to an account."""
    report = _reporter(progress)
    report("violations")
    known, processes = account.known(), account.found.processes
    opened = list(account.open.values())
    files = {name: list(written) for name, written in account.files.items()}
    for one in _write_open(tables.where, opened):
        files[one[0]].append(one)
    tables.publish(files)

    _check_silences(account, tables, known)
    totals = account.totals.plus(group.counts for group in opened)
    sink = FoldSink(known)
    _check_twice(account, tables, sink)
    check_lives(list(processes.values()), totals.counts["served"], sink)
    totals.add(sink.counts)
    broken = [
        (*row[:4], is_certain(row[16], known), *row[5:16])
        for rows in (account.rows, *(group.rows for group in opened), sink.rows)
        for row in rows.get("violations", ())
    ]
    shown = first_of_each_name(broken)
    new = [row for row in shown if row[0] not in account.stories]
    account.stories |= stories(new, tables, known) if new else {}
    tables.write_rows("violations", shown)
    tables.write_rows(
        "violation_events", [line for row in shown for line in account.stories[row[0]]]
    )

    report("totals")
    found, missing = totals.findings(known), missing_nodes(processes)
    bad = [(*key, lines, example) for key, (lines, example) in sorted(account.found.bad.items())]
    dropped = list(drops(processes.values()))
    rows = nodes(sorted(processes.values(), key=lambda one: one.key), account.clocks)
    names = [column.name for column in TABLES["nodes"].columns]
    summary = totals.summary(
        sum(row[2] for row in bad), account.repeated, len(missing), sum(row[3] for row in dropped),
        found, [dict(zip(names, row, strict=True)) for row in rows],
    )  # fmt: skip
    small: dict[str, Iterable[Values]] = {
        "bad_lines": bad,
        "offsets": [one.row for one in account.samples.offsets()],
        "nodes": rows,
        "missing_nodes": missing,
        "findings": found,
        "latency": totals.latency(),
        "histogram": totals.histogram(),
        "utilisation": totals.utilisation(known),
        "fairness": totals.fairness(),
        "activity": totals.activity(),
        "requeues": totals.requeues(),
        "device_hops": totals.device_hops(),
        "drops": dropped,
        "summary": summary,
    }
    for name, some in small.items():
        tables.write_rows(name, some)
    numbers = {name: value for name, value, _ in summary}
    certain, uncertain = int(numbers["violations"]), int(numbers["uncertain violations"])
    return PipelineResult(tables, certain, uncertain, numbers)


def _write_open(where: str, groups: Iterable[OpenGroup]) -> Iterator[Written]:
    """Write the rows of open groups; a group with many rows has files of its own.

    Such a file is written again only if its group has changed.
    """
    shared = Parts(where)
    for group in groups:
        for name, rows in group.tables.items():
            if len(rows) < _SHARED:
                shared.write(name, rows)
                continue
            if name not in group.files:
                parts = Parts(where)
                parts.write(name, rows)
                (group.files[name],) = parts.close()
            yield group.files[name]
    yield from shared.close()


def _check_silences(
    account: Account, tables: Tables, known: Mapping[Process, KnownProcess]
) -> None:
    """Check the silences that were not checked yet; all lines about them have been read."""
    if silences := account.rows["silence"]:
        sink = FoldSink(known)
        check_silences(silences, tables, sink)
        account.rows["violations"] += sink.rows.get("violations", [])
        account.totals.add(sink.counts)
        account.rows["silence"] = []


def _check_twice(account: Account, tables: Tables, sink: FoldSink) -> None:
    """Report different lines with one number."""
    wanted = {
        key: [n for first, last in runs for n in range(first, last + 1)][:_ROWS]
        for key, runs in account.twice.items()
    }
    times: defaultdict[tuple[str, int, int], list[int]] = defaultdict(list)
    for line in find_lines(tables, wanted, "n", ("node", "epoch", "n", "at")):
        if line["n"] in wanted.get((line["node"], line["epoch"]), ()):
            times[line["node"], line["epoch"], line["n"]].append(line["at"])
    for (node, epoch, n), ats in sorted(times.items()):
        detail = (
            f"{node}:{epoch} has {len(ats)} different lines with the number {n}: a line was "
            "changed, or two processes wrote journals under one name and epoch"
        )
        where = (node, epoch, n, min(ats))
        sink.violation("one line for each number", detail, where, certain=True)
