"""Starts Spark with the right interpreter, Java and addresses, and without needless output.

Every function of the pipeline accepts a session that was started elsewhere.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Final

from wmp.errors import ConfigError, WMPError
from wmp.spark.extras import need_extra
from wmp.spark.session.java import ensure_java

if typing.TYPE_CHECKING:
    from pyspark.sql import SparkSession

_USUAL: Final = {"Invocation": 5000, "MinInvocation": 600, "Compile": 15_000, "BackEdge": 40_000}
"""Java's default thresholds: the number of calls before Java compiles code a second time."""
_LATER: Final = 25
"""Factor of these thresholds in a report.

Most generated code runs only for a second or two. Compiling all of it twice took a third of the CPU
time of a report of a million lines.
"""

CONFS: Final[Mapping[str, str]] = {
    # Open no port for a user interface.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Tables must not depend on the machine's time zone.
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
    # Tasks return the state of all open jobs and messages to a report that follows journals.
    "spark.driver.maxResultSize": "0",
    # This collector needs less than half of the time of G1. Its longer pauses do no harm here.
    "spark.driver.extraJavaOptions": " ".join(
        ["-XX:+UseParallelGC"]
        + [f"-XX:Tier4{what}Threshold={_LATER * usual}" for what, usual in _USUAL.items()]
    ),
    # A piece of a journal takes a core a second or two.
    "spark.sql.files.maxPartitionBytes": "32m",
}
"""The settings of a session that this module starts; ``confs`` overrides them."""


FEW: Final[Mapping[str, str]] = {
    # With its first compiler alone Java starts in half of the time. A long report takes longer so.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Further settings for few lines, for which starting and compiling take most of the time."""


def start_session(
    master: str | None = None,
    *,
    confs: Mapping[str, str] | None = None,
    name: str = "wmp",
) -> SparkSession:
    """Start a Spark session, or return the session that runs in this process already.

    The stderr of Java is hidden. The error of a failed start has its last line.

    Args:
        master: Master URL: ``local[2]``, ``spark://host:7077``, …; None for the URL of
        ``spark-submit`` or the environment, and else all cores of this machine.
        confs: Spark's own settings; they override ``CONFS``.
        name: Name of the application.

    Raises:
        ConfigError: The extra ``spark`` or a Java is missing.
        WMPError: Spark did not start.
    """
    need_extra("spark", "Spark")
    from pyspark.sql import SparkSession

    ensure_java()
    # By default Spark starts its workers with `python3` from PATH. This Python has the needed
    # packages.
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
    with _hidden_stderr() as stderr, _own_interrupt():
        try:
            return builder.getOrCreate()
        except Exception as error:
            if isinstance(error, (ConfigError, KeyboardInterrupt)):
                raise
            raise WMPError(_why(error, stderr)) from error


def use_this_python(spark: SparkSession) -> None:
    """Let a local session that was started elsewhere run its workers with this Python.

    Otherwise Spark runs ``python3`` from PATH, which lacks the packages of an environment that was
    not activated. An explicit ``PYSPARK_PYTHON`` is kept.
    """
    if "PYSPARK_PYTHON" in os.environ or not hasattr(spark, "_jsparkSession"):
        return  # in Spark Connect the server chooses the Python
    if spark.sparkContext.master.startswith("local"):
        spark.sparkContext.pythonExec = sys.executable


def _partitions(master: str | None) -> dict[str, str]:
    """Return two pieces for each core: enough for an even load, and few enough to cost little."""
    cores = (master or "").partition("[")[2].partition("]")[0].partition(",")[0]
    count = int(cores) if cores.isdecimal() else os.cpu_count() or 1
    return {"spark.sql.shuffle.partitions": str(2 * count)}


def _why(error: Exception, stderr: IO[bytes]) -> str:
    """Return the cause of a failed start, in one line."""
    home = os.environ.get("JAVA_HOME", "not set")
    if (of_java := getattr(error, "java_exception", None)) is not None:  # Java runs
        return f"Spark did not start: {of_java.toString()}"
    text = f"Spark did not start ({type(error).__name__}: {str(error).splitlines()[0]})"
    stderr.seek(0)
    last = next((line for line in stderr if b"rror" in line or b"xception" in line), b"")
    java = f"; the error of Java is: {last.decode(errors='replace').strip()}" if last else ""
    if b"org.apache.spark.SparkException" in last:  # Java runs, and Spark reports the cause
        return f"{text}{java}"
    return f"{text}{java}; Spark needs Java 17 or 21; JAVA_HOME is {home}"


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep the present handler of Ctrl-C.

    Spark installs a handler that calls Java, even during another call of Java. Such a call fails
    and prints a screen of tracebacks.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _hidden_stderr() -> Iterator[IO[bytes]]:
    """Redirect stderr of this process and its children to a file during the block.

    Java writes to that file until Java ends.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as stderr:
        os.dup2(stderr.fileno(), 2)
        try:
            yield stderr
        finally:
            os.dup2(kept, 2)
            os.close(kept)
