"""Runs of programs, each in a separate process, without the half second of a start.

One process has imported all modules of the programs, and forks for each run. ``programs.py`` starts
programs as a shell does. Use that module if the start itself matters, or if the program has worker
processes.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

from tests.interop.programs import ENVIRON, TIMEOUT, WMP, WMP_DEVICE, Program
from tests.interop.programs import wmp as wmp_of_a_shell


class Ended(NamedTuple):
    """The outcome of one run."""

    returncode: int
    stdout: str
    stderr: str


class ForkedProcess:
    """A forked program, with the parts of :class:`subprocess.Popen` that tests use."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes], end: int) -> None:
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self._end = end
        """Yields the number of the process, then its exit code."""
        self.pid = int(self._read())
        self.returncode: int | None = None

    def _read(self) -> bytes:
        text = b""
        while (part := os.read(self._end, 1)) not in (b"\n", b""):
            text += part
        return text

    def poll(self) -> int | None:
        """Return the exit code of a process that has ended."""
        if self.returncode is None and select.select([self._end], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; return its exit code."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = int(self._read())
            os.close(self._end)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to a process that has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkedProgram(Program):
    """``wmp``, started by a :class:`Forks`."""

    def __init__(self, forks: Forks, argv: tuple[str, ...], cwd: Path | None) -> None:
        self._forked = forks.start("wmp", argv, cwd or Path.cwd())
        super().__init__(*argv)

    def _start(self, *_: object) -> ForkedProcess:
        return self._forked


class Forks:
    """The process that forks; it ends with :meth:`close`."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        self._outputs = tempfile.TemporaryDirectory()
        with theirs:
            self._parent = subprocess.Popen(
                [sys.executable, "-m", "tests.interop.forks", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=ENVIRON,
            )

    def close(self) -> None:
        """End the process that forks; programs that run do not end."""
        self._orders.close()
        self._parent.wait(TIMEOUT)
        self._outputs.cleanup()

    def _order(self, name: str, argv: tuple[str, ...], cwd: Path, files: list[int]) -> None:
        order = json.dumps([str(cwd), name, *argv]).encode()
        socket.send_fds(self._orders, [len(order).to_bytes(4)], files)
        self._orders.sendall(order)

    def start(self, name: str, argv: tuple[str, ...], cwd: Path) -> ForkedProcess:
        """Start a program with pipes."""
        (stdin, to), (of, stdout), (about, stderr), (end, ended) = (os.pipe() for _ in range(4))
        self._order(name, argv, cwd, [stdin, stdout, stderr, ended])
        for file in (stdin, stdout, stderr, ended):
            os.close(file)
        return ForkedProcess(os.fdopen(to, "wb"), os.fdopen(of, "rb"), os.fdopen(about, "rb"), end)

    def run(self, *argv: str, cwd: Path) -> Ended:
        """Run ``WMP`` or ``WMP_DEVICE`` with arguments in a folder, without input."""
        name, start = ("wmp", WMP) if argv[: len(WMP)] == WMP else ("device", WMP_DEVICE)
        assert argv[: len(start)] == start
        paths = [Path(self._outputs.name, output) for output in ("stdout", "stderr")]
        end, ended = os.pipe()
        with (
            open(os.devnull, "rb") as nothing,
            paths[0].open("wb") as out,
            paths[1].open("wb") as err,
        ):
            files = [nothing.fileno(), out.fileno(), err.fileno(), ended]
            self._order(name, argv[len(start) :], cwd, files)
            os.close(ended)
        with os.fdopen(end, "rb") as lines:
            _, code = lines.read().split()
        return Ended(int(code), *(path.read_text() for path in paths))


@cache
def forks() -> Forks:
    """Return the process that forks for all tests of this process."""
    made = Forks()
    atexit.register(made.close)
    return made


def wmp(*argv: str, cwd: Path | None = None) -> Program:
    """Start ``wmp``: by a fork, or in a new interpreter if the program has worker processes.

    Worker processes import the main module of their parent. In a fork this is the wrong module.
    """
    return (
        wmp_of_a_shell(*argv, cwd=cwd) if "process" in argv else ForkedProgram(forks(), argv, cwd)
    )


def serve(number: int) -> None:
    """Fork for each order. The fork forks again, and writes the end of the program into a pipe.

    The modules of the programs are imported here, so that the forks need not import them.
    """
    import wmp_programs
    from wmp.cli import demo, device, journal, map, program, worker  # noqa: F401

    orders = socket.socket(fileno=number)
    while True:
        size, files, _, _ = socket.recv_fds(orders, 4, 4)
        if not size:
            return
        text = b""
        while len(text) < int.from_bytes(size):
            text += orders.recv(int.from_bytes(size) - len(text))
        if pid := os.fork():
            for file in files:
                os.close(file)
            os.waitpid(pid, 0)
            continue
        # The first fork ends at once, so that no process has to wait for the second fork.
        if os.fork():
            os._exit(0)
        orders.close()
        *streams, ended = files
        if pid := os.fork():
            for file in (0, 1, *streams):
                os.close(file)
            os.write(ended, b"%d\n" % pid)
            os.write(ended, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            os._exit(0)
        os.close(ended)
        for target, file in enumerate(streams):
            os.dup2(file, target)
            os.close(file)
        folder, name, *arguments = json.loads(text)
        os.chdir(folder)
        sys.argv = [name, *arguments]
        sys.path[0] = folder  # python -m sets it in the same way
        getattr(wmp_programs, name)()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
