"""A report that follows its journals while they grow, at the cost of the new lines.

The state of the lines so far is an account (:class:`wmp.spark.pipeline.account.Account`), in one
folder. Each batch of new lines is added to the account. The rows of jobs, locks and messages that
get no more lines are in files that do not change. The account names these files and the positions
in the journals, and is saved at once (:mod:`wmp.spark.pipeline.account_store`). So after a kill at
any moment the next call continues exactly at the last account.

Rarely a line changes rows that were final: a journal was collected late, a line came twice, or a
clock was found. Then all tables are made again of the table ``events``, which takes as long as a
report of all lines. This happens at most for a tenth of the time.
"""

from __future__ import annotations

import math
import time
import typing
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pyarrow.dataset
from attrs import define, field

from wmp.duration import Duration, in_seconds
from wmp.errors import ConfigError
from wmp.journal.schema import SUFFIX
from wmp.spark.folds.process_lines import LineNumbers
from wmp.spark.journals import byte_ranges
from wmp.spark.journals.byte_ranges import ByteRange
from wmp.spark.journals.journals import Source
from wmp.spark.journals.tables import Parts, Tables, Written
from wmp.spark.pipeline.account import LARGE, Account
from wmp.spark.pipeline.account_store import AccountStore
from wmp.spark.pipeline.engines import InProcess, OnSpark
from wmp.spark.pipeline.publishing import Publisher
from wmp.spark.pipeline.run import Progress, reporter, settle, take_in
from wmp.spark.reports.reporting import JournalReport, tables_in, write_page

if typing.TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT: Final = "_account"
"""Folder beside the tables for the account."""
_LOOK: Final = 1.0
"""Seconds between two looks for new lines."""
_BYTES: Final = 64 << 20
"""Bytes of a first batch of lines. While more lines wait, each batch has twice as many bytes,
because a batch folds open jobs and messages again.
"""
_MAX_BYTES: Final = 256 << 20
"""Bytes of the largest batch, which bounds what its tasks return."""
_REST: Final = 2.0
"""Minimum number of seconds between two reports while lines keep coming."""
_QUIET: Final = 10.0
"""Seconds without new lines after which open jobs and messages are settled."""
_REWORKED: Final = 10.0
"""Minimum ratio of the time between two remakings, or settlings, to the time that one takes."""
_FILES: Final = 8
"""Number of files of one size of a table that become one file."""
_LARGE: Final = 1 << 15
"""Number of rows from which a file is large enough; so one report never rewrites many rows."""

Made = Callable[[JournalReport, int], bool]
"""Called with each report and the number of its lines; returns whether to continue."""


