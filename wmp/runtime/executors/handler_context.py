"""Context variables of handlers: each job runs in a fresh copy of the context of its lane.

A variable that one job sets is therefore not seen by the next job, whichever thread or task runs
both. Every job sees the values that an initializer or the start of the worker has set.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Coroutine, Generator
from contextvars import Context
from typing import Any


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@types.coroutine
def await_in(context: Context, awaitable: Awaitable[Any]) -> Generator[Any, Any, Any]:
    """Await the result of an async handler, with each of its steps in ``context``.

    The handler stays in the current task: a task of its own would cost more than a short handler.

    Args:
        context: The job's own copy.
        awaitable: The coroutine of the handler, or what the handler returned in place of one.

    Raises:
        RuntimeError: The handler raised GeneratorExit, which would look like the end of the task.
        BaseException: Any other error of the handler.
    """
    coroutine: Coroutine[Any, Any, Any] = (
        awaitable if isinstance(awaitable, types.CoroutineType) else _awaited(awaitable)
    )
    step: Any = coroutine.send
    value: Any = None
    while True:
        try:
            waits_for = context.run(step, value)
        except StopIteration as end:
            return end.value
        except GeneratorExit as error:
            raise RuntimeError("the handler raised GeneratorExit") from error
        try:
            step, value = coroutine.send, (yield waits_for)
        except GeneratorExit:
            context.run(coroutine.close)  # the loop has ended, and ends its coroutines
            raise
        except BaseException as error:  # noqa: BLE001 - the handler gets every error
            step, value = coroutine.throw, error
