"""Handlers of the tests of pools.

A worker process imports the module of its handlers. This module imports little, so that the process
starts soon.
"""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wmp.errors import JobCancelled, RetryLater
from wmp.runtime.executors.handlers import RunningJob


def kind_of(payload: Any) -> str:
    return type(payload).__name__


def double(value: Any) -> Any:
    return value * 2


def fail(payload: bytes) -> bytes:
    raise LookupError(f"no {payload.decode()} here")


def leave(payload: bytes) -> bytes:
    raise {b"exit": SystemExit, b"interrupt": KeyboardInterrupt, b"ok": ValueError}[payload](1)


def cancel_self(payload: bytes) -> bytes:
    import asyncio  # no other handler needs asyncio

    raise {
        b"job": JobCancelled("no"),
        b"future": concurrent.futures.CancelledError(),
        b"asyncio": asyncio.CancelledError(),
    }[payload]


def number(payload: bytes) -> Any:
    return 42


def frames_or_bytes(payload: bytes) -> bytes | list[bytes]:
    return payload.split() if b" " in payload else payload


def who(payload: bytes, job: RunningJob) -> bytes:
    left = job.deadline
    assert left is None or 0 < left < 1000
    main = threading.current_thread() is threading.main_thread()
    return f"{os.getpid()} {job.id} {job.attempt} {job.manager!r} {job.role} {main}".encode()


def tell(payload: bytes, job: RunningJob) -> bytes:
    for step in range(int(payload) + 1):
        job.report(step / int(payload))
    job.report(text="the last")
    return b""


def log_run(payload: bytes) -> bytes:
    """Append a line to the file that the payload names, then end or die as the payload says."""
    path, number, how = payload.decode().split("|")
    with open(path, "a") as log:
        log.write(f"{number}\n")
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return number.encode() * int(how)


def stubborn(payload: bytes, job: RunningJob) -> bytes:
    """Continue in spite of every flag and signal."""
    if payload == b"quick":
        return b"%d" % os.getpid()
    job.report(text=str(os.getpid()))
    while True:
        try:
            threading.Event().wait()
        except BaseException as error:
            time.sleep(0.06)  # reports are rate-limited, and this one must be sent before SIGKILL
            job.report(text=type(error).__name__)


def tidy(payload: bytes, job: RunningJob) -> bytes:
    """Write a file when SIGTERM ends the handler."""
    if not payload:
        return b"%d" % os.getpid()
    try:
        job.report(text=str(os.getpid()))  # from here on SIGTERM may come
        threading.Event().wait()
    finally:
        Path(payload.decode()).write_text("tidied up")
    return b""


def cling(payload: bytes, job: RunningJob) -> bytes:
    """Return a result in spite of SIGTERM."""
    try:
        job.report(text=str(os.getpid()))  # from here on SIGTERM may come
        threading.Event().wait()
    except SystemExit:
        pass
    return b"%d" % os.getpid()


def leave_a_thread(payload: bytes) -> bytes:
    threading.Thread(target=threading.Event().wait).start()
    return b"%d" % os.getpid()


def allocate(payload: bytes, job: RunningJob) -> bytes:
    kept = bytearray(int(payload) << 20)
    kept[::4096] = b"x" * len(kept[::4096])  # touch every page, so that the memory is really used
    job.report(text=str(os.getpid()))
    if job.attempt == 3 and job.role == "hold":
        threading.Event().wait()
    return b"%d" % os.getpid()


def echo(payload: bytes) -> bytes:
    return payload


def report(payload: bytes, job: RunningJob) -> bytes:
    job.report(0.1)
    job.report(0.2)  # too soon after the first report, so the reporter's thread sends it
    return payload


def end_a_fork(payload: bytes) -> bytes:
    """Fork a process, end it by SIGTERM, and return its exit code."""
    ready, begun = os.pipe()
    child = os.fork()
    if not child:
        os.write(begun, b"x")
        time.sleep(30)
        os._exit(0)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    return b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class UnreadableError(Exception):
    """An exception whose methods raise errors that are no ``Exception``."""

    def __str__(self) -> str:
        raise GeneratorExit("no text")


class MaskedError(Exception):
    """An exception that cannot even be asked for its class."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise KeyboardInterrupt("no class")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class EmptyVerdict(RetryLater):
    """A verdict without its wait."""

    def __init__(self) -> None:
        pass


class EndlessVerdict(RetryLater):
    """A verdict whose wait is not a number."""

    def __init__(self) -> None:
        self.seconds = float("nan")


POISON: dict[bytes, Callable[[], BaseException]] = {
    kind.__name__.encode(): kind
    for kind in (
        UnreadableError,
        MaskedError,
        EmptyVerdict,
        EndlessVerdict,
        GeneratorExit,
        StopIteration,
        StopAsyncIteration,
        KeyboardInterrupt,
        SystemExit,
        BaseException,
        RecursionError,
        MemoryError,
    )
}


def poison(payload: bytes) -> bytes:
    if payload in POISON:
        raise POISON[payload]()
    return payload


async def poison_async(payload: bytes) -> bytes:
    return poison(payload)


async def cancel_own_task(payload: bytes) -> bytes:
    """Cancel the task of the lane, and return before the cancellation takes effect."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    if payload == b"cancel":
        task.cancel()
    else:
        await asyncio.sleep(0)
    return payload
