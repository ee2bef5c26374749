"""The workers of a Majordomo broker as it knows them: each worker, and the workers of a service."""

from __future__ import annotations

from attrs import define, field, frozen

from wmp.gateways.common.lane_requests import Attendant
from wmp.gateways.common.next_worker import WorkerTurns
from wmp.message import Peer


@frozen(kw_only=True)
class WorkersTerms:
    """Settings of the workers' half. The door checks them and has their defaults. Times are
    seconds.
    """

    epoch: int
    """Time of the start. With a counter it makes tokens that no earlier start has used."""
    group: str
    """First part of the names of the groups."""
    heartbeat: float
    """Time after which a worker to which nothing was sent gets HEARTBEAT."""
    max_silence: float
    """Silence after which an idle worker is forgotten."""
    strict: bool
    """Whether the silence of a busy worker counts, too."""
    busy_timeout: float | None
    """Time after which a request counts as lost, and its worker as late; None for no limit."""
    max_workers: int
    linger: float
    """Time after which a service without workers is forgotten."""
    home: Peer | None
    """The manager whose submitters take results of any codec."""


@define(eq=False)
class StaffedService:
    """A service with workers."""

    group: str
    role: str
    idle: WorkerTurns[MajordomoAttendant] = field(factory=WorkerTurns)
    members: int = 0
    places: int = 0
    reported: int = 0


@define(eq=False)
class MajordomoAttendant(Attendant):
    """A known worker."""

    service: StaffedService = field(kw_only=True)
    late_token: bytes = b""
    """Token of a request that the worker has not answered; empty for none."""
