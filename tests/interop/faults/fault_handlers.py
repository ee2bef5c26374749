"""Handlers of the worker processes in the tests with real faults.

A worker process imports the module of its handlers. This module imports little, so that the process
starts soon.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time

from wmp.runtime.executors.handlers import RunningJob

LOG = "WMP_FAULT_LOG"
"""The variable that names the log of begun jobs."""
LABEL = "WMP_FAULT_LABEL"
"""The variable with the label of the worker."""
_WORK = 0.008
"""Seconds that a short job takes."""


def digest(payload: bytes | memoryview) -> str:
    """Return the handler's result for a payload."""
    return hashlib.sha256(payload).hexdigest()[:16]


@functools.cache
def _log() -> int:
    return os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _begin(payload: bytes, job: RunningJob) -> str:
    """Log that this lease begins here; return the name of this process."""
    who = f"{os.environ[LABEL]}:{os.getpid()}"
    line = f"{payload.decode()} {job.manager.decode()} {job.id} {job.lease} {who}"
    os.write(_log(), f"{line} {time.monotonic()}\n".encode())
    return who


def work(payload: bytes, job: RunningJob) -> str:
    """Do a short job; the result names the lease that made it."""
    who = _begin(payload, job)
    time.sleep(_WORK)
    return f"{digest(payload)} {job.lease} {who}"


def hang(payload: bytes, job: RunningJob) -> str:
    """Hang until killed in the first lease; end quickly in any later lease."""
    who = _begin(payload, job)
    if job.lease == 1:
        threading.Event().wait()
    return f"{digest(payload)} {job.lease} {who}"


def gate(payload: bytes, job: RunningJob) -> str:
    """Work until the parent has made a file for this lease."""
    who = _begin(payload, job)
    while not os.path.exists(f"go-{job.lease}"):
        time.sleep(0.01)
    return f"{digest(payload)} {job.lease} {who}"
