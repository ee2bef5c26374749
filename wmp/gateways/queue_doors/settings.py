"""The settings of the machines of a queue's doors.

Each setting has its default here. The doors of a gateway and the front door beside a manager take
their defaults from here.
"""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from wmp.gateways.common.client_wire import ClientWire, ReqWire
from wmp.gateways.queue_doors.worker_door_wire import HeartbeatStyle
from wmp.message import DEFAULT_ROLE, Kind, Limits, Peer

LIVENESS: Final = 3
"""Number of heartbeats without a message after which an idle worker is forgotten."""


@frozen
class Service:
    """The terms of the jobs of a front door, and their defaults."""

    kind: Kind = field(factory=Kind)
    priority: int = 0
    max_worker_losses: int = 3
    timeout: float | None = None
    """Seconds within which a job must end; then its request gets no reply."""
    limit: int = 1000
    """Maximum number of requests in progress. Further requests are dropped."""
    limit_bytes: int = 256 << 20
    """Maximum number of bytes of their bodies."""
    client_limit: int = 1000
    """Maximum number of requests of one connection."""
    as_list: bool = False
    """Whether a body of one frame is a list for the handler, too."""
    join: bool = False
    """Whether a request with the body of a request in progress waits for the same job."""
    full: bytes | None = None
    """The reply to a request above a limit; None for no reply."""
    forbidden: frozenset[bytes] = frozenset()
    """Bodies of one frame that workers of the protocol would not take for a job."""
    wire: ClientWire = field(factory=ReqWire)
    """Messages of the clients."""
    remember: float = 6.0
    """Seconds for which a reply is kept for repetitions of its request, if the clients repeat."""


@frozen
class BackDoorSettings:
    """Settings of a back door, and their defaults. Times are seconds."""

    epoch: int
    """Time of the start. With a counter it makes tokens that no earlier start has used."""
    group: str = "workers"
    """Name of the workers of this door together."""
    roles: tuple[str, ...] = (DEFAULT_ROLE,)
    """Roles of the jobs that the workers do."""
    style: HeartbeatStyle | None = None
    """The signs of life that the door sends; None for the style of the protocol."""
    heartbeat: float = 1.0
    """Time after which a worker to which nothing was sent gets a sign of life."""
    max_silence: float | None = LIVENESS * 1.0
    """Silence after which an idle worker is forgotten; None: its silence does not count."""
    busy_timeout: float | None = 3600.0
    """Time after which a request counts as lost, and its worker as late; None for no limit."""
    max_workers: int = Limits.JOBS
    """Maximum number of workers. READY of further workers is dropped.

    Together they are one WMP worker, which has no more jobs at a time than this default.
    """
    home: Peer | None = None
    """The manager whose submitters take results of any codec."""
    exit_on_drain: bool = False
    """Whether the workers get EXIT when the door ends, if the protocol has this message."""


SERVICE: Final = Service()
"""The usual terms of the jobs of a front door."""

BACK_DOOR: Final = BackDoorSettings(epoch=0)
"""The usual settings of a back door; each door has its own epoch."""
