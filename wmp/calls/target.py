"""The Python target of a command line: a module, or an attribute of a module."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any

from wmp.errors import ConfigError


def load_target(target: str) -> Any:
    """Import ``package.module`` or ``package.module:attribute``, from the current directory too.

    Raises:
        ConfigError: The module or the attribute does not exist, or the import failed.
    """
    name, separator, attribute = target.partition(":")
    if not name or (separator and not attribute):
        raise ConfigError(
            f"{target!r}: expected PACKAGE.MODULE:ATTRIBUTE, for example work:count, or "
            "PACKAGE.MODULE"
        )
    # `python -m` uses the same path. Worker processes get this path too.
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {error.name!r} in {here} or among the installed packages; "
                "change to its folder, or install it"
            ) from error
        raise ConfigError(f"cannot import {name}: {error}") from error
    # A module runs the user's code, which may raise anything.
    except Exception as error:
        raise ConfigError(
            f"cannot import {name}: {type(error).__name__}: {error}{_where(error)}"
        ) from error
    for part in attribute.split(".") if separator else ():
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise ConfigError(f"the module {name!r} has no attribute {attribute!r}") from error
    return value


def _where(error: Exception) -> str:
    """Return the user's line that raised the error; a syntax error names its line itself."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "" if isinstance(error, SyntaxError) else f" ({last.filename}:{last.lineno})"
