"""A worker whose handlers keep its whole process from running: ``python stalling_worker.py POOL
BEATS ENDPOINT…``.
"""

from __future__ import annotations

import ctypes
import logging
import re
import sys
import time

import wmp

_library = ctypes.PyDLL(None)  # its functions keep the interpreter lock


def hold(payload: bytes) -> bytes:
    """Hold the interpreter lock in a function of C."""
    print("begun", flush=True)
    _library.usleep(int(float(payload) * 1e6))
    return b"held"


def search(payload: bytes) -> bytes:
    """Hold the lock in a search that goes back again and again."""
    print("begun", flush=True)
    length, took = 18, 0.0
    while took < 0.6 * float(payload):
        begun = time.monotonic()
        re.match("(a+)+$", "a" * length + "b")
        length, took = length + 1, time.monotonic() - begun
    return b"searched"


def block(payload: bytes) -> bytes:
    """Block the loop of a worker with ``pool="inline"``."""
    print("begun", flush=True)
    time.sleep(float(payload))
    return b"blocked"


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
    pool, beats, *endpoints = sys.argv[1:]
    handlers = {"hold": hold, "search": search, "block": block}
    wmp.Worker(*endpoints, handlers=handlers, pool=pool, beats=beats == "yes").run()
