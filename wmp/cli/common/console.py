"""The loop of a console: lines from a terminal, a pipe or ``--do``, and their commands."""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import click

from wmp.cli.common.entry_point import TERMINATED, ProgramTerminated
from wmp.errors import ConfigError, WMPError
from wmp.message import counted, printable

Outcomes = Mapping[str, Any]
"""The findings of a command, as ``--json`` prints them."""

Commands = Mapping[str, Callable[..., tuple[Outcomes, list[str]]]]
"""Functions by command. Each gets the words behind the command, and returns what it found, and the
lines for people. Its docstring is the text of ``help``.
"""

_QUIT: Final = "quit"
_HELP: Final = "help"


class Console:
    """Reads commands, runs them one after the other, and prints what they return.

    Args:
        name: Name of the program, and its prompt.
        commands: Functions by command.
        level: The highest level of lines that are printed.
        as_json: Whether each command prints one line of JSON in place of text.
    """

    def __init__(
        self,
        name: str,
        commands: Commands,
        *,
        level: int,
        as_json: bool,
    ) -> None:
        self._name = name
        self._commands = {**commands, _HELP: self._help, _QUIT: self._quit}
        self._level = level
        self._as_json = as_json
        self.failed = False
        """Whether a command has failed."""

    def shows(self, level: int) -> bool:
        """Return whether lines of a level are printed."""
        return level <= self._level and not self._as_json

    def note(self, text: str, level: int = 1) -> None:
        """Print a line of a level, from any thread."""
        if self.shows(level):
            print(text, flush=True)

    def run(self, script: str | None) -> int:
        """Run commands until ``quit``, the end of input or SIGTERM; return the exit code.

        Args:
            script: The commands of ``--do``; None to read them from standard input.
        """
        try:
            return self._run(script)
        except ProgramTerminated:
            return TERMINATED

    def _run(self, script: str | None) -> int:
        at_terminal = script is None and _is_terminal()
        with contextlib.ExitStack() as stack:
            lines = self._typed(stack) if at_terminal else self._given(script)
            for line in lines:
                for words in (part.split() for part in line.split(";")):
                    if words and words[0] == _QUIT:
                        return self._code(at_terminal)
                    if words:
                        self._do(words[0], words[1:])
        return self._code(at_terminal)

    def _help(self) -> tuple[Outcomes, list[str]]:
        """List the commands."""
        lines = [_shown(name, function) for name, function in self._commands.items()]
        return {"commands": list(self._commands)}, lines

    def _quit(self) -> tuple[Outcomes, list[str]]:
        """End this console, as the end of input does."""
        raise AssertionError  # run() ends before

    def _code(self, at_terminal: bool) -> int:
        return int(self.failed and not at_terminal)

    def _given(self, script: str | None) -> Iterable[str]:
        return sys.stdin if script is None else (script,)

    def _typed(self, stack: contextlib.ExitStack) -> Iterator[str]:
        try:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.completion import WordCompleter
            from prompt_toolkit.patch_stdout import patch_stdout
        except ImportError as error:
            raise ConfigError(
                "a console at a terminal needs prompt_toolkit; run "
                "pip install 'worker-manager-protocol[console]', or pass commands with --do"
            ) from error
        session: PromptSession[str] = PromptSession(
            completer=WordCompleter([*self._commands]), complete_while_typing=False
        )
        # Lines of other threads go above the prompt.
        stack.enter_context(patch_stdout(raw=True))
        while True:
            try:
                yield session.prompt(f"{self._name}> ")
            except (EOFError, KeyboardInterrupt):
                return

    def _do(self, command: str, words: list[str]) -> None:
        try:
            function = self._commands.get(command)
            if function is None:
                known = ", ".join(self._commands)
                raise ConfigError(f"there is no command {command!r}; expected one of {known}")
            expected = len(inspect.signature(function).parameters)
            if len(words) != expected:
                raise ConfigError(
                    f"the command {command} got {counted(len(words), 'argument')}; expected "
                    f"{expected}: {_shown(command, function)}"
                )
            outcomes, lines = function(*words)
        except WMPError as error:
            self.failed = True
            self._print({"command": command, "error": str(error)}, [f"error: {error}"])
        else:
            self._print({"command": command, **outcomes}, lines)

    def _print(self, outcomes: Outcomes, lines: list[str]) -> None:
        if self._as_json:
            print(json.dumps(outcomes), flush=True)
        else:
            click.echo("".join(f"{printable(line)}\n" for line in lines), nl=False)
            sys.stdout.flush()


def _shown(command: str, function: Callable[..., object]) -> str:
    """Return a command with its arguments and its description."""
    words = [command, *(name.upper() for name in inspect.signature(function).parameters)]
    return f"{' '.join(words)}: {(function.__doc__ or '').strip()}"


def _is_terminal() -> bool:
    return sys.stdin.isatty()
