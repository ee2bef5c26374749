"""Handlers of worker processes that die or hang.

A worker process imports the module of its handlers. This module imports little, so that the process
starts soon.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from wmp.runtime.handlers import RunningJob


def die(payload: bytes, job: RunningJob) -> bytes:
    """Kill this process with the payload's signal, in as many attempts as the payload says."""
    number, attempts = payload.split()
    if job.attempt <= int(attempts):
        os.kill(os.getpid(), int(number))
    return b"survived in attempt %d" % job.attempt


def where(payload: bytes) -> bytes:
    return b"%d" % os.getpid()


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
