"""Freelance: clients of several servers without a broker (``specs/freelance.md``)."""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.gateways.freelance.blocking import Agent, Failover, FreelanceServer, Shotgun

__all__ = [
    "Agent",
    "Failover",
    "FreelanceServer",
    "Shotgun",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "Agent": "wmp.gateways.freelance.blocking",
        "Failover": "wmp.gateways.freelance.blocking",
        "FreelanceServer": "wmp.gateways.freelance.blocking",
        "Shotgun": "wmp.gateways.freelance.blocking",
    },
)
