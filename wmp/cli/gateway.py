"""``wmp gateway``: clients and workers of other protocols, without their queue or broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import click

from wmp.cli.common.entry_point import SIGNALLED, complain
from wmp.cli.common.options import (
    ProgramCommand,
    ProgramGroup,
    check_addresses,
    security_of,
    verbose,
)
from wmp.cli.common.options import journal as journal_flag
from wmp.cli.common.options import keys as key_flags
from wmp.cli.common.store_flags import store_flags
from wmp.errors import ConfigError, StarConflict
from wmp.gateways.binary_star.aio import BinaryStar
from wmp.gateways.definitions import (
    DRAIN_SECONDS,
    GatewayDefinition,
    StarDefinition,
    TitanicDefinition,
    load_gateway,
)
from wmp.gateways.doors import DOORS
from wmp.gateways.gateway.aio import Gateway
from wmp.gateways.gateway.control import ControlSocket, ask
from wmp.gateways.gateway.door import NO_ADDRESS, Door, DoorFlag
from wmp.gateways.titanic.aio import Titanic
from wmp.gateways.titanic.majordomo_door import NO_BROKER, broker_number
from wmp.message import counted, printable
from wmp.runtime.node.signals import caught, on_signals
from wmp.runtime.sockets.endpoints import check_endpoints
from wmp.runtime.sockets.security import Security

_PROGRAM: Final = "wmp"

_CONFLICT: Final = 3
"""Exit code when both nodes of a Binary Star are active, or both are passive (STAR-2.4)."""

_REMEDY: Final = "add --open to serve peers without keys, or bind to tcp://127.0.0.1:PORT"

_CONTROL: Final = click.option(
    "--control", metavar="PATH", required=True, help="The control socket of the gateway."
)


def _door_flags() -> list[DoorFlag]:
    """Return the flags of all protocols, in the order of the doors."""
    return [flag for kind in DOORS.values() for flag in kind.flags()]


def _parameter(flag: DoorFlag) -> str:
    """Return the name of a flag as an argument of the command."""
    return flag.name.removeprefix("--").replace("-", "_")


def _door_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags of all protocols."""
    for flag in reversed(_door_flags()):
        option = click.option(
            flag.name,
            _parameter(flag),
            metavar=" ".join(flag.metavars),
            nargs=len(flag.metavars),
            multiple=True,
            help=flag.help,
        )
        command = option(command)
    return command


