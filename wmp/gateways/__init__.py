"""Other protocols: clients, servers and workers that speak them, and gateways between them and WMP.

- The Lazy, Simple and Paranoid Pirate patterns (``specs/pirates.md``): :class:`LazyClient`,
  :class:`LazyServer`, :class:`SimpleWorker`, :class:`ParanoidWorker`, :class:`FrontDoor`, and
  :func:`remember` for handlers that remember their replies.
- Ping-pong (``specs/ping-pong.md``): :class:`PingPongWorker`.
- Round robin on the LMQ layer (``specs/round-robin.md``): :class:`RoundRobinServer`,
  :class:`RoundRobinWorker`, :class:`RoundRobinClient`.
- Majordomo 0.1 and Titanic (``specs/majordomo.md``): :class:`MajordomoClient`,
  :class:`MajordomoPipelinedClient`, :class:`MajordomoWorker`, :class:`Titanic`,
  :class:`TitanicLimits`.
- Freelance (``specs/freelance.md``): :class:`Failover`, :class:`Shotgun`, :class:`Agent`,
  :class:`FreelanceServer`.
- Binary Star (``specs/binary-star.md``): :class:`BinaryStar`, :class:`StarClient`.
- :class:`Gateway` stands in the place of a queue or broker. Its doors are :class:`ClientDoor`,
  :class:`WorkerDoor`, :class:`MajordomoDoor` and :class:`RoundRobinDoor`.

:mod:`wmp.gateways.aio` has the same names for asyncio, where the calls that wait are coroutines.
Here any thread may make a call, and callbacks run on a thread of the object. Each folder of this
package contains one protocol: its machines without I/O, its wire, and its classes for both APIs.
"""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.gateways.binary_star.blocking import BinaryStar, StarClient
    from wmp.gateways.freelance.blocking import Agent, Failover, FreelanceServer, Shotgun
    from wmp.gateways.gateway.blocking import Gateway
    from wmp.gateways.majordomo.blocking import (
        MajordomoClient,
        MajordomoPipelinedClient,
        MajordomoWorker,
    )
    from wmp.gateways.majordomo.door import MajordomoDoor, MajordomoService
    from wmp.gateways.ping_pong.blocking import PingPongWorker
    from wmp.gateways.pirates.blocking import LazyClient, LazyServer, ParanoidWorker, SimpleWorker
    from wmp.gateways.pirates.remember import ReplyCache, remember
    from wmp.gateways.queue_doors.blocking import FrontDoor
    from wmp.gateways.queue_doors.doors import ClientDoor, WorkerDoor
    from wmp.gateways.round_robin.blocking import (
        RoundRobinClient,
        RoundRobinServer,
        RoundRobinWorker,
    )
    from wmp.gateways.round_robin.door import RoundRobinDoor, TableRow
    from wmp.gateways.round_robin.stream_data import pack_stream, unpack_stream
    from wmp.gateways.titanic.aio import TitanicStatistics
    from wmp.gateways.titanic.blocking import Titanic
    from wmp.gateways.titanic.requests import TitanicLimits

__all__ = [
    "Agent",
    "BinaryStar",
    "ClientDoor",
    "Failover",
    "FreelanceServer",
    "FrontDoor",
    "Gateway",
    "LazyClient",
    "LazyServer",
    "MajordomoClient",
    "MajordomoDoor",
    "MajordomoPipelinedClient",
    "MajordomoService",
    "MajordomoWorker",
    "ParanoidWorker",
    "PingPongWorker",
    "ReplyCache",
    "RoundRobinClient",
    "RoundRobinDoor",
    "RoundRobinServer",
    "RoundRobinWorker",
    "Shotgun",
    "SimpleWorker",
    "StarClient",
    "TableRow",
    "Titanic",
    "TitanicLimits",
    "TitanicStatistics",
    "WorkerDoor",
    "pack_stream",
    "remember",
    "unpack_stream",
]

_HOMES: typing.Final = {
    "Agent": "freelance.blocking",
    "BinaryStar": "binary_star.blocking",
    "ClientDoor": "queue_doors.doors",
    "Failover": "freelance.blocking",
    "FreelanceServer": "freelance.blocking",
    "FrontDoor": "queue_doors.blocking",
    "Gateway": "gateway.blocking",
    "LazyClient": "pirates.blocking",
    "LazyServer": "pirates.blocking",
    "MajordomoClient": "majordomo.blocking",
    "MajordomoDoor": "majordomo.door",
    "MajordomoService": "majordomo.door",
    "MajordomoPipelinedClient": "majordomo.blocking",
    "MajordomoWorker": "majordomo.blocking",
    "ParanoidWorker": "pirates.blocking",
    "PingPongWorker": "ping_pong.blocking",
    "ReplyCache": "pirates.remember",
    "RoundRobinClient": "round_robin.blocking",
    "RoundRobinDoor": "round_robin.door",
    "RoundRobinServer": "round_robin.blocking",
    "RoundRobinWorker": "round_robin.blocking",
    "Shotgun": "freelance.blocking",
    "SimpleWorker": "pirates.blocking",
    "StarClient": "binary_star.blocking",
    "TableRow": "round_robin.door",
    "Titanic": "titanic.blocking",
    "TitanicLimits": "titanic.requests",
    "TitanicStatistics": "titanic.aio",
    "WorkerDoor": "queue_doors.doors",
    "pack_stream": "round_robin.stream_data",
    "remember": "pirates.remember",
    "unpack_stream": "round_robin.stream_data",
}

__getattr__, __dir__ = _lazy_names(
    __name__, {name: f"{__name__}.{home}" for name, home in _HOMES.items()}
)
