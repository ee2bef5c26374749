"""The check of Spark's executors for workers: a small job, whose findings are one line.

The executors need this package with its requirements, the module of the worker, and the Python
version of the driver. Install them there, or send the modules with :func:`ship`.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import queue
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wmp.errors import ConfigError, TransportError, WMPError
from wmp.runtime.common.threads import start_thread
from wmp.spark.fleet.spark_jobs import SparkJobs, one_line
from wmp.spark.fleet.table import shut_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNSEEN: Final = 6
"""Factor of the time through Spark Connect, which does not show whether the check waits or runs."""


def check_executors(
    jobs: SparkJobs, target: str | None, tasks: int = 1, admission: float = 20.0
) -> str:
    """Run a task that looks for the requirements of workers; return a line about the executors.

    Args:
        jobs: Runs the job.
        target: ``module:attribute`` or ``module`` of the worker; None for an object.
        tasks: Number of tasks. The check sees the executors that run them.
        admission: Seconds for which the job may wait for a task slot.

    Raises:
        ConfigError: Something is missing, or other jobs hold every task slot. The error is one line
            with the remedy.
    """
    look = _looking(target)

    def make() -> Any:
        return jobs.spark.range(0, tasks, 1, tasks).mapInArrow(look, "seen string")

    try:
        rows = _collect(jobs, make, admission)
    except WMPError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the executors cannot run Python tasks: {one_line(error)}; install the driver's "
            "version of Python with pyspark, pandas and pyarrow there, and set PYSPARK_PYTHON (or "
            "spark.pyspark.python) to it"
        ) from error
    seen = [json.loads(row[0]) for row in rows]
    for executor in seen:
        where = (
            f"the executor on {executor['host']} (Python {executor['python']}, "
            f"{executor['executable']})"
        )
        if executor["missing"]:
            raise ConfigError(
                f"{where} cannot import {executor['missing']}: {executor['error']}; install it "
                "there, set PYSPARK_PYTHON to an interpreter that has it, or send pure Python "
                "modules with wmp.spark.ship(spark, ...)"
            )
    return "; ".join(
        sorted(
            {
                f"{executor['host']}: Python {executor['python']}, wmp from {executor['wmp']}"
                for executor in seen
            }
        )
    )


def _collect(jobs: SparkJobs, make: Callable[[], DataFrame], admission: float) -> list[Any]:
    """Run the job of the check on another thread, so that it cannot wait for a slot for ever.

    Raises:
        ConfigError: The job had no task slot for the time of admission.
    """
    done: queue.SimpleQueue[list[Any] | BaseException] = queue.SimpleQueue()

    def run() -> None:
        done.put(jobs.collect("check", "wmp: check of the executors", make))

    if start_thread(run, "wmp-fleet-check", failed=lambda ended: done.put(ended.cause)) is None:
        raise TransportError("cannot start the thread of the check; end other threads or processes")
    ran = begun = time.monotonic()
    try:
        while True:
            with contextlib.suppress(queue.Empty):
                rows = done.get(timeout=0.2)
                if isinstance(rows, BaseException):
                    raise rows
                return rows
            now, slots = time.monotonic(), jobs.slots("check")
            if slots is not None and (slots.running or not slots.waiting):
                ran = now
            bound = admission if slots is not None else _UNSEEN * admission
            if now - (ran if slots is not None else begun) >= bound:
                raise ConfigError(shut_out("the check of the executors", bound, jobs.others([])))
    finally:
        jobs.cancel("check")


def _looking(target: str | None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function of the check.

    The function is nested and uses no global name. So it is sent as code, and the executors can run
    it without this package.
    """

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib
        import json
        import platform
        import socket
        import sys

        import pyarrow

        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # as for the worker itself
        seen = {
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "executable": sys.executable,
            "missing": "",
            "error": "",
            "wmp": "",
        }
        names = ["attrs", "cbor2", "zmq", "wmp.spark.fleet.member"]
        for name in [*names, *([target.partition(":")[0]] if target else [])]:
            try:
                module = importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - a module may raise anything
                seen["missing"] = name
                text = str(error).splitlines() or [""]
                seen["error"] = f"{type(error).__name__}: {text[0]}"
                break
            if name.startswith("wmp."):
                seen["wmp"] = str(module.__file__).rpartition("/spark/")[0]
        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"seen": [json.dumps(seen)]})

    return look


def ship(spark: SparkSession, *modules: str) -> list[str]:
    """Send this package, and further modules of pure Python, to the executors of a session.

    The executors still need the packages ``attrs``, ``cbor2`` and ``pyzmq`` installed, because
    these contain compiled code. Works in classic sessions and through Spark Connect.

    Args:
        spark: The session.
        modules: Names of modules or packages besides ``wmp``.

    Returns:
        The names that were sent.

    Raises:
        ConfigError: There is no such module, or it is not in a file.
    """
    names = sorted({"wmp", *(name.partition(".")[0] for name in modules)})
    folder = Path(tempfile.mkdtemp(prefix="wmp_shipped_"))
    # A classic session gives the file itself to executors, also to those that start later. So the
    # file stays until this process ends. Spark knows files by their names.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / f"{folder.name}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            spec = importlib.util.find_spec(name)
            if spec is None or spec.origin is None or not Path(spec.origin).exists():
                raise ConfigError(f"there is no file of the module {name!r} to send to executors")
            origin = Path(spec.origin)
            if not spec.submodule_search_locations:
                packed.write(origin, origin.name)
                continue
            for path in sorted(origin.parent.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    packed.write(path, path.relative_to(origin.parent.parent))
    spark.addArtifacts(str(archive), pyfile=True)
    return names
