"""Handlers of the fleets in tests. Executors import this module."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import wmp

__all__ = ["both", "plain", "ready", "shown", "work"]

LONGEST = 120.0
"""Seconds after which a held job goes on, so that no failed test leaves a worker behind."""


def plain(number: int) -> bytes:
    """Return the result of a job, as the test computes it."""
    return b"%d" % (number * number + 1)


def work(payload: bytes) -> bytes:
    """Square a number. With a folder, note the process there and wait until the folder is open."""
    job = json.loads(payload)
    if folder := job.get("folder"):
        note = Path(folder) / f"{job['number']}.{os.getpid()}"
        note.touch()
        until = time.monotonic() + LONGEST
        while not (Path(folder) / "open").exists() and time.monotonic() < until:
            time.sleep(0.01)
    time.sleep(job.get("seconds", 0.0))
    return plain(job["number"])


def shown(payload: bytes) -> bytes:
    """Return what a library would see of the GPUs."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "none").encode()


ready = wmp.Worker("tcp://127.0.0.1:9", handlers=work, slots=2, label="of the module")
"""A worker with settings of its own. No manager is at its own endpoint."""

both = {"default": work, "gpu": shown}
