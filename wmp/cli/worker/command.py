"""``wmp worker``: a worker that does jobs with a Python function or a Unix command."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

import click

from wmp import aio, blocking
from wmp.aio.worker import HANG_TIMEOUT
from wmp.calls.served import handlers_of
from wmp.calls.target import load_target
from wmp.calls.task import Task
from wmp.cli.common.entry_point import SIGNALLED, complain
from wmp.cli.common.flag_sources import given_by
from wmp.cli.common.options import (
    HOME,
    ProgramCommand,
    amounts,
    check_addresses,
    security_of,
    verbose,
)
from wmp.cli.common.options import journal as journal_flag
from wmp.cli.common.options import keys as key_flags
from wmp.cli.worker.http_listener import (
    HttpListener,
    http_flags,
    refuse_calls,
    refuse_flags,
    refuse_without_dispatcher,
    serve_over_http,
)
from wmp.cli.worker.ping_pong import ping_pong_flag, serve_ping_pong
from wmp.cli.worker.source_watch import SourceWatch
from wmp.errors import ClosedError, ConfigError, HandlerHung, TransportError, WMPError
from wmp.message import DEFAULT_ROLE
from wmp.retry import Retry
from wmp.runtime.common.checks import check_seconds
from wmp.runtime.common.threads import ThreadEnded, start_thread
from wmp.runtime.executors import KINDS
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.executors.job_log import log_handlers
from wmp.runtime.node.command import OUTPUTS, CommandHandler, Output
from wmp.runtime.node.signals import caught

_PROGRAM: Final = "wmp"

_DRAIN_TIMEOUT: Final = 60.0
"""Seconds that jobs in progress have after the first signal, unless an option sets another time."""

_OWN: Final = (
    "role",
    "slots",
    "resource",
    "pool",
    "output",
    "functions",
    "function",
    "pickle",
    "max-jobs-per-child",
    "memory-per-child",
    "on-hang",
    "hang-timeout",
    "beats",
    "identity",
    "label",
    "secret",
    "server",
    "journal",
)
"""Options for a worker that this program makes. A wmp.Worker of the user has its own settings."""


class _WorkerCommand(ProgramCommand):
    """Keeps the arguments after ``--`` apart: they are the command line of a COMMAND."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            context.obj = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(context, args)


