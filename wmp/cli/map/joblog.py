"""The job log of ``wmp map``: a line for each job that has ended, with the columns of GNU parallel.

A line is written after the result of its job was printed. So a run that resumes from the log
repeats a job rather than losing a result.
"""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Final

from attrs import frozen

from wmp.errors import ConfigError, JobFailed
from wmp.message import printable

_HEADER: Final = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand"

_ROWS: Final = 256
"""Number of rows that are kept before they are written."""


@frozen
class JobLogRow:
    """One job that has ended."""

    number: int
    """Number of its input, from 1."""
    host: str
    start: float
    """When the job was sent to its worker, in seconds since 1970."""
    runtime: float
    sent: int
    received: int
    code: int
    signal: int
    command: str

    def line(self) -> str:
        """Return the line of the file."""
        return (
            f"{self.number}\t{self.host}\t{self.start:.3f}\t{self.runtime:10.3f}\t{self.sent}\t"
            f"{self.received}\t{self.code}\t{self.signal}\t{self.command}\n"
        )


class JobLog:
    """The log file of one run.

    Args:
        name: Path of the file. A ``+`` before the path keeps the lines that are there.
        resume: Whether the jobs in the file are skipped.
        failed: Whether the failed jobs in the file are done again. This includes ``resume``.
        role: Role of the jobs; the lines name it.

    Raises:
        ConfigError: The file cannot be read or written, or is not a job log.
    """

    def __init__(self, name: str, role: str, *, resume: bool = False, failed: bool = False) -> None:
        self._path = Path(name.removeprefix("+"))
        self._role = role
        self._done: dict[int, str] = {}
        """Commands of the jobs to skip, by number."""
        self._rows: list[JobLogRow] = []
        keeps = resume or failed or name.startswith("+")
        if keeps:
            size = self._read(failed)
        else:
            self._check_replaced()
            size = 0
        if not (resume or failed):
            self._done.clear()
        try:
            self._file = self._path.open("r+b" if size else "wb")
            # A line without an end is the rest of a run that was killed.
            self._file.truncate(size)
            self._file.seek(size)
            if not size:
                self._file.write(f"{_HEADER}\n".encode())
                self._file.flush()
        except OSError as error:
            raise self._refusal("write", error) from error

    def __enter__(self) -> JobLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            # After an error of stdout some results of these rows were not printed.
            if not isinstance(error, OSError):
                sys.stdout.flush()
                self.flush()
        finally:
            self._file.close()

    def command(self, name: str) -> str:
        """Return the command of a job, as its line shows it."""
        return printable(f"{self._role} {name}")

    def skips(self, number: int, name: str) -> bool:
        """Return whether the job of an input is in the log already.

        Raises:
            ConfigError: The log has another input under this number.
        """
        known = self._done.get(number)
        if known is None:
            return False
        if known != self.command(name):
            raise ConfigError(
                f"{self._path}: job {number} was {known!r}, and is {self.command(name)!r} now; "
                "resume with the same inputs and the same --role, or leave out --resume"
            )
        return True

    def add(self, row: JobLogRow) -> bool:
        """Keep a row; return whether the caller should call ``flush`` soon."""
        self._rows.append(row)
        return len(self._rows) >= _ROWS

    def flush(self) -> None:
        """Write the kept rows. Results of their jobs must be on stdout by now."""
        if self._rows:
            rows, self._rows = self._rows, []
            try:
                self._file.write("".join(row.line() for row in rows).encode())
                self._file.flush()
            except OSError as error:
                raise self._refusal("write", error) from error

    def _check_replaced(self) -> None:
        """Check that the file that the log replaces is a job log too, or empty."""
        if not self._path.is_file():  # a pipe or a terminal has nothing to lose
            return
        try:
            with self._path.open("rb") as file:
                first = file.read(len(_HEADER)).decode("utf-8", "replace")
        except OSError as error:
            raise self._refusal("read", error) from error
        if not _HEADER.startswith(first.rstrip("\n")):
            raise ConfigError(
                f"{self._path} is not a job log, which a job log would replace: it begins with "
                f"{first[:40]!r}; name another file"
            )

    def _read(self, failed: bool) -> int:
        """Read the jobs of an existing file; return the number of bytes of its whole lines."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise self._refusal("read", error) from error
        whole = content[: content.rfind(b"\n") + 1]
        if not whole and _HEADER.startswith(content.decode("utf-8", "replace")):
            return 0
        first, *lines = whole.decode("utf-8", "replace").splitlines() or [
            content[:80].decode("utf-8", "replace")
        ]
        if first != _HEADER:
            raise ConfigError(
                f"{self._path} is not a job log: its first line is {first[:80]!r}; expected the "
                "columns Seq, Host, Starttime, … separated by tabs"
            )
        for line_number, line in enumerate(lines, 2):
            cells = line.split("\t", 8)
            try:
                number, code, stopped = int(cells[0]), int(cells[6]), int(cells[7])
                command = cells[8]
            except (ValueError, IndexError):
                raise ConfigError(
                    f"{self._path}: line {line_number} is {line[:80]!r}; expected nine columns "
                    "separated by tabs"
                ) from None
            if failed and (code or stopped):
                self._done.pop(number, None)
            else:
                self._done[number] = command
        return len(whole)

    def _refusal(self, what: str, error: OSError) -> ConfigError:
        reason = (error.strerror or str(error)).lower()
        return ConfigError(f"cannot {what} the job log {self._path}: {reason}; name another file")


_CODE: Final = re.compile(r": exit code (\d+)(?:: |$)")
_KILLED: Final = re.compile(r": killed by (SIG\w+)(?:: |$)")


def exit_of(error: BaseException | None) -> tuple[int, int]:
    """Return the exit code and the signal of a job that ended with an error; zeros without one.

    The text of a command's error has its exit code or its signal. All other errors are exit code 1.
    """
    if error is None:
        return 0, 0
    if isinstance(error, JobFailed) and error.type_name == "CommandFailed":
        text = error.text
        if match := _CODE.search(text):
            return int(match[1]), 0
        if match := _KILLED.search(text):
            return 0, int(signal.Signals.__members__.get(match[1], signal.SIGTERM))
    return 1, 0
