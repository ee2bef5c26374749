"""The program ``wmp-device``: passes messages on between workers and managers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from wmp import aio
from wmp.cli.common.entry_point import complain
from wmp.cli.common.options import (
    BELOW,
    HOME,
    ProgramCommand,
    ProgramGroup,
    check_addresses,
    keys,
    security_of,
    verbose,
    version,
)
from wmp.cli.common.options import journal as journal_flag
from wmp.message import Limits, counted
from wmp.runtime.node.config import DeviceDefinition, load_devices, meets
from wmp.runtime.node.signals import on_signals

_PROGRAM: Final = "wmp-device"


@click.group(
    name=_PROGRAM,
    cls=ProgramGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
    wmp-device
    wmp-device --bind tcp://127.0.0.1:5571 --connect tcp://127.0.0.1:5570 --connect tcp://h:5570
    wmp-device --bind ipc:///run/wmp/rack.sock --connect tcp://127.0.0.1:5571
    wmp-device --bind-managers tcp://127.0.0.1:5572
    wmp-device run devices/proxy/device.toml
    wmp-device check devices/proxy/device.toml
    """,
)
@click.option(
    "--bind",
    metavar="ENDPOINT",
    multiple=True,
    help=f"Address to which workers connect; default {BELOW}.",
)
@click.option(
    "--connect",
    metavar="ENDPOINT",
    multiple=True,
    help=(
        f"Address of a manager or device to connect to; repeat for each; default {HOME}, and none "
        "with --bind-managers."
    ),
)
@click.option(
    "--bind-managers",
    metavar="ENDPOINT",
    multiple=True,
    help="Address to which managers connect, for example `wmp map --connect ENDPOINT`.",
)
@click.option(
    "--max-managers",
    metavar="N",
    type=click.IntRange(min=1),
    default=Limits.MANAGERS,
    show_default=True,
    help="Number of managers that may be connected to the addresses of --bind-managers.",
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
    "--max-hops",
    metavar="N",
    type=int,
    default=Limits.HOPS,
    show_default=True,
    help="Number of devices that a message may pass.",
)
@keys(connects=True, binds=True, managers=True)
@journal_flag
@verbose
@version
@click.pass_context
def command(
    context: click.Context,
    bind: tuple[str, ...],
    connect: tuple[str, ...],
    bind_managers: tuple[str, ...],
    max_managers: int,
    identity: str | None,
    label: str | None,
    max_hops: int,
    secret: str | None,
    server: str | None,
    allowed: str | None,
    managers: str | None,
    journal: str | None,
) -> int | None:
    """Pass messages on between workers and managers.

    Workers connect to a device as to a manager. The device connects to managers, or managers
    connect to the device (--bind-managers). A device keeps no state of jobs, so it can be
    restarted at any moment. A device can connect to another device. Ctrl-C or SIGTERM ends the
    device.
    """
    if context.invoked_subcommand is not None:
        given = (bind, connect, bind_managers, identity, label)
        if any((*given, secret, server, allowed, managers, journal)):
            raise click.UsageError(
                f"put no option before {context.invoked_subcommand}, also not in the "
                "environment (WMP_DEVICE_…); put the settings into the TOML file",
                context,
            )
        return None
    if not 1 <= max_hops <= Limits.HOPS:
        raise click.UsageError(
            f"--max-hops is {max_hops}; expected a number from 1 to {Limits.HOPS}", context
        )
    bind = bind or (BELOW,)
    if not bind_managers:
        connect = connect or (HOME,)
    security = security_of(secret, server=server, allowed=allowed, managers=managers)
    check_addresses(security, bind=bind, connect=connect)
    check_addresses(security, bind=bind_managers)
    if bind_managers and allowed is not None and managers is None:
        raise click.UsageError(
            "--allowed and --bind-managers need --managers FOLDER, the keys of the managers that "
            "may connect",
            context,
        )
    for endpoint in bind_managers:
        if any(meets(endpoint, own) for own in bind):
            raise click.UsageError(
                f"--bind-managers {endpoint} is the address for workers; give managers an address "
                "of their own",
                context,
            )
    for endpoint in connect:
        if any(meets(endpoint, own) for own in (*bind, *bind_managers)):
            raise click.UsageError(
                f"--connect {endpoint} is the address of this device; expected the address of a "
                "manager or of another device",
                context,
            )
    definition = DeviceDefinition(
        bind=bind,
        connect=connect,
        bind_managers=bind_managers,
        max_managers=max_managers,
        identity=identity,
        label=label,
        max_hops=max_hops,
        security=security,
        journal=None if journal is None else Path(journal),
    )
    return asyncio.run(_serve((definition,)))


