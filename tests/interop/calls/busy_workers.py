"""Worker processes of an executor that are busy for as long as a test needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import wmp
from tests.interop.calls import call_functions as functions
from tests.waiting import wait_until


@contextlib.contextmanager
def busy(executor: wmp.Executor, path: Path, calls: int = 2) -> Iterator[list[wmp.Job]]:
    """Keep worker processes busy until the block ends."""
    calls_made = [executor.submit(functions.wait_for, str(path)) for _ in range(calls)]
    wait_until(lambda: len(list(path.parent.glob(f"{path.name}.*"))) == calls)
    try:
        yield calls_made
    finally:
        path.touch()
