"""Plays the cases of a module's tests at the same time: a case mostly waits for timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from wmp.conformance import CaseResult

AT_ONCE = 4

Play = Callable[..., CaseResult]


@contextmanager
def played(request: pytest.FixtureRequest, play: Play, *names: str) -> Iterator[Play]:
    """Start all plays that the tests of a module need, if their parameters are just these.

    Yield a function that returns the result of one play, or raises the error of ``play``.
    """
    params = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
    ]
    wanted = [
        tuple(values[name] for name in names) for values in params if set(values) == set(names)
    ]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        begun = {values: threads.submit(play, *values) for values in dict.fromkeys(wanted)}
        try:
            yield lambda *values: begun[values].result()
        finally:
            threads.shutdown(cancel_futures=True)
