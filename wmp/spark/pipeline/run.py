"""From journals to tables: read, fold and write.

Spark runs two jobs. The first reads lines, writes events and makes parts for the folds. The second
folds the lines of each process and the messages, and then the facts of each job
(:mod:`wmp.spark.folds.folds`); its tasks write the large tables. This process makes the small
tables from counts (:mod:`wmp.spark.pipeline.publishing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wmp.errors import ConfigError
from wmp.spark.folds.facts import ALWAYS, FoldSink, Window, process_number
from wmp.spark.folds.folds import FoldTask
from wmp.spark.folds.reading import Numbered, ReadPart
from wmp.spark.journals.journals import Source
from wmp.spark.journals.lines import UNKNOWN_VERSION
from wmp.spark.journals.tables import Parts, Tables
from wmp.spark.pipeline.account import Account
from wmp.spark.pipeline.engines import Engine, InProcess
from wmp.spark.pipeline.publishing import PipelineResult, Publisher

Progress = Callable[[str, int, int], None]
"""Called before each step with its name, its number from 0, and the number of steps."""

STEPS: Final = ("events", "clocks", "jobs", "violations", "totals")
"""The steps in the order in which they are reported."""
_OLD: Final = ("_lines", "_jobs", "_messages", "_stream", "_account")
"""Folders that earlier releases and calls leave beside the tables."""


def build_tables(
    tables: Tables,
    engine: Engine,
    source: Source,
    progress: Progress | None = None,
    window: Window = ALWAYS,
) -> PipelineResult:
    """Read complete journals, and write all tables.

    Args:
        tables: Existing tables are replaced.
        engine: Reads and folds the lines.
        source: The journals.
        progress: Called before each step.
        window: The tables have the jobs submitted in this time, and the locks, WAKEs and load in
        it. All lines are read, and all rules are checked.

    Raises:
        ConfigError: A line has an unknown version.
    """
    account = Account(window)
    take_in(tables, engine, source, account, progress)
    tables.remove(*_OLD)
    return Publisher(tables, account).publish(reporter(progress))


def take_in(
    tables: Tables,
    engine: Engine,
    source: Source,
    account: Account,
    progress: Progress | None = None,
) -> None:
    """Read new lines, fold them and write the rows that do not change any more.

    The tables have the new files only after
    :meth:`wmp.spark.pipeline.publishing.Publisher.publish`.

    Raises:
        ConfigError: A line has an unknown version.
    """
    report = reporter(progress)
    report("events")
    divided = account.divide(engine.bytes(source))
    try:
        new = _read(engine, tables.where, source, account)
        report("clocks")
        account.add_lines(new)
        report("jobs")
        touched = {process_number(*key) for key in new.processes}
        states = [
            row
            for row in account.states()
            if row[0] == "fact" or row[:3] in new.groups or (row[0] == "line" and row[1] in touched)
        ]
        _fold(engine, tables.where, account, states + divided, settles=bool(divided))
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
    _fold(InProcess(), tables.where, account, account.states(), settles=True)


def _read(engine: Engine, where: str, source: Source, account: Account) -> ReadPart:
    """Read lines, and return what was found in them; identical lines count once."""
    new = ReadPart()
    for distinct in (False, True):
        lines, new = sum(process.lines for process in new.processes.values()), ReadPart()
        for part in engine.read(source, where, account.buckets, distinct=distinct):
            new.merge(part)
        twice = {
            key: runs for key, process in new.processes.items() if (runs := process.numbers.tidy())
        }
        if not twice:
            break
    if distinct:
        account.repeated += lines - sum(process.lines for process in new.processes.values())
    account.twice |= twice.keys()
    account.rows["twice"] += twice.items()
    return new


def _fold(
    engine: Engine, where: str, account: Account, states: Sequence[Numbered], *, settles: bool
) -> None:
    """Fold the lines that the engine has read, and add what was found to the account."""
    sink = FoldSink(
        account.known, account.closed, length=account.totals.length, window=account.window
    )
    buckets, follows = account.buckets, account.follows
    for folded in engine.fold(
        lambda: FoldTask(sink, Parts(where), buckets, follows, settles), states
    ):
        account.add_folded(folded)


def reporter(progress: Progress | None) -> Callable[[str], None]:
    """Return a function that reports the start of a step by its name."""
    return lambda name: (
        None if progress is None else progress(name, STEPS.index(name), len(STEPS) + 1)
    )
