"""Spark, started so that it works: interpreter, Java, addresses, and no noise.

A session that somebody else started serves as well: no function of the pipeline asks for one.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Final

from pyspark.sql import SparkSession

from wmp.errors import ConfigError, WMPError
from wmp.spark.java import ensure_java

__all__ = ["CONFS", "start_session"]

_USUAL: Final = {"Invocation": 5000, "MinInvocation": 600, "Compile": 15_000, "BackEdge": 40_000}
"""How often code must have run before Java compiles it for the second time, at its best."""
_LATER: Final = 25
"""By so much more often here: most of what Spark generates works for a second or two, and to
compile all of it twice was a third of what a report of a million lines computed."""

CONFS: Final[Mapping[str, str]] = {
    # No port that nobody asked for.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # A table says the same wherever it was made.
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
    # What counts is when all is done, not how long a pause is: less than half of G1's work.
    "spark.driver.extraJavaOptions": " ".join(
        ["-XX:+UseParallelGC"]
        + [f"-XX:Tier4{what}Threshold={_LATER * usual}" for what, usual in _USUAL.items()]
    ),
    # A journal is read in pieces that a core works a second or two on.
    "spark.sql.files.maxPartitionBytes": "32m",
    # What was compiled for a report serves for the next; 100, the default, are less than one.
    "spark.sql.codegen.cache.maxEntries": "2000",
}
"""The settings of a session that this module starts; ``confs`` overrides them."""


def start_session(
    master: str | None = None,
    *,
    confs: Mapping[str, str] | None = None,
    name: str = "wmp",
    quiet: bool = True,
) -> SparkSession:
    """Start a Spark session, or take the one that runs in this process already.

    Args:
        master: Where: ``local[2]``, ``spark://host:7077``, …; None for what
            ``spark-submit`` or the environment says, and else all cores of this machine.
        confs: Spark's own settings; they win over ``CONFS``.
        name: What the application is called.
        quiet: Hide the stderr of Java from the user. The error of a failed start has its last line.

    Raises:
        ConfigError: There is no Java.
        WMPError: Spark did not start.
    """
    ensure_java()
    # By default Spark starts its workers with `python3` from PATH; this Python has the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    local = master is None or master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().appName(name)
    if master is not None:
        builder = builder.master(master)
    settings = {**CONFS, **(_partitions(master) if local else {}), **(confs or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _hidden(quiet) as said, _own_interrupt():
        try:
            return builder.getOrCreate()
        except Exception as error:
            if isinstance(error, (ConfigError, KeyboardInterrupt)):
                raise
            raise WMPError(_why(error, said)) from error


def _partitions(master: str | None) -> dict[str, str]:
    """Two pieces a core: enough for an even load, few enough to cost nothing."""
    cores = (master or "").partition("[")[2].partition("]")[0].partition(",")[0]
    count = int(cores) if cores.isdecimal() else os.cpu_count() or 1
    return {"spark.sql.shuffle.partitions": str(2 * count)}


def _why(error: Exception, said: IO[bytes] | None) -> str:
    """What went wrong, in a line."""
    home = os.environ.get("JAVA_HOME", "not set")
    text = f"Spark did not start ({type(error).__name__}: {str(error).splitlines()[0]})"
    last = b""
    if said is not None:
        said.seek(0)
        lines = [line for line in said.read().splitlines() if line.strip()]
        last = next((line for line in lines if b"rror" in line or b"xception" in line), b"")
    told = f"; Java said: {last.decode(errors='replace').strip()}" if last else ""
    return f"{text}{told}; it needs Java 17 or 21, JAVA_HOME is {home}"


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep the handler of Ctrl-C that there is.

    Spark puts in one that asks Java to stop, in the middle of whatever is being asked of it: an
    answer that nobody can read, and a screen of tracebacks.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _hidden(quiet: bool) -> Iterator[IO[bytes] | None]:
    """Send what is written to stderr, by this process and what it starts, to a file meanwhile.

    Java keeps the file for as long as it runs, so its later words go there too.
    """
    if not quiet:
        yield None
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
