"""Throughput of the pipeline: ``python -m benchmarks.pipeline --lines 1000000 --cores 1,2``.

The journal is that of a fleet in virtual time without faults: two managers and eight workers, half
of them behind a device. For more lines there are more such fleets: copies of the first fleet under
other names. For each number of cores there is a separate process. It starts Spark, first makes all
tables of a small journal to warm up, and then makes those of the whole journal.

On a machine with other load, read the CPU seconds, of Java and the Python workers together. The
stages of a step are those that Spark ran for it; skipped stages do not count.

Ten million lines need 3 GB for the journal, as much for Spark's temporary files, and 3 GB of
memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import define

from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.testing.simulator.journals import Journals
from wmp.testing.simulator.network import Network, Pipe

FLEET = 250_000
"""Approximate number of lines of one fleet."""
STEP = 5e-6
"""Seconds that each message takes."""
BATCH = 16
"""Number of jobs that are submitted at a time."""
WORK = ("spark_jobs", "stages", "tasks", "shuffled")
"""The parts of a step in Spark; ``shuffled`` is in bytes."""
WARM = 20_000
"""Number of lines of the journal for the warm-up."""
ROOM = 1000
"""Bytes of disk for a line: the journal, and Spark's tables and temporary files."""


@define(eq=False)
class Fleet(Network):
    """Machines that write every step into journals, and use a little time for it."""

    journals: Journals = None  # type: ignore[assignment]

    def deliver(self, pipe: Pipe) -> None:
        """Let time pass."""
        self.now += STEP
        super().deliver(pipe)

    def handled(self, name: str, event: object, actions: Sequence[Any]) -> None:
        """Write the step into the journal."""
        self.journals.step(name, self.nodes[name].settings, event, actions, self.now)


def record(folder: Path, lines: int) -> None:
    """Write the journals of the first fleet, 0."""
    fleet = Fleet(journals=Journals(folder))
    managers = [f"m0.{index}" for index in range(2)]
    for name in managers:
        settings = ManagerSettings(identity=name.encode(), epoch=1, label=name)
        fleet.add(name, ManagerMachine(settings, least_recently_used))
    device = "d0.0"
    fleet.add(
        device,
        DeviceMachine(DeviceSettings(identity=device.encode(), epoch=1, upstreams=2)),
        managers,
    )
    for index in range(8):
        name = f"w0.{index}"
        above = managers if index % 2 else [device]
        options = WorkerSettings(
            identity=name.encode(), epoch=1, label=name, hold=0.0, resources={"slots": 2}
        )
        fleet.add(name, WorkerMachine(options, len(above)), above)
        fleet.connect(name)
    fleet.settle()
    written = 0
    while written < lines:
        for name in managers:
            fleet.submit(name, [b"payload"] * BATCH)
        fleet.settle()
        fleet.advance(fleet.now + 0.01)
        written = sum(scribe.lines for scribe, _, _ in fleet.journals._open.values())
    fleet.journals.close(fleet.alive)


