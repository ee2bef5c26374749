"""The child process of a worker that sends beats while the worker's process does not run.

A handler that holds Python's interpreter lock stops every thread of its process, and a thread
cannot send a sign of life then. The child shares no socket with its worker: it opens connections of
its own, for the time of the stall.
"""

from __future__ import annotations

import logging
import marshal
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from wmp.runtime.node import beat_main
from wmp.runtime.sockets.security import Security

logger = logging.getLogger("wmp")

_MAX_UNSENT: Final = 1 << 20
"""Limit of the bytes that wait for a child that does not read."""

Beat = tuple[str, float, list[bytes]]
"""The endpoint, the seconds for which the manager counts beats, and the frames of one beat."""


class BeatChild:
    """Starts the child, reports to it which beats are due, and ends it.

    Args:
        security: CURVE keys for the connections of the child.
    """

    def __init__(self, security: Security | None) -> None:
        self._security = security
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = False
        self._unsent = b""

    @property
    def pid(self) -> int | None:
        """The process id of the child; None while there is no child."""
        return None if self._process is None else self._process.pid

    def report(self, interval: float, beats: Iterable[Beat]) -> None:
        """Report that the worker runs now, and the beats that are due when it no longer does.

        The first call starts the child. No call blocks or raises.

        Args:
            interval: Seconds between two beats, and until the next call at most.
            beats: The beats.
        """
        if self._process is None and not self._failed:
            self._start()
        if self._process is not None:
            self._write((interval, list(beats)))

    def _start(self) -> None:
        if not sys.executable:
            self._failed = True  # an interpreter inside of another program
            return
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", beat_main.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C of a terminal is for the worker
            )
        except OSError as error:
            self._failed = True
            logger.warning(
                "worker: cannot start the process that sends beats: %s; a handler that holds the "
                "interpreter for longer than max_silence loses its job",
                error,
            )
            return
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        keys, security = None, self._security
        if security is not None and security.server_key is not None:
            keys = security.server_key, security.public_key, security.secret_key
        self._write((os.getpid(), list(sys.path), keys))

    def _write(self, record: tuple[Any, ...]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        data = marshal.dumps(record)
        if len(self._unsent) < _MAX_UNSENT:
            self._unsent += len(data).to_bytes(4, "big") + data
        try:
            written = os.write(self._process.stdin.fileno(), self._unsent)
        except BlockingIOError:
            return
        except OSError as error:  # the child has ended
            logger.warning("worker: the process that sends beats has ended: %s", error)
            self.close()
            self._failed = True
            return
        self._unsent = self._unsent[written:]

    def close(self) -> None:
        """End the child, and wait for its end; it takes some milliseconds."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
