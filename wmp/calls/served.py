"""The handlers that serve the calls and the tasks of modules, by role."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from wmp.calls.handlers import PICKLED_ROLE, ModuleCalls, PickledCalls, has_functions, module_role
from wmp.calls.pickles import EXTRA, can_pickle_code
from wmp.calls.task import Task
from wmp.errors import ConfigError
from wmp.runtime.executors.handlers import Handler


def handlers_of(*modules: str, pickle: bool = False) -> dict[str, Handler]:
    """Return handlers for ``wmp.Worker(handlers=…)``: the tasks of modules, and calls of functions.

    Args:
        modules: Names of modules. Their tasks are served by their roles. Their public functions are
            served to every :class:`wmp.Executor` that calls them by import path.
        pickle: Whether to run pickled functions too. Then every submitter of the worker's managers
            can run any code here. Managers on other hosts need CURVE keys.

    Raises:
        ConfigError: Two tasks have one role, a module has nothing to serve, or cloudpickle is not
            installed.
    """
    handlers: dict[str, Handler] = {}
    names: dict[str, str] = {}
    for module in modules:
        handlers[module_role(module)] = ModuleCalls(module)
        tasks = tasks_of(module)
        if not tasks and not has_functions(module):
            raise ConfigError(
                f"the module {module!r} has no task and no public function of its own, so a worker "
                "would have nothing to do; decorate functions with @wmp.task, or name a function "
                f"or a wmp.Worker as {module}:NAME"
            )
        for task in tasks.values():
            if names.setdefault(task.role, task.path) != task.path:
                raise ConfigError(
                    f"the tasks {names[task.role]} and {task.path} have the role {task.role!r}; "
                    "give each task its own role"
                )
            handlers[task.role] = task.handler
    if pickle:
        if not can_pickle_code():
            raise ConfigError(f"pickled calls need the package cloudpickle; run: {EXTRA}")
        handlers[PICKLED_ROLE] = PickledCalls()
    return handlers


def tasks_of(module: str) -> Mapping[str, Task[..., object]]:
    """Return the tasks that a module has, by their names in the module."""
    namespace = vars(importlib.import_module(module))
    return {name: value for name, value in namespace.items() if isinstance(value, Task)}
