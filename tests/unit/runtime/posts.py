"""Helpers of the tests of pools: a collector of events, a maker of lanes, and handlers.

Handlers are functions at the top of a module, so that worker processes find them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.waiting import WAIT
from wmp.actions import Run
from wmp.codec import unpack_error
from wmp.errors import JobCancelled
from wmp.events import Finished, Recalled, Reported
from wmp.message import Kind, Outcome
from wmp.runtime.executors import Pool
from wmp.runtime.executors.handlers import RunningJob

OK, ERROR, CANCELLED, LOST = Outcome.OK, Outcome.ERROR, Outcome.CANCELLED, Outcome.LOST

Opener = Callable[..., Pool]


class Posts:
    """Takes a pool's events in place of the driver, and checks what must hold for all events."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.events: list[Any] = []
        self.ended: dict[tuple[int, int], tuple[Outcome, bytes]] = {}
        self.recalled: list[tuple[int, list[int]]] = []
        self.reports: list[Reported] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, event: Any) -> None:
        self.threads.add(threading.current_thread())
        self.queue.put(event)

    def next(self, timeout: float = WAIT) -> Any:
        event = self.queue.get(timeout=timeout)
        self.events.append(event)
        if isinstance(event, Finished):
            assert len(event.ids) == len(event.outcomes) == len(event.payloads) > 0
            for id, outcome, payload in zip(event.ids, event.outcomes, event.payloads, strict=True):
                assert (event.lane, id) not in self.ended, f"job {id} ended twice"
                self.ended[event.lane, id] = (outcome, bytes(payload))
        elif isinstance(event, Recalled):
            self.recalled.append((event.lane, list(event.ids)))
        else:
            self.reports.append(event)
        return event

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.next()

    def results(self, lane: int, ids: Sequence[int]) -> list[tuple[Outcome, bytes]]:
        self.until(lambda: all((lane, id) in self.ended for id in ids))
        return [self.ended[lane, id] for id in ids]

    def error(self, lane: int, id: int) -> tuple[str, str, str]:
        outcome, payload = self.results(lane, [id])[0]
        assert outcome is ERROR
        return unpack_error(payload)

    def cause(self, lane: int, id: int) -> str:
        outcome, payload = self.results(lane, [id])[0]
        assert outcome is LOST
        return payload.decode()

    def report(self) -> Reported:
        self.until(lambda: bool(self.reports))
        return self.reports.pop(0)

    def silent(self) -> bool:
        return self.queue.empty()


def run(
    number: int,
    payloads: Sequence[bytes | memoryview],
    role: str = "default",
    *,
    codec: str = "",
    deadlines: Sequence[float | None] | None = None,
    first: int = 1,
) -> Run:
    ids = range(first, first + len(payloads))
    kind = Kind(role=role, codec=codec)
    return Run(number, kind, (b"manager", 1), ids, [3] * len(ids), deadlines, payloads)


@contextlib.contextmanager
def no_threads() -> Iterator[None]:
    """Limit the address space, so that the system can start no more threads."""
    before = threading.stack_size(1 << 47)
    try:
        yield
    finally:
        threading.stack_size(before)


def upper(payload: bytes) -> bytes:
    return payload.upper()


def until_open(payload: bytes, job: RunningJob) -> bytes:
    """Report the start, then wait until the test opens the FIFO that the payload names."""
    if payload:
        job.report(text=str(os.getpid()))
        with open(payload, "rb") as fifo:
            return fifo.read()
    return b"%d" % os.getpid()


def until_cancelled(payload: bytes, job: RunningJob) -> bytes:
    job.report(text=str(os.getpid()))
    never = threading.Event()
    while not job.cancelled:
        never.wait(0.01)  # there is no method that waits for the cancelled flag
    if payload == b"return":
        return b"whatever"
    raise JobCancelled("as you wish")


def forever(payload: bytes, job: RunningJob) -> bytes:
    job.report(text=str(os.getpid()))
    threading.Event().wait()
    return b""


def end_process(payload: bytes) -> bytes:
    if payload == b"die":
        os._exit(3)
    return b"%d" % os.getpid()
