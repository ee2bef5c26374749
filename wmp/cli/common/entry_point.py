"""Start and end of every program: one line for an error, and an exit code.

This module runs without the extra ``cli``, so that it can report a missing package.
"""

from __future__ import annotations

import importlib
import importlib.util
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn

from wmp.cli.common.init_process import leave_first_process
from wmp.cli.common.standard_streams import CLOSED, OutputFailed, drop_stdout, prepare_streams
from wmp.errors import ConfigError, WMPError
from wmp.runtime.executors.job_log import json_line, logs_json

FAILED: Final = 1
"""Exit code: the program ran, and a job or a check failed."""

USAGE: Final = 2
"""Exit code: an option, an address or a file is wrong, and the program did nothing."""

SIGNALLED: Final = 128
"""As in shells, the exit code after a signal is this value plus the number of the signal."""

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as in shells."""

BROKEN_PIPE: Final = SIGNALLED + 13
"""Exit code when the reader of stdout has closed the pipe (``| head``), as after SIGPIPE."""

TERMINATED: Final = SIGNALLED + signal.SIGTERM
"""Exit code after SIGTERM, as in shells."""

_NEEDED: Final = ("click", "rich")
"""Packages that every program needs."""


def complain(program: str, text: str) -> None:
    """Print one line on stderr."""
    line = " ".join(text.split())
    if logs_json():
        shown = json_line(line, level="warning", logger=program, at=time.time())
    else:
        shown = f"{program}: {line}"
    with suppress(OSError):  # a full disk or a closed pipe: there is no other place to complain
        print(shown, file=sys.stderr, flush=True)


class ProgramTerminated(KeyboardInterrupt):
    """SIGTERM: ends a wait as Ctrl-C does."""


@contextmanager
def terminated() -> Iterator[None]:
    """Have SIGTERM raise :class:`ProgramTerminated`, so that ``finally`` blocks run."""

    def caught(number: int, frame: FrameType | None) -> NoReturn:
        raise ProgramTerminated

    before = signal.signal(signal.SIGTERM, caught)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interruption:
    """Ctrl-C and SIGTERM for a program that looks at futures in turns.

    An exception of a signal handler may arise between any two steps of Python, also just after a
    wait has locked a future. The lock then stays locked, and the thread that ends the future waits
    for the lock without end. Within this context the first signal is only recorded, and
    :meth:`check` raises the exception. A second signal raises the exception at once, and so does
    every signal within :meth:`at_once`.
    """

    def __init__(self) -> None:
        self._caught: type[KeyboardInterrupt] | None = None
        self._at_once = False
        self._before: list[tuple[int, Any]] = []

    def __enter__(self) -> Interruption:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before.append((number, signal.signal(number, self._record)))
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        again = self._caught is not None
        self._caught = ProgramTerminated if number == signal.SIGTERM else KeyboardInterrupt
        if again or self._at_once:
            raise self._caught

    def check(self) -> None:
        """Raise the exception of a recorded signal.

        Raises:
            ProgramTerminated: SIGTERM was received.
            KeyboardInterrupt: Ctrl-C was received.
        """
        if self._caught is not None:
            raise self._caught

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Have signals raise their exceptions at once, for output that may wait for its reader."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False


def start(
    program: str, module: str, *, extra: str = "cli", needed: Sequence[str] = _NEEDED
) -> NoReturn:
    """Run the click command ``program`` of a module and exit.

    Args:
        program: Name of the program. Every line begins with this name.
        module: Name of the module that has the ``command``.
        extra: The extra that installs the packages of the program.
        needed: Names of these packages.
    """
    leave_first_process()
    prepare_streams()
    # Some packages are imported late, for example when a progress bar is drawn.
    missing = next((name for name in needed if importlib.util.find_spec(name) is None), None)
    if missing is not None:
        complain(
            program,
            f"this program needs {' and '.join(needed)}, but {missing} is not installed; run: pip "
            f"install 'worker-manager-protocol[{extra}]'",
        )
        sys.exit(USAGE)
    try:
        command = importlib.import_module(module).command
        click = importlib.import_module("click")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    # click 8.1 has no NoArgsIsHelpError. That version prints the help itself.
    no_arguments = getattr(click.exceptions, "NoArgsIsHelpError", ())
    try:
        code = command.main(prog_name=program, standalone_mode=False)
    except no_arguments as error:
        print(error.format_message(), file=sys.stderr)
        code = USAGE
    except click.ClickException as error:
        complain(program, _in_a_line(error))
        code = USAGE
    except ConfigError as error:
        complain(program, str(error))
        code = USAGE
    except CLOSED:
        code = BROKEN_PIPE
    except WMPError as error:
        complain(program, str(error))
        code = FAILED
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    code = _flushed(program, code)
    sys.exit(code)


def _flushed(program: str, code: int) -> int:
    """Write what stdout still buffers; return the exit code."""
    try:
        sys.stdout.flush()
    except CLOSED:
        code = code or BROKEN_PIPE
    except OutputFailed as error:
        if not code:
            complain(program, str(error))
            code = FAILED
    else:
        return code
    drop_stdout()
    return code


def _in_a_line(error: object) -> str:
    """Return a usage error of click in the style of this package's errors."""
    text = str(error.format_message()).rstrip(".?").replace(". Did you", "; did you")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    where = f"; see {context.command_path} --help" if context is not None else ""
    return f"{text[:1].lower()}{text[1:]}{where}"
