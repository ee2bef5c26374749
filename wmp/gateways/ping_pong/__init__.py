"""The worker of the ping-pong protocol (``specs/ping-pong.md``)."""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.gateways.ping_pong.blocking import PingPongWorker

__all__ = [
    "PingPongWorker",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "PingPongWorker": "wmp.gateways.ping_pong.blocking",
    },
)
