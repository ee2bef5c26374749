"""``wmp round-robin``: the server, the worker and the client of round robin as consoles."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

import click

from wmp.cli.common.console import Commands, Console, Outcomes
from wmp.cli.common.entry_point import terminated
from wmp.cli.common.options import (
    ProgramCommand,
    ProgramGroup,
    check_addresses,
    security_of,
    verbose,
)
from wmp.cli.common.options import keys as key_flags
from wmp.errors import ConfigError, DecodeError, WMPError
from wmp.gateways.round_robin.blocking import RoundRobinClient, RoundRobinServer, RoundRobinWorker
from wmp.gateways.round_robin.stream_data import pack_stream, unpack_stream
from wmp.message import counted
from wmp.runtime.sockets.endpoints import check_endpoints

_HOME: Final = "tcp://127.0.0.1:6714"
_PING: Final = 0x01
_STREAM: Final = 0x0A
_NAMES: Final = {bytes((_PING,)): "PING", bytes((_STREAM,)): "STREAM"}
_CHILDREN: Final = 9
"""Number of workers that ``bulk`` starts: with the first one there are ten."""
_IN_FLIGHT: Final = 10
_STREAM_SIZE: Final = 1024
_REMEDY: Final = (
    "make keys with `wmp keys` and name them with --secret and --allowed, add --open to serve "
    "peers without keys, or bind to tcp://127.0.0.1:PORT"
)

_F = TypeVar("_F", bound=Callable[..., Any])


def _common(function: _F) -> _F:
    """Add the flags of all consoles."""
    for add in (
        click.option(
            "--json", "as_json", is_flag=True, help="Print one line of JSON for each command."
        ),
        click.option(
            "--do",
            "script",
            metavar="COMMANDS",
            help="Run these commands, separated by semicolons, and end. Default: standard input.",
        ),
        click.option(
            "-d",
            "level",
            metavar="LEVEL",
            type=click.IntRange(0, 20),
            required=True,
            help="0: outcomes and errors; 1: each message, too; 5: a summary of each child, too.",
        ),
        click.argument("address", default=_HOME),
    ):
        function = add(function)
    return function


@click.group(
    name="round-robin",
    cls=ProgramGroup,
    short_help="Run a round-robin server, worker or client.",
    epilog="""
    wmp round-robin server -d 1
    wmp round-robin worker -d 5
    wmp round-robin client -d 1
    wmp round-robin worker -d 0 --do 'register; bulk; wait' tcp://127.0.0.1:6714
    echo 'bulkping 100' | wmp round-robin client -d 0 --json
    """,
)
def round_robin() -> None:
    """Consoles of the round-robin system: a server, its workers, its clients.

    They speak LMQv100 and work beside the original programs. The address is
    tcp://127.0.0.1:6714 by default. A console ends at `quit` and at the end of its input.
    """


@round_robin.command(
    name="server",
    cls=ProgramCommand,
    epilog="""
    wmp round-robin server -d 1
    wmp round-robin server -d 0 --max-queue 1000 tcp://127.0.0.1:6714
    wmp round-robin server -d 1 --open --name tcp://host:6714 tcp://0.0.0.0:6714
    wmp round-robin server -d 1 --bind tcp://127.0.0.1:5570
    """,
)
@_common
@click.option(
    "--max-queue",
    metavar="N",
    type=click.IntRange(min=0),
    help="Maximum number of messages that wait; the newest is dropped. Default: no limit.",
)
@click.option(
    "--name",
    metavar="TEXT",
    default="",
    help="Name by which original clients and workers address the server: the address to which they "
    "connect. Default: ADDRESS.",
)
@click.option(
    "--bind",
    metavar="ENDPOINT",
    multiple=True,
    help="Address for WMP workers, which then do messages of the role round-robin, too.",
)
@click.option(
    "--open", "opened", is_flag=True, help="Open the addresses to the network without keys."
)
@key_flags(connects=False, binds=True)
@verbose
def _server(
    address: str,
    level: int,
    script: str | None,
    as_json: bool,
    max_queue: int | None,
    name: str,
    bind: tuple[str, ...],
    opened: bool,
    secret: str | None,
    allowed: str | None,
) -> int:
    """Pass messages of clients on to workers. Commands: workers, queue, wait, help, quit."""
    security = security_of(secret, allowed=allowed)
    check_addresses(security, bind=bind)
    check_endpoints(
        [address], bind=True, security=security, shared=False, open=opened, remedy=_REMEDY
    )
    console: Console
    server: RoundRobinServer

    def workers() -> tuple[Outcomes, list[str]]:
        """Show the table: the address and the free slots of each worker."""
        rows = server.table()
        lines = [f"{row.address}  free slots {row.free} of {row.slots}" for row in rows]
        outcomes = {"workers": [row._asdict() for row in rows]}
        return outcomes, [*lines, counted(len(rows), "worker")]

    def queue() -> tuple[Outcomes, list[str]]:
        """Show the number of messages that wait, that are in progress, and that were dropped."""
        (seen,) = server.statistics().doors
        dropped = sum(seen.dropped.values())
        outcomes = {"queued": seen.queued, "in_progress": seen.waiting, "dropped": dropped}
        return outcomes, [f"{seen.queued} queued, {seen.waiting} in progress, {dropped} dropped"]

    def stay() -> tuple[Outcomes, list[str]]:
        """Wait for Ctrl-C."""
        threading.Event().wait()
        return {}, []

    commands: Commands = {"workers": workers, "queue": queue, "wait": stay}
    console = Console("server", commands, level=level, as_json=as_json)
    server = RoundRobinServer(
        address,
        name=name,
        max_queue=max_queue,
        workers_of_wmp=bind,
        open=opened,
        security=security,
        watch=console.note if console.shows(1) else None,
    )
    with terminated(), server:
        console.note(f"clients and workers connect to {', '.join(server.addresses)}")
        if bind:
            console.note(f"WMP workers connect to {', '.join(server.endpoints)}")
        return console.run(script)


@round_robin.command(
    name="worker",
    cls=ProgramCommand,
    epilog="""
    wmp round-robin worker -d 5
    wmp round-robin worker -d 0 --slots 4 --do 'register; bulk; wait' tcp://127.0.0.1:6714
    """,
)
@_common
@click.option(
    "--slots",
    metavar="N",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Messages that a worker does at the same time.",
)
@key_flags(connects=True, binds=False)
@verbose
def _worker(
    address: str,
    level: int,
    script: str | None,
    as_json: bool,
    slots: int,
    secret: str | None,
    server: str | None,
) -> int:
    """Do PING and STREAM. Commands: register, deregister, bulk, endbulk, wait, help, quit.

    bulk starts nine children, so that ten workers are registered. Without wait at the end of --do
    the workers end at once.
    """
    security = security_of(secret, server=server)
    check_addresses(security, connect=(address,))
    first: list[RoundRobinWorker] = []
    children: list[RoundRobinWorker] = []
    console: Console

    def ping(frames: list[bytes]) -> bytes:
        console.note("did PING")
        return b""

    def stream(frames: list[bytes]) -> bytes:
        if len(frames) != 3 or not frames[2].isdigit():
            raise ValueError("STREAM needs the arguments STREAM_ID and a size")
        console.note(f"did STREAM of {int(frames[2])} bytes")
        return pack_stream(int(frames[2]))

    def make() -> RoundRobinWorker:
        worker = RoundRobinWorker(
            address, {_PING: ping, _STREAM: stream}, slots=slots, security=security
        )
        worker.start()
        return worker

    def register() -> tuple[Outcomes, list[str]]:
        """Register this worker at the server."""
        if first:
            raise ConfigError("this worker is registered; use deregister first")
        first.append(make())
        return {"slots": slots}, [f"registered with {counted(slots, 'slot')}"]

    def deregister() -> tuple[Outcomes, list[str]]:
        """Take this worker out of the table of the server."""
        if not first:
            raise ConfigError("this worker is not registered; use register first")
        first.pop().close()
        return {}, ["deregistered"]

    def bulk() -> tuple[Outcomes, list[str]]:
        """Start nine children, each a worker of its own."""
        if not first:
            raise ConfigError("this worker is not registered; use register before bulk")
        if children:
            raise ConfigError("the children run; use endbulk first")
        try:
            for _ in range(_CHILDREN):
                children.append(make())
        except WMPError:
            while children:
                children.pop().close()
            raise
        total = len(children) + 1
        return {"workers": total}, [
            f"started {counted(len(children), 'child worker')}; {total} workers in all"
        ]

    def endbulk() -> tuple[Outcomes, list[str]]:
        """End the children."""
        if not children:
            raise ConfigError("no children run; use bulk first")
        rows, lines = [], []
        for number, child in enumerate(children, 1):
            child.close()
            counts = child.statistics().by_command
            row = {_NAMES[command]: list(pair) for command, pair in sorted(counts.items())}
            rows.append(row)
            shown = ", ".join(f"{name} {n} ({done} done)" for name, (n, done) in row.items())
            if level >= 5:
                lines.append(f"child {number}: {shown or 'no message'}")
        children.clear()
        return {"children": rows}, [*lines, f"ended {counted(len(rows), 'child worker')}"]

    def stay() -> tuple[Outcomes, list[str]]:
        """Wait for Ctrl-C."""
        threading.Event().wait()
        return {}, []

    commands: Commands = {
        "register": register,
        "deregister": deregister,
        "bulk": bulk,
        "endbulk": endbulk,
        "wait": stay,
    }
    console = Console("worker", commands, level=level, as_json=as_json)
    with terminated():
        try:
            return console.run(script)
        finally:
            for worker in (*children, *first):
                worker.close()


@round_robin.command(
    name="client",
    cls=ProgramCommand,
    epilog="""
    wmp round-robin client -d 1
    wmp round-robin client -d 0 --do 'pingt; bulkdata 100' tcp://127.0.0.1:6714
    """,
)
@_common
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=float,
    default=15.0,
    show_default=True,
    help="Time within which an answer must come.",
)
@key_flags(connects=True, binds=False)
@verbose
def _client(
    address: str,
    level: int,
    script: str | None,
    as_json: bool,
    timeout: float,
    secret: str | None,
    server: str | None,
) -> int:
    """Send messages. Commands: ping, pingt, data, bulkping N, bulkdata N, help, quit.

    ping sends an EXEC, which has no answer. pingt sends a TRACKEXEC, and data a STREAM of 1024
    bytes. The two bulk commands send N of them, ten at a time.
    """
    security = security_of(secret, server=server)
    check_addresses(security, connect=(address,))
    console: Console

    def one_ping() -> int:
        client.call(_PING)
        return 0

    def one_stream() -> int:
        frames = client.call(_STREAM, "STREAM_ID", str(_STREAM_SIZE))
        if len(frames) != 1:
            raise DecodeError(f"STREAM was answered by {counted(len(frames), 'frame')}; expected 1")
        size = unpack_stream(frames[0])
        if size != _STREAM_SIZE:
            raise DecodeError(f"the stream has {size} bytes; expected {_STREAM_SIZE}")
        return size

    def ping() -> tuple[Outcomes, list[str]]:
        """Send an EXEC PING, which has no answer."""
        client.call(_PING, tracked=False)
        return {"sent": 1}, ["sent EXEC PING"]

    def pingt() -> tuple[Outcomes, list[str]]:
        """Send a TRACKEXEC PING, and wait for the answer."""
        begin = time.perf_counter()
        one_ping()
        took = 1000 * (time.perf_counter() - begin)
        return {"ms": round(took, 3)}, [f"TRACKEXEC PING was answered in {took:.1f} ms"]

    def data() -> tuple[Outcomes, list[str]]:
        """Ask for a STREAM of 1024 bytes."""
        size = one_stream()
        return {"bytes": size}, [f"STREAM was answered by {size} bytes"]

    def bulk(name: str, act: Callable[[], int], count: str) -> tuple[Outcomes, list[str]]:
        if not count.isdecimal() or not int(count):
            raise ConfigError(f"the number of messages is {count!r}; expected 1 or more")
        total = int(count)
        done = _many(act, total, lambda n: console.note(f"{name}: {n} of {total}", 0))
        if done < total:
            console.failed = True
        head = f"{'type':8}{'# total':>10}{'# success':>12}"
        row = f"{name:8}{total:>10}{done:>12}"
        return {"type": name, "total": total, "success": done}, [head, row]

    def bulkping(n: str) -> tuple[Outcomes, list[str]]:
        """Send N TRACKEXEC PINGs, ten at a time."""
        return bulk("PING", one_ping, n)

    def bulkdata(n: str) -> tuple[Outcomes, list[str]]:
        """Ask for N STREAMs, ten at a time."""
        return bulk("STREAM", one_stream, n)

    commands: Commands = {
        "ping": ping,
        "pingt": pingt,
        "data": data,
        "bulkping": bulkping,
        "bulkdata": bulkdata,
    }
    console = Console("client", commands, level=level, as_json=as_json)
    client = RoundRobinClient(address, timeout=timeout, security=security)
    with terminated(), client:
        return console.run(script)


def _many(act: Callable[[], int], total: int, report: Callable[[int], None]) -> int:
    """Act many times, at most ten at a time; return how often it succeeded.

    Args:
        act: Sends one message, and waits for its answer.
        total: Number of messages.
        report: Called with the number of ended messages after each tenth of them.
    """
    step = max(1, total // 10)
    done = ended = begun = 0
    under_way: set[Future[int]] = set()
    with ThreadPoolExecutor(_IN_FLIGHT) as executor:
        while ended < total:
            while begun < total and len(under_way) < _IN_FLIGHT:
                under_way.add(executor.submit(act))
                begun += 1
            over, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in over:
                ended += 1
                error = future.exception()
                if error is not None and not isinstance(error, WMPError):
                    raise error
                done += error is None
                if ended % step == 0:
                    report(ended)
    return done
