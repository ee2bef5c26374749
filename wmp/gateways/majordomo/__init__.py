"""Majordomo 0.1: broker, clients and worker (``specs/majordomo.md``)."""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.gateways.majordomo.blocking import (
        MajordomoClient,
        MajordomoPipelinedClient,
        MajordomoWorker,
    )
    from wmp.gateways.majordomo.door import MajordomoDoor, MajordomoService

__all__ = [
    "MajordomoClient",
    "MajordomoDoor",
    "MajordomoPipelinedClient",
    "MajordomoService",
    "MajordomoWorker",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "MajordomoClient": "wmp.gateways.majordomo.blocking",
        "MajordomoDoor": "wmp.gateways.majordomo.door",
        "MajordomoPipelinedClient": "wmp.gateways.majordomo.blocking",
        "MajordomoService": "wmp.gateways.majordomo.door",
        "MajordomoWorker": "wmp.gateways.majordomo.blocking",
    },
)
