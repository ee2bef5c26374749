"""The scripts of the kit: a module for each kind of testee and part of the specification."""

from __future__ import annotations

import importlib
import pkgutil

__all__ = ["load"]


def load() -> None:
    """Read every script into :data:`wmp.conformance.script.case.CASES`."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
