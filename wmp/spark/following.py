"""A report that follows its journals while they grow, at the cost of the new lines.

The state of the lines so far is an account (:class:`wmp.spark.run.Account`), in one folder.
Each batch of new lines is added to the account. The rows of jobs, locks and messages that get no
more lines are in files that do not change. The account names these files and the positions in the
journals, and is saved at once (:mod:`wmp.spark.account_store`). So after a kill at any moment the
next call continues exactly at the last account.

Rarely a line changes rows that were final: a journal was collected late, a line came twice, or a
clock was found. Then all tables are made again of the table ``events``, which takes as long as a
report of all lines. This happens at most for a tenth of the time.
"""

from __future__ import annotations

import math
import re
import time
import typing
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow.dataset
from attrs import define, field

from wmp.errors import ConfigError
from wmp.journal.schema import SUFFIX
from wmp.spark import byte_ranges
from wmp.spark.account_store import AccountStore
from wmp.spark.byte_ranges import ByteRange
from wmp.spark.engines import Engine, InProcess, OnSpark
from wmp.spark.journals import Source
from wmp.spark.reporting import JournalReport, alone, check_out, session, write_page
from wmp.spark.run import LARGE, Account, Progress, publish, settle, take_in
from wmp.spark.tables import Parts, Tables, Written

if typing.TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Made", "follow"]

_KEPT: Final = "_account"
"""Folder beside the tables for the account."""
_LOOK: Final = 1.0
"""Seconds between two looks for new lines."""
_BYTES: Final = 64 << 20
_REST: Final = 2.0
"""Least number of seconds between two reports while lines keep coming."""
_QUIET: Final = 10.0
"""Seconds without new lines after which open jobs and messages are settled."""
_REMADE: Final = 10.0
"""Least ratio of the time between two remakings, or settlings, to the time that one takes."""
_FILES: Final = 16
"""Number of files of one size of a table that become one file."""
_NUMBER: Final = re.compile(r"-(\d{6,})" + re.escape(SUFFIX))

Made = Callable[[JournalReport, int], bool]
"""Called with each report and the number of its lines; returns whether to continue."""