@click.command(
    cls=_WorkerCommand,
    short_help="Do jobs with a Python function or a Unix command.",
    epilog="""
    wmp worker package.module:function --slots 8 --pool process
    wmp worker package.tasks --slots 8
    wmp worker package.tasks:resize --role gpu
    wmp worker package.work --functions
    wmp worker package.work --function resize --function Store.load
    wmp worker --pickle --pool process --slots 8
    wmp worker package.module:worker --connect tcp://127.0.0.1:5571
    wmp worker package.module:handlers --resource gpu=2
    wmp worker package.module:function --watch
    wmp worker package.module:handlers --dispatcher http://127.0.0.1:8081
    wmp worker --role wc -- wc -w
    wmp worker --role thumbnail --slots 4 -- convert - -resize 200 jpg:-
    wmp worker --role total --output json -- jq .payload.items
    wmp worker --ping-pong tcp://127.0.0.1:5556 -- tr a-z A-Z
    wmp worker package.module:function --ping-pong tcp://127.0.0.1:5556
    """,
)
@click.argument("target", metavar="[PACKAGE.MODULE[:ATTRIBUTE]] [-- COMMAND…]", required=False)
@click.option(
    "--connect",
    metavar="ENDPOINT",
    multiple=True,
    help=f"Address of a manager or device to connect to; repeat for each; default {HOME}.",
)
@click.option(
    "--role",
    metavar="ROLE",
    multiple=True,
    help=f"Role of the jobs that this worker does; repeat for each; default {DEFAULT_ROLE!r}.",
)
@click.option(
    "--slots",
    metavar="N",
    type=int,
    default=1,
    show_default=True,
    help="Number of jobs that run at the same time.",
)
@click.option(
    "--resource",
    metavar="NAME=AMOUNT",
    multiple=True,
    help="Resource that jobs may need, besides slots; repeat for each.",
)
@click.option(
    "--pool",
    type=click.Choice(KINDS),
    default="thread",
    show_default=True,
    help="Where functions run; choose process for functions that compute without waiting.",
)
@click.option(
    "--output",
    type=click.Choice(OUTPUTS),
    help=(
        "With -- COMMAND: how stdout becomes the result: as a JSON value, text or bytes; default: "
        "bytes if the payload is bytes, else text."
    ),
)
@click.option(
    "--functions",
    is_flag=True,
    help=(
        "With PACKAGE.MODULE: also serve to every wmp.Executor all public functions that the "
        "module defines."
    ),
)
@click.option(
    "--function",
    metavar="NAME",
    multiple=True,
    help=(
        "With PACKAGE.MODULE: also serve this function of the module to every wmp.Executor; a "
        "class, or a method as CLASS.NAME, too; repeat for each."
    ),
)
@click.option(
    "--pickle",
    is_flag=True,
    help=(
        "Also run pickled functions of any wmp.Executor with pickle=True. Submitters can then run "
        "any code in this worker; managers on other hosts need keys."
    ),
)
@click.option(
    "--retries",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Try failed jobs again, at most N times, unless a job sets its own number.",
)
@click.option(
    "--max-jobs-per-child",
    metavar="N",
    type=int,
    help="With --pool process: replace each process after N jobs.",
)
@click.option(
    "--memory-per-child",
    metavar="MIB",
    type=int,
    help="With --pool process: memory limit of each process.",
)
@click.option(
    "--identity",
    metavar="TEXT",
    help="Identity of this node in messages, the same at every start; default: random.",
)
@click.option(
    "--label",
    metavar="TEXT",
    help="Name of this node in logs and reports; default: host and process.",
)
@click.option(
    "--wait",
    metavar="SECONDS",
    type=float,
    default=0.0,
    show_default=True,
    help="Exit with an error after SECONDS without an answer from any manager; 0: never.",
)
@click.option(
    "--drain-timeout",
    metavar="SECONDS",
    type=float,
    default=_DRAIN_TIMEOUT,
    show_default=True,
    help="Time to finish running jobs after the first SIGTERM or Ctrl-C; 0: no limit.",
)
@click.option(
    "--on-hang",
    type=click.Choice(("replace", "stop", "report")),
    default="replace",
    show_default=True,
    help=(
        "Action when a function continues in its thread after its job was interrupted: "
        "replace this process, stop with exit code 1, or only log it."
    ),
)
@click.option(
    "--hang-timeout",
    metavar="SECONDS",
    type=float,
    default=HANG_TIMEOUT,
    show_default=True,
    help="Seconds for which an interrupted function may continue.",
)
@click.option(
    "--beats/--no-beats",
    default=True,
    show_default=True,
    help=(
        "Keep the jobs of this worker, by a small child process, while a function in a thread "
        "holds Python's interpreter lock."
    ),
)
@click.option(
    "--watch",
    is_flag=True,
    help="Start again when a source file of the function changes; running jobs finish first.",
)
@http_flags
@ping_pong_flag
@key_flags(connects=True, binds=False)
@journal_flag
@verbose
@click.pass_context
def worker(
    context: click.Context,
    target: str | None,
    connect: tuple[str, ...],
    role: tuple[str, ...],
    slots: int,
    resource: tuple[str, ...],
    pool: str,
    output: Output | None,
    functions: bool,
    function: tuple[str, ...],
    pickle: bool,
    retries: int,
    max_jobs_per_child: int | None,
    memory_per_child: int | None,
    identity: str | None,
    label: str | None,
    wait: float,
    drain_timeout: float,
    on_hang: str,
    hang_timeout: float,
    beats: bool,
    watch: bool,
    secret: str | None,
    server: str | None,
    journal: str | None,
    dispatcher: tuple[str, ...],
    http: str,
    hostname: str | None,
    allow_host: tuple[str, ...],
    token_file: Path | None,
    ping_pong: str | None,
) -> int:
    """Do jobs for every connected manager.

    PACKAGE.MODULE:ATTRIBUTE is imported from the current directory: a function f(payload) or
    f(payload, job), a mapping from roles to functions, or a wmp.Worker that has not started.
    PACKAGE.MODULE alone serves all tasks of the module (wmp.task). Its other functions are served,
    to every wmp.Executor, only with --functions or --function. PACKAGE.MODULE:TASK serves one
    task, by --role under another role.

    A COMMAND receives each payload on stdin: bytes and text as they are, any other value as JSON.
    Its stdout is the result. An exit code other than 0 is an error of the job, with the text on
    stderr.

    With --dispatcher the worker registers at dispatchers over HTTP (wmp dispatcher), and connects
    to no manager.

    With --ping-pong the worker does the jobs of a ping-pong broker, one at a time. It has one
    handler: a COMMAND, or a function f(body). A handler that fails sends no result, because the
    protocol has no message for errors.

    Ctrl-C or SIGTERM: finish the jobs of this worker, then exit with 0. A second signal, or the
    end of --drain-timeout, stops the worker at once; other workers get its jobs, and the exit
    code is 130 or 143.
    """
    argv: list[str] | None = context.obj
    check_seconds("--wait", wait)
    check_seconds("--drain-timeout", drain_timeout)
    if (target is not None) + (argv is not None) != 1 and not (pickle and argv is None):
        raise click.UsageError(
            "the command line must name one handler; expected either PACKAGE.MODULE:ATTRIBUTE, "
            "PACKAGE.MODULE, --pickle or -- COMMAND",
            context,
        )
    if argv is not None and pool != "thread":
        raise click.UsageError(
            "--pool applies to functions only; a command always runs as a process, so leave out "
            "--pool",
            context,
        )
    if ping_pong is not None:
        return serve_ping_pong(context, ping_pong, argv, pool=pool, drain_timeout=drain_timeout)
    sources = None
    if watch:
        if target is None:
            raise click.UsageError(
                "--watch is for the module of a function; leave out --watch", context
            )
        sources = SourceWatch(target.partition(":")[0], functools.partial(complain, _PROGRAM))
    if output is not None and argv is None:
        raise click.UsageError(
            "--output is for a COMMAND; leave out --output, or add -- COMMAND", context
        )
    if functions and function:
        raise click.UsageError(
            "--functions serves all functions of the module; leave out --functions or --function",
            context,
        )
    handlers: Mapping[str, Handler]
    roles = role or (DEFAULT_ROLE,)
    if repeated := sorted(name for name in set(roles) if roles.count(name) > 1):
        raise click.UsageError(f"--role names {repeated[0]!r} twice; name each role once", context)
    if argv is not None:
        if dispatcher and output == "bytes":
            raise click.UsageError(
                "--output bytes has no effect with --dispatcher, whose results are JSON; use "
                "--output text or --output json",
                context,
            )
        _refuse_functions(context, "a command")
        handlers = dict.fromkeys(roles, CommandHandler(argv, output))
    elif target is None:
        _refuse_functions(context, "")
        if role:
            raise click.UsageError(
                "--role is for a function; leave out --role, or name PACKAGE.MODULE:ATTRIBUTE",
                context,
            )
        handlers = {}
    else:
        target_object = _load_watched(target, sources)
        if isinstance(target_object, blocking.Worker | aio.Worker):
            _refuse_own_flags(context, target)
            if dispatcher:
                raise click.UsageError(
                    f"{target} is a WMP worker; with --dispatcher name a function or a mapping",
                    context,
                )
            check_addresses(None, connect=connect)
            target_object.connect(*connect)
            return _serve(target_object, connect, wait, drain_timeout, sources=sources)
        if not isinstance(target_object, ModuleType):
            _refuse_functions(context, target)
        if isinstance(target_object, Mapping | ModuleType):
            if role:
                raise click.UsageError(f"{target} sets its own roles; leave out --role", context)
            if isinstance(target_object, ModuleType):
                handlers = handlers_of(target, functions=function or functions)
            else:
                handlers = target_object
        elif isinstance(target_object, Task):
            handlers = dict.fromkeys(role or (target_object.role,), target_object.handler)
        elif callable(target_object):
            handlers = dict.fromkeys(roles, target_object)
        else:
            raise ConfigError(
                f"{target} is of type {type(target_object).__name__}; expected a function, a "
                "mapping from roles to functions, or a wmp.Worker"
            )
    if pickle:
        if argv is not None:
            raise click.UsageError(
                "--pickle applies to functions only; leave out --pickle or the command", context
            )
        handlers = {**handlers, **handlers_of(pickle=True)}
    settings: dict[str, Any] = {
        "handlers": handlers,
        "slots": slots,
        "resources": amounts("--resource", resource),
        "pool": pool,
        "max_jobs_per_child": max_jobs_per_child,
        "memory_per_child": None if memory_per_child is None else memory_per_child << 20,
        "identity": identity,
        "on_hang": on_hang,
        "hang_timeout": check_seconds("--hang-timeout", hang_timeout),
        "label": label,
        "journal": journal,
        "retry": Retry(times=retries) if retries else None,
    }
    if dispatcher:
        refuse_flags(context, ("connect", "wait", "watch", "beats", "secret", "server", "pickle"))
        refuse_calls(handlers)
        address = HttpListener(dispatcher, http, hostname, allow_host, token_file)
        log_handlers(logging.INFO)
        return serve_over_http(address, settings, drain_timeout)
    refuse_without_dispatcher(context)
    # A command runs in a process of its own, which cannot hold the lock of this one.
    settings["beats"] = beats and argv is None
    connect = connect or (HOME,)
    security = security_of(secret, server=server)
    check_addresses(security, connect=connect)
    return _serve(
        blocking.Worker(*connect, security=security, **settings),
        connect,
        wait,
        drain_timeout,
        sources=sources,
    )