def follow(
    journals: str | Path | Sequence[str | Path],
    out: str | Path,
    made: Made,
    *,
    idle: Duration | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> JournalReport:
    """Report journals, and report them again whenever they have grown.

    A call with the same directories continues an earlier call that was stopped or killed: no line
    is lost or counted twice. It may name further journals.

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
        ConfigError: As in :func:`wmp.spark.report`; or ``out`` has a report of other journals.
        WMPError: As in :func:`wmp.spark.report`; or a segment was removed before all of it was
        read.
    """
    paths = [journals] if isinstance(journals, (str, Path)) else list(journals)
    byte_ranges.find(paths)  # a missing journal is reported before Spark starts
    if "://" in str(out):
        raise ConfigError(f"cannot follow journals into {out}: expected a folder of this machine")
    with tables_in(out, spark, master) as tables:
        return _Follower(tables, paths, made, progress).run(in_seconds(idle))


@define(eq=False)
class _Followed:
    """The saved state of the lines so far."""

    journals: frozenset[Path] = frozenset()
    """The folders and files whose lines these are."""
    account: Account = field(factory=lambda: Account(follows=True))
    positions: dict[str, int] = field(factory=dict)
    """The byte up to which each segment was read; finished segments are in ``done``."""
    done: defaultdict[str, LineNumbers] = field(factory=lambda: defaultdict(LineNumbers))
    """The numbers of the finished segments, by name without number."""
    unsettled: bool = False
    """Whether lines came since the open groups were settled."""


@define(eq=False)
class _Follower:
    """Takes in new lines, and makes a report of them."""

    tables: Tables
    journals: Sequence[str | Path]
    made: Made
    progress: Progress | None
    _store: AccountStore = field(init=False)
    _publisher: Publisher = field(init=False)
    _kept: _Followed = field(factory=_Followed)
    _maximum: int = field(factory=lambda: _BYTES)
    """Limit of the bytes of the next batch."""
    _sizes: dict[str, int] = field(factory=dict)
    """The size of each segment at the last look."""
    _may_rework: float = 0.0
    """The time before which tables are not made again, and open groups not settled again."""

    def __attrs_post_init__(self) -> None:
        self._store = AccountStore(Path(self.tables.path(_KEPT)))
        if (saved := self._store.load()) is not None:
            self._kept, self._kept.account.open = saved
        given = frozenset(Path(path).resolve() for path in self.journals)
        if not self._kept.journals <= given:
            old, new = (", ".join(sorted(map(str, some))) for some in (self._kept.journals, given))
            raise ConfigError(
                f"the report in {self.tables.where} follows {old}; this call names {new}: name "
                "another folder for the report, or all of its journals, or remove the folder "
                f"{self.tables.path(_KEPT)} to begin anew"
            )
        self._kept.journals = given
        self._publisher = Publisher(self.tables, self._kept.account)

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
            if self._rework(quiet, last=last_look):
                waits = True
            behind = more and self._maximum > _BYTES  # many lines wait, besides those that come
            rested = not more or time.monotonic() - reported >= _REST
            if (waits or last is None) and rested and not (behind and last is None):
                last = self._report(began)
                waits, reported = False, time.monotonic()
                if not self.made(last, self._kept.account.found.lines):
                    return last
            elif last is not None and last_look:
                return last
            if not more or (last is not None and not behind):
                time.sleep(min(_LOOK, idle or _LOOK) if idle != 0 else 0.01)

    def _report(self, began: float) -> JournalReport:
        result = self._publisher.publish(reporter(self.progress))
        path = write_page(self.tables, self.journals)
        return JournalReport(path, result, time.monotonic() - began)

    def _take_in(self) -> bool:
        """Read new lines; return whether there were any."""
        kept = self._kept
        segments = byte_ranges.find(self.journals)
        for name in list(segments):
            stem, number = _numbered(name)
            if stem in kept.done and number in kept.done[stem]:
                del segments[name]
        growing = {name for name, (_, size) in segments.items() if self._sizes.get(name) != size}
        self._sizes = {name: size for name, (_, size) in segments.items()}
        end = byte_ranges.advance(kept.positions, segments, self._maximum, growing)
        spans = [
            ByteRange(segments[name][0], begin, at)
            for name, at in end.items()
            if at > (begin := kept.positions.get(name, 0))
        ]
        source = Source(spans)
        self._maximum = (
            min(2 * self._maximum, _MAX_BYTES) if 2 * source.bytes > self._maximum else _BYTES
        )
        if spans:
            if any(byte_ranges.divides_a_step(span.path, span.begin) for span in spans):
                kept.account.stale = True  # half of a step was folded alone
            self._read(source, kept.account)
            kept.unsettled, kept.positions = True, end
            self._merge_files()
        for name, (path, _) in segments.items():
            # A segment may have got its last lines, and its final name, since it was found.
            if kept.positions.get(name) == _size_of_finished(path):
                stem, number = _numbered(name)
                kept.done[stem].add(number)
                kept.done[stem].tidy()
                del kept.positions[name]
        if spans:
            self._commit()
        return bool(spans or growing)

    def _read(self, source: Source, account: Account) -> None:
        engine = InProcess() if source.is_small else OnSpark(self.tables.spark)
        take_in(self.tables, engine, source, account, self.progress)

    def _commit(self) -> None:
        account = self._kept.account
        groups, account.open = account.open, {}
        self._store.save(self._kept, groups)
        account.open = groups

    def _rework(self, quiet: float, *, last: bool) -> bool:
        """Make all tables again if final rows have changed; return whether something was done.

        If none has changed, open jobs and messages are settled while no line comes.
        """
        began, kept, old = time.monotonic(), self._kept, self._kept.account
        if not last and began < self._may_rework:
            return False
        if old.stale:
            events = [(str(self._where("events", file)), file[2]) for file in old.files["events"]]
            kept.account = new = Account(follows=True, repeated=old.repeated)
            self._publisher = Publisher(self.tables, new)
            new.found.bad = old.found.bad
            self._read(Source(events=events), new)
        elif kept.unsettled and (last or began >= quiet + _QUIET):
            settle(self.tables, old)
        else:
            return False
        kept.unsettled = False
        self._commit()
        now = time.monotonic()
        self._may_rework = now + max(_QUIET, _REWORKED * (now - began))
        return True

    def _merge_files(self) -> None:
        """Merge files of about the same size, so that a table has few files."""
        for table in LARGE:
            tiers: defaultdict[int, list[Written]] = defaultdict(list)
            files = self._kept.account.files[table]
            for file in files:
                if file[2] < _LARGE:
                    tiers[int(math.log(max(file[2], 1), _FILES))].append(file)
            for some in tiers.values():
                if len(some) < _FILES:
                    continue
                parts = Parts(self.tables.where)
                paths = [str(self._where(table, file)) for file in some]
                for batch in pyarrow.dataset.dataset(paths, format="parquet").to_batches():
                    if batch.num_rows:
                        parts.write(table, pyarrow.Table.from_batches([batch]))
                gone = {file[1] for file in some}
                files[:] = [file for file in files if file[1] not in gone] + parts.close()

    def _where(self, table: str, file: Written) -> Path:
        """Return the present path of a file, which may still have its hidden name."""
        hidden = Path(self.tables.path(table), f".{file[1]}")
        return hidden if hidden.exists() else hidden.with_name(file[1])


def _size_of_finished(path: str) -> int:
    """Return the size of a segment; -1 while its name has a dot."""
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return -1


def _numbered(name: str) -> tuple[str, int]:
    """Return the name of a segment without its number, and the number."""
    stem, _, number = name.removesuffix(SUFFIX).rpartition("-")
    if number.isdecimal() and name == f"{stem}-{int(number):06}{SUFFIX}":
        return stem, int(number)
    return name, 0
