"""Flags from the environment and from a TOML file.

A flag of the command line comes first, then the environment variable, then the file, then
the default. The variable of ``--drain-timeout`` of ``wmp worker`` is ``WMP_WORKER_DRAIN_TIMEOUT``.
In the file it is ``drain-timeout`` in the table ``[worker]``.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

import click

from wmp.cli.common.entry_point import complain
from wmp.errors import ConfigError
from wmp.runtime.common.renamed import new_name, remedy_for
from wmp.runtime.executors.job_log import LOG_FORMAT

CONFIG: Final = "WMP_CONFIG"
"""Environment variable with the name of the TOML file."""

_UNSET: Final = ("help", "version", "config")
"""Flags that have no value to set."""

_ARGUMENTS: Final = ("target", "file")
"""Arguments that may be set like a flag."""

_SHORT_NOTE: Final = (
    "Every flag can also be set by an environment variable, {variable} for {flag}. The "
    "command line comes first."
)

_NOTE: Final = (
    "Every flag can also be set by an environment variable, {variable} for {flag}, or by "
    "{key} in the table [{table}] of the TOML file that --config or WMP_CONFIG names. The command "
    "line comes first, then the environment, then the file."
)


class FlagSources(click.Command):
    """A command whose flags may come from the environment and from a TOML file."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        names = [name for _, name in _named(self)]
        # A command may have a file of its own, with another layout.
        self._has_file = "config" not in names and any(name not in _UNSET for name in names)
        if self._has_file:
            self.params.append(
                click.Option(
                    ["--config"],
                    metavar="FILE",
                    envvar=CONFIG,
                    is_eager=True,
                    expose_value=False,
                    callback=_read,
                    help="TOML file with values for flags.",
                )
            )

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Name the variables of the flags, and parse the arguments."""
        path = f"{parent.command_path} {info_name}" if parent is not None else info_name or ""
        for parameter, name in _named(self):
            if name not in _UNSET or (name == "config" and not self._has_file):
                parameter.envvar = _variable(path, name)
                if name == "log-format":
                    parameter.envvar = [parameter.envvar, LOG_FORMAT]
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. An error names the source of a value that was not an argument."""
        _report_misspelt(context)
        try:
            return super().parse_args(context, args)
        except click.NoSuchOption as error:
            renamed = new_name(error.option_name.lstrip("-"), [name for _, name in _named(self)])
            if renamed is None:
                raise
            raise click.UsageError(
                f"{error.option_name} is not a known flag; it was renamed; write --{renamed}",
                context,
            ) from None
        except click.BadParameter as error:
            parameter = error.param
            source = None if parameter is None else given_by(context, parameter.name or "")
            if parameter is None or source in (None, "the command line"):
                raise
            if source == "the environment":
                given = parameter.envvar or ()
                names = [given] if isinstance(given, str) else given
                source = next((name for name in names if os.environ.get(name)), source)
            raise click.BadParameter(
                f"{error.message.rstrip('.')}; the value is from {source}",
                ctx=error.ctx,
                param=parameter,
                param_hint=error.param_hint,
            ) from None

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, and where else their values may come from."""
        super().format_options(context, formatter)
        names = [name for _, name in _named(self) if name not in (*_UNSET, *_ARGUMENTS)]
        if names:
            variable = _variable(context.command_path, names[0])
            note = (_NOTE if self._has_file else _SHORT_NOTE).format(
                variable=variable,
                flag=f"--{names[0]}",
                key=f"'{names[0]}'",
                table=".".join(_table(context)),
            )
            formatter.write_paragraph()
            formatter.write_text(note)


def given_by(context: click.Context, name: str) -> str | None:
    """Return the source of a parameter for an error; None if the parameter has its default."""
    match context.get_parameter_source(name):
        case click.core.ParameterSource.COMMANDLINE:
            return "the command line"
        case click.core.ParameterSource.ENVIRONMENT:
            return "the environment"
        case click.core.ParameterSource.DEFAULT_MAP:
            return "the file of --config"
        case _:
            return None


def _report_misspelt(context: click.Context) -> None:
    """Report each environment variable whose name is almost that of a flag.

    It is not an error: others, such as Kubernetes, set variables with the same prefix.

    Raises:
        ConfigError: A variable has the old name of a flag that was renamed.
    """
    path = context.command_path
    prefix = _variable(path, "")
    flags = [name for _, name in _named(context.command)]
    names = [_variable(path, name) for name in flags]
    for name in sorted(os.environ):
        if name.startswith(prefix) and name not in names:
            renamed = new_name(name.removeprefix(prefix).lower(), flags)
            if renamed is not None:
                raise ConfigError(
                    f"{name} in the environment sets no flag; it was renamed; write "
                    f"{_variable(path, renamed)}"
                )
            near = difflib.get_close_matches(name, names, 1, 0.9)
            if near:
                complain("wmp", f"{name} in the environment sets no flag; did you mean {near[0]}")


def _flag(parameter: click.Parameter) -> str:
    """Return the name of a flag without its dashes; empty for a parameter that is not set so."""
    if isinstance(parameter, click.Option):
        return next((flag[2:] for flag in parameter.opts if flag.startswith("--")), "")
    return parameter.name if parameter.name in _ARGUMENTS else ""


def _named(command: click.Command) -> Iterator[tuple[click.Parameter, str]]:
    return ((parameter, name) for parameter in command.params if (name := _flag(parameter)))


def _variable(path: str, name: str) -> str:
    return f"{path} {name}".upper().replace(" ", "_").replace("-", "_")


def _table(context: click.Context) -> list[str]:
    """Return the names of a command's tables: without ``wmp``, and ``device`` of ``wmp-device``."""
    first, *others = context.command_path.split()
    outer = first.removeprefix("wmp").removeprefix("-")
    return [*([outer] if outer else []), *others] or ["wmp"]


