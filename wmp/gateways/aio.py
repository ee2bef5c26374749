"""The names of :mod:`wmp.gateways` for asyncio."""

from __future__ import annotations

import typing

from wmp.gateways import _HOMES as _BLOCKING_HOMES
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

_MAJORDOMO: typing.Final = {
    "MajordomoClient": "majordomo.aio_client",
    "MajordomoPipelinedClient": "majordomo.aio_pipelined",
    "MajordomoWorker": "majordomo.aio_worker",
}
"""The classes of Majordomo for asyncio are in several files, those for threads in one."""

_HOMES: typing.Final = {
    name: home.replace(".blocking", ".aio") for name, home in _BLOCKING_HOMES.items()
} | _MAJORDOMO

__getattr__, __dir__ = _lazy_names(
    __name__, {name: f"wmp.gateways.{home}" for name, home in _HOMES.items()}
)
