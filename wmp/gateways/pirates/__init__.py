"""The Lazy, Simple and Paranoid Pirate patterns (``specs/pirates.md``)."""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.gateways.pirates.blocking import LazyClient, LazyServer, ParanoidWorker, SimpleWorker
    from wmp.gateways.pirates.remember import ReplyCache
    from wmp.gateways.queue_doors.blocking import FrontDoor

__all__ = [
    "FrontDoor",
    "LazyClient",
    "LazyServer",
    "ParanoidWorker",
    "ReplyCache",
    "SimpleWorker",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "FrontDoor": "wmp.gateways.queue_doors.blocking",
        "LazyClient": "wmp.gateways.pirates.blocking",
        "LazyServer": "wmp.gateways.pirates.blocking",
        "ParanoidWorker": "wmp.gateways.pirates.blocking",
        "ReplyCache": "wmp.gateways.pirates.remember",
        "SimpleWorker": "wmp.gateways.pirates.blocking",
    },
)
