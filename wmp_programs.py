"""The entry points of the installed programs. Each checks that ``wmp`` is this package, then runs
it.

The public index has another package that imports as ``wmp``. If that package is installed over this
one, it replaces ``wmp/__init__.py`` or hides the whole package. So this module is outside of
``wmp`` and imports nothing from ``wmp`` before the check.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Final, NoReturn

__all__ = ["conformance", "device", "wmp"]

_MARK: Final = '"worker-manager-protocol"'
"""A name that only this project's ``wmp/__init__.py`` contains."""

_USAGE: Final = 2
"""Exit code for a problem that the user must solve before the program can start."""


def wmp() -> NoReturn:
    """Run ``wmp``."""
    _check("wmp")
    from wmp.cli.common.entry_point import start

    start("wmp", "wmp.cli.program")


def device() -> NoReturn:
    """Run ``wmp-device``."""
    _check("wmp-device")
    from wmp.cli.common.entry_point import start

    start("wmp-device", "wmp.cli.device")


def conformance() -> NoReturn:
    """Run ``wmp-conformance``."""
    _check("wmp-conformance")
    from wmp.cli.common.entry_point import start

    start(
        "wmp-conformance",
        "wmp.conformance.program",
        extra="conformance",
        needed=("click", "rich", "hypothesis", "jinja2"),
    )


def _check(program: str) -> None:
    """Exit with one line on stderr if ``import wmp`` would import another package."""
    spec = importlib.util.find_spec("wmp")
    if spec is not None and spec.origin is not None:
        source = getattr(spec.loader, "get_source", lambda name: None)("wmp")
        # Without a source file the check cannot compare anything.
        if source is None or _MARK in source:
            return
        found = f"{spec.origin} belongs to another package called wmp"
    else:
        found = "wmp/__init__.py is missing; another package called wmp may have replaced it"
    sys.stderr.write(
        f"{program}: {found}; run: pip uninstall wmp, and then install "
        "worker-manager-protocol again\n"
    )
    sys.exit(_USAGE)
