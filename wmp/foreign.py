"""Events and actions of machines that speak another protocol than WMP.

Such a machine takes frames as they arrived, and gives frames. Of the other events and actions it
uses those of :mod:`wmp.events` and :mod:`wmp.actions` that are not about WMP messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from attrs import frozen

from wmp.actions import Drop, Halt, Interrupt, Recall, Reconnect, Resolve, Run
from wmp.events import (
    Begun,
    Cancelled,
    Closed,
    Connected,
    Drained,
    Finished,
    Recalled,
    Reported,
    Submitted,
    Ticked,
)
from wmp.message import Frame

__all__ = [
    "Arrived",
    "Disband",
    "Dismissed",
    "Emit",
    "EndRequest",
    "ForeignAction",
    "ForeignClientEvent",
    "ForeignDoorEvent",
    "ForeignEvent",
    "ForeignServerEvent",
    "ForeignWorkerEvent",
    "Frames",
    "GroupOrder",
    "GroupReport",
    "Left",
    "Of",
    "RepliesArrived",
    "Requested",
    "Settled",
    "Staff",
    "Unsent",
    "Voted",
    "Withdrawn",
]

Frames = tuple[Frame, ...]
"""The frames of one message, without the routing id of a ROUTER."""


GroupOrder = Run | Recall | Interrupt
"""The actions that the worker machine of a group requests of the door."""
GroupReport = Begun | Finished | Recalled | Reported
"""The reports of a door to the worker machine of a group."""

_WhatT = TypeVar("_WhatT", bound=GroupOrder | GroupReport)


@frozen
class Arrived:
    """A message arrived."""

    port: int
    """Number of the socket."""
    peer: bytes
    """Routing id of the connection at a ROUTER; empty at a DEALER."""
    frames: Frames


@frozen
class Unsent:
    """An ``Emit`` could not be sent: there is no such connection, or its pipe is full."""

    port: int
    peer: bytes
    frames: Frames = ()
    """The message."""


@frozen
class Left:
    """A connection ended. At a ROUTER all its messages have arrived before."""

    port: int
    peer: bytes


@frozen
class Settled:
    """The messages of a turn have arrived: a door hands over the requests in them."""


@frozen
class RepliesArrived:
    """The messages of workers in a turn have arrived: a gateway gives its workers further requests
    before it passes the results on. ``Settled`` follows.
    """


@frozen
class Dismissed:
    """An operator wants a foreign worker to end."""

    port: int
    peer: bytes


@frozen
class Requested:
    """The application wants a reply to these frames."""

    id: int
    """Number chosen by the caller; every number is used once."""
    frames: Frames


@frozen
class Withdrawn:
    """The application wants no reply to these requests any more."""

    ids: Sequence[int]


@frozen
class Voted:
    """A client has sent a request to a node of a Binary Star."""


@frozen
class Emit:
    """Send a message; the answer is ``Unsent`` if that fails."""

    port: int
    peer: bytes
    frames: Frames


@frozen
class Staff:
    """Report how many jobs a group of workers may have, idle and busy workers together."""

    group: str
    """Name of the group. The workers of a group do the same jobs."""
    roles: tuple[str, ...]
    """Roles of these jobs."""
    places: int
    lane_jobs: int = 1
    """Maximum number of jobs that a worker may get one after the other in one ``Run``."""
    lane_time: float = 0.0
    """Seconds that these jobs should take together."""


@frozen
class Disband:
    """Report that a group is empty, and may stay so."""

    group: str


@frozen
class Of(Generic[_WhatT]):
    """An event of a group's jobs, from their door; or an action for them, to the door."""

    group: str
    what: _WhatT


@frozen
class EndRequest:
    """End a request of the application."""

    id: int
    frames: Frames | None
    """The reply; None if no reply came in the last try."""
    tries: int
    """Number of times that the request was sent."""


_SocketEvent = Arrived | Unsent | Ticked | Drained | Closed

ForeignClientEvent = _SocketEvent | Connected | Requested | Withdrawn
"""Events of a client. A client that connects to several servers may get ``Left``, too."""

ForeignWorkerEvent = _SocketEvent | Connected | Finished
"""Events of a worker, which connects to its queue or broker."""

ForeignServerEvent = Arrived | Unsent | Left | Finished | Drained | Closed
"""Events of a server with handlers, which binds. A server has no timers."""

ForeignDoorEvent = _SocketEvent | Left | Settled | Of[GroupOrder] | Resolve
"""Events of a door with clients and workers."""

ForeignEvent = (
    ForeignClientEvent
    | ForeignWorkerEvent
    | ForeignServerEvent
    | ForeignDoorEvent
    | Dismissed
    | Voted
    | Of[Any]
)
"""All events of machines of other protocols. Each machine takes those of its union."""

ForeignAction = (
    Emit | EndRequest | Submitted | Cancelled | Run | Interrupt | Reconnect | Drop | Halt
)
"""``Submitted`` and ``Cancelled`` are actions of a door: the jobs go to a manager."""
