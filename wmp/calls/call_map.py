"""The ``map`` of an executor: its arguments in chunks, and its results in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from wmp.calls.call import Call


def columns_of(iterables: Sequence[Iterable[Any]], size: int) -> Iterator[list[list[Any]]]:
    """Yield the arguments of chunks of calls: a list of first arguments, of second, and so on.

    Args:
        iterables: Their items are the arguments. The shortest iterable ends the last chunk.
        size: Number of calls in a chunk.
    """
    rows = zip(*iterables, strict=False)
    whole = iter(iterables[0]) if len(iterables) == 1 else None
    while True:
        if whole is not None:
            columns = [list(islice(whole, size))]
        else:
            columns = list(map(list, zip(*islice(rows, size), strict=True)))
        if not columns or not columns[0]:
            return
        yield columns


def results_of(
    waiting: deque[Call[Any]],
    calls: Iterator[Call[Any]],
    until: float | None,
    cancel: Callable[[Iterable[Call[Any]]], object],
) -> Iterator[Any]:
    """Yield the results of calls in order. If the caller stops, cancel the calls that wait.

    Args:
        waiting: Calls that are submitted.
        calls: Further calls. Each step submits a call.
        until: Time of the clock ``monotonic`` after which a wait raises TimeoutError.
        cancel: Cancels calls that no worker has.
    """
    try:
        while waiting:
            call = waiting.popleft()
            waiting.extend(islice(calls, 1))
            try:
                left = None if until is None else until - time.monotonic()
                results = call.results(left)
            except BaseException:
                waiting.append(call)
                raise
            yield from results
    finally:
        cancel(waiting)