@command.command(name="run", cls=ProgramCommand, epilog="wmp-device run devices/chain/device.toml")
@click.argument("file")
@verbose
def _run(file: str) -> int:
    """Run the devices that FILE (TOML) defines, until Ctrl-C or SIGTERM."""
    return asyncio.run(_serve(load_devices(file)))


@command.command(
    name="check", cls=ProgramCommand, epilog="wmp-device check devices/proxy/device.toml"
)
@click.argument("file")
@verbose
def _check(file: str) -> int:
    """Check FILE and print its devices; start nothing."""
    definitions = load_devices(file)
    _make(definitions)
    click.echo(f"{file}: {counted(len(definitions), 'device')}")
    for definition in definitions:
        click.echo(_describe(definition))
    return 0


def _describe(definition: DeviceDefinition) -> str:
    """Return lines that describe a definition."""
    security = definition.security
    if security is None:
        guard = "no keys, so only this machine can connect"
    elif security.allowed is None:
        guard = "CURVE keys; every node that has the public key may connect"
    else:
        listed = counted(len(security.allowed), "listed key")
        guard = f"CURVE keys; only the nodes with {listed} may connect"
    managers = ", ".join(definition.bind_managers)
    if managers:
        managers += f" (at most {counted(definition.max_managers, 'manager')})"
    return "\n".join(
        (
            f"  {_name(definition)}",
            f"    binds to     {', '.join(definition.bind)}",
            f"    connects to  {', '.join(definition.connect) or 'none'}",
            f"    managers at  {managers or 'none'}",
            f"    identity     {definition.identity or 'random at every start'}",
            f"    max hops     {definition.max_hops}",
            f"    security     {guard}",
            f"    journal      {definition.journal or 'none'}",
        )
    )


def _make(definitions: Iterable[DeviceDefinition]) -> list[aio.Device]:
    """Make devices of definitions; nothing is opened yet.

    Raises:
        ConfigError: An endpoint is malformed.
    """
    return [
        aio.Device(
            bind=definition.bind,
            connect=definition.connect,
            bind_managers=definition.bind_managers,
            max_managers=definition.max_managers,
            identity=definition.identity,
            label=definition.label,
            max_hops=definition.max_hops,
            security=definition.security,
            transport=definition.transport,
            journal=definition.journal,
        )
        for definition in definitions
    ]


async def _serve(definitions: Iterable[DeviceDefinition]) -> int:
    """Run devices until a signal comes.

    Raises:
        ConfigError: An endpoint cannot be used.
        WMPError: A device stopped by itself.
    """
    definitions = tuple(definitions)
    stop = asyncio.Event()
    with on_signals(stop.set):
        async with contextlib.AsyncExitStack() as stack:
            tasks: list[asyncio.Task[object]] = [asyncio.create_task(stop.wait())]
            for definition, device in zip(definitions, _make(definitions), strict=True):
                await stack.enter_async_context(device)
                above = [f"connects to {', '.join(definition.connect)}"] * bool(definition.connect)
                if device.manager_endpoints:
                    above.append(f"waits for managers at {', '.join(device.manager_endpoints)}")
                complain(
                    _PROGRAM,
                    f"{_name(definition)} is bound to {', '.join(device.endpoints)} "
                    f"and {' and '.join(above)}",
                )
                # Each device handles signals too: the first device that ends makes all devices end.
                tasks.append(asyncio.create_task(device.run()))
            ended, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
    for task in ended:
        task.result()
    return 0


def _name(definition: DeviceDefinition) -> str:
    return definition.label or definition.identity or "device"
