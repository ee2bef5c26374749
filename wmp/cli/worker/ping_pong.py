"""The flag with which ``wmp worker`` is a worker of a ping-pong broker (specs/ping-pong.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final, TypeVar

import click

from wmp import aio, blocking
from wmp.calls.target import load_target
from wmp.calls.task import Task
from wmp.cli.common.entry_point import SIGNALLED
from wmp.cli.common.flag_sources import given_by
from wmp.cli.common.options import check_addresses, security_of
from wmp.errors import ConfigError
from wmp.gateways.ping_pong.aio import PingPongWorker
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.executors.job_log import log_handlers
from wmp.runtime.node.command import CommandHandler
from wmp.runtime.node.signals import caught

_EFFECTIVE: Final = frozenset(("ping_pong", "target", "pool", "drain_timeout", "secret", "server"))
"""The parameters of ``wmp worker`` that have an effect with ``--ping-pong``."""

_F = TypeVar("_F", bound=Callable[..., Any])


def ping_pong_flag(function: _F) -> _F:
    """Add the flag."""
    option = click.option(
        "--ping-pong",
        metavar="ENDPOINT",
        help=(
            "Do jobs of the ping-pong broker at this address, or of the BACK address of `wmp "
            "gateway --ping-pong`, one at a time; the worker connects to no manager."
        ),
    )
    return option(function)


class _BoundedWorker(PingPongWorker):
    """A worker that stops some time after the first signal."""

    drain_timeout: float = 0.0
    """Seconds to finish the job after the first signal; 0 for no limit."""
    stopped: bool = False
    """Whether the worker was stopped before it had finished its job."""
    _interrupted: bool = False

    def interrupt(self) -> None:
        self.stopped, self._interrupted = self._interrupted, True
        super().interrupt()
        if not self.stopped and self.drain_timeout:
            asyncio.get_running_loop().call_later(self.drain_timeout, self.interrupt)


def serve_ping_pong(
    context: click.Context,
    endpoint: str,
    argv: list[str] | None,
    *,
    pool: str,
    drain_timeout: float,
) -> int:
    """Serve until a signal comes, or the broker sends EXIT; return the exit code.

    Args:
        context: The context of the command, with all its parameters.
        endpoint: Address of the broker's backend.
        argv: The command line of a COMMAND; None for a function.
        pool: Where a function runs.
        drain_timeout: Seconds to finish the job after the first signal; 0 for no limit.

    Raises:
        UsageError: A flag has no effect with ``--ping-pong``.
        ConfigError: The address, the keys or the handler cannot be used.
    """
    for name in context.params:
        source = None if name in _EFFECTIVE else given_by(context, name)
        if source is not None:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{flag} has no effect with --ping-pong; leave out {flag} of {source}", context
            )
    security = security_of(context.params["secret"], server=context.params["server"])
    check_addresses(security, connect=(endpoint,))
    handler: Handler = CommandHandler(argv) if argv is not None else _function(context)
    log_handlers(logging.INFO)
    worker = _BoundedWorker(endpoint, handler, pool=pool, security=security)
    worker.drain_timeout = drain_timeout
    asyncio.run(worker.run())
    return SIGNALLED + caught[-1] if worker.stopped and caught else 0


def _function(context: click.Context) -> Handler:
    """Import the function of the target. A mapping with one function counts as this function.

    Raises:
        ConfigError: The target is not a function of one body.
    """
    target = context.params["target"]
    value = load_target(target)
    if isinstance(value, Mapping) and len(value) == 1:
        (value,) = value.values()
    others = (Mapping, ModuleType, Task, blocking.Worker, aio.Worker)
    if isinstance(value, others) or not callable(value):
        raise ConfigError(
            f"{target} is of type {type(value).__name__}; a ping-pong worker has one handler, so "
            "name a function of one body, PACKAGE.MODULE:FUNCTION, or -- COMMAND"
        )
    handler: Handler = value
    return handler
