"""Runs of programs, each in a separate process, without the half second of a start.

One process has imported all modules of the programs, and forks for each run. The fork then does
what Python does with the same command line: ``-W error``, ``-m MODULE``, ``-c TEXT`` or a file.
``programs.py`` starts programs as a shell does. Use that module if the start itself matters.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.interop.programs.programs import ENVIRON, WMP, WMP_DEVICE, Program
from tests.waiting import WAIT


class Ended(NamedTuple):
    """The outcome of one run."""

    returncode: int
    stdout: str
    stderr: str


class ForkedProcess:
    """A forked program, with the parts of :class:`subprocess.Popen` that tests use."""

    def __init__(self, stdin: Any, stdout: Any, stderr: IO[bytes] | None, end: int) -> None:
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

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


class ForkedProgram(Program):
    """A program that is started by a fork; the arguments begin with ``sys.executable``."""

    def _start(
        self, argv: Sequence[str], cwd: Path | None, env: Mapping[str, str]
    ) -> ForkedProcess:
        return forks().start(*argv, cwd=cwd, env=env)


class Forks:
    """The process that forks; it ends with :meth:`close`."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._outputs = tempfile.TemporaryDirectory()
        with theirs:
            self._parent = subprocess.Popen(
                [sys.executable, "-m", "tests.interop.programs.forks", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=ENVIRON,
            )

    def close(self) -> None:
        """End the process that forks; programs that run do not end."""
        self._orders.close()
        self._parent.wait(WAIT)
        self._outputs.cleanup()

    def _order(
        self,
        argv: Sequence[str],
        cwd: Path | None,
        env: Mapping[str, str],
        files: list[int],
        alone: bool = False,
    ) -> None:
        python, *rest = map(str, argv)
        assert python == sys.executable
        changed = {name: text for name, text in env.items() if ENVIRON.get(name) != text}
        order = json.dumps([str(cwd or Path.cwd()), changed, alone, *rest]).encode()
        with self._lock:
            socket.send_fds(self._orders, [len(order).to_bytes(4)], files)
            self._orders.sendall(order)

    def start(
        self,
        *argv: str,
        cwd: Path | None = None,
        env: Mapping[str, str] = ENVIRON,
        errors: int | None = None,
        input: int | None = None,
        output: int | None = None,
        alone: bool = False,
    ) -> ForkedProcess:
        """Start a program with pipes.

        Args:
            input: The descriptor of a file in place of the pipe of stdin.
            output: The descriptor of a file in place of the pipe of stdout.
            errors: The descriptor of a file in place of the pipe of stderr.
            alone: Whether the process begins a session, and so a process group, of its own.
        """
        stdin, to = os.pipe() if input is None else (os.dup(input), None)
        of, stdout = os.pipe() if output is None else (None, os.dup(output))
        about, stderr = os.pipe() if errors is None else (None, os.dup(errors))
        end, ended = os.pipe()
        self._order(argv, cwd, env, [stdin, stdout, stderr, ended], alone)
        for file in (stdin, stdout, stderr, ended):
            os.close(file)
        given = None if to is None else os.fdopen(to, "wb")
        written, lines = (
            None if descriptor is None else os.fdopen(descriptor, "rb")
            for descriptor in (of, about)
        )
        return ForkedProcess(given, written, lines, end)

    def run(self, *argv: str, cwd: Path | None = None) -> Ended:
        """Run a program in a folder, without input."""
        paths = [Path(self._outputs.name, output) for output in ("stdout", "stderr")]
        end, ended = os.pipe()
        with (
            open(os.devnull, "rb") as nothing,
            paths[0].open("wb") as out,
            paths[1].open("wb") as err,
        ):
            files = [nothing.fileno(), out.fileno(), err.fileno(), ended]
            self._order(argv, cwd, ENVIRON, files)
            os.close(ended)
        with os.fdopen(end, "rb") as lines:
            _, code = lines.read().split()
        return Ended(int(code), *(path.read_text() for path in paths))


@cache
def _forks() -> Forks:
    forks = Forks()
    atexit.register(forks.close)
    return forks


_making = threading.Lock()


def forks() -> Forks:
    """Return the process that forks for all tests of this process."""
    with _making:
        return _forks()


def wmp(*argv: str, cwd: Path | None = None) -> ForkedProgram:
    """Start ``wmp`` by a fork."""
    return ForkedProgram(*WMP, *argv, cwd=cwd)


def wmp_device(*argv: str, cwd: Path | None = None) -> ForkedProgram:
    """Start ``wmp-device`` by a fork."""
    return ForkedProgram(*WMP_DEVICE, *argv, cwd=cwd)


MODULES = (
    "tests.interop.faults.fault_parts",
    "wmp.cli.demo.command",
    "wmp.cli.device",
    "wmp.cli.gateway",
    "wmp.cli.journal.command",
    "wmp.cli.map.command",
    "wmp.cli.program",
    "wmp.cli.round_robin",
    "wmp.cli.worker.command",
    "wmp_programs",
    "prompt_toolkit",
)
"""The modules that forks need not import."""


def serve(number: int) -> None:
    """Fork for each order. The fork forks again, and writes the end of the program into a pipe."""
    for module in MODULES:
        importlib.import_module(module)
    # The collector of a fork would otherwise copy the memory of all these modules.
    gc.freeze()
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
        folder, environ, alone, *arguments = json.loads(text)
        if alone:
            os.setsid()
        for target, file in enumerate(streams):
            os.dup2(file, target)
            os.close(file)
        os.chdir(folder)
        os.environ.update(environ)
        return interpret(arguments)


def interpret(arguments: list[str]) -> None:
    """Do what Python does with these arguments."""
    # Worker processes import the main module of their parent. The module of this file is the wrong
    # one.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if arguments[0] == "-W":
        _, action, *arguments = arguments
        warnings.simplefilter(action)  # type: ignore[arg-type]
        sys.warnoptions.append(action)  # worker processes get the option too
    match arguments:
        case ["-m", module, *_]:
            sys.argv, sys.path[0] = arguments[1:], os.getcwd()
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", text, *rest]:
            sys.argv, sys.path[0] = ["-c", *rest], ""
            exec(compile(text, "<string>", "exec", dont_inherit=True), main.__dict__)
        case [path, *_]:
            sys.argv, sys.path[0] = arguments, os.path.dirname(path)
            main.__file__ = path
            text = Path(path).read_bytes()
            exec(compile(text, path, "exec", dont_inherit=True), main.__dict__)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
