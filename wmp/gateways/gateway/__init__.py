"""The gateway: doors for other protocols around one manager and groups of workers."""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.gateways.gateway.blocking import Gateway

__all__ = [
    "Gateway",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "Gateway": "wmp.gateways.gateway.blocking",
    },
)