def _read(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is None or context.resilient_parsing:
        return
    path = Path(value)
    try:
        with path.open("rb") as file:
            table: Any = tomllib.load(file)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read {path}: {reason}; expected a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        text = str(error)
        raise ConfigError(f"{path} is not TOML: {text[:1].lower()}{text[1:]}") from error
    tables = _table(context)
    _check_tables(path, context, table, tables[0])
    for name in tables:
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {name} is {table!r}; expected a table [{'.'.join(tables)}]")
    context.default_map = {
        parameter.name or name: _value(path, f"{'.'.join(tables)}.{name}", parameter, given)
        for name, parameter, given in _matched(path, context, table)
    }


def _check_tables(
    path: Path, context: click.Context, document: Mapping[str, Any], own: str
) -> None:
    """Refuse values outside of tables, and a table whose name is a misspelt name of ``own``."""
    above = context.parent.command if context.parent is not None else None
    others = above.list_commands(context) if isinstance(above, click.Group) else []
    for name, value in document.items():
        if name == own:
            continue
        if not isinstance(value, dict):
            raise ConfigError(f"{path}: {name} is outside of a table; put the key below [{own}]")
        if name not in others and difflib.get_close_matches(name, [own], 1, 0.75):
            raise ConfigError(f"{path}: [{name}] is not a known table; did you mean [{own}]")


def _matched(
    path: Path, context: click.Context, table: Mapping[str, Any]
) -> Iterator[tuple[str, click.Parameter, Any]]:
    command = context.command
    known = {name: parameter for parameter, name in _named(command) if name not in _UNSET}
    subcommands = command.list_commands(context) if isinstance(command, click.Group) else []
    for key, value in table.items():
        name = key.replace("_", "-") if key.replace("_", "-") in known else key
        if name in known:
            yield name, known[name], value
        elif key not in subcommands:
            raise ConfigError(f"{path}: {key} is not a known key; {remedy_for(key, sorted(known))}")


def _value(path: Path, key: str, parameter: click.Parameter, value: Any) -> Any:
    """Return a value of the file as the command line would give it."""
    several = bool(getattr(parameter, "multiple", False))
    if several and isinstance(value, dict):
        return [f"{name}={amount}" for name, amount in value.items()]
    if several:
        value = value if isinstance(value, list) else [value]
    if isinstance(value, date) and not several:  # a TOML time needs no quotes
        return value.isoformat()
    kinds = (bool,) if getattr(parameter, "is_flag", False) else (str, int, float)
    for item in value if several else [value]:
        if not isinstance(item, kinds) or (isinstance(item, bool) and bool not in kinds):
            expected = "true or false" if bool in kinds else "text or a number"
            raise ConfigError(
                f"{path}: {key} is {item!r}; expected {expected}"
                + (", or a list of these" if several else "")
            )
    return value
