"""A program of the checker, which is killed, stopped and started again."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.interop.programs.programs import ENVIRON, ROOT

__all__ = ["Party", "free_port"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Party:
    """One program, which is started again whenever it has ended."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name, self.command, self.folder = name, command, folder
        self.stopped_until = 0.0
        self.start()

    def start(self) -> None:
        with open(self.folder / f"{self.name}.out", "ab") as out:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=ENVIRON, stdout=out, stderr=out
            )

    @property
    def uses_store(self) -> bool:
        """Whether the program has the store open, so that it ends before a restoration."""
        return self.name not in ("ask", "create", "w0", "w1")

    def ended(self) -> bool:
        return self.process.poll() is not None

    def finished(self) -> bool:
        """Return whether the program has ended by itself, without an error."""
        return self.process.poll() == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stopped_until = 0.0

    def stop(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.stopped_until = time.monotonic() + seconds

    def go_on(self) -> None:
        if self.stopped_until:
            self.stopped_until = 0.0
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
