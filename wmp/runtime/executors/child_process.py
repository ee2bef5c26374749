"""A worker process as its parent uses it: its start, its socket and its end."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from math import inf
from multiprocessing import resource_tracker, spawn
from typing import Any, Final

from wmp.errors import ConfigError
from wmp.runtime.executors.assignment import Assignment
from wmp.runtime.executors.child_main import (
    BEGUN,
    CONDEMNED,
    ENDING,
    FILLED,
    MARK_BYTES,
    STOPPED,
    STOPS,
    UNTIL,
    main,
)
from wmp.runtime.executors.handler_imports import depth_below
from wmp.runtime.executors.handlers import Served
from wmp.runtime.executors.job_log import passed_level
from wmp.runtime.executors.pipe import CHUNK, PipeReader, pack
from wmp.runtime.executors.process_limits import ProcessLimits
from wmp.runtime.executors.result_buffer import BUFFER_SIZE, ResultBuffer
from wmp.runtime.executors.shared_memory import SharedMemory

_CONTEXT: Final = multiprocessing.get_context("spawn")

_WITHOUT_MAIN: Final = "wmp-worker-without-main"
"""Name of the processes that do not import the main module of this program."""

_REAP_TIMEOUT: Final = 1.0
"""Seconds between the end of a child's socket and the end of the child."""


