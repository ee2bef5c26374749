"""A testee as a process: started, controlled by lines, ended."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import IO

from attrs import define, field

_PATIENCE = 5.0
_MAX_STDERR = 4000


def fill(command: str, words: Mapping[str, str]) -> list[str]:
    """Split a command and replace ``{word}`` in it.

    Raises:
        ValueError: The command is empty or has an open quotation.
    """
    parts = shlex.split(command)
    if not parts:
        raise ValueError("the command is empty; expected a program and its arguments")
    for word, value in words.items():
        parts = [part.replace("{" + word + "}", value) for part in parts]
    return parts


@define(eq=False)
class PeerProcess:
    """One run of a testee's command.

    Args:
        arguments: The program and its arguments.

    Raises:
        OSError: The program cannot be run.
    """

    arguments: list[str]
    _child: subprocess.Popen[bytes] = field(init=False)
    _errors: IO[bytes] = field(init=False)
    _rest: bytes = b""
    stderr: str = ""
    """The last part of the testee's stderr, after the end of the process."""

    def __attrs_post_init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        try:
            self._child = self._start(self._errors)
        except OSError:
            self._errors.close()
            raise
        assert self._child.stdin is not None
        os.set_blocking(self._child.stdin.fileno(), False)
        os.set_blocking(self.output, False)

    def _start(self, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            start_new_session=True,  # Ctrl-C reaches only the kit, which then ends the testee
        )

    @property
    def output(self) -> int:
        """File descriptor of the testee's stdout, for polling."""
        assert self._child.stdout is not None
        return self._child.stdout.fileno()

    @property
    def number(self) -> int:
        """The number of the process."""
        return self._child.pid

    @property
    def ended(self) -> bool:
        """Whether the process has exited."""
        return self._child.poll() is not None

    @property
    def how(self) -> str:
        """How the process ended, in words."""
        status = self._child.poll()
        if status is None:
            return "with an unknown exit status"
        return f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"

    def write_line(self, line: str) -> None:
        """Write a line to the testee's stdin; give up if the pipe stays full for some seconds."""
        assert self._child.stdin is not None
        pipe, data = self._child.stdin.fileno(), line.encode() + b"\n"
        while data and select.select([], [pipe], [], _PATIENCE)[1]:
            try:
                data = data[os.write(pipe, data) :]
            except OSError:
                return

    def lines(self) -> list[str]:
        """Return the whole lines that the testee has written since the last call."""
        data = self._rest
        while True:
            try:
                part = os.read(self.output, 1 << 16)
            except BlockingIOError:
                break
            if not part:
                break
            data += part
        *whole, self._rest = data.split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def terminate(self) -> None:
        """Send SIGTERM."""
        if not self.ended:
            self._child.terminate()

    def close(self, patience: float, *, had_to_end: bool = False) -> str:
        """End the process within ``patience`` seconds; return a complaint about its end, or "".

        Args:
            patience: Seconds that the process may take.
            had_to_end: The testee had to end by itself with an error: accept any status.
        """
        ended_before = self.ended
        self.terminate()
        complaint = ""
        try:
            self._child.wait(patience)
        except subprocess.TimeoutExpired:
            complaint = (
                f"the testee did not end within {patience:g} s after SIGTERM, so the kit killed "
                "it; expected exit status 0"
            )
        self._kill_group()
        status = self._child.wait()
        any_will_do = had_to_end and ended_before and status >= 0
        if not complaint and not any_will_do and status not in (0, -signal.SIGTERM):
            when = "on its own, " if ended_before else ""
            complaint = f"the testee ended {when}with status {status}; expected 0"
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        with self._errors as errors:
            size = errors.seek(0, os.SEEK_END)
            errors.seek(max(0, size - _MAX_STDERR))
            self.stderr = errors.read().decode(errors="replace")
        return complaint

    def _kill_group(self) -> None:
        """Kill the remaining processes of the testee's process group."""
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:  # macOS: only zombies are left in the group
            pass

    def wait_ended(self, seconds: float) -> bool:
        """Wait until the process has exited; False if time runs out."""
        until = time.monotonic() + seconds
        while not self.ended:
            left = until - time.monotonic()
            if left <= 0:
                return False
            try:
                self._child.wait(left)
            except subprocess.TimeoutExpired:
                return False
        return True
