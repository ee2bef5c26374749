"""Imports that a worker makes for its jobs: such a module must not start worker processes.

Each of these processes would import the module too, and start processes of its own, without end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, TypeVar

from wmp.errors import ConfigError

_IMPORTING: Final[ContextVar[bool]] = ContextVar("wmp_importing", default=False)
"""Whether this thread, or the thread that started this coroutine, unpickles for a worker."""

_MAX_DEPTH: Final = 8
"""Maximum depth of worker processes that start worker processes. Jobs that do so need few levels. A
module that does so when it is imported, in a thread that outlives the import, would need all."""

_depth = 0
"""Number of worker processes in the line of parents, with this process; 0 in other processes."""

_T = TypeVar("_T")


class StartedByImport(ConfigError):
    """A module started worker processes while a worker imported this module."""


def load_handlers(load: Callable[[Any], _T], data: Any) -> _T:
    """Unpickle handlers, functions or arguments, which imports their modules.

    Raises:
        StartedByImport: A module starts worker processes at its top.
        BaseException: The load raised this exception.
    """
    token = _IMPORTING.set(True)
    try:
        return load(data)
    except StartedByImport as error:
        module = _module_of(error.__traceback__)
        raise StartedByImport(_text(f"the module {module!r}")) from error
    finally:
        _IMPORTING.reset(token)


def depth_below() -> int:
    """Return the depth of the worker processes that this process starts."""
    return _depth + 1


def set_depth(depth: int) -> None:
    """Set the depth of this process, which is a worker process."""
    global _depth
    _depth = depth


def check_no_import(handlers: Iterable[Callable[..., Any]]) -> None:
    """Check that a start of worker processes is not part of an import that workers make too.

    Args:
        handlers: The handlers of the processes.

    Raises:
        StartedByImport: A worker imports the module that starts the processes, or the module of a
            handler is imported at this moment, and the processes would import it; or too many
            worker processes have started one another.
    """
    if _IMPORTING.get():
        raise StartedByImport(_text("a module"))
    if _depth >= _MAX_DEPTH:
        raise StartedByImport(
            f"this worker process was started by another, and so on for {_MAX_DEPTH} levels; "
            "probably a thread of a module that workers import starts them; start worker processes "
            "in a function that a job calls, or under `if __name__ == '__main__':`"
        )
    for handler in handlers:
        name = getattr(getattr(handler, "__self__", handler), "__module__", None)
        spec = getattr(sys.modules.get(name or ""), "__spec__", None)
        if getattr(spec, "_initializing", False):
            # Pickling the handler in another thread would also wait for ever for the import.
            raise StartedByImport(_text(f"the module {name!r}"))


def _text(module: str) -> str:
    return (
        f"{module} starts worker processes when it is imported, and a worker imports it; start "
        "them in a function, or under `if __name__ == '__main__':` if the module is a program"
    )


def _module_of(traceback: TracebackType | None) -> str:
    """Return the name of the module whose top was executed last."""
    name = "?"
    while traceback is not None:
        if traceback.tb_frame.f_code.co_name == "<module>":
            name = str(traceback.tb_frame.f_globals.get("__name__", "?"))
        traceback = traceback.tb_next
    return name
