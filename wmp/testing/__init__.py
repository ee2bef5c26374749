"""Tools for tests of this library, of its users and of other implementations.

:func:`simulate` runs a user's own handlers in a simulated network with faults, seed by seed;
``wmp.testing.plugin`` adds it to pytest. ``python -m wmp.testing`` plays seeded worlds of the
library's own (:mod:`wmp.testing.world`). Only :mod:`wmp.testing.strategies` needs Hypothesis (the
extra ``conformance``), and only the plugin needs pytest. The library does not import this package.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from wmp.testing.simulated import SimulatedWorld
    from wmp.testing.simulated_job import SimulatedJob
    from wmp.testing.trial import simulate

__all__ = ["SimulatedJob", "SimulatedWorld", "simulate"]

# Imported at the first use: every run of pytest imports this package for its plugin.
_HOMES: typing.Final = {
    "SimulatedJob": "wmp.testing.simulated_job",
    "SimulatedWorld": "wmp.testing.simulated",
    "simulate": "wmp.testing.trial",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'wmp.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
