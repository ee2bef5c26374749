"""The scripts of the kit: a folder for each kind of testee."""

from __future__ import annotations

import importlib
import pkgutil

__all__ = ["load"]


def load() -> None:
    """Read every script into :data:`wmp.conformance.script.case.CASES`."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
