"""A manager and a worker on real sockets of loopback, and a handler that waits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import wmp
import wmp.aio
from tests.waiting import WAIT

"""Seconds after which a wait has failed."""


@contextlib.contextmanager
def pair(
    handlers: Any = bytes.upper, *, slots: int = 1, pool: str = "thread", **manager: Any
) -> Iterator[wmp.Manager]:
    """A manager and a worker; the manager knows the worker."""
    with (
        wmp.Manager(**manager) as first,
        wmp.Worker(*first.endpoints, handlers=handlers, slots=slots, pool=pool),
    ):
        first.wait_for_workers(timeout=WAIT)
        yield first


@contextlib.asynccontextmanager
async def async_pair(
    handlers: Any = bytes.upper, *, slots: int = 1, **manager: Any
) -> AsyncIterator[wmp.aio.Manager]:
    """The same with the asyncio API."""
    async with (
        wmp.aio.Manager(**manager) as first,
        wmp.aio.Worker(*first.endpoints, handlers=handlers, slots=slots),
    ):
        yield first


def counted(count: int, pulled: list[int]) -> Iterator[bytes]:
    for number in range(count):
        pulled.append(number)
        yield str(number).encode()


class Gate:
    """A handler that reports its start and ends when the test sets an event."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()
        self.calls = 0

    def __call__(self, payload: bytes) -> bytes:
        self.calls += 1
        self.begun.release()
        assert self.go.wait(WAIT)
        return payload

    def wait_begun(self) -> None:
        assert self.begun.acquire(timeout=WAIT)