def _load_watched(target: str, sources: SourceWatch | None) -> Any:
    """Import a target. If the import fails and the sources are watched, wait for a change.

    Raises:
        ConfigError: The import failed, and the sources are not watched.
    """
    try:
        return load_target(target)
    except ConfigError as error:
        if sources is None:
            raise
        complain(_PROGRAM, f"{error}; waiting for a change")
        sources.wait()
        _start_again(f"{sources.changed} changed")


def _start_again(reason: str) -> NoReturn:
    """Replace this process by a new one with the same command line."""
    complain(_PROGRAM, f"replacing this process, because {reason}")
    sys.stdout.flush()
    sys.stderr.flush()
    # the new program inherits no descriptor and no thread
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _refuse_functions(context: click.Context, target: str) -> None:
    """Refuse flags that choose functions of a module where the command line names no module."""
    for name in ("functions", "function"):
        source = given_by(context, name)
        if source is not None:
            raise click.UsageError(
                f"--{name} of {source} is for PACKAGE.MODULE"
                + (f", and {target} is not a module" if target else "")
                + f"; leave out --{name}, or name a module",
                context,
            )


def _refuse_own_flags(context: click.Context, target: str) -> None:
    for name in _OWN:
        source = given_by(context, name.replace("-", "_"))
        if source is not None:
            raise click.UsageError(
                f"--{name} cannot change {target}, a worker with its own settings; leave out "
                f"--{name} of {source}",
                context,
            )


