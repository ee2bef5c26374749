"""The flags with which ``wmp worker`` is an HTTP worker of dispatchers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import frozen

from wmp import aio
from wmp.calls.handlers import ModuleCalls, PickledCalls
from wmp.calls.task import Task
from wmp.cli.common.entry_point import complain
from wmp.cli.common.flag_sources import given_by
from wmp.cli.dispatcher import check_extra
from wmp.errors import ConfigError
from wmp.runtime.executors.handlers import Handler

_PROGRAM: Final = "wmp"

_F = TypeVar("_F", bound=Callable[..., Any])


@frozen
class HttpListener:
    """The address at which an HTTP worker serves, and its dispatchers."""

    dispatchers: tuple[str, ...]
    http: str
    hostname: str | None
    allow_hosts: tuple[str, ...]
    token_file: Path | None


def http_flags(function: _F) -> _F:
    """Add the flags of HTTP workers."""
    for option in (
        click.option(
            "--token-file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="With --dispatcher: file with the bearer token of this worker at the dispatchers.",
        ),
        click.option(
            "--allow-host",
            metavar="HOST",
            multiple=True,
            help=(
                "With --dispatcher: further name or address by which dispatchers reach this "
                "worker, besides loopback, --http and --hostname; repeat for each."
            ),
        ),
        click.option(
            "--hostname",
            metavar="NAME",
            help="With --dispatcher: name of this host for dispatchers; default: --http.",
        ),
        click.option(
            "--http",
            metavar="HOST:PORT",
            default="127.0.0.1:8082",
            show_default=True,
            help="With --dispatcher: address of this worker's HTTP server; port 0: any.",
        ),
        click.option(
            "--dispatcher",
            metavar="URL",
            multiple=True,
            help="Do jobs of this dispatcher over HTTP (wmp dispatcher); repeat for each.",
        ),
    ):
        function = option(function)
    return function


def refuse_flags(context: click.Context, names: Iterable[str]) -> None:
    """Refuse flags that have no effect with ``--dispatcher``."""
    for name in names:
        source = given_by(context, name)
        if source is not None:
            raise click.UsageError(
                f"--{name} has no effect with --dispatcher; leave out --{name} of {source}", context
            )


def refuse_calls(handlers: Mapping[str, Handler]) -> None:
    """Refuse handlers whose payloads no dispatcher has: they would fail every job.

    Raises:
        ConfigError: A handler is a task or serves calls of functions.
    """
    for role, handler in handlers.items():
        if isinstance(getattr(handler, "__self__", handler), Task | ModuleCalls | PickledCalls):
            raise ConfigError(
                f"the role {role!r} takes the arguments of a function as its payload, which jobs "
                "of a dispatcher do not have; with --dispatcher name functions of one argument, "
                "PACKAGE.MODULE:ATTRIBUTE"
            )


def refuse_without_dispatcher(context: click.Context) -> None:
    """Refuse flags that need ``--dispatcher``."""
    for name in ("http", "hostname", "allow_host", "token_file"):
        source = given_by(context, name)
        if source is not None:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} of {source} needs --dispatcher URL", context)


def serve_over_http(address: HttpListener, settings: dict[str, Any], drain_timeout: float) -> int:
    """Serve as an HTTP worker; return the exit code.

    Args:
        address: See the class.
        settings: Arguments of the local worker.
        drain_timeout: Seconds to finish jobs after the first signal; 0 for no limit.
    """
    check_extra()
    from wmp.dispatcher.serving import serve_worker
    from wmp.dispatcher.tokens import read_token

    def make_worker(endpoint: str, context: Any) -> aio.Worker:
        return aio.Worker(endpoint, context=context, **settings)

    return asyncio.run(
        serve_worker(
            address.dispatchers,
            address.http,
            make_worker,
            tuple(settings["handlers"]),
            settings["slots"],
            hostname=address.hostname,
            allow_hosts=address.allow_hosts,
            token=read_token(address.token_file),
            drain_timeout=drain_timeout or None,
            report=functools.partial(complain, _PROGRAM),
        )
    )