def pack_handlers(served: dict[str, Served]) -> bytes:
    """Pickle handlers for children.

    Raises:
        ConfigError: A child could not import a handler.
    """
    for role, handler in served.items():
        try:
            pickled = pickle.dumps(handler, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # pickle passes on any error of a __reduce__
            raise ConfigError(
                f"the handler of role {role!r} cannot be sent to worker processes ({error}); "
                'use a function at the top of a module, or pool="thread"'
            ) from error
        if b"__main__" in pickled and not _main_is_a_file():
            raise ConfigError(
                f"the handler of role {role!r} was made in an interactive session, where "
                "worker processes cannot find it; "
                'put the handler into a module and import it, or use pool="thread"'
            )
    return pickle.dumps(served, pickle.HIGHEST_PROTOCOL)


def _main_is_a_file() -> bool:
    """Return whether a spawned process can import ``__main__`` again."""
    module = sys.modules["__main__"]
    if getattr(module, "__spec__", None) is not None:
        return True  # started with -m
    path = getattr(module, "__file__", None)
    return path is not None and os.path.exists(path)


class ChildProcess:
    """The parent's side of one worker process. Its socket never blocks the parent."""

    def __init__(self, handlers: bytes, limits: ProcessLimits, imports_main: bool = True) -> None:
        """Start the process.

        Args:
            handlers: The pickled handlers.
            limits: Limits of the process.
            imports_main: Whether the process imports the main module of this program.

        Raises:
            OSError: The system has no process, memory or descriptor left.
        """
        self.ready = False
        self.problem: str | None = None
        self.doing = ""
        """Text about work of the child besides its jobs, for the text about its end."""
        self.assignment: Assignment | None = None
        self.mask = 0
        self.retiring = False
        """Whether the child has begun its last job, and another child takes its place."""
        self.kill_at: float | None = None
        """Time at which the child is killed if it still runs; until then it gets no lane."""
        self._open = True
        self._killed = False
        self._condemned = 0
        memory = SharedMemory(MARK_BYTES + BUFFER_SIZE)
        self._mark = memory.view[:MARK_BYTES].cast("q")
        self.results = ResultBuffer(memory.view[MARK_BYTES:], self._mark, FILLED)
        """Results that the child has not sent; the buffer outlives the child."""
        self.backlog: deque[memoryview] = deque()
        """Messages that did not fit into the socket yet."""
        self.recalls: deque[tuple[int, Sequence[int]]] = deque()
        """Lane and ids of each recall that the child has not answered."""
        self._frames = PipeReader()
        try:
            self.sock, theirs = socket.socketpair()
        except BaseException:
            memory.close_file()
            raise
        try:
            self.sock.setblocking(False)
            self._process = _CONTEXT.Process(
                target=main,
                args=(
                    theirs,
                    handlers,
                    memory,
                    limits.max_jobs,
                    limits.memory,
                    passed_level(),
                    depth_below(),
                ),
                name="wmp-worker" if imports_main else _WITHOUT_MAIN,
            )
            _start_without_sigint(self._process)
        except BaseException:
            self.sock.close()
            raise
        finally:
            # The child has its own copy of this descriptor by now. An open copy in the parent would
            # hide the end of the child.
            theirs.close()
            memory.close_file()
        self.pid = self._process.pid
        self._pidfd = _open_pidfd(self.pid)
        # The sentinel is a pipe: a process that a handler forks holds a copy of it, and the copy
        # hides the end of the child. A pidfd is not copied like this.
        self.sentinels = [self._process.sentinel if self._pidfd is None else self._pidfd]

    @property
    def begun(self) -> int:
        """The job that the child began last in its lane; 0 for none.

        The value outlives the child.
        """
        return self._mark[BEGUN]

    @property
    def idle(self) -> bool:
        """Whether the child can take a lane."""
        return self.ready and self.assignment is None and not self.retiring and self.kill_at is None

    def forget_marks(self) -> None:
        """Clear the marks for another lane: a job of another manager may have the same id."""
        self._mark[BEGUN] = self._mark[CONDEMNED] = 0
        self.results.clear()

    def let_begin(self, until: float) -> None:
        """Let jobs begin until a time on the monotonic clock."""
        self._mark[UNTIL] = 0 if until == inf else round(until * 1e6)

    def is_open(self) -> bool:
        """Return whether the child's end of the socket may still be open."""
        return self._open

    def send(self, message: tuple[Any, ...]) -> bool:
        """Send a message without waiting; return whether bytes are left in ``backlog``."""
        if message[0] in STOPS:
            # A child that was stopped must not begin a job before it has read this message.
            self._mark[STOPPED] += 1
        self.backlog.append(memoryview(pack(message)))
        if len(self.backlog) == 1:
            self.write()
        return bool(self.backlog)

    def write(self) -> None:
        """Send as many bytes of the backlog as fit."""
        while self.backlog:
            data = self.backlog[0]
            try:
                sent = self.sock.send(data)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.backlog.clear()  # the child is dead, as ``read`` will notice
                return
            if sent == len(data):
                self.backlog.popleft()
            else:
                self.backlog[0] = data[sent:]

    def read(self) -> Iterator[tuple[Any, ...]]:
        """Yield the child's messages; ``is_open`` turns False at the end of its socket."""
        while True:
            try:
                data = self.sock.recv(CHUNK)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self._open = False
                return
            yield from self._frames.feed(data)

    def condemn(self, job: int, kill_at: float) -> None:
        """Send SIGTERM, which ends the child if it still runs ``job``.

        ``ANY`` stands for any job.
        """
        self._condemned = self._mark[CONDEMNED] = job
        self.kill_at = kill_at
        self._process.terminate()

    @property
    def condemned(self) -> int:
        """The job for which SIGTERM was sent; 0 if there is none."""
        return self._condemned

    def pardon(self) -> bool:
        """Let the child continue if it ended the job before SIGTERM came.

        Return whether it did so.
        """
        at_it = self.assignment is not None and self._condemned in self.assignment.jobs
        if not self._condemned or self.retiring or at_it or self._mark[ENDING]:
            return False
        self._condemned = self._mark[CONDEMNED] = 0
        self.kill_at = None
        return True

    def kill(self) -> None:
        """Send SIGKILL; ``reap`` is called when the end of the child is noticed."""
        self._killed = True
        self._process.kill()

    def reap(self) -> str:
        """Close all files of a child that has ended; return how the child ended."""
        process = self._process
        before = _peak(own=False)
        if process.exitcode is None:
            process.join(_REAP_TIMEOUT)
        if process.exitcode is None:  # the child has closed its socket but still runs
            process.kill()
            process.join(_REAP_TIMEOUT)
        code = process.exitcode
        self.sock.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        if code is not None:
            process.close()
        how = _describe(code)
        if code == -signal.SIGKILL and not self._killed:
            how += ", perhaps because the machine had no memory left"
            after = _peak(own=False)
            # The system reports one peak for all ended children. The peak of a child begins with
            # that of its parent.
            if after > max(before, _peak(own=True)):
                how += f" (the process had used {after >> 20} MiB)"
        return how


def _prepare(name: str) -> dict[str, Any]:
    """Return the settings with which a process of multiprocessing begins.

    Without the entries of the main module, the process does not run the program once more. Then
    programs need no ``if __name__ == "__main__":``. multiprocessing itself lacks such an option.
    """
    settings = _prepare_with_main(name)
    if name == _WITHOUT_MAIN:
        settings.pop("init_main_from_name", None)
        settings.pop("init_main_from_path", None)
    return settings


_prepare_with_main: Final = spawn.get_preparation_data
spawn.get_preparation_data = _prepare


def _start_without_sigint(process: Any) -> None:
    """Start a process that Ctrl-C cannot end before it ignores SIGINT."""
    if not hasattr(signal, "pthread_sigmask"):
        process.start()
        return
    # The child inherits the signal mask of this thread. multiprocessing's tracker is started first,
    # because its start resets the mask.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _open_pidfd(pid: int | None) -> int | None:
    try:
        return os.pidfd_open(pid)  # type: ignore[arg-type]
    except (AttributeError, OSError):
        return None  # this system does not report the value


def _describe(code: int | None) -> str:
    if code is None:
        return "ended with an unknown exit code"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _peak(*, own: bool) -> int:
    """Return the peak memory of this process, or of its ended children, in bytes."""
    try:
        import resource
    except ImportError:
        return 0
    who = resource.RUSAGE_SELF if own else resource.RUSAGE_CHILDREN
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
