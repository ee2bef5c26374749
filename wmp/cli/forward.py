"""``wmp forward``: a manager that hands the jobs of other managers to its own workers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import click

from wmp import aio
from wmp.cli.common.entry_point import complain
from wmp.cli.common.options import (
    BELOW,
    HOME,
    ProgramCommand,
    check_addresses,
    keys,
    security_of,
    verbose,
)
from wmp.cli.common.options import journal as journal_flag
from wmp.runtime.node.config import meets
from wmp.runtime.node.signals import on_signals
from wmp.runtime.sockets.security import Security

_PROGRAM: Final = "wmp"


@click.command(
    cls=ProgramCommand,
    name="forward",
    short_help="Hand the jobs of other managers to workers of its own.",
    epilog="""
    wmp forward
    wmp forward --connect tcp://site:5570 --bind tcp://127.0.0.1:5571
    wmp forward --connect tcp://a:5570 --connect tcp://b:5570 --bind ipc:///run/wmp/rack.sock
    """,
)
@click.option(
    "--connect",
    metavar="ENDPOINT",
    multiple=True,
    help=(
        "Address of a manager whose jobs are forwarded, or of a device before it; repeat for "
        f"each; default {HOME}."
    ),
)
@click.option(
    "--bind",
    metavar="ENDPOINT",
    multiple=True,
    help=f"Address to which workers connect; repeat for each; default {BELOW}.",
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
    "--drain-timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0.0),
    default=30.0,
    show_default=True,
    help="Time that jobs in progress have after the first signal; a second signal ends at once.",
)
@keys(connects=True, binds=True)
@journal_flag
@verbose
def forward(
    connect: tuple[str, ...],
    bind: tuple[str, ...],
    identity: str | None,
    label: str | None,
    drain_timeout: float,
    secret: str | None,
    server: str | None,
    allowed: str | None,
    journal: str | None,
) -> int:
    """Hand the jobs of other managers to workers of its own.

    Workers connect to the forwarding manager as to any manager. Towards the managers above, the
    forwarding manager is one worker that offers what its workers offer together. A worker that is
    lost costs a job what it costs without a manager between. Ctrl-C or SIGTERM finishes the jobs
    in progress, hands the others back, and ends.
    """
    bind, connect = bind or (BELOW,), connect or (HOME,)
    security = security_of(secret, server=server, allowed=allowed)
    check_addresses(security, bind=bind, connect=connect)
    for endpoint in connect:
        if any(meets(endpoint, own) for own in bind):
            raise click.UsageError(
                f"--connect {endpoint} is the address of this manager; expected the address of "
                "another manager"
            )
    return asyncio.run(_serve(bind, connect, identity, label, drain_timeout, security, journal))


async def _serve(
    bind: tuple[str, ...],
    connect: tuple[str, ...],
    identity: str | None,
    label: str | None,
    drain_timeout: float,
    security: Security | None,
    journal: str | None,
) -> int:
    """Forward until a signal comes, then drain.

    Raises:
        ConfigError: An endpoint cannot be used.
        WMPError: The manager stopped by itself.
    """
    stop, at_once = asyncio.Event(), asyncio.Event()

    def interrupt() -> None:
        (at_once if stop.is_set() else stop).set()

    manager = aio.Manager(
        *bind,
        forward=connect,
        identity=identity,
        label=label,
        security=security,
        journal=journal,
    )
    with on_signals(interrupt):
        await manager.start()
        try:
            complain(
                _PROGRAM,
                f"bound to {', '.join(manager.endpoints)}; forwarding the jobs of "
                f"{', '.join(connect)}",
            )
            await _first(stop.wait(), manager.wait_ended())
            if drain_timeout:
                complain(_PROGRAM, "draining; a second signal ends at once")
                await _first(at_once.wait(), _drained(manager, drain_timeout))
        finally:
            await manager.close(0.0)
    return 0


async def _drained(manager: aio.Manager, timeout: float) -> None:
    try:
        await manager.drain(timeout)
    except TimeoutError as error:
        complain(_PROGRAM, str(error))


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of several ends, and raise its error."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    ended, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for task in ended:
        task.result()
