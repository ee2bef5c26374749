"""Processes that a benchmark starts and ends by their id. Used by ``python -m benchmarks``."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["ROOT", "Process", "free_port", "memory_of", "python", "wait_for_port"]

ROOT = Path(__file__).resolve().parents[1]

TIMEOUT = 60.0
"""Seconds within which a process must be ready or answer; a longer time is an error."""


class Process:
    """One child; ended when its ``with`` block is left.

    Args:
        argv: Program and arguments.
        env: Added to the environment.
    """

    def __init__(self, *argv: str, env: Mapping[str, str] | None = None) -> None:
        # The output of a child is needed only when the child fails. A pipe that is not read would
        # fill.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._argv = argv
        self._popen = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._popen.pid

    def send(self, **what: Any) -> None:
        """Send a line of JSON."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(what).encode() + b"\n")
        self._popen.stdin.flush()

    def receive(self, timeout: float = TIMEOUT) -> Any:
        """Return the next line, decoded from JSON.

        Raises:
            RuntimeError: The process ended, or wrote nothing in time. The text has its output.
        """
        late = threading.Timer(timeout, self._popen.kill)
        late.start()
        try:
            assert self._popen.stdout is not None
            line = self._popen.stdout.readline()
        finally:
            late.cancel()
        if not line:
            self._popen.wait(TIMEOUT)
            # The last line of a traceback has the error.
            words = self.words().rpartition("\n")[2]
            raise RuntimeError(
                f"the process {self.name} ended: {words or 'it wrote nothing to stderr'}"
            )
        return json.loads(line)

    def ask(self, **what: Any) -> Any:
        """Send a line and return the answer, for which the process may need long."""
        self.send(**what)
        return self.receive(300.0)

    @property
    def name(self) -> str:
        """The command as text for people."""
        return " ".join(self._argv[:6])

    @property
    def running(self) -> bool:
        """Return whether the process still runs."""
        return self._popen.poll() is None

    def words(self) -> str:
        """Return the end of the process's standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2000:].strip()

    def cpu(self) -> float:
        """Return the seconds of CPU time that the process has used so far, in all threads."""
        # This is the formula of clock_getcpuclockid(3). /proc counts only hundredths of a second.
        return time.clock_gettime(~self.pid << 3 | 2)

    def memory(self) -> int:
        """Return the resident memory of the process in bytes."""
        return memory_of(self.pid)

    def end(self) -> None:
        """Send SIGTERM, and SIGKILL after five seconds."""
        popen = self._popen
        if popen.poll() is None:
            popen.terminate()
            try:
                popen.wait(5.0)
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait()
        for stream in (popen.stdin, popen.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._errors.close()


def python(module: str, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
    """Start a module of this package, or of another package, with this Python."""
    return Process(sys.executable, "-m", module, *arguments, env=env)


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    """Return a port of loopback on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(process: Process, port: int) -> None:
    """Wait until a server accepts connections.

    Raises:
        RuntimeError: The server ended before, or took too long.
    """
    until = time.monotonic() + 20.0
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        if not process.running or time.monotonic() > until:
            raise RuntimeError(
                f"the process {process.name} accepts no connection: {process.words()}"
            )
        time.sleep(0.02)