def _serve(
    worker: blocking.Worker | aio.Worker,
    connect: tuple[str, ...],
    wait: float,
    drain_timeout: float,
    *,
    sources: SourceWatch | None = None,
) -> int:
    """Serve until a signal arrives or no manager answers; return the exit code.

    Args:
        worker: The worker.
        connect: The addresses that flags name.
        wait: Seconds without a manager after which the worker gives up; 0 for never.
        drain_timeout: Seconds to finish jobs after the first signal; 0 for no limit.
        sources: Notices changes of source files, which make this process start anew.

    Raises:
        ConfigError: No manager has been there for ``wait`` seconds.
    """
    log_handlers(logging.INFO)
    lookout = _ManagerWatch(worker, wait or math.inf)
    late = False
    try:
        if isinstance(worker, blocking.Worker):
            lookout.start(lambda: worker.drain(0.0))
            if sources is not None:
                sources.start(worker.interrupt)
            worker.run(drain_timeout or None)
        else:
            asyncio.run(_run(worker, lookout, sources, drain_timeout or None))
    except TimeoutError:
        late = True  # a log line has named the jobs
    except HandlerHung:
        if worker.on_hang != "replace" or caught:
            raise
        _start_again("a thread cannot be ended")
    finally:
        if sources is not None:
            sources.stop()
    if sources is not None and sources.changed is not None and not caught:
        _start_again(f"{sources.changed} changed")
    if lookout.failure is not None:
        name, cause = lookout.failure.name, lookout.failure.cause
        raise ClosedError(f"{name} of the worker ended unexpectedly: {cause!r}") from cause
    if lookout.alone:
        where = f" at {', '.join(connect)}" if connect else ""
        raise ConfigError(
            f"no manager answered{where} within {wait:g} s; start a manager there, or wait longer "
            "with --wait"
        )
    if late:
        return SIGNALLED + caught[-1]
    if len(caught) < 2:
        return 0
    # A second signal stopped the worker at once; a log line has named the lost jobs.
    try:
        left = worker.statistics()
    except ClosedError:
        return 0  # the signal came before the worker began
    return SIGNALLED + caught[-1] if left.held or left.unacknowledged else 0


