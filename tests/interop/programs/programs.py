"""The programs as a shell starts them: real processes, and their output line by line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.waiting import WAIT

ROOT = Path(__file__).resolve().parents[3]

# With this path the modules are found from any folder, even when wmp is not installed.
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}

WMP = (sys.executable, "-m", "wmp")
WMP_DEVICE = (sys.executable, "-c", "import wmp_programs; wmp_programs.device()")


def installed(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the path of a program of this environment."""
    return [str(Path(sys.executable).parent / arguments[0]), *arguments[1:]]


def shell(
    arguments: Sequence[str], redirection: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run an installed program in a shell, with a redirection of its streams, to its end."""
    words = " ".join(f"'{word}'" for word in installed(arguments))
    return subprocess.run(
        ["bash", "-c", f"{words} {redirection}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


class Program:
    """A process; it is killed at the end of the ``with`` block if it still runs."""

    def __init__(
        self, *argv: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.process = self._start(argv, cwd, {**ENVIRON, **(env or {})})
        self._changed = threading.Condition()
        self._returned = 0
        self._lines: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self._threads = [
            threading.Thread(target=self._listen, args=(name,), daemon=True) for name in self._lines
        ]
        for thread in self._threads:
            thread.start()

    def _start(
        self, argv: Sequence[str], cwd: Path | None, env: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait(WAIT)
        for thread in self._threads:
            thread.join(WAIT)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def _listen(self, name: str) -> None:
        for line in getattr(self.process, name):
            with self._changed:
                self._lines[name].append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def stdout(self) -> bytes:
        """Output of the program so far."""
        return b"".join(self._lines["stdout"])

    @property
    def stderr(self) -> str:
        """Errors and log lines of the program so far."""
        return b"".join(self._lines["stderr"]).decode()

    def wait_for_line(self, text: str, *, on: str = "stderr") -> str:
        """Wait for the first line with ``text``, and return it."""
        until = time.monotonic() + WAIT
        with self._changed:
            while True:
                for line in self._lines[on]:
                    if text.encode() in line:
                        return line.decode().rstrip("\n")
                left = until - time.monotonic()
                ended = not any(thread.is_alive() for thread in self._threads)
                assert left > 0, f"{text!r} was not printed in time: {self._lines}"
                assert not ended, f"{text!r} was never printed: {self._lines}"
                self._changed.wait(min(left, 0.5))

    def line(self) -> str:
        """Return the next line of stdout, without its end."""
        until = time.monotonic() + WAIT
        lines = self._lines["stdout"]
        with self._changed:
            while len(lines) == self._returned:
                left = until - time.monotonic()
                assert left > 0, f"no further line was printed in time: {self._lines}"
                self._changed.wait(left)
            self._returned += 1
            return lines[self._returned - 1].decode().rstrip("\n")

    def wait_for_count(self, text: str, times: int) -> None:
        """Wait until stderr contains ``text`` this many times."""
        until = time.monotonic() + WAIT
        with self._changed:
            while self.stderr.count(text) < times:
                left = until - time.monotonic()
                assert left > 0, f"{text!r} was not printed in time: {self._lines}"
                self._changed.wait(left)

    def feed(self, data: bytes) -> None:
        """Write to the process's stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end_input(self) -> None:
        """Close the process's stdin."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait until the process ends, and return the exit code."""
        code = self.process.wait(WAIT)
        for thread in self._threads:
            thread.join(WAIT)
        return code


def copy_node_worker(folder: Path) -> None:
    """Copy the worker for Node.js and link the package that it needs; skip the test without it."""
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    source = ROOT / "examples" / "javascript"
    packages = Path(os.environ.get("WMP_NODE_MODULES", source / "node_modules"))
    if not (packages / "zeromq").is_dir():
        pytest.skip("no zeromq: `npm install` in examples/javascript, or WMP_NODE_MODULES=FOLDER")
    for path in (source / "package.json", *source.glob("*.mjs")):
        shutil.copy(path, folder)
    (folder / "node_modules").symlink_to(packages.resolve())


def wmp(*argv: str, cwd: Path | None = None) -> Program:
    """Start ``wmp``."""
    return Program(*WMP, *argv, cwd=cwd)
