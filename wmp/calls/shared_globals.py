"""The globals that the initializer of an executor shares with its calls (CALL-5.6).

cloudpickle sends a function of the main program with a copy of the globals that the function names.
An initializer that sets a global would set it in its own copy, and no call would read it. Here all
such functions of one module get one namespace in each worker process, as in a process that has
imported this module.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable
from io import BytesIO
from types import FunctionType, ModuleType
from typing import Any, Final

from wmp.errors import InitializerFailed
from wmp.runtime.executors.handler_imports import load_handlers

_CLOUDPICKLE: Final = "cloudpickle.cloudpickle"
"""The module by which pickles name the functions that make functions and classes."""

_CODE: Final = (FunctionType, type, ModuleType)
"""Kinds of globals that a call may send anew, unless the initializer has set them: functions that
were defined again in a notebook, for example."""

_Globals = dict[str, Any]


class SharedGlobals:
    """The namespaces of functions that were sent by their code, by the names of their modules."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Globals] = {}
        self._own: dict[str, set[str]] = {}
        """The globals that belong to this process. A call does not replace them."""
        self._classes: set[type] = set()
        """Classes that came with the initializer. A call does not set their attributes again."""
        self._sent: dict[bytes, list[tuple[_Globals, _Globals]]] = {}
        """The globals that came with a function, by the pickle of the function."""
        self._current = b""
        """The function whose globals are the newest in the namespaces."""
        self._new: list[tuple[_Globals, _Globals]] = []
        self._initializing = False

    @property
    def used(self) -> bool:
        """Whether the initializer has functions that were sent by their code."""
        return bool(self._namespaces)

    def initialize(self, data: bytes) -> None:
        """Unpickle the initializer and its arguments, and call it.

        A function inside of a module that this process can import gets the globals of that module.

        Raises:
            InitializerFailed: cloudpickle made a function in a way that this class does not know.
            BaseException: The initializer raised this exception.
        """
        self._initializing = True
        function, arguments = load_handlers(self._load, data)
        if type(function) is FunctionType:
            self._check(function)
            if "." not in function.__qualname__:
                function.__globals__.setdefault(function.__qualname__, function)
        before = {name: dict(namespace) for name, namespace in self._namespaces.items()}
        function(*arguments)
        for name, namespace in self._namespaces.items():
            old = before[name]
            self._own[name] = {
                key
                for key, value in namespace.items()
                if key not in old or old[key] is not value or not isinstance(value, _CODE)
            }
        self._initializing = False

    def load_function(self, data: bytes | memoryview) -> Any:
        """Unpickle the function of a call."""
        self._new = []
        function = self._load(data)
        self._current = bytes(data)
        self._sent[self._current] = self._new
        return function

    def load_arguments(self, data: bytes | memoryview) -> Any:
        """Unpickle the arguments of a call, which may be functions too."""
        self._new = []
        arguments = self._load(data)
        if self._new:
            self._current = b""
        return arguments

    def restore(self, function: bytes) -> None:
        """Set the globals of a kept function again, if those of another function came after."""
        if function != self._current:
            for namespace, values in self._sent[function]:
                namespace.update(values)
            self._current = function

    def forget(self) -> None:
        """Forget the globals of all kept functions."""
        self._sent.clear()

    def namespace(self, first: _Globals) -> _Globals:
        """Return the namespace for functions whose pickle begins their globals so."""
        name = str(first.get("__name__", "__main__"))
        known = self._namespaces.get(name)
        if known is None:
            module = self._module(name)
            known = dict(first) if module is None else vars(module)
            self._namespaces[name] = known
            self._own[name] = set() if module is None else set(known)
        return known

    def accept(self, function: FunctionType, sent: _Globals) -> _Globals:
        """Return the sent globals that a function may set in its namespace."""
        namespace = function.__globals__
        own = self._own.get(str(namespace.get("__name__", "__main__")), set())
        accepted = {
            key: value
            for key, value in sent.items()
            if key not in own and not _is_same_code(namespace.get(key), value)
        }
        if accepted:
            self._new.append((namespace, accepted))
        return accepted

    def accept_class(self, kind: type) -> bool:
        """Return whether the attributes of a class are set."""
        if self._initializing:
            self._classes.add(kind)
            return True
        return kind not in self._classes

    def _load(self, data: bytes | memoryview) -> Any:
        return _Unpickler(data, self).load()

    def _module(self, name: str) -> ModuleType | None:
        """Return a module of this process; None for the main program of the submitter."""
        if name in ("__main__", "__mp_main__"):
            return None
        if self._initializing:
            try:
                importlib.import_module(name)
            except Exception:  # noqa: BLE001 - code of the module; the globals that were sent remain
                return None
        return sys.modules.get(name)

    def _check(self, function: FunctionType) -> None:
        module = sys.modules.get(function.__module__)
        by_name = module is not None and function.__globals__ is vars(module)
        if not by_name and all(
            function.__globals__ is not namespace for namespace in self._namespaces.values()
        ):
            raise InitializerFailed(
                "the initializer belongs to the main program, and this version of cloudpickle "
                "gives it globals that no call shares; move the initializer and the functions "
                "that need it into a module"
            )


def _is_same_code(old: object, new: object) -> bool:
    """Return whether a function came again. The old function may have attributes that calls set."""
    return (
        type(old) is FunctionType
        and type(new) is FunctionType
        and old.__globals__ is new.__globals__
        and old.__code__ == new.__code__
        and old.__closure__ is new.__closure__ is None
        and old.__defaults__ == new.__defaults__
    )


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes | memoryview, shared: SharedGlobals) -> None:
        super().__init__(BytesIO(data))
        self._shared = shared

    def find_class(self, module: str, name: str) -> Any:
        value = super().find_class(module, name)
        if module == _CLOUDPICKLE:
            wrapper = _WRAPPERS.get(name)
            if wrapper is not None:
                return wrapper(value, self._shared)
        return value


def _make_function(make: Callable[..., Any], shared: SharedGlobals) -> Callable[..., Any]:
    return lambda code, first, *rest: make(code, shared.namespace(first), *rest)


def _set_function(set_state: Callable[..., Any], shared: SharedGlobals) -> Callable[..., Any]:
    def set_accepted(function: FunctionType, state: tuple[Any, dict[str, Any]]) -> None:
        attributes, slots = state
        sent = shared.accept(function, slots["__globals__"])
        set_state(function, (attributes, {**slots, "__globals__": sent}))

    return set_accepted


def _set_class(set_state: Callable[..., Any], shared: SharedGlobals) -> Callable[..., Any]:
    return lambda kind, state: set_state(kind, state) if shared.accept_class(kind) else kind


_WRAPPERS: Final[dict[str, Callable[[Any, SharedGlobals], Callable[..., Any]]]] = {
    "_make_function": _make_function,
    "_function_setstate": _set_function,
    "_class_setstate": _set_class,
}
