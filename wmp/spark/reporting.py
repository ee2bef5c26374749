"""A report of journals: the tables, and a page that shows them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen
from pyspark.sql import SparkSession

from wmp.errors import ConfigError
from wmp.spark.journals import find_segments
from wmp.spark.page import page
from wmp.spark.report_data import read_report_data
from wmp.spark.run import STEPS, PipelineResult, Progress, build
from wmp.spark.session import start_session

if sys.platform != "win32":
    import fcntl

__all__ = ["PAGE", "JournalReport", "alone", "check_out", "report", "session", "write_page"]

PAGE: Final = "report.html"
"""Name of the page's file, beside the tables."""
_LOCK: Final = ".lock"
"""Name of a file that is locked while a report is written."""


@frozen
class JournalReport:
    """The result of a report."""

    page: Path
    """Path of the page."""
    result: PipelineResult
    """The tables, and the number of violations in them."""


def report(
    journals: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> JournalReport:
    """Read journals, write all tables and the page.

    Args:
        journals: Folders and files, one or several.
        out: Directory of this machine for all results; existing tables are replaced. On a cluster
        the executors must see it under the same name, and the journals too.
        spark: The session. By default the active session of this process; without one, a session is
        started, and stopped at the end.
        master: Master URL of a session that is started: ``local[2]``, ``spark://host:7077``, …
        progress: Called before each step.

    Raises:
        ConfigError: A journal does not exist, or has an unknown version; there is no Java; another
        report is being written there.
        WMPError: Spark did not start.
    """
    paths = [journals] if isinstance(journals, (str, Path)) else list(journals)
    where = check_out(out)
    find_segments(paths)  # a missing journal is reported before Spark starts
    with alone(where), session(spark, master) as engine:
        result = build(engine, paths, where, progress=progress)
    if progress is not None:
        progress("page", len(STEPS), len(STEPS) + 1)
    return JournalReport(write_page(where, paths), result)


def write_page(where: Path, journals: Sequence[str | Path]) -> Path:
    """Write the page of the tables in a directory; no reader sees an incomplete page."""
    text = page(read_report_data(where, map(str, journals)))
    path = where / PAGE
    half = path.with_name(f".{PAGE}.{os.getpid()}")
    half.write_text(text, encoding="utf-8")
    half.replace(path)
    return path


def check_out(out: str | Path) -> Path:
    """Return the directory to write to; make it if it does not exist.

    Raises:
        ConfigError: It is no directory, or cannot be made.
    """
    if "://" in str(out):
        raise ConfigError(
            f"cannot write a page to {out}: expected a folder of this machine "
            "(wmp.spark.run.build writes tables wherever Spark can)"
        )
    where = Path(out).resolve()
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot make the folder {out}: {reason}") from error
    return where


@contextmanager
def alone(where: Path) -> Iterator[None]:
    """Lock a folder against other reports during the block.

    Raises:
        ConfigError: Another process writes a report there.
    """
    if sys.platform == "win32":  # Windows has no such locks, so several reports could write here
        yield
        return
    with open(where / _LOCK, "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another process writes a report to {where}; name another folder, or wait for "
                "that report"
            ) from None
        yield  # the system releases the lock of a process that is killed


@contextmanager
def session(spark: SparkSession | None, master: str | None) -> Iterator[SparkSession]:
    """Yield the given or active session, or else a new session that ends with the block."""
    found = spark or (SparkSession.getActiveSession() if master is None else None)
    if found is not None:
        yield found
        return
    started = start_session(master, name="wmp report")
    try:
        yield started
    finally:
        started.stop()
