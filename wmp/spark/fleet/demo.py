"""``wmp demo --spark``: a fleet in Spark, and rows of a table that its workers do.

Spark runs in this process and its Java, on this machine. The tasks of the table are managers that
dial in to a device, which is a process of its own. The demo kills a worker, the device and a
manager.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from wmp.blocking import Worker
from wmp.cli.common.progress import ProgressBar
from wmp.cli.demo.node import ROLE, count
from wmp.cli.demo.processes import DemoProcess, DemoProcesses
from wmp.errors import WMPError
from wmp.message import counted
from wmp.rows import row_handler
from wmp.spark.fleet.fleet import Fleet
from wmp.spark.fleet.spark_jobs import one_line
from wmp.spark.rows.mapped_rows import map_rows
from wmp.spark.session.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA: Final = "file string, words long, digest string, process long"
_ANYWHERE: Final = "tcp://127.0.0.1:*"
_GROUP: Final = "wmp-demo-rows"

_TASKS: Final = 24
"""Tasks of the table, if there are enough files."""

_MANAGERS: Final = 2
"""Tasks of the table that run at once: task slots beside those of the fleet."""

_FAILURES: Final = 100
"""Failures of one task that Spark accepts; by default a local Spark accepts none."""

_LENGTH: Final = 10.0
"""Seconds that the rows should take without kills."""

_LONGEST: Final = 0.2
"""Maximum number of seconds by which a row is made longer."""

_STALL: Final = 120.0
"""Seconds without a task that ended after which the demo fails."""

_DRAIN: Final = 5.0


@row_handler("row")
def _count_file(row: Mapping[str, Any]) -> dict[str, Any]:
    time.sleep(row["pause"])
    words, digest = count(Path(row["file"]).read_bytes())
    return {"file": row["file"], "words": words, "digest": digest, "process": os.getpid()}


HANDLERS: Final = {ROLE: _count_file}


@define(eq=False)
class SparkDemo:
    """The steps of the demo, and its outcome."""

    children: DemoProcesses
    names: Sequence[str]
    count: int
    """Workers of the fleet."""
    kill: bool
    bar: ProgressBar | None
    seconds: float = 0.0
    """Seconds from the first task of the table to the last."""
    size: int = 0
    """Bytes of all files."""
    killed: list[str] = field(factory=list)
    failed: int = 0
    """Tasks that Spark ran again."""
    right: int = 0
    """Files with a correct result."""
    rows: Counter[str] = field(factory=Counter)
    """Rows of the result, by file."""
    workers: Counter[int] = field(factory=Counter)
    """Rows, by process of a worker."""
    wrong: list[str] = field(factory=list)

    def run(self) -> None:
        """Start all processes, do the rows, kill some processes, compare the results.

        Raises:
            WMPError: Spark failed, or nothing happened for too long.
        """
        slots = self.count + _MANAGERS
        self._print(f"starting Spark with {slots} task slots, and a device")
        spark = start_session(f"local[{slots},{_FAILURES}]", name="wmp demo")
        try:
            device, below, above = self._start_device(bind=_ANYWHERE, bind_managers=_ANYWHERE)
            with (
                Fleet(
                    spark, f"{__name__}:HANDLERS", workers=self.count, managers=[below],
                    spare=_MANAGERS, admission=60.0, drain=_DRAIN,
                ) as fleet,
                # A worker without rows to do: it meets the managers, whose labels name processes.
                Worker(below, handlers={"watch": bytes}) as watch,
            ):  # fmt: skip
                fleet.wait(self.count, _STALL)
                self._print(
                    f"{counted(len(self.names), 'file')} for a fleet of "
                    f"{counted(self.count, 'worker')}; {_MANAGERS} tasks at once are managers"
                )
                rows = self._do_rows(spark, above, self._kills(fleet, watch, device, below, above))
        finally:
            spark.stop()
        self._compare(rows)

    def _start_device(self, **config: str) -> tuple[DemoProcess, str, str]:
        """Start the device; return the process, and the endpoints for workers and managers."""
        child = self.children.start("device", label="device", connect=[], **config)
        while (received := self.children.receive(_STALL)) is not None:
            if "bound" in received[1]:
                return child, received[1]["bound"], received[1]["above"]
        raise WMPError(f"the device did not start within {_STALL:g} s; add --verbose to see why")

    # -- the rows ----------------------------------------------------------------------------

    def _do_rows(
        self, spark: SparkSession, above: str, kills: Sequence[Callable[[], str]]
    ) -> list[Any]:
        """Run the table on a thread, and kill processes when parts of its tasks have ended."""
        tasks = max(1, min(_TASKS, len(self.names) // 4))
        pause = min(_LONGEST, _LENGTH * self.count / len(self.names))
        rows = [(name, pause) for name in self.names]
        files = spark.sparkContext.parallelize(rows, tasks)
        table = spark.createDataFrame(files, "file string, pause double").transform(
            map_rows, role=ROLE, schema=_SCHEMA, through=above, rows_per_job=2,
            in_flight=2 * self.count, max_worker_losses=_FAILURES,
        )  # fmt: skip
        run = _DemoRun(table)
        run.start()
        begin = moved = time.monotonic()
        done, left = 0, list(kills)
        while run.is_alive():
            run.join(0.1)
            now, ended = time.monotonic(), run.ended()
            if ended > done:
                done, moved = ended, now
                if self.bar is not None:
                    self.bar.advance(round(ended / tasks * len(self.names)) - run.shown)
                    run.shown = round(ended / tasks * len(self.names))
            elif now - moved > _STALL:
                raise WMPError(f"no task of Spark ended for {_STALL:g} s; {done} of {tasks} have")
            number = len(kills) - len(left) + 1
            if left and run.is_alive() and done * (len(kills) + 1) >= number * tasks:
                what = left.pop(0)()
                self.killed.append(what)
                self._print(f"{done / tasks:4.0%}  {what} was killed (SIGKILL)")
        self.seconds = time.monotonic() - begin
        self.failed = run.failed()
        if run.error is not None:
            raise WMPError(f"Spark failed: {one_line(run.error)}") from run.error
        return run.rows

    def _kills(
        self, fleet: Fleet, watch: Worker, device: DemoProcess, below: str, above: str
    ) -> list[Callable[[], str]]:
        """Return the kills; each returns what it killed."""

        def worker() -> str:
            member = next(member for member in fleet.members if member.beat is not None)
            assert member.beat is not None
            _kill(member.beat.pid)
            return f"worker {member.number} of the fleet, process {member.beat.pid},"

        def the_device() -> str:
            device.kill()
            self._start_device(bind=below, bind_managers=above)
            return "the device"

        def manager() -> str:
            until = time.monotonic() + _STALL
            while time.monotonic() < until:
                for pid in _managers(watch):
                    _kill(pid)
                    return f"a manager, process {pid} of Spark,"
                time.sleep(0.05)
            raise WMPError(f"no manager dialed in within {_STALL:g} s")

        return [worker, the_device, manager] if self.kill else []

    # -- the outcome -------------------------------------------------------------------------

    def _compare(self, rows: Sequence[Any]) -> None:
        """Compare the rows with the results of this process."""
        expected: dict[str, list[Any]] = {}
        for name in self.names:
            data = Path(name).read_bytes()
            self.size += len(data)
            expected[name] = count(data)
        for row in rows:
            self.rows[row.file] += 1
            self.workers[row.process] += 1
            came = [row.words, row.digest]
            if self.rows[row.file] > 1:
                self.wrong.append(f"{row.file}: a second row came; expected one")
            elif came == expected.get(row.file):
                self.right += 1
            else:
                wanted = expected.get(row.file)
                self.wrong.append(f"{row.file}: the result is {came}; expected {wanted}")
        if missing := len(expected) - len(self.rows):
            self.wrong.append(f"{counted(missing, 'row is', 'rows are')} missing")

    def verdict(self) -> Iterator[str]:
        """Yield the lines of the result."""
        total = len(self.names)
        yield (
            f"{total} files, {self.size / 1e6:.1f} MB in {self.seconds:.1f} s by "
            f"{counted(len(self.workers), 'process', 'processes')} of workers"
        )
        yield (
            f"{counted(len(self.killed), 'process was', 'processes were')} killed (SIGKILL); Spark "
            f"ran {counted(self.failed, 'task')} again"
        )
        twice = self.rows.total() - len(self.rows)
        yield (
            f"{self.right} of {total} results are correct; lost: {total - len(self.rows)}, "
            f"duplicates: {twice}"
        )

    def _print(self, text: str) -> None:
        if self.bar is not None:
            self.bar.print(f"{text}\n".encode())
            self.bar.flush()


class _DemoRun(threading.Thread):
    """Collects a table on a thread of its own, so that the main thread can be interrupted."""

    def __init__(self, table: DataFrame) -> None:
        super().__init__(name="wmp-demo-rows", daemon=True)
        self._table = table
        self._context = table.sparkSession.sparkContext
        self.rows: list[Any] = []
        self.error: BaseException | None = None
        self.shown = 0
        """Rows that the progress bar shows as done."""

    def run(self) -> None:
        self._context.setJobGroup(_GROUP, "wmp demo: the rows")
        try:
            self.rows = self._table.collect()
        except BaseException as error:  # noqa: BLE001 - the main thread raises the error
            self.error = error

    def ended(self) -> int:
        """Return the number of tasks that have ended."""
        return sum(stage.numCompletedTasks for stage in self._stages())

    def failed(self) -> int:
        """Return the number of failed tasks."""
        return sum(stage.numFailedTasks for stage in self._stages())

    def _stages(self) -> list[Any]:
        status = self._context.statusTracker()
        jobs = [status.getJobInfo(job) for job in status.getJobIdsForGroup(_GROUP)]
        stages = [status.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        return [stage for stage in stages if stage is not None]


def _managers(watch: Worker) -> list[int]:
    """Return the processes of tasks that are managers: their labels end with the process."""
    labels = [manager.label.split() for manager in watch.statistics().managers]
    pids = [int(label[-1]) for label in labels if label[:1] == ["rows"]]
    return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
