"""From journals to tables: read, transform and write, table by table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from attrs import frozen
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from wmp.errors import ConfigError
from wmp.spark import common_clock, handshakes, phases, processes, summary, utilisation
from wmp.spark import violations as findings
from wmp.spark.attempts import attempts
from wmp.spark.checks import checks, lane_spans
from wmp.spark.clocks import JournalProcess, Offset, clocks, offsets
from wmp.spark.events import UNKNOWN_VERSION, bad_lines, events, parse
from wmp.spark.executions import executions
from wmp.spark.histories import histories
from wmp.spark.job_events import job_events
from wmp.spark.jobs import jobs
from wmp.spark.journals import find_segments, read_lines
from wmp.spark.leases import leases
from wmp.spark.links import links, pairs
from wmp.spark.locks import lock_states, lock_violations, locks
from wmp.spark.schema import TABLES

__all__ = ["STEPS", "PipelineResult", "Progress", "Tables", "build", "build_from"]

Progress = Callable[[str, int, int], None]
"""Called before each step with its table's name, its number from 0, and the number of steps."""

STEPS: Final = (
    "events", "bad_lines", "offsets", "nodes", "missing_nodes", "links", "executions", "attempts",
    "locks", "violations", "violation_events", "jobs", "wakes", "conversations", "phases",
    "latency", "histogram", "utilisation", "fairness", "activity", "requeues", "device_hops",
    "drops", "summary",
)  # fmt: skip
"""The tables in the order in which their steps are reported."""


_DISTINCT: Final = ("n", "step", "at", "wall", "sent_n", "sent_at", "received_n", "received_at")
"""Columns in which nearly every value is different, so that a dictionary would only cost time."""


@frozen
class Tables:
    """Parquet tables in a directory, or below a URL that Spark knows.

    Tables whose names begin with ``_`` are intermediate steps. Their columns are not promised.
    """

    spark: SparkSession
    where: str

    def path(self, name: str) -> str:
        """Return the path of a table."""
        return f"{self.where.rstrip('/')}/{name}"

    def write(self, name: str, frame: DataFrame) -> DataFrame:
        """Write a table in place of an older one, and read it back.

        A table with promised columns gets exactly those columns, in their order.

        Args:
            name: The name of the table.
            frame: The rows.

        Returns:
            The table on disk, so that later steps do not compute its rows again.
        """
        if not name.startswith("_"):
            columns = TABLES[name].columns
            frame = frame.select(*(frame[c.name].cast(c.type).alias(c.name) for c in columns))
        writer = frame.write.mode("overwrite")
        for column in _DISTINCT:
            writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
        writer.parquet(self.path(name))
        # The schema is given, so Spark need not open a file to find it.
        return self.spark.read.schema(frame.schema).parquet(self.path(name))

    def read(self, name: str) -> DataFrame:
        """Read a table that was written.

        Raises:
            AnalysisException: There is no such table.
        """
        return self.spark.read.parquet(self.path(name))


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


def build(
    spark: SparkSession,
    journals: Sequence[str | Path],
    out: str | Path,
    *,
    progress: Progress | None = None,
) -> PipelineResult:
    """Read journals and write all tables.

    Args:
        spark: Any session: :func:`wmp.spark.session.start_session` makes one.
        journals: Files and directories.
        out: Directory or URL of the tables; existing tables are replaced.
        progress: Called before each step.

    Raises:
        ConfigError: A journal does not exist, or has an unknown version.
    """
    return build_from(spark, read_lines(spark, find_segments(journals)), out, progress=progress)


def build_from(
    spark: SparkSession, lines: DataFrame, out: str | Path, *, progress: Progress | None = None
) -> PipelineResult:
    """Do as :func:`build`, from lines of :func:`wmp.spark.journals.read_lines`."""
    aside = ThreadPoolExecutor(1, "wmp-aside")
    run = _PipelineSteps(Tables(spark, str(out)), progress, aside)
    try:
        run.read(parse(lines))
        run.rebuild()
        run.verify()
        run.measure()
        return run.result()
    except Exception as error:
        text = str(error)
        if UNKNOWN_VERSION not in text:
            raise
        reason = text[text.index(UNKNOWN_VERSION) :].partition(" SQLSTATE")[0]
        raise ConfigError(reason.splitlines()[0]) from None
    finally:
        aside.shutdown(cancel_futures=True)


