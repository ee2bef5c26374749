"""Which handlers a worker of a dispatcher can serve."""

from __future__ import annotations

import pytest

import wmp
from wmp.calls.served import handlers_of
from wmp.cli.worker.http_listener import refuse_calls
from wmp.errors import ConfigError
from wmp.runtime.executors.handlers import Handler
from wmp.runtime.node.command import CommandHandler


@wmp.task
def resize(width: int) -> int:
    return width


@pytest.mark.parametrize(
    ("handlers", "role"),
    [
        ({"resize": resize.handler}, "resize"),
        (handlers_of("base64", functions=True), "call:base64"),
        (handlers_of(pickle=True), "pickled-call:"),
    ],
)
def test_handlers_that_would_fail_every_job_of_a_dispatcher_are_refused(
    handlers: dict[str, Handler], role: str
) -> None:
    with pytest.raises(ConfigError, match=f"the role '{role}.*takes the arguments of a function"):
        refuse_calls(handlers)


def test_functions_and_commands_serve_dispatchers() -> None:
    refuse_calls({"upper": str.upper, "cat": CommandHandler(["cat"])})