def follow(
    journals: str | Path | Sequence[str | Path],
    out: str | Path,
    made: Made,
    *,
    idle: float | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> JournalReport:
    """Report journals, and report them again whenever they have grown.

    A call with the same directories continues an earlier call that was stopped or killed: no line
    is lost or counted twice.

    Args:
        journals: Folders and files; segments that appear there later are followed too.
        out: As in :func:`wmp.spark.report`.
        made: Called with each report; following ends when it returns False.
        idle: Seconds without new lines after which following ends. None: it never ends.
        spark: As in :func:`wmp.spark.report`.
        master: As in :func:`wmp.spark.report`.
        progress: As in :func:`wmp.spark.report`, for each report anew.

    Returns:
        The last report.

    Raises:
        ConfigError: As in :func:`wmp.spark.report`.
        WMPError: As in :func:`wmp.spark.report`; or a segment was removed before all of it was
        read.
    """
    paths = [journals] if isinstance(journals, (str, Path)) else list(journals)
    byte_ranges.find(paths)  # a missing journal is reported before Spark starts
    if "://" in str(out):
        raise ConfigError(f"cannot follow journals into {out}: expected a folder of this machine")
    where = Path(check_out(out))
    with alone(str(where)), session(spark, master) as start:
        follower = _Follower(Tables(start, str(where)), paths, made, progress)
        return follower.run(idle)


@define(eq=False)
class _Followed:
    """The saved state of the lines so far."""

    account: Account = field(factory=lambda: Account(follows=True))
    positions: dict[str, int] = field(factory=dict)
    """The byte up to which each segment was read; finished segments are in ``done``."""
    done: dict[str, tuple[int, int]] = field(factory=dict)
    """(first, last) of the finished segments with consecutive numbers, by name without number."""
    lines: int = 0
    unsettled: bool = False
    """Whether lines came since the open groups were settled."""


class _Follower:
    """Takes in new lines, and makes a report of them."""

    def __init__(
        self,
        tables: Tables,
        journals: Sequence[str | Path],
        made: Made,
        progress: Progress | None,
    ) -> None:
        self._tables = tables
        self._journals = journals
        self._made = made
        self._progress = progress
        self._store = AccountStore(Path(tables.path(_KEPT)))
        self._kept = _Followed()
        if (saved := self._store.load()) is not None:
            self._kept, self._kept.account.open = saved
        self._remade, self._took = time.monotonic(), 0.0
        self._settled, self._settling = time.monotonic(), 0.0

    def run(self, idle: float | None) -> JournalReport:
        """Make reports until ``made`` returns False or no line comes for ``idle`` seconds."""
        last: JournalReport | None = None
        quiet = reported = time.monotonic()
        waits = False
        while True:
            began = time.monotonic()
            more = self._take_in()
            if more:
                quiet, waits = time.monotonic(), True
            last_look = not more and idle is not None and began - quiet >= idle
            if self._settle(quiet, last=last_look) or self._remake(last=last_look):
                waits = True
            rested = last is None or time.monotonic() - reported >= _REST or not more
            if (waits or last is None) and rested and not (more and last is None):
                last = self._report(began)
                waits, reported = False, time.monotonic()
                if not self._made(last, self._kept.lines):
                    return last
            elif last is not None and last_look:
                return last
            if not more:
                time.sleep(min(_LOOK, idle or _LOOK) if idle != 0 else 0.01)

    def _report(self, began: float) -> JournalReport:
        result = publish(self._tables, self._kept.account, self._progress)
        path = write_page(self._tables, self._journals)
        return JournalReport(path, result, time.monotonic() - began)

    def _take_in(self) -> bool:
        """Read new lines; return whether there were any."""
        kept = self._kept
        found = {
            name: entry
            for name, entry in byte_ranges.find(self._journals).items()
            if not _is_done(name, kept.done)
        }
        end = byte_ranges.advance(kept.positions, found, _BYTES)
        spans = [
            ByteRange(found[name][0], kept.positions.get(name, 0), at)
            for name, at in end.items()
            if at > kept.positions.get(name, 0)
        ]
        if spans:
            source = Source(spans, torn=False)
            take_in(
                self._tables, _engine(self._tables, source), source, kept.account, self._progress
            )
            kept.lines, kept.unsettled = kept.account.found.lines, True
            kept.positions = end
            self._merge_files()
        finished = [name for name, at in end.items() if _is_finished(name, at, found)]
        for name in finished:
            if _add_done(name, kept.done):
                del kept.positions[name]
        if spans:
            self._commit()
        return bool(spans)

    def _commit(self) -> None:
        account = self._kept.account
        groups, account.open = account.open, {}
        self._store.save(self._kept, groups)
        account.open = groups

    def _settle(self, quiet: float, *, last: bool) -> bool:
        """Settle open jobs and messages while no line comes; return whether this was done."""
        kept, began = self._kept, time.monotonic()
        rests = began - self._settled >= max(_QUIET, _REMADE * self._settling)
        if not kept.unsettled or not (last or (rests and began - quiet >= _QUIET)):
            return False
        settle(self._tables, kept.account)
        kept.unsettled = False
        self._commit()
        self._settled, self._settling = time.monotonic(), time.monotonic() - began
        return True

    def _remake(self, *, last: bool) -> bool:
        """Make all tables again if final rows have changed; return whether this was done."""
        kept, began = self._kept, time.monotonic()
        if not kept.account.stale or not (last or began - self._remade >= _REMADE * self._took):
            return False
        files = kept.account.files["events"]
        events = [(str(_where(self._tables, "events", one)), one[2]) for one in files]
        kept.account = _remade(self._tables, events, kept.account)
        self._commit()
        self._remade, self._took = time.monotonic(), time.monotonic() - began
        return True

    def _merge_files(self) -> None:
        """Merge files of about the same size, so that a table has few files."""
        for table in LARGE:
            tiers: defaultdict[int, list[Written]] = defaultdict(list)
            files = self._kept.account.files[table]
            for one in files:
                tiers[int(math.log(max(one[2], 1), _FILES))].append(one)
            for some in tiers.values():
                if len(some) < _FILES:
                    continue
                parts = Parts(self._tables.where)
                paths = [str(_where(self._tables, table, one)) for one in some]
                whole = pyarrow.dataset.dataset(paths, format="parquet")
                for batch in whole.to_batches():
                    if batch.num_rows:
                        parts.write(table, pyarrow.Table.from_batches([batch]))
                gone = {one[1] for one in some}
                files[:] = [one for one in files if one[1] not in gone] + parts.close()


def _where(tables: Tables, table: str, one: Written) -> Path:
    """Return the present path of a file, which may still have its hidden name."""
    hidden = Path(tables.path(table), f".{one[1]}")
    return hidden if hidden.exists() else hidden.with_name(one[1])


def _engine(tables: Tables, source: Source) -> Engine:
    return InProcess() if source.is_small else OnSpark(tables.spark)


def _remade(tables: Tables, events: Sequence[tuple[str, int]], old: Account) -> Account:
    account, source = Account(follows=True, repeated=old.repeated), Source(events=events)
    account.found.bad = old.found.bad
    take_in(tables, _engine(tables, source), source, account)
    return account


def _is_finished(name: str, at: int, found: Mapping[str, tuple[str, int]]) -> bool:
    entry = found.get(name)
    return entry is not None and at == entry[1] and Path(entry[0]).exists()


def _parted(name: str) -> tuple[str, int] | None:
    number = _NUMBER.search(name)
    return None if number is None else (name[: number.start()], int(number[1]))


def _is_done(name: str, done: Mapping[str, tuple[int, int]]) -> bool:
    parted = _parted(name)
    low, high = done.get(parted[0], (1, 0)) if parted is not None else (1, 0)
    return parted is not None and low <= parted[1] <= high


def _add_done(name: str, done: dict[str, tuple[int, int]]) -> bool:
    """Remember a finished segment by its number alone, if its number is the next."""
    parted = _parted(name)
    if parted is None:
        return False
    stem, number = parted
    low, high = done.get(stem, (number, number - 1))
    if number != high + 1:
        return False
    done[stem] = (low, number)
    return True
