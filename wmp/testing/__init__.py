"""Tools for tests of this library, of its users and of other implementations.

:func:`simulate` runs a user's own handlers in a simulated network with faults, seed by seed;
``wmp.testing.plugin`` adds it to pytest. ``python -m wmp.testing`` plays seeded worlds of the
library's own (:mod:`wmp.testing.worlds.world`). Only :mod:`wmp.testing.peers.strategies` needs
Hypothesis (the extra ``conformance``), and only the plugin needs pytest. The library does not
import this package.
"""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.testing.handlers.simulated import SimulatedWorld
    from wmp.testing.handlers.trial import simulate
    from wmp.testing.simulator.simulated_job import SimulatedJob

__all__ = ["SimulatedJob", "SimulatedWorld", "simulate"]

# Imported at the first use: every run of pytest imports this package for its plugin.
__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "SimulatedJob": "wmp.testing.simulator.simulated_job",
        "SimulatedWorld": "wmp.testing.handlers.simulated",
        "simulate": "wmp.testing.handlers.trial",
    },
)
