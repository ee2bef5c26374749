"""``wmp map``: a manager that distributes files or lines to the workers that connect."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import json
import logging
import sys
from pathlib import Path
from typing import Any, Final

import click

from wmp.blocking import Manager
from wmp.cli.common.entry_point import (
    FAILED,
    INTERRUPTED,
    TERMINATED,
    Interruption,
    ProgramTerminated,
    complain,
)
from wmp.cli.common.halt import HaltRule
from wmp.cli.common.options import (
    HOME,
    ProgramCommand,
    amounts,
    check_addresses,
    reachable,
    security_of,
    verbose,
)
from wmp.cli.common.options import journal as journal_flag
from wmp.cli.common.options import keys as key_flags
from wmp.cli.common.progress import ProgressBar
from wmp.cli.common.store_flags import store_flags
from wmp.cli.common.worker_watch import WorkerWatch
from wmp.cli.map.feed import Feed, Item, inputs
from wmp.cli.map.joblog import JobLog
from wmp.cli.map.run import MapRun, error_of_item
from wmp.errors import ConfigError, JobCancelled, JobFailed
from wmp.message import DEFAULT_ROLE, counted
from wmp.retry import Retry
from wmp.runtime.common.checks import check_role, check_seconds
from wmp.runtime.manager.unserved_log import logger as unserved_logger
from wmp.runtime.submission.submit_options import SubmitOptions
from wmp.runtime.submission.time_limits import TimeLimits
from wmp.store.opening import printable_address, store_opener

logger = logging.getLogger("wmp")

_PROGRAM: Final = "wmp"

_TURN: Final = 0.1
"""Seconds between two checks of the clock while the program waits for a result."""


@click.command(
    name="map",
    cls=ProgramCommand,
    short_help="Let workers process files, or the lines of stdin.",
    epilog="""
    wmp map --role wc *.txt                     each file is a job
    wmp map --role resolve --lines hosts.txt    each line of a file is a job
    generate | wmp map --role work              each line of stdin is a job
    wmp map --role wc --json *.txt | jq .name
    wmp map --role wc --joblog log --halt now,fail=1 *.txt
    wmp map --role wc --joblog log --resume-failed --retries 3 *.txt
    wmp map --role wc --store jobs.db *.txt     go on after an interruption
    wmp map --role wc --connect tcp://device:5572 *.txt
    """,
)
@click.argument("files", metavar="[FILE]…", nargs=-1)
@click.option(
    "--bind",
    metavar="ENDPOINT",
    multiple=True,
    help=f"Address to which workers connect; default {HOME}, or none with --connect.",
)
@click.option(
    "--connect",
    metavar="ENDPOINT",
    multiple=True,
    help="Address for managers of a device (`wmp-device --bind-managers`); repeat for each.",
)
@click.option(
    "--role",
    metavar="ROLE",
    default=DEFAULT_ROLE,
    show_default=True,
    help="Role of the jobs; only workers with this role do them.",
)
@click.option(
    "--lines", is_flag=True, help="Make a job of each line of a file, instead of the whole file."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print for each job its name, ok, and its result or error as JSON.",
)
@click.option(
    "--need",
    metavar="NAME=AMOUNT",
    multiple=True,
    help="Resource that each job takes; repeat for each resource.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=float,
    help="Each job must end within SECONDS, waiting time included, or it fails.",
)
@click.option(
    "--expires",
    metavar="SECONDS",
    type=float,
    help="Each job must begin within SECONDS, or it fails.",
)
@click.option(
    "--delay", metavar="SECONDS", type=float, help="Start no job until SECONDS have passed."
)
@click.option(
    "--run-limit",
    metavar="SECONDS",
    type=float,
    help="Interrupt a job that runs for more than SECONDS; the job fails.",
)
@click.option(
    "--retries",
    metavar="N",
    type=click.IntRange(min=0),
    default=None,
    help="Try failed jobs again, at most N times; 0: never. Default: the handlers decide.",
)
@click.option(
    "--max-worker-losses",
    metavar="N",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Give a job whose worker dies to another worker, at most N times.",
)
@click.option(
    "--halt",
    metavar="WHEN",
    default="never",
    show_default=True,
    help=(
        "Start no further job after some jobs failed, succeeded or ended: soon,fail=N, "
        "soon,success=N or soon,done=N, where N is a number or a percentage of all jobs. With now "
        "instead of soon, running jobs are stopped too."
    ),
)
@click.option(
    "--joblog",
    metavar="FILE",
    help="Write a line for each ended job into FILE, with the columns of GNU parallel.",
)
@click.option("--resume", is_flag=True, help="Skip the jobs that FILE of --joblog lists.")
@click.option(
    "--resume-failed",
    is_flag=True,
    help="Skip the jobs that FILE of --joblog lists without an error; do the failed jobs again.",
)
@click.option(
    "--checksum",
    is_flag=True,
    help="Send checksums of payloads and results; repeat a job whose payload or result is damaged.",
)
@click.option(
    "--wait",
    metavar="SECONDS",
    type=float,
    default=60.0,
    show_default=True,
    help="Exit with an error after SECONDS without a worker that can do the jobs; 0: never.",
)
@click.option(
    "--store",
    metavar="STORE",
    help="Keep jobs and results in STORE, a file or postgresql://…: the same command goes on "
    "after an interruption.",
)
@store_flags
@key_flags(connects=True, binds=True)
@journal_flag
@verbose
def map_command(
    files: tuple[str, ...],
    bind: tuple[str, ...],
    connect: tuple[str, ...],
    role: str,
    lines: bool,
    as_json: bool,
    need: tuple[str, ...],
    timeout: float | None,
    expires: float | None,
    run_limit: float | None,
    delay: float | None,
    wait: float,
    retries: int | None,
    max_worker_losses: int,
    halt: str,
    joblog: str | None,
    resume: bool,
    resume_failed: bool,
    checksum: bool,
    store: str | None,
    reserve: int | None,
    group: str | None,
    secret: str | None,
    server: str | None,
    allowed: str | None,
    journal: str | None,
) -> int:
    """Have workers process every FILE, or every line of stdin.

    Without FILE, each line of stdin is a job; a FILE named - is stdin. The worker receives a line
    without its newline, and a file unchanged. Results go to stdout in the order of the inputs,
    each ended by a newline. Errors of jobs go to stderr, and the exit code is then 1. Ctrl-C and
    SIGTERM cancel the running jobs; the exit code is then 130 or 143. After --halt the exit code
    is that of the job at whose end the condition was met.

    With --store, jobs and results are kept for an hour after the end of each job. An input with the
    name, content and role of an earlier one is not processed again meanwhile. Interrupted jobs are
    not cancelled: call the same command again.
    """
    for name in files:
        if name != "-" and not Path(name).exists():
            raise ConfigError(f"there is no file {name}; name existing files")
        if name != "-" and Path(name).is_dir():
            raise ConfigError(f"{name} is a folder; name files, for example {name}/*")
    limits = {"--timeout": timeout, "--expires": expires, "--run-limit": run_limit}
    for flag, seconds in limits.items():
        if seconds is not None:
            check_seconds(flag, seconds, zero=False)
    if delay is not None:
        check_seconds("--delay", delay)
    TimeLimits(timeout, expires, run_limit).check()
    check_seconds("--wait", wait)
    check_role(role)
    if (resume or resume_failed) and joblog is None:
        raise ConfigError(
            "--resume and --resume-failed need --joblog FILE, the log of the earlier run"
        )
    rule = HaltRule.parse(halt)
    if not connect:
        bind = bind or (HOME,)
    security = security_of(secret, server=server, allowed=allowed)
    check_addresses(security, bind=bind, connect=connect)
    if store is None and (reserve is not None or group is not None):
        raise ConfigError("--reserve and --group are about the file of --store; name it too")
    open_store = None if store is None else store_opener(store, reserve=reserve, group=group)
    manager = Manager(
        *bind,
        connect=connect,
        security=security,
        journal=journal,
        store=store if open_store is None else open_store(),
    )
    # WorkerWatch reports jobs that no worker can do, and names a command that starts a worker.
    unserved_logger.disabled = True
    # A progress bar and typed input would share one line.
    typed = (not files or "-" in files) and sys.stdin is not None and sys.stdin.isatty()
    total = len(files) if files and not lines else None
    needs = amounts("--need", need)
    options: SubmitOptions = {
        "role": role,
        "needs": needs or None,
        "timeout": timeout,
        "expires": expires,
        "run_limit": run_limit,
        "delay": delay,
        "max_worker_losses": max_worker_losses,
        "checksum": checksum,
    }
    if retries is not None:
        options["retry"] = Retry(times=retries)
    run = MapRun(rule)
    left = "running jobs were cancelled"
    if store is not None:
        left = f"the jobs stay in {printable_address(store)}"
    try:
        with contextlib.ExitStack() as stack:
            if joblog is not None:
                run.log_to(
                    stack.enter_context(JobLog(joblog, role, resume=resume, failed=resume_failed)),
                    manager,
                )
            interruption = stack.enter_context(Interruption())
            stack.enter_context(manager)
            bar = stack.enter_context(ProgressBar(_PROGRAM, total, shown=not typed))
            if any(endpoint.endswith((":*", ":0")) for endpoint in bind):
                bar.complain(f"bound to {', '.join(manager.endpoints)}")
            ended = None if rule is None else run.ended
            source = inputs(files, lines, run.skips)
            feed = Feed(manager, source, options, ended, stored=store is not None)
            keys = " --secret FILE --server FILE" if security is not None else ""
            where = manager.endpoints[0] if bind else f"the device at {', '.join(connect)}"
            address = reachable(where) if bind else "tcp://DEVICE:PORT"
            offers = "".join(
                f" --slots {n}" if name == "slots" else f" --resource {name}={n}"
                for name, n in needs.items()
            )
            start = f"wmp worker --role {role}{offers}{keys} --connect {address} -- COMMAND"
            watch = WorkerWatch(manager, bar, role, wait, where, start)
            failed = _collect(feed, _Printer(as_json, bar, interruption), watch, run)
    except ProgramTerminated:
        complain(_PROGRAM, f"terminated; {left}")
        return TERMINATED
    except KeyboardInterrupt:
        complain(_PROGRAM, f"interrupted; {left}")
        return INTERRUPTED
    finally:
        unserved_logger.disabled = False
    if failed:
        complain(
            _PROGRAM, f"{failed} of {counted(feed.count - feed.skipped - run.left, 'job')} failed"
        )
    if run.halted is not None:
        complain(_PROGRAM, f"no further job was started because of --halt {run.halted.rule}")
        return run.halted.code
    return FAILED if failed else 0


def _collect(feed: Feed, printer: _Printer, watch: WorkerWatch, run: MapRun) -> int:
    """Print results in the order of the inputs; return the number of errors."""
    failed = 0
    while True:
        printer.interruption.check()
        item, more = feed.first(_TURN)
        printer.know(feed.total)
        run.check(feed)
        if item is None:
            run.flush(printer.flush)
            if not more:
                return failed
            continue
        if item.job is not None and not item.job.done():
            # No result has come for some time, so show the results so far.
            run.flush(printer.flush)
            while not concurrent.futures.wait([item.job], _TURN).done:
                printer.interruption.check()
                printer.know(feed.total)
                run.check(feed)
                watch.look()
        raised = error_of_item(item)
        if item.job is not None and isinstance(raised, JobFailed | None):
            watch.served()
        if run.halted is not None and isinstance(raised, JobCancelled):
            run.left += 1
        else:
            failed += not printer.show(item)
            run.record(item, raised, printer.flush)
        feed.drop()


class _Printer:
    """Prints results to stdout, errors to stderr, and moves the bar."""

    def __init__(self, as_json: bool, bar: ProgressBar, interruption: Interruption) -> None:
        self._as_json = as_json
        self._bar = bar
        self.interruption = interruption
        self.complain = bar.complain
        self.know = bar.know

    def flush(self) -> None:
        """Flush stdout."""
        with self.interruption.at_once():
            self._bar.flush()

    def show(self, item: Item) -> bool:
        """Print how an item ended; return whether it ended well."""
        error, result = item.error, b""
        if item.job is not None:
            raised = error_of_item(item)
            if raised is None:
                result = bytes(item.job.result())
            else:
                error = str(raised)
                # Only --verbose prints the traceback.
                logger.debug("%s: %s", item.name, getattr(raised, "remote_traceback", ""))
        with self.interruption.at_once():
            if self._as_json:
                self._bar.print(_as_json(item.name, error, result))
            elif error is None:
                self._bar.print(result if result.endswith(b"\n") else result + b"\n")
            if error is not None:
                self.complain(f"{item.name}: {error}")
        self._bar.advance()
        return error is None


def _as_json(name: str, error: str | None, result: bytes) -> bytes:
    row: dict[str, Any] = {"name": name, "ok": error is None}
    if error is not None:
        row["error"] = error
    else:
        try:
            row["result"] = result.decode()
        except UnicodeDecodeError:
            row["base64"] = base64.b64encode(result).decode()
    # The name of a file may have bytes that are not UTF-8. In the JSON, which is ASCII, these
    # bytes are escapes.
    return json.dumps(row).encode() + b"\n"
