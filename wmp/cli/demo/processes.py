"""The processes of ``wmp demo``, and their messages to the parent."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final

import wmp
from wmp.errors import WMPError

_PATIENCE: Final = 4.0
"""Seconds within which all children must end by themselves."""

ChildMessage = dict[str, Any]
"""A message of a child: one line of JSON."""


class DemoProcess:
    """A process of the demo."""

    def __init__(self, part: str, config: dict[str, Any], verbose: bool) -> None:
        self.part = part
        self.config = config
        self.label: str = config["label"]
        self.killed = False
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wmp.cli.demo.node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environ(),
            # The terminal's Ctrl-C reaches only the parent.
            start_new_session=True,
        )
        self.send(part=part, config=config, verbose=verbose)

    def send(self, **fields: Any) -> None:
        """Send the child one line of JSON. Nothing happens if the child is dead."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(fields) + "\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """Send SIGKILL: the process sends no BYE and cleans up nothing."""
        self.killed = True
        self.process.kill()


class DemoProcesses:
    """All processes; they end with the ``with`` block."""

    def __init__(self, *, verbose: bool = False, journal: str | None = None) -> None:
        self.all: list[DemoProcess] = []
        self._verbose = verbose
        self._journal = journal
        self._received: SimpleQueue[tuple[DemoProcess, ChildMessage | None]] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> DemoProcesses:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self, part: str, **config: Any) -> DemoProcess:
        """Start a process."""
        child = DemoProcess(part, {**config, "journal": self._journal}, self._verbose)
        self.all.append(child)
        thread = threading.Thread(target=self._listen, args=(child,), daemon=True)
        thread.start()
        self._threads.append(thread)
        return child

    def _listen(self, child: DemoProcess) -> None:
        assert child.process.stdout is not None
        with contextlib.suppress(ValueError):  # The process ended in the middle of a line.
            for line in child.process.stdout:
                self._received.put((child, json.loads(line)))
        self._received.put((child, None))

    def again(self, child: DemoProcess, **config: Any) -> DemoProcess:
        """Start a process with the settings of ``child``; ``config`` replaces some of them."""
        return self.start(child.part, **{**child.config, **config})

    def receive(self, timeout: float) -> tuple[DemoProcess, ChildMessage] | None:
        """Return the next message; None if none comes within ``timeout`` seconds.

        The last message of a killed child is ``{"ended": exit code}``.

        Raises:
            WMPError: A child that was not killed has ended.
        """
        until = time.monotonic() + timeout
        while True:
            try:
                child, message = self._received.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return None
            if message is not None:
                return child, message
            code = child.process.wait()
            if not child.killed:
                raise WMPError(
                    f"{child.label} ended unexpectedly with exit code {code}; add --verbose to "
                    "see its output"
                )
            return child, {"ended": code}

    def close(self) -> None:
        """End all processes: first by the end of stdin, then by force. Idempotent."""
        for child in self.all:
            assert child.process.stdin is not None
            child.killed = True
            with contextlib.suppress(OSError):
                child.process.stdin.close()
        until = time.monotonic() + _PATIENCE
        try:
            for child in self.all:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, until - time.monotonic()))
        finally:
            # This code also runs after a second Ctrl-C.
            for child in self.all:
                child.process.kill()
            for child in self.all:
                child.process.wait()
        for thread in self._threads:
            thread.join(1.0)
        for child in self.all:
            if child.process.stdout is not None:
                child.process.stdout.close()
        self.all.clear()


def _environ() -> dict[str, str]:
    """Return an environment in which a child finds the same ``wmp``, installed or not."""
    home = str(Path(wmp.__file__).resolve().parents[1])
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{home}{os.pathsep}{path}" if path else home}