class _PipelineSteps:
    """The steps; each works on tables that are on disk already.

    A table that no later step uses is written in a second thread. While Spark plans such a table or
    ends its last task, the cores work on another.
    """

    def __init__(
        self, tables: Tables, progress: Progress | None, aside: ThreadPoolExecutor
    ) -> None:
        self.tables = tables
        self.progress = progress
        self.done = 0
        self._made: dict[str, DataFrame] = {}
        self._aside = aside
        self._begun: list[Future[DataFrame]] = []

    def read(self, parsed: DataFrame) -> None:
        """Make events from lines; find the processes that wrote them, and their clocks."""
        bad = Observation()
        self.events = self.write("events", events(parsed, bad))
        # Most journals have no bad line. Then nothing is read twice.
        none = self.tables.spark.createDataFrame([], parsed.schema)
        unread = parsed if bad.get["lines"] else none
        self.write_aside("bad_lines", lambda: bad_lines(unread))
        known = self.tables.write("_processes", processes.processes(self.events))
        self.processes = F.broadcast(known)
        both = self.tables.write("_pairs", pairs(self.events))
        compared = self.write("offsets", offsets(both, known))
        found = [
            JournalProcess((row.node, row.epoch), row.host, row.wall)
            for row in known.select("node", "epoch", "host", "wall").collect()
        ]
        seen = [
            Offset((r.node, r.epoch), (r.peer, r.peer_epoch), r.offset, r.error, r.messages)
            for r in compared.collect()
        ]
        spark = self.tables.spark
        self.nodes = self.write("nodes", processes.nodes(spark, known, clocks(found, seen)))
        self.write_aside("missing_nodes", lambda: processes.missing_nodes(self.events, known))
        self.write_aside("links", lambda: links(both, self.nodes))

    def rebuild(self) -> None:
        """Rebuild lanes, leases and locks, on the clocks of their nodes."""
        self.lanes = self.tables.write("_executions", executions(self.events))
        self.leases = self.tables.write("_attempts", attempts(self.events, self.lanes))
        self.states = self.tables.write("_locks", lock_states(self.events))
        self.kept = locks(self.states)
        self.write_aside("executions", lambda: common_clock.executions(self.lanes, self.nodes))
        self.attempts = self.write("attempts", common_clock.attempts(self.leases, self.nodes))
        self.write_aside("locks", lambda: common_clock.locks(self.kept, self.nodes))

    def verify(self) -> None:
        """Find violations and rebuild jobs."""
        known = leases(self.events, self.processes)
        all_events = job_events(self.events, self.lanes).unionByName(known)
        judged = self.tables.write("_histories", histories(all_events, self.processes))
        self.spans = self.tables.write("_spans", lane_spans(self.events))
        found = (
            judged.where(F.col("kind") == "violation")
            .unionByName(lock_violations(self.states))
            .unionByName(checks(self.events, self.spans, self.processes))
        )
        broken = self.tables.write("_found", found)
        self.violations = self.write("violations", findings.violations(broken, self.nodes))
        self.write_aside(
            "violation_events",
            lambda: findings.violation_events(self.violations, self.events, self.nodes),
        )
        states = judged.where(F.col("kind") == "state").select(
            "owner", "owner_epoch", "job", F.col("name").alias("state")
        )
        known = jobs(self.events, self.leases, self.lanes, states)
        self.jobs = self.write("jobs", common_clock.jobs(known, self.nodes))

    def measure(self) -> None:
        """Measure durations, load and fairness."""
        turns = self.tables.write("_turns", handshakes.turns(self.events))
        self.write_aside(
            "wakes", lambda: common_clock.wakes(handshakes.wakes(turns, self.kept), self.nodes)
        )
        talks = handshakes.conversations(turns, self.kept, self.leases)
        self.talks = self.write("conversations", common_clock.conversations(talks, self.nodes))
        samples = self.write("phases", phases.phases(self.jobs, self.attempts, self.talks))
        self.write_aside("latency", lambda: phases.latency(samples))
        self.write("histogram", phases.histogram(samples))
        length = utilisation.stretch(self._seconds())
        self.write("utilisation", utilisation.utilisation(self.spans, self.nodes, length))
        self.write_aside("fairness", lambda: utilisation.fairness(self.events, self.leases))
        self.write("activity", utilisation.activity(self.jobs, length))
        self.write("requeues", utilisation.requeues(self.attempts))
        # The second thread writes one table after the other, so ``links`` is complete at this
        # point.
        self.write_aside("device_hops", lambda: utilisation.device_hops(self._made["links"]))
        self.write("drops", processes.drops(self.events))
        for one in self._begun:
            one.result()
        self.write("summary", summary.summary(self._made))

    def result(self) -> PipelineResult:
        """Return the result when all tables are written."""
        rows = self._made["summary"].collect()
        numbers = {row.name: row.value for row in rows}
        certain = int(numbers["violations"])
        return PipelineResult(self.tables, certain, int(numbers["uncertain violations"]), numbers)

    def write(self, name: str, frame: DataFrame) -> DataFrame:
        """Report a step, and write its table."""
        self._report(name)
        return self._write(name, frame)

    def write_aside(self, name: str, make: Callable[[], DataFrame]) -> None:
        """Report a step, and make and write its table while the next steps run."""
        self._report(name)
        write = inheritable_thread_target(self.tables.spark)(lambda: self._write(name, make()))
        self._begun.append(self._aside.submit(write))

    def _write(self, name: str, frame: DataFrame) -> DataFrame:
        self._made[name] = self.tables.write(name, frame)
        return self._made[name]

    def _report(self, name: str) -> None:
        if self.progress is not None:
            self.progress(name, self.done, len(STEPS))
        self.done += 1

    def _seconds(self) -> float:
        """Return the seconds from the first to the last line of all journals."""
        row = self.nodes.agg(
            F.max(F.unix_micros("last")) - F.min(F.unix_micros("first"))
        ).collect()[0]
        return (row[0] or 0) / 1e6
