"""Handlers of worker processes.

A worker process imports the module of its handlers. This module imports little, so that the process
starts soon.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from tests.waiting import WAIT
from wmp.runtime.executors.handlers import RunningJob


def die(payload: bytes, job: RunningJob) -> bytes:
    """Kill this process with the payload's signal, in as many attempts as the payload says."""
    number, attempts = payload.split()
    if job.attempt <= int(attempts):
        os.kill(os.getpid(), int(number))
    return b"survived in attempt %d" % job.attempt


def where(payload: bytes) -> bytes:
    return b"%d" % os.getpid()


def grow(payload: bytes) -> bytes:
    return bytes(int(payload))


def fail_twice(payload: bytes, job: RunningJob) -> bytes:
    """Append to the file that the payload names, and fail in the first two attempts."""
    with Path(payload.decode()).open("a") as file:
        file.write("x")
    if job.attempt < 3:
        raise ConnectionError("refused")
    return b"attempt %d" % job.attempt


def wait_for_file(payload: bytes) -> bytes:
    """Return the payload; if the payload names a file, wait until the file exists."""
    until = time.monotonic() + WAIT
    while payload != b"quick" and not Path(os.fsdecode(payload)).exists():
        assert time.monotonic() < until, "what waits behind it was not done elsewhere"
        time.sleep(0.01)
    return payload


def hang(payload: bytes, job: RunningJob) -> bytes:
    """Write the process's number in the first attempt, and hang: neither flag nor SIGTERM helps."""
    if os.path.exists(payload):
        return b"%d" % os.getpid()
    Path(payload.decode()).write_text(str(os.getpid()))
    job.report(text="hangs")
    while True:
        try:
            threading.Event().wait()
        except SystemExit:
            pass