def make(folder: Path, lines: int) -> int:
    """Write journals of about this number of lines; return the actual number."""
    fleets = max(1, round(lines / FLEET))
    record(folder, lines // fleets)
    count = 0
    for path in sorted(folder.iterdir()):
        text = path.read_bytes()
        count += text.count(b"\n")
        for number in range(1, fleets):
            copy = text
            for kind in "mdw":
                copy = copy.replace(f'"{kind}0.'.encode(), f'"{kind}{number}.'.encode())
            path.with_name(path.name.replace("0.", f"{number}.", 1)).write_bytes(copy)
    return count * fleets


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and all its descendants, ended ones included."""
    ticks, children, left = 0, {}, [root]
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry))
            if int(entry) == root:
                ticks += sum(map(int, fields[11:15]))
    left = children.get(root, [])
    while left:
        process = left.pop()
        left += children.get(process, [])
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def work_of(spark: Any, step: str) -> dict[str, int]:
    """Return the work of Spark for a step."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(step)]
    numbers = {number for job in jobs for number in job.stageIds}
    tasks = [tracker.getStageInfo(number).numCompletedTasks for number in numbers]
    # A skipped stage has no completed task.
    ran = [number for number, count in zip(numbers, tasks, strict=True) if count]
    store = spark.sparkContext._jsc.sc().statusStore()
    shuffled = sum(store.lastStageAttempt(number).shuffleWriteBytes() for number in ran)
    return {
        "spark_jobs": len(jobs), "stages": len(ran), "tasks": sum(tasks), "shuffled": shuffled,
    }  # fmt: skip


def measure(journal: Path, warm: Path, cores: int) -> dict[str, Any]:
    """Make all tables; runs in a separate process."""
    from wmp.spark.journals.journals import Source, find_segments
    from wmp.spark.journals.tables import Tables
    from wmp.spark.pipeline.engines import OnSpark
    from wmp.spark.pipeline.run import build_tables
    from wmp.spark.session.session import start_session

    begin = time.perf_counter()
    spark = start_session(f"local[{cores}]")
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    steps: dict[str, dict[str, Any]] = {}
    running: list[tuple[str, float, float]] = []

    def timed(name: str, done: int, total: int) -> None:
        """End the present step, and begin another; its jobs in Spark have its name."""
        if running:
            step, start, used = running.pop()
            took = {"seconds": time.perf_counter() - start, "cpu": cpu_seconds(java) - used}
            steps[step] = took
            print(f"{took['seconds']:8.1f} s  {step}", file=sys.stderr, flush=True)
        if done < total:
            spark.sparkContext.setJobGroup(name, name)
            running.append((name, time.perf_counter(), cpu_seconds(java)))

    with tempfile.TemporaryDirectory() as out:

        def build(name: str, folder: Path, progress: Any = None) -> Any:
            tables = Tables(lambda: spark, f"{out}/{name}")
            source = Source.of(find_segments([folder]))
            return build_tables(tables, OnSpark(spark), source, progress)

        build("warm", warm)
        started = {"seconds": time.perf_counter() - begin, "cpu": cpu_seconds(java)}
        before, start = cpu_seconds(java), time.perf_counter()
        result = build("tables", journal, timed)
        timed("", 1, 1)
        seconds, cpu = time.perf_counter() - start, cpu_seconds(java) - before
        # Spark reports its jobs by events, which it handles a short time later.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[union-attr]
        for name, took in steps.items():
            took |= work_of(spark, name)
        kept = sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file())
    status = Path(f"/proc/{java}/status").read_text()
    spark.stop()
    lines = int(result.summary["lines"])
    return {
        "cores": cores,
        "lines": lines,
        "jobs": int(result.summary["jobs"]),
        "violations": result.violations + result.uncertain,
        "seconds": seconds,
        "lines_per_second": lines / seconds,
        "cpu": cpu,
        "started": started,
        "java_memory": 1024 * int(status.partition("VmHWM:")[2].split()[0]),
        "tables_size": kept,
        **{what: sum(took[what] for took in steps.values()) for what in WORK},
        "steps": steps,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument(
        "--cores", default="1,2", help="numbers of cores to measure with, separated by commas"
    )
    parser.add_argument("--json", type=Path, help="write the figures to FILE")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        journal, warm, cores = options.one
        print(json.dumps(measure(Path(journal), Path(warm), int(cores))))
        return 0
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        journal, warm = Path(folder) / "journal", Path(folder) / "warm"
        start = time.perf_counter()
        free, needed = shutil.disk_usage(folder).free, ROOM * options.lines
        if free < needed:
            parser.error(
                f"{options.lines} lines need {needed / 1e9:.1f} GB, but {folder} has "
                f"{free / 1e9:.1f} GB free; set TMPDIR to a directory with more free space"
            )
        make(warm, min(options.lines, WARM))
        lines = make(journal, options.lines)
        size = sum(path.stat().st_size for path in journal.iterdir())
        print(
            f"{lines} lines, {size / 1e6:.0f} MB, recorded in {time.perf_counter() - start:.0f} s",
            file=sys.stderr,
        )
        for cores in options.cores.split(","):
            command = [sys.executable, "-m", "benchmarks.pipeline", "--one", journal, warm, cores]
            ran = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True)
            figure = json.loads(ran.stdout.splitlines()[-1])
            figures.append(figure)
            seconds, cpu = figure["seconds"], figure["cpu"]
            started, memory = figure["started"], figure["java_memory"]
            print(
                f"{cores} cores: {seconds:.1f} s, {lines / seconds:,.0f} lines/s; "
                f"CPU {cpu:.1f} s, {1e6 * cpu / lines:.1f} µs a line; "
                f"{figure['stages']} stages, {figure['tasks']} tasks; "
                f"{figure['shuffled'] / 1e6:.0f} MB shuffled; "
                f"{figure['jobs']} jobs, {figure['violations']} violations; "
                f"Java {memory / 1e9:.1f} GB, tables {figure['tables_size'] / 1e6:.0f} MB; "
                f"start of Spark before that {started['seconds']:.1f} s, CPU {started['cpu']:.1f} s"
            )
            for name, took in figure["steps"].items():
                print(
                    f"    {name:<18}{took['seconds']:8.2f} s   CPU {took['cpu']:7.2f} s"
                    f"{took['stages']:5} stages{took['tasks']:5} tasks"
                    f"{took['shuffled'] / 1e6:8.1f} MB"
                )
    first, last = figures[0], figures[-1]
    scaling = first["seconds"] / last["seconds"]
    if len(figures) > 1:
        print(f"{last['cores']} cores are {scaling:.2f} times as fast as {first['cores']} cores")
    if options.json:
        whole = {"lines": lines, "bytes": size, "scaling": scaling, "runs": figures}
        options.json.write_text(json.dumps(whole, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
