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
from typing import Any, Final, Literal

from wmp.errors import ConfigError, DecodeError, JobCancelled
from wmp.runtime.codecs.payload_codecs import payload_codec
from wmp.runtime.executors.handlers import RunningJob

_LOOK: Final = 0.1
"""Seconds between two checks of the cancelled flag while the command runs."""

_TERMINATE: Final = 1.0
"""Seconds from SIGTERM to SIGKILL when a command must end."""

_STDERR: Final = 2048
"""Bytes of stderr that an error quotes: the end of stderr, which names the cause."""


_JSON: Final = payload_codec("json")

Output = Literal["json", "text", "bytes"]
"""How stdout becomes a result: one JSON value, text in UTF-8, or bytes."""

OUTPUTS: Final[tuple[Output, ...]] = ("json", "text", "bytes")


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
    finish its jobs. Use a thread or process pool with as many slots as commands may run at the
    same time.

    The command reads a payload of bytes or text as it is, and any other value as JSON.
    """

    def __init__(
        self, argv: Sequence[str | os.PathLike[str]], output: Output | None = None
    ) -> None:
        """Find the command.

        Args:
            argv: The command and its arguments; no shell reads them.
            output: How stdout becomes the result; by default ``"bytes"`` for a payload of bytes,
                else ``"text"``.

        Raises:
            ConfigError: There is no such command, ``argv`` is empty, or ``output`` is unknown.
        """
        if output is not None and output not in OUTPUTS:
            raise ConfigError(f"output is {output!r}; expected {', '.join(OUTPUTS)}, or None")
        self.output = output
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

    def __call__(self, payload: Any, job: RunningJob) -> Any:
        """Run the command.

        Raises:
            TypeError: The payload is neither bytes nor text, and JSON cannot carry it.
            ValueError: Stdout is not what ``output`` states.
            CommandFailed: The exit code was not 0, or the job's time ran out.
            JobCancelled: The command was killed because the job was cancelled.
        """
        if isinstance(payload, list) and len(payload) == 1 and isinstance(payload[0], bytes):
            payload = payload[0]  # a list of one frame, from a door or the codec `frames`
        given = self._input(payload)
        output = self.output or ("bytes" if isinstance(payload, bytes | memoryview) else "text")
        return self._result(self._run(given, job), output)

    def _input(self, payload: Any) -> bytes | memoryview:
        """Return the bytes for stdin."""
        if isinstance(payload, bytes | bytearray | memoryview):
            return bytes(payload)
        if isinstance(payload, str):
            return payload.encode()
        try:
            return _JSON.encode(payload)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"a payload of type {type(payload).__name__} cannot be written to the stdin of "
                f"{shlex.join(self.argv)}: {error}; submit bytes, text, or a value of JSON"
            ) from error

    def _result(self, stdout: bytes, output: Output) -> Any:
        if output == "bytes":
            return stdout
        try:
            text = stdout.decode()
            return text if output == "text" else _JSON.decode(stdout)  # type: ignore[misc]
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{shlex.join(self.argv)}: stdout is not UTF-8 at byte {error.start}; use a codec "
                "that carries bytes, and --output bytes"
            ) from error
        except DecodeError as error:
            raise ValueError(
                f"{shlex.join(self.argv)}: stdout is not one JSON value: {error}; use --output text"
            ) from error

    def _run(self, payload: bytes | memoryview, job: RunningJob) -> bytes:
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
