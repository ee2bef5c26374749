"""Signatures that list the options which a function takes as ``**options``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def shown_options(options: type, defaults: Mapping[str, Any]) -> Callable[[_Function], _Function]:
    """Return a decorator that lets ``help`` and ``inspect.signature`` list options by name.

    Type checkers read the options from ``Unpack``, which the signature of Python does not expand.

    Args:
        options: The ``TypedDict`` with the options that the function takes as ``**options``.
        defaults: Their defaults. Other names are ignored.
    """

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=options.__annotations__[name].__forward_arg__,
            )
            for name, default in defaults.items()
            if name in options.__annotations__
        ]
        shown = signature.replace(parameters=[*own, *named])
        function.__signature__ = shown  # type: ignore[attr-defined]
        return function

    return decorate
