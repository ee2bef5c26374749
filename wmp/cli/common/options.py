"""Options that several programs share, and the settings made from them."""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

import wmp
from wmp.cli.common.flag_sources import FlagSources
from wmp.errors import ConfigError
from wmp.runtime.executors.job_log import LOG_FORMAT, TIME, JsonFormatter, logs_json
from wmp.runtime.node.config import EVERY_INTERFACE
from wmp.runtime.sockets.endpoints import check_endpoints
from wmp.runtime.sockets.security import Security

HOME: Final = "tcp://127.0.0.1:5570"
"""Default address at which managers bind and to which workers connect."""

BELOW: Final = "tcp://127.0.0.1:5571"
"""Default address at which devices bind."""

VERBOSE: Final = "wmp.verbose"
"""Key of a click context's ``meta``: whether ``--verbose`` was given."""

_REMEDY: Final = (
    "make keys with `wmp keys NAME` and add --secret NAME.key_secret, "
    "or bind to tcp://127.0.0.1:PORT"
)

_F = TypeVar("_F", bound=Callable[..., Any])


class ProgramCommand(FlagSources):
    """A command whose help keeps the lines of its examples as they are."""

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, one on a line."""
        _write_examples(self.epilog, formatter)


class ProgramGroup(FlagSources, click.Group):
    """A group of commands whose help has examples like that of a command.

    Args:
        homes: The module and the name, ``module:name``, of each command that is imported when it is
            used. A program must not wait for the imports of commands that it does not run.
    """

    def __init__(self, *arguments: Any, homes: Mapping[str, str] | None = None, **options: Any):
        super().__init__(*arguments, **options)
        self._homes = {} if homes is None else homes

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands, imported or not."""
        return sorted({*super().list_commands(context), *self._homes})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a command, and import it before if need be."""
        if name in self._homes and name not in self.commands:
            module, _, attribute = self._homes[name].partition(":")
            self.add_command(getattr(importlib.import_module(module), attribute), name)
        return super().get_command(context, name)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, one on a line."""
        _write_examples(self.epilog, formatter)


def _write_examples(epilog: str | None, formatter: click.HelpFormatter) -> None:
    """Write an epilog as a section of examples."""
    if epilog:
        with formatter.section("Examples"):
            for line in epilog.strip().splitlines():
                formatter.write(f"{'':>{formatter.current_indent}}{line.strip()}\n")


def version(function: _F) -> _F:
    """Add ``--version``."""

    def show(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            click.echo(f"wmp {wmp.__version__}")
            context.exit()

    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the version, and exit.",
    )(function)


def verbose(function: _F) -> _F:
    """Add ``--verbose`` and ``--log-format``: the library's log lines go to stderr."""

    def listen(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        root = context.find_root()
        # A subcommand may have this option as well. It is enough to give it once.
        root.meta[VERBOSE] = value or root.meta.get(VERBOSE, False)
        log_to_stderr(
            root.info_name or "wmp", logging.DEBUG if root.meta[VERBOSE] else logging.INFO
        )

    function = click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=listen,
        help="Log all events to stderr, including ignored messages.",
    )(function)

    def choose(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None and not context.resilient_parsing:
            os.environ[LOG_FORMAT] = value

    # Eager, because ``listen`` reads the layout.
    return click.option(
        "--log-format",
        type=click.Choice(("text", "json")),
        is_eager=True,
        expose_value=False,
        callback=choose,
        help="Layout of lines on stderr: text (default), or json for one object on a line.",
    )(function)


def log_to_stderr(program: str, level: int) -> None:
    """Write the library's log lines to stderr as lines of the program."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter(f"%(asctime)s {program}: %(message)s", TIME)
    handler.setFormatter(JsonFormatter() if logs_json() else text)
    logger = logging.getLogger("wmp")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level)


def journal(function: _F) -> _F:
    """Add ``--journal``."""
    return click.option(
        "--journal",
        metavar="DIR",
        help="Record all messages and decisions in DIR, for `wmp journal` and `wmp report`.",
    )(function)


def keys(*, connects: bool, binds: bool, managers: bool = False) -> Callable[[_F], _F]:
    """Add the flags that name CURVE keys: ``secret``, ``server``, ``allowed``, ``managers``."""

    def decorate(function: _F) -> _F:
        if managers:
            function = click.option(
                "--managers",
                metavar="FOLDER",
                help="Public keys (.key files) of the managers that may connect to this node.",
            )(function)
        if binds:
            function = click.option(
                "--allowed",
                metavar="FOLDER",
                help=(
                    "Public keys (.key files) of the nodes that may connect; default: every node "
                    "that has the public key of this node."
                ),
            )(function)
        if connects:
            function = click.option(
                "--server",
                metavar="FILE",
                help="Public CURVE key (.key file) of the node to connect to.",
            )(function)
        return click.option(
            "--secret",
            metavar="FILE",
            help="CURVE keys of this node: a .key_secret file that `wmp keys` made.",
        )(function)

    return decorate


def security_of(
    secret: str | None,
    *,
    server: str | None = None,
    allowed: str | None = None,
    managers: str | None = None,
) -> Security | None:
    """Read the keys that options name; None when no option names a key.

    Raises:
        ConfigError: A file is not a key, or an option lacks another option that it needs.
    """
    if secret is None:
        flags = {"--server": server, "--allowed": allowed, "--managers": managers}
        for flag, value in flags.items():
            if value is not None:
                raise ConfigError(
                    f"{flag} needs --secret FILE, the keys of this node; make them with `wmp keys "
                    "NAME`"
                )
        return None
    return Security.load(secret, server=server, allowed=allowed, managers=managers)


def check_addresses(
    security: Security | None, *, bind: tuple[str, ...] = (), connect: tuple[str, ...] = ()
) -> None:
    """Check the addresses of the flags ``--bind`` and ``--connect``; errors name the flags.

    Raises:
        ConfigError: An address is malformed, or the keys for it are missing.
    """
    check_endpoints(bind, bind=True, security=security, shared=False, remedy=_REMEDY)
    check_endpoints(connect, bind=False, security=security, shared=False)
    if connect and security is not None and security.server_key is None:
        raise ConfigError(
            f"--secret needs --server FILE: the .key file of the node at {connect[0]}"
        )


def reachable(endpoint: str) -> str:
    """Return the address to which peers connect, for an address that is bound.

    No peer can connect to an address that stands for every interface, so this host's name takes its
    place.
    """
    scheme, _, rest = endpoint.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme == "tcp" and host in EVERY_INTERFACE:
        return f"tcp://{socket.gethostname()}:{port}"
    return endpoint


def amounts(flag: str, pairs: tuple[str, ...]) -> dict[str, int]:
    """Turn repeated ``NAME=AMOUNT`` into a mapping.

    Raises:
        ConfigError: An item has another form.
    """
    resources: dict[str, int] = {}
    for pair in pairs:
        name, separator, amount = pair.partition("=")
        if not name or not separator or not (amount.isascii() and amount.isdecimal()):
            raise ConfigError(f"{flag} is {pair!r}; expected NAME=AMOUNT, for example gpu=2")
        if name in resources:
            raise ConfigError(f"{flag} gives {name!r} twice; name each resource once")
        resources[name] = int(amount)
    return resources