@click.group(
    short_help="Serve clients and workers of other protocols.",
    name="gateway",
    cls=ProgramGroup,
    invoke_without_command=True,
    epilog="""
    wmp gateway --simple-pirate tcp://127.0.0.1:5555 tcp://127.0.0.1:5556
    wmp gateway --ping-pong tcp://127.0.0.1:5555 tcp://127.0.0.1:5556 --control gate.control
    wmp gateway --majordomo tcp://127.0.0.1:5555 --bind tcp://127.0.0.1:5570
    wmp gateway --paranoid-pirate - tcp://127.0.0.1:5556 --connect tcp://127.0.0.1:5570
    wmp gateway --simple-pirate tcp://127.0.0.1:5555 - --bind tcp://127.0.0.1:5570
    wmp gateway --round-robin tcp://127.0.0.1:6714
    wmp gateway --simple-pirate tcp://127.0.0.1:5001 - --bind tcp://127.0.0.1:5570 \\
      --star primary --local tcp://127.0.0.1:5003 --remote tcp://127.0.0.1:5004 \\
      --star-key star.key
    wmp gateway --config gateways/paranoid-pirate/gateway.toml
    wmp gateway kill 006b8b4567 --control gate.control
    """,
)
@click.option("--config", metavar="FILE", help="A TOML file with all settings of the gateway.")
@_door_options
@click.option(
    "--bind",
    metavar="ENDPOINT",
    multiple=True,
    help="Address for WMP workers, which then do requests of the clients, too.",
)
@click.option(
    "--connect",
    metavar="ENDPOINT",
    multiple=True,
    help="Address of a manager or device whose jobs the workers of this gateway do.",
)
@click.option(
    "--star",
    type=click.Choice(["primary", "backup"]),
    help="Be one of two gateways, one of which serves the clients (Binary Star).",
)
@click.option(
    "--local", metavar="ENDPOINT", help="With --star: address for the state of this gateway."
)
@click.option(
    "--remote", metavar="ENDPOINT", help="With --star: the --local address of the other gateway."
)
@click.option(
    "--star-key",
    metavar="FILE",
    help=(
        "With --star: file with a secret that both gateways share, so that each believes what the "
        "other one reports."
    ),
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
    "--open",
    "opened",
    is_flag=True,
    help="Open the addresses of the other protocol to the network without keys.",
)
@click.option(
    "--titanic",
    metavar="FILE",
    help="Store of Titanic (9/TSP), whose requests to the Majordomo broker outlive all programs.",
)
@store_flags
@click.option(
    "--control", metavar="PATH", help="Make a Unix socket for `wmp gateway kill` and `workers`."
)
@click.option(
    "--drain-timeout",
    metavar="SECONDS",
    type=float,
    default=DRAIN_SECONDS,
    show_default=True,
    help="Time to finish requests in progress after the first SIGTERM or Ctrl-C; 0: no limit.",
)
@key_flags(connects=True, binds=True)
@journal_flag
@verbose
@click.pass_context
def gateway(
    context: click.Context,
    /,
    config: str | None,
    bind: tuple[str, ...],
    connect: tuple[str, ...],
    star: str | None,
    local: str | None,
    remote: str | None,
    star_key: str | None,
    identity: str | None,
    label: str | None,
    opened: bool,
    titanic: str | None,
    reserve: int | None,
    group: str | None,
    control: str | None,
    drain_timeout: float,
    secret: str | None,
    server: str | None,
    allowed: str | None,
    journal: str | None,
    **given: tuple[Any, ...],
) -> int | None:
    """Serve clients and workers of other protocols, in the place of their queue or broker.

    The other programs change nothing. Requests of clients are jobs of a manager inside the
    gateway. Workers of the other protocol do them, and with --bind also WMP workers. With
    --connect the workers of the other protocol do jobs of other managers. Ctrl-C or SIGTERM:
    take no further request, answer those in progress, then exit with 0. Of two gateways
    with --star one serves the clients. Exit code 2: both have the same role. Exit code 3: both
    were active, or both passive.
    """
    if context.invoked_subcommand is not None:
        return None
    flags = (
        *(*given.values(), bind, connect, star, local, remote, star_key),
        *(identity, label, titanic, control),
    )
    if config is not None:
        if any((*flags, opened, secret, server, allowed, journal, group)) or reserve is not None:
            raise click.UsageError(
                "--config excludes every other option; put the settings into the TOML file",
                context,
            )
        return asyncio.run(_serve(load_gateway(config)))
    security = security_of(secret, server=server, allowed=allowed)
    check_addresses(security, bind=bind, connect=connect)
    doors: list[Door] = []
    for flag in _door_flags():
        for value in given[_parameter(flag)]:
            doors += _doors(flag, value, len(doors), opened=opened)
    if not doors:
        names = ", ".join(flag.name for flag in _door_flags())
        raise click.UsageError(f"the gateway has no door; expected {names} or --config", context)
    if titanic is not None and broker_number(doors) is None:
        raise click.UsageError(f"--titanic needs {NO_BROKER}; add --majordomo", context)
    if titanic is None and (reserve is not None or group is not None):
        raise click.UsageError(
            "--reserve and --group are about the store of --titanic; add --titanic", context
        )
    definition = GatewayDefinition(
        doors=tuple(doors),
        bind=bind,
        connect=connect,
        identity=identity,
        label=label,
        star=_star(star, local, remote, star_key, security, context, opened=opened),
        security=security,
        journal=None if journal is None else Path(journal),
        control=None if control is None else Path(control),
        titanic=None
        if titanic is None
        else TitanicDefinition(store=Path(titanic), reserve=reserve, group=group),
        drain_timeout=drain_timeout,
    )
    return asyncio.run(_serve(definition))


def _doors(
    flag: DoorFlag, value: str | tuple[str, ...], count: int, *, opened: bool
) -> Sequence[Door]:
    """Return the doors of one use of a flag.

    Args:
        flag: The flag.
        value: Its address, or its addresses.
        count: Number of the doors before these.
        opened: Whether the doors may be open to the network without keys.

    Raises:
        ConfigError: An address is malformed, or open to the network.
    """
    addresses = (value,) if isinstance(value, str) else value
    bound = [address for address in addresses if address != NO_ADDRESS]
    check_endpoints(bound, bind=True, security=None, shared=False, open=opened, remedy=_REMEDY)
    return flag.make(addresses, count, opened)


def _star(
    role: str | None,
    local: str | None,
    remote: str | None,
    key: str | None,
    security: Security | None,
    context: click.Context,
    *,
    opened: bool,
) -> StarDefinition | None:
    """Return the node of a Binary Star; None without ``--star``.

    Raises:
        ConfigError: An address is malformed, or open to the network.
    """
    if role is None:
        if (local, remote, key) != (None, None, None):
            raise click.UsageError(
                "--local, --remote and --star-key belong to --star; add --star", context
            )
        return None
    if local is None or remote is None:
        raise click.UsageError(
            "--star needs the addresses for the states of both gateways; add --local and --remote",
            context,
        )
    check_endpoints(
        [local], bind=True, security=security, shared=False, open=opened, remedy=_REMEDY
    )
    check_endpoints([remote], bind=False, security=security)
    path = None if key is None else Path(key)
    return StarDefinition(role=role, local=local, remote=remote, key=path)


