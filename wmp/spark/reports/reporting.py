"""A report of journals: the tables, and a page that shows them."""

from __future__ import annotations

import re
import time
import typing
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Final

from attrs import frozen

from wmp.errors import ConfigError
from wmp.spark.extras import need_extra
from wmp.spark.folds.facts import ALWAYS, Window
from wmp.spark.journals.journals import Source, find_segments
from wmp.spark.journals.tables import Tables, is_far
from wmp.spark.pipeline.engines import InProcess, OnSpark
from wmp.spark.pipeline.publishing import PipelineResult
from wmp.spark.pipeline.run import STEPS, Progress, build_tables
from wmp.spark.reports.page import page
from wmp.spark.reports.report_data import read_report_data
from wmp.spark.reports.report_folder import alone, check_out

if typing.TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAGE: Final = "report.html"
"""Name of the page's file, beside the tables."""
_SMALL: Final = 64 << 20
"""Number of bytes, about 200,000 lines, up to which Java compiles with its first compiler alone."""
_MASTER: Final = re.compile(
    r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?|local-cluster\[.+\]|spark://.+:\d+|k8s://.+|yarn"
)
"""The master URLs of Spark."""


@frozen
class JournalReport:
    """The result of a report."""

    page: Path | str
    """Path of the page; its URL if it is not on this machine."""
    result: PipelineResult
    """The tables, and the number of violations in them."""
    seconds: float = 0.0
    """Seconds in which the report was made, the start of Spark included."""


def report(
    journals: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    progress: Progress | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    compare: str | Path | None = None,
) -> JournalReport:
    """Read journals, write all tables and the page.

    Args:
        journals: Folders and files, one or several.
        out: Directory of this machine, or URL that Spark knows, for all results; existing tables
        are replaced. On a cluster the executors must see a directory under the same name, and the
        journals too.
        spark: The session. By default the active session of this process; without one, a session is
        started, and stopped at the end. Without a session and a master, a journal of up to 16 MiB
        is read in this process.
        master: Master URL of a session that is started: ``local[2]``, ``spark://host:7077``, …
        progress: Called before each step.
        since: Leave out jobs that were submitted before this time. All lines are read and checked.
        A text is a time as for ``wmp report --since``. A time without a zone is in UTC.
        until: Leave out jobs that were submitted at this time or later.
        compare: Directory of another report; the page compares the numbers of both.

    Raises:
        ConfigError: A journal does not exist, or has an unknown version; there is no Java; another
        report is being written there; there is no report to compare; ``since`` or ``until`` is no
        time, or ``until`` is not after ``since``; ``master`` is not a master URL.
        WMPError: Spark did not start.
    """
    paths = [journals] if isinstance(journals, (str, Path)) else list(journals)
    window = (
        ALWAYS[0] if since is None else _micros("since", since),
        ALWAYS[1] if until is None else _micros("until", until),
    )
    if window[0] >= window[1]:
        raise ConfigError(
            f"no time is from {since} until {until}; expected an end that is after the beginning"
        )
    # A wrong path is reported before Spark starts, and makes no folder.
    segments = find_segments(paths)
    if compare is not None and not (is_far(str(compare)) or Path(compare, "summary").is_dir()):
        raise ConfigError(
            f"there is no report in {compare} to compare: expected the folder of an earlier report"
        )
    began, source = time.monotonic(), Source.of(segments)
    with tables_in(out, spark, master, few=source.bytes <= _SMALL) as tables:
        here = source.is_small and not tables.far and spark is None and master is None
        engine = InProcess() if here else OnSpark(tables.spark)
        result = build_tables(tables, engine, source, progress, window)
        if progress is not None:
            progress("page", len(STEPS), len(STEPS) + 1)
        before = None if compare is None else Tables(tables.start, str(compare))
        path = write_page(tables, paths, before, window)
    return JournalReport(path, result, time.monotonic() - began)


def _micros(name: str, given: object) -> int:
    """Return µs since 1970 of a time, or of its text as the page and ``wmp journal`` print it."""
    try:
        if not isinstance(given, (str, date)):
            raise ValueError
        time = datetime.fromisoformat(str(given).removesuffix("UTC").rstrip())
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{name} is {given!r}; expected a time such as 2026-11-23 or 2026-11-23T14:00"
        ) from None
    return round(time.timestamp() * 1e6)


def write_page(
    tables: Tables, journals: Sequence[str | Path], before: Tables | None = None,
    window: Window = ALWAYS,
) -> Path | str:  # fmt: skip
    """Write the page of tables, and return its path or URL."""
    data = read_report_data(tables, tuple(map(str, journals)), before, window)
    path = tables.write_text(_PAGE, page(data))
    return path if tables.far else Path(path)


def _check_master(master: str | None) -> None:
    """Check a master URL. Spark would report a wrong URL late, and a small journal needs no Spark.

    Raises:
        ConfigError: It is not a master URL.
    """
    if master is not None and not _MASTER.fullmatch(master):
        raise ConfigError(
            f"the master is {master!r}; expected a master URL of Spark such as local[2], "
            "spark://host:7077, k8s://https://host:443 or yarn"
        )


@contextmanager
def tables_in(
    out: str | Path, spark: SparkSession | None, master: str | None, *, few: bool = False
) -> Iterator[Tables]:
    """Open the tables in a directory or URL for this process alone.

    A session is started if the tables need one, and then stopped after the block.

    Args:
        out: The directory or URL.
        spark: The session; by default the active session, if no master is given.
        master: The master URL of a new session.
        few: Whether a new session reads few lines.

    Raises:
        ConfigError: ``master`` is not a master URL; or as :func:`check_out` and :func:`alone`.
    """
    _check_master(master)
    where = check_out(out)
    with alone(where), ExitStack() as after:

        @cache
        def start() -> SparkSession:
            need_extra("spark", "a report of more than 16 MiB, of a URL or with --master")
            from pyspark.sql import SparkSession

            from wmp.spark.session.session import FEW, start_session, use_this_python

            given = spark or (None if master else SparkSession.getActiveSession())
            if given is not None:
                use_this_python(given)
                return given
            started = start_session(master, confs=FEW if few else None, name="wmp report")
            after.callback(started.stop)
            return started

        yield Tables(start, where)
