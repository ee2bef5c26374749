"""The handlers of calls: they look up a function, call it, and return its result.

These objects run at a worker, also in its worker processes. They import no sockets.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final

from wmp.calls.pickles import add_carried, pickle_value, split_call
from wmp.calls.shared_globals import SharedGlobals
from wmp.errors import ConfigError, HandlerVerdict, InitializerFailed, JobCancelled
from wmp.runtime.executors.handler_imports import load_handlers
from wmp.runtime.executors.handlers import Prepared
from wmp.runtime.executors.job_log import RUNNING

PICKLED_ROLE: Final = f"pickled-call:{sys.version_info.major}.{sys.version_info.minor}"
"""The role of pickled calls. Code of one version of Python does not run in another (CALL-1.2)."""

IN_INITIALIZER: Final = "in its initializer"
"""End of the text about a process that ended while its initializer ran (CALL-5.4)."""

_KEPT: Final = 64
"""Number of functions that a worker keeps unpickled."""


def module_role(module: str) -> str:
    """Return the role of the calls of a module's functions (CALL-1.1)."""
    return f"call:{module}"


def resolve(module: str, name: str) -> Callable[..., Any]:
    """Return the function with a dotted name in a module that is imported already.

    Raises:
        LookupError: The module has no public callable of its own under this name (CALL-2.3).
    """
    target: Any = sys.modules[module]
    for part in name.split("."):
        if part.startswith("_"):
            raise LookupError(f"{name!r} is not public; the names of calls must not start with _")
        try:
            target = getattr(target, part)
        except AttributeError:
            raise LookupError(f"the module {module!r} has no function {name!r}") from None
    if not callable(target) or getattr(target, "__module__", None) != module:
        raise LookupError(
            f"{name!r} is not defined in the module {module!r}; start the worker with the "
            "function's own module"
        )
    function: Callable[..., Any] = target
    return function


def functions_of(module: str) -> tuple[str, ...]:
    """Return the names of the functions that a module defines at its top level (CALL-2.3).

    The module is imported already. Its private functions, its classes and their methods, its
    lambdas and the names that it imported from elsewhere are left out.
    """
    return tuple(
        name
        for name, value in vars(sys.modules[module]).items()
        if not name.startswith("_")
        and callable(value)
        and not isinstance(value, type)
        and getattr(value, "__module__", None) == module
        and getattr(value, "__qualname__", None) == name
    )


