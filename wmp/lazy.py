"""Packages that import their public names at the first use of each name.

The packages with public names also contain machines without I/O. The import of a machine must not
load sockets, clocks and event loops, and a program must not wait for what it does not use.
"""

from __future__ import annotations

import importlib
import sys
import typing
from collections.abc import Callable, Mapping

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, str], check: Callable[[str], None] | None = None
) -> tuple[Callable[[str], typing.Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package that imports lazily (PEP 562).

    Args:
        package: The name of the package, its ``__name__``.
        homes: The module of each public name. If the module is the name itself in the package, as
            ``"wmp.aio"`` of ``"aio"`` in ``wmp``, then the value is the module.
        check: Called with a name before the import of its module. It raises an error if the name
            cannot be used, for example because a package is missing.
    """

    def get(name: str) -> typing.Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if check is not None:
            check(name)
        module = importlib.import_module(home)
        value = module if home == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names
