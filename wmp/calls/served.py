"""The handlers that serve the tasks and the functions of modules, by role."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping

from wmp.calls.handlers import PICKLED_ROLE, ModuleCalls, PickledCalls, module_role
from wmp.calls.pickles import EXTRA, can_pickle_code
from wmp.calls.task import Task
from wmp.errors import ConfigError
from wmp.runtime.executors.handler_imports import load_handlers
from wmp.runtime.executors.handlers import Handler


def handlers_of(
    *modules: str, functions: bool | Iterable[str] = False, pickle: bool = False
) -> dict[str, Handler]:
    """Return handlers for ``wmp.Worker(handlers=…)``: the tasks of modules, and calls of functions.

    Args:
        modules: Names of modules. Their tasks are served by their roles.
        functions: Which functions of the modules are also served to every :class:`wmp.Executor`
            that calls them by import path (CALL-1.3): True for all public functions that the
            modules define at their top level; or the names of some functions of one module, which
            may also be classes, and methods as ``Class.method``.
        pickle: Whether to run pickled functions too. Then every submitter of the worker's managers
            can run any code here. Managers on other hosts need CURVE keys.

    Raises:
        ConfigError: Two tasks have one role, a module has nothing to serve or no function of a
            name, or cloudpickle is not installed.
    """
    names = None if isinstance(functions, bool) else _names(modules, functions)
    handlers: dict[str, Handler] = {}
    paths: dict[str, str] = {}
    for module in modules:
        tasks = tasks_of(module)
        if functions is not False:
            calls = ModuleCalls(module, names)
            if calls.names:
                handlers[module_role(module)] = calls
            elif not tasks:
                raise ConfigError(
                    f"the module {module!r} has no task and no public function of its own, so a "
                    "worker would have nothing to do; decorate functions with @wmp.task, or name "
                    f"a function or a wmp.Worker as {module}:NAME"
                )
        elif not tasks:
            raise ConfigError(
                f"the module {module!r} has no task, so a worker would have nothing to do; "
                "decorate functions with @wmp.task, serve its functions to executors with "
                "--functions (in Python with handlers_of(…, functions=True)), or name a function "
                f"or a wmp.Worker as {module}:NAME"
            )
        for task in tasks.values():
            if paths.setdefault(task.role, task.path) != task.path:
                raise ConfigError(
                    f"the tasks {paths[task.role]} and {task.path} have the role {task.role!r}; "
                    "give each task its own role"
                )
            handlers[task.role] = task.handler
    if pickle:
        if not can_pickle_code():
            raise ConfigError(f"pickled calls need the package cloudpickle; run: {EXTRA}")
        handlers[PICKLED_ROLE] = PickledCalls()
    return handlers


def tasks_of(module: str) -> Mapping[str, Task[..., object]]:
    """Return the tasks that a module has, by their names in the module.

    Raises:
        ConfigError: The module is ``__main__``, which another process does not have.
    """
    if module == "__main__":
        raise ConfigError("the module is '__main__'; expected a module with a name")
    namespace = vars(load_handlers(importlib.import_module, module))
    return {name: value for name, value in namespace.items() if isinstance(value, Task)}


def _names(modules: tuple[str, ...], functions: Iterable[str]) -> tuple[str, ...]:
    names = (functions,) if isinstance(functions, str) else tuple(functions)
    if not names:
        raise ConfigError(
            "functions names no function; name at least one, or give True for all functions"
        )
    if len(modules) != 1:
        raise ConfigError(
            f"functions names {', '.join(names)} of {len(modules)} modules; expected one module, "
            "or functions=True"
        )
    return names
