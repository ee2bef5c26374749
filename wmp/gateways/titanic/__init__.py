"""Titanic: stored requests to a Majordomo broker (``specs/majordomo.md``)."""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.gateways.titanic.aio import TitanicStatistics
    from wmp.gateways.titanic.blocking import Titanic
    from wmp.gateways.titanic.requests import TitanicLimits

__all__ = [
    "Titanic",
    "TitanicLimits",
    "TitanicStatistics",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "Titanic": "wmp.gateways.titanic.blocking",
        "TitanicLimits": "wmp.gateways.titanic.requests",
        "TitanicStatistics": "wmp.gateways.titanic.aio",
    },
)