def path_of(function: Any) -> tuple[str, str] | None:
    """Return the module and the name by which a worker can find a function; None without these.

    The path must lead to the same object here (CALL-2.4).
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    try:
        return (module, name) if resolve(module, name) is function else None
    except LookupError:
        return None


def call_rows(function: Callable[..., Any], columns: list[Any]) -> list[Any]:
    """Return the results of a chunk of calls: one for each row of the columns (CALL-2.2).

    Raises:
        TypeError: A column is not a list.
        ValueError: The columns have different lengths.
    """
    for column in columns:
        if not isinstance(column, list):
            raise TypeError(
                f"a column of a chunk of calls is of type {type(column).__name__}; expected a list"
            )
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ValueError(
            f"the columns of a chunk of calls have {', '.join(map(str, sorted(lengths)))} "
            "arguments; expected equal numbers"
        )
    # Not `map`: a StopIteration of the function would end it, and lose the results of the rest.
    return [function(*row) for row in zip(*columns, strict=True)]


def set_environment(variables: Mapping[str, str]) -> None:
    """Set environment variables, as an initializer: before a library reads them."""
    os.environ.update(variables)


class ModuleCalls:
    """Calls functions of one module by their names (CALL-2).

    Args:
        module: Name of the module, which is imported now and in every worker process.
        names: Names of the functions that may be called; None for all functions that the module
            defines at its top level.

    Raises:
        ConfigError: The module is ``__main__``, which another process does not have, or has no
            public callable of its own under one of the names.
    """

    imports_main = False
    """A worker process need not import the main module of the worker's program."""

    def __init__(self, module: str, names: tuple[str, ...] | None = None) -> None:
        if module == "__main__":
            raise ConfigError("the module of calls is '__main__'; expected a module with a name")
        load_handlers(importlib.import_module, module)
        self._module = module
        self._named = names
        self.names = frozenset(functions_of(module) if names is None else names)
        """The names of the functions that may be called."""
        self._functions: dict[str, Callable[..., Any]] = {}
        for name in names or ():
            try:
                resolve(module, name)
            except LookupError as error:
                raise ConfigError(f"cannot serve {name!r} of {module}: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return ModuleCalls, (self._module, self._named)

    def __call__(self, call: Any) -> Any:
        match call:
            case [str() as name, list() as arguments, dict() as named]:
                return self._function(name)(*arguments, **named)
            case [str() as name, list() as columns]:
                return call_rows(self._function(name), columns)
        raise TypeError(
            "a call by import path must be an array of a name, a list of arguments and a dict of "
            "named arguments, or of a name and a list of columns"
        )

    def _function(self, name: str) -> Callable[..., Any]:
        function = self._functions.get(name)
        if function is None:
            if name not in self.names:
                raise LookupError(
                    f"this worker does not serve {name!r} of {self._module}; start it with "
                    "--function NAME (in Python with handlers_of(…, functions=[…]))"
                )
            function = self._functions[name] = resolve(self._module, name)
        return function


class PickledCalls(Prepared):
    """Calls functions that arrive as pickles (CALL-3).

    Args:
        initializer: The pickle of ``(function, arguments)``, which each process calls before its
            first call; None for no initializer.
    """

    imports_main = False
    unpickles = True
    """A submitter of jobs for this handler can run any code: see ``check_unpickling``."""

    def __init__(self, initializer: bytes | None = None) -> None:
        self._initializer = initializer
        self._failure: InitializerFailed | None = None
        self._initialized = initializer is None
        self._functions: dict[bytes, Callable[..., Any]] = {}
        self._globals: SharedGlobals | None = None
        """The globals of an initializer that was sent by its code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return PickledCalls, (self._initializer,)

    def __call__(self, payload: bytes) -> bytes:
        function, rest = split_call(payload)
        call = self._functions.get(function)
        if call is None:
            call = self._unpickled(function)
        elif self._globals is not None:
            self._globals.restore(function)
        shared = self._globals
        load = pickle.loads if shared is None else shared.load_arguments
        arguments = load_handlers(load, rest)
        try:
            if type(arguments) is list:
                return pickle_value(call_rows(call, arguments))
            positional, named = arguments
            return pickle_value(call(*positional, **named))
        except (HandlerVerdict, JobCancelled):
            raise
        except BaseException as error:
            add_carried(error)
            raise

    def _unpickled(self, function: bytes) -> Callable[..., Any]:
        shared = self._globals
        load = pickle.loads if shared is None else shared.load_function
        call: Callable[..., Any] = load_handlers(load, function)
        # Only functions without a state of their own are kept. Each other call gets a fresh object.
        if type(call) is FunctionType and not call.__closure__ and not call.__defaults__:
            if len(self._functions) >= _KEPT:
                self._functions.clear()
                if shared is not None:
                    shared.forget()
            self._functions[bytes(function)] = call
        return call

    def prepare(self) -> None:
        """Call the initializer, once in this process. All calls see the context variables that the
        initializer sets.

        Raises:
            InitializerFailed: The initializer raised an error, now or before.
        """
        if self._initialized:
            return
        if self._failure is not None:
            raise self._failure
        assert self._initializer is not None
        lane = RUNNING.get()
        try:
            if lane is not None:
                lane.doing(IN_INITIALIZER)
            shared = SharedGlobals()
            shared.initialize(self._initializer)
            self._globals = shared if shared.used else None
        except BaseException as error:
            self._failure = InitializerFailed(
                f"the initializer of a worker process raised {type(error).__name__}: {error}"
            )
            raise self._failure from error
        finally:
            if lane is not None:
                lane.doing("")
        self._initialized = True