async def _run(
    worker: aio.Worker,
    lookout: _ManagerWatch,
    sources: SourceWatch | None,
    drain_timeout: float | None,
) -> None:
    loop = asyncio.get_running_loop()
    lookout.start(lambda: asyncio.run_coroutine_threadsafe(worker.drain(0.0), loop).result())
    if sources is not None:

        def reload() -> None:
            loop.call_soon_threadsafe(worker.interrupt)

        sources.start(reload)
    await worker.run(drain_timeout)


class _ManagerWatch:
    """Ends a worker that no manager answers."""

    def __init__(self, worker: blocking.Worker | aio.Worker, wait: float) -> None:
        self._worker = worker
        self._wait = wait
        self.alone = False
        """Whether the worker was ended because no manager answered."""
        self.failure: ThreadEnded | None = None
        """The unexpected end of the thread, which ends the worker too."""

    def start(self, end: Callable[[], None]) -> None:
        """Start to watch; ``end`` drains the worker, and may be called on another thread."""

        def failed(ended: ThreadEnded) -> None:
            self.failure = ended
            with contextlib.suppress(TimeoutError, WMPError):  # The worker ends, or has ended.
                end()

        # The thread is a daemon, so a worker that ends before it met a manager does not wait for
        # the thread.
        if start_thread(self._look, "wmp-lookout", end, failed=failed) is None:
            raise TransportError(
                "cannot start the thread that watches for managers; end other threads or processes"
            )

    def _look(self, end: Callable[[], None]) -> None:
        pause = 0.02
        seen = time.monotonic()
        while True:
            now = time.monotonic()
            try:
                managers = self._worker.statistics().managers
            except (ClosedError, RuntimeError):
                # The worker has not started, or has ended, and then this process ends soon. Or the
                # tables of an asyncio worker changed during the read; then the next check reads
                # them again.
                managers, seen = (), now
            if managers:
                seen = now
            elif now - seen >= self._wait:
                self.alone = True
                with contextlib.suppress(TimeoutError, WMPError):  # The worker ends, or has ended.
                    end()
                return
            time.sleep(min(pause, max(0.0, seen + self._wait - now)))
            pause = min(2 * pause, 0.2)