@gateway.command(
    name="check",
    cls=ProgramCommand,
    epilog="wmp gateway check gateways/paranoid-pirate/gateway.toml",
)
@click.argument("file")
@verbose
def _check(file: str) -> int:
    """Check FILE and print its doors; start nothing."""
    definition = load_gateway(file)
    _make(definition)
    click.echo(f"{file}: {counted(len(definition.doors), 'door')}")
    click.echo(_describe(definition))
    return 0


@gateway.command(
    name="workers", cls=ProgramCommand, epilog="wmp gateway workers --control gate.control"
)
@_CONTROL
def _workers(control: str) -> int:
    """Print the workers of the other protocols: id, group and state."""
    for row in ask(control, {"do": "workers"})["workers"]:
        click.echo(printable(f"{row['id']}  {row['group']}  {row['state']}"))
    return 0


@gateway.command(
    name="kill", cls=ProgramCommand, epilog="wmp gateway kill 006b8b4567 --control gate.control"
)
@click.argument("id")
@_CONTROL
def _kill(id: str, control: str) -> int:
    """Send EXIT to the ping-pong worker ID, which then ends. `workers` lists the ids."""
    try:
        bytes.fromhex(id)
    except ValueError as error:
        raise ConfigError(
            f"the id is {id!r}; expected hex digits as `wmp gateway workers` prints them"
        ) from error
    ask(control, {"do": "kill", "id": id})
    return 0


def _describe(definition: GatewayDefinition) -> str:
    """Return lines that describe a definition."""
    lines = []
    for door in definition.doors:
        where = ", ".join(door.bind)
        guard = "keys" if door.keys else "open, no keys" if door.open else "local, no keys"
        lines.append(f"  {door.side:7}  {door.protocol:15}  {where}  {door.describe()}  {guard}")
    lines += [
        f"  binds to     {', '.join(definition.bind) or 'nothing for WMP workers'}",
        f"  connects to  {', '.join(definition.connect) or 'no manager'}",
        f"  titanic      {_titanic_in_words(definition.titanic)}",
        f"  star         {_star_in_words(definition.star)}",
        f"  control      {definition.control or 'none'}",
        f"  journal      {definition.journal or 'none'}",
    ]
    return "\n".join(lines)


def _titanic_in_words(titanic: TitanicDefinition | None) -> str:
    if titanic is None:
        return "none"
    words = [str(titanic.store)]
    if titanic.reserve is not None:
        words.append(f"reserve {titanic.reserve} bytes")
    if titanic.group is not None:
        words.append(f"group {titanic.group}")
    return ", ".join(words)


def _star_in_words(star: StarDefinition | None) -> str:
    return "none" if star is None else f"{star.role}, {star.local} beside {star.remote}"


def _make(definition: GatewayDefinition) -> Gateway:
    """Make a gateway; nothing is opened yet.

    Raises:
        ConfigError: The doors do not fit together.
    """
    star = None
    if definition.star is not None:
        star = BinaryStar(**attrs.asdict(definition.star), security=definition.security)
    return Gateway(
        *definition.doors,
        star=star,
        bind=definition.bind,
        connect=definition.connect,
        identity=definition.identity,
        label=definition.label,
        security=definition.security,
        transport=definition.transport,
        journal=definition.journal,
    )


async def _serve(definition: GatewayDefinition) -> int:
    """Run a gateway until a signal comes; return the exit code.

    Raises:
        ConfigError: An address cannot be used.
        WMPError: The gateway stopped by itself.
    """
    gateway = _make(definition)
    late = False
    async with contextlib.AsyncExitStack() as stack:
        # A signal may come before ``run`` begins to wait.
        stack.enter_context(on_signals(gateway.interrupt))
        await gateway.start()
        stack.push_async_callback(gateway.close, 0.0)
        if definition.titanic is not None:
            broker = broker_number(definition.doors)
            assert broker is not None  # the definition was checked
            store = await asyncio.to_thread(definition.titanic.opener())
            titanic = Titanic(
                gateway.doors[broker][0],
                store=store,
                limits=definition.titanic.limits,
                journal=definition.journal,
            )
            await stack.enter_async_context(titanic)
            # The requests of Titanic stay in its store, so the gateway need not wait for them.
            # Titanic is a client of a door that serves already, so it comes after the gateway.
            gateway.before_drain = titanic.close
            complain(_PROGRAM, f"titanic keeps requests in {definition.titanic.store}")
        if definition.control is not None:
            await stack.enter_async_context(ControlSocket(definition.control, gateway))
        for door, bound in zip(definition.doors, gateway.doors, strict=True):
            side = "clients and workers" if door.side == "both" else door.side
            complain(_PROGRAM, f"{side} of {door.protocol} connect to {', '.join(bound)}")
        if definition.bind:
            complain(_PROGRAM, f"WMP workers connect to {', '.join(gateway.endpoints)}")
        try:
            await gateway.run(definition.drain_timeout or None)
        except TimeoutError:
            late = True  # a log line has named the cause
        except StarConflict as error:
            complain(_PROGRAM, str(error))
            return _CONFLICT
    if late or len(caught) > 1:
        return SIGNALLED + caught[-1]
    return 0
