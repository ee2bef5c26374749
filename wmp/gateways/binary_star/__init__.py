"""Binary Star: a pair of nodes of which one serves (``specs/binary-star.md``)."""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.gateways.binary_star.blocking import BinaryStar, StarClient

__all__ = [
    "BinaryStar",
    "StarClient",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "BinaryStar": "wmp.gateways.binary_star.blocking",
        "StarClient": "wmp.gateways.binary_star.blocking",
    },
)
