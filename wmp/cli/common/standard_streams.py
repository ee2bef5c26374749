"""Stdin, stdout and stderr of a program: closed ones, and a stdout that cannot be written."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Final, TextIO

from wmp.errors import WMPError

_NUMBERS: Final = {"stdin": 0, "stdout": 1, "stderr": 2}


class OutputFailed(WMPError):
    """Stdout could not be written, for example because its disk is full."""


class OutputClosed(WMPError):
    """The reader of stdout has closed the pipe (``| head``).

    This is no OSError, because click would end the program with status 1 at a BrokenPipeError.
    """


CLOSED: Final = (BrokenPipeError, OutputClosed)
"""The errors of a print whose reader has closed the pipe, in any process."""


class _Output(io.FileIO):
    """Stdout, whose failures are errors of this package."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise OutputClosed("the reader of stdout has closed the pipe") from error
        except OSError as error:
            cause = (error.strerror or str(error)).lower()
            raise OutputFailed(
                f"stdout cannot be written: {cause}; redirect it to another file, or to /dev/null"
            ) from error


def prepare_streams() -> None:
    """Open what is closed, and let writes to stdout raise errors of this package.

    A socket or file of the program would else get the number of a closed stream, and what the
    program prints would go there. A closed stdin is empty, a closed stderr swallows all, and each
    write to a closed stdout fails, because results would get lost.
    """
    for name, number in _NUMBERS.items():
        if getattr(sys, name) is not None:
            continue
        # Descriptors are opened in ascending order, so this one gets the number.
        opened = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
        if name == "stdin":
            sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays open
        elif name == "stderr":
            sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115 - it stays open
    before: TextIO | None = sys.stdout
    if before is not sys.__stdout__:
        return  # a caller in this process reads the output itself
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(1, "w", closefd=False)),
        encoding=None if before is None else before.encoding,
        errors=None if before is None else before.errors,
        line_buffering=before is not None and bool(before.line_buffering),
    )


def drop_stdout() -> None:
    """Drop all further output, because nobody can read it (``| head``, a full disk).

    Otherwise the interpreter would report the failure when it ends.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
