"""The names of :mod:`wmp.gateways` for asyncio."""

from __future__ import annotations

import typing

from wmp.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from wmp.gateways.binary_star.aio import BinaryStar, StarClient
    from wmp.gateways.freelance.aio import Agent, Failover, FreelanceServer, Shotgun
    from wmp.gateways.gateway.aio import Gateway
    from wmp.gateways.majordomo.aio_client import MajordomoClient
    from wmp.gateways.majordomo.aio_pipelined import MajordomoPipelinedClient
    from wmp.gateways.majordomo.aio_worker import MajordomoWorker
    from wmp.gateways.majordomo.door import MajordomoDoor, MajordomoService
    from wmp.gateways.ping_pong.aio import PingPongWorker
    from wmp.gateways.pirates.aio import LazyClient, LazyServer, ParanoidWorker, SimpleWorker
    from wmp.gateways.pirates.remember import ReplyCache, remember
    from wmp.gateways.queue_doors.aio import FrontDoor
    from wmp.gateways.queue_doors.doors import ClientDoor, WorkerDoor
    from wmp.gateways.round_robin.aio import (
        RoundRobinClient,
        RoundRobinServer,
        RoundRobinWorker,
    )
    from wmp.gateways.round_robin.door import RoundRobinDoor, TableRow
    from wmp.gateways.round_robin.stream_data import pack_stream, unpack_stream
    from wmp.gateways.titanic.aio import Titanic, TitanicStatistics

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
    "TitanicStatistics",
    "WorkerDoor",
    "pack_stream",
    "remember",
    "unpack_stream",
]

_HOMES: typing.Final = {
    "Agent": "freelance.aio",
    "BinaryStar": "binary_star.aio",
    "ClientDoor": "queue_doors.doors",
    "Failover": "freelance.aio",
    "FreelanceServer": "freelance.aio",
    "FrontDoor": "queue_doors.aio",
    "Gateway": "gateway.aio",
    "LazyClient": "pirates.aio",
    "LazyServer": "pirates.aio",
    "MajordomoClient": "majordomo.aio_client",
    "MajordomoDoor": "majordomo.door",
    "MajordomoService": "majordomo.door",
    "MajordomoPipelinedClient": "majordomo.aio_pipelined",
    "MajordomoWorker": "majordomo.aio_worker",
    "ParanoidWorker": "pirates.aio",
    "PingPongWorker": "ping_pong.aio",
    "ReplyCache": "pirates.remember",
    "RoundRobinClient": "round_robin.aio",
    "RoundRobinDoor": "round_robin.door",
    "RoundRobinServer": "round_robin.aio",
    "RoundRobinWorker": "round_robin.aio",
    "Shotgun": "freelance.aio",
    "SimpleWorker": "pirates.aio",
    "StarClient": "binary_star.aio",
    "TableRow": "round_robin.door",
    "Titanic": "titanic.aio",
    "TitanicStatistics": "titanic.aio",
    "WorkerDoor": "queue_doors.doors",
    "pack_stream": "round_robin.stream_data",
    "remember": "pirates.remember",
    "unpack_stream": "round_robin.stream_data",
}

__getattr__, __dir__ = _lazy_names(
    __name__, {name: f"wmp.gateways.{home}" for name, home in _HOMES.items()}
)
