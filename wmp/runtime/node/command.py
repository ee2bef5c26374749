"""Any Unix command as a handler: stdin is the payload, stdout is the result."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Final

from wmp.errors import ConfigError, JobCancelled
from wmp.runtime.executors.handlers import RunningJob

_LOOK: Final = 0.1
"""Seconds between two checks of the cancelled flag while the command runs."""

_TERMINATE: Final = 1.0
"""Seconds from SIGTERM to SIGKILL when a command must end."""

_STDERR: Final = 2048
"""Bytes of stderr that an error quotes: the end of stderr, which names the cause."""


class CommandFailed(Exception):
    """The command did not exit with 0.

    Attributes:
        returncode: Exit code; minus the number of the signal if a signal ended the command.
    """

    def __init__(self, text: str, returncode: int) -> None:
        super().__init__(text, returncode)
        self.returncode = returncode

    def __str__(self) -> str:
        return str(self.args[0])


class CommandHandler:
    """A handler that runs a command for each job.

    The command leads a process group of its own. The processes that it starts are killed together
    with the command. A Ctrl-C at the worker's terminal does not reach the group, so a worker can
    finish its jobs. Use codec ``bytes``, and a thread or process pool with as many slots as
    commands may run at the same time.
    """

    def __init__(self, argv: Sequence[str | os.PathLike[str]]) -> None:
        """Find the command.

        Args:
            argv: The command and its arguments; no shell reads them.

        Raises:
            ConfigError: There is no such command, or ``argv`` is empty.
        """
        if isinstance(argv, (str, bytes)):
            raise ConfigError(
                f"command is the text {argv!r}; expected a list: the command and its arguments"
            )
        self.argv = tuple(os.fspath(argument) for argument in argv)
        if not self.argv:
            raise ConfigError("the command is empty; expected the command and its arguments")
        if shutil.which(self.argv[0]) is None:
            raise ConfigError(
                f"command {self.argv[0]!r} was not found or cannot be executed; "
                "give its path, or add its directory to PATH"
            )

    def __repr__(self) -> str:
        return f"<CommandHandler {shlex.join(self.argv)}>"

    def __call__(self, payload: bytes, job: RunningJob) -> bytes:
        """Run the command.

        Raises:
            CommandFailed: The exit code was not 0, or the job's time ran out.
            JobCancelled: The command was killed because the job was cancelled.
        """
        # Use a file and no pipe. If the timeout of ``communicate`` interrupts a write to a pipe
        # (Python 3.11), the rest of the input is never written, and the command would wait for the
        # rest for ever.
        with tempfile.TemporaryFile() as given:
            given.write(payload)
            given.seek(0)
            process = subprocess.Popen(
                self.argv,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        try:
            while True:
                left = job.deadline
                # Check the deadline before the flag, because the flag is raised at the deadline
                # too.
                if left is not None and left <= 0:
                    raise CommandFailed(
                        f"{shlex.join(self.argv)}: the command was killed, because the job timed "
                        "out",
                        -signal.SIGTERM,
                    )
                if job.cancelled:
                    raise JobCancelled(f"{shlex.join(self.argv)}: cancelled", job_id=job.id)
                try:
                    stdout, stderr = process.communicate(
                        timeout=_LOOK if left is None else min(_LOOK, left)
                    )
                    break
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.returncode is None:
                _kill(process)
        if process.returncode != 0:
            raise CommandFailed(self._describe(process.returncode, stderr), process.returncode)
        return stdout

    def _describe(self, code: int, stderr: bytes) -> str:
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = f"killed by {signal.Signals(-code).name}"
        text = stderr[-_STDERR:].decode("utf-8", "replace").strip()
        return f"{shlex.join(self.argv)}: {how}" + (f": {text}" if text else "")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a command and all processes of its group: by SIGTERM, then by SIGKILL."""
    _signal(process, signal.SIGTERM)
    try:
        process.communicate(timeout=_TERMINATE)
    except subprocess.TimeoutExpired:
        pass
    # The group must be killed even if its leader has ended, because other processes of the group
    # may still run.
    _signal(process, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    else:
        process.kill()
