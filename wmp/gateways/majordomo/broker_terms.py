"""The workers of a Majordomo broker as it knows them: each worker, and the workers of a service."""

from __future__ import annotations

from attrs import define, field, frozen

from wmp.actions import Run
from wmp.gateways.common.attendance import Attendance
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
class MajordomoAttendant:
    """A known worker."""

    port: int
    peer: bytes
    service: StaffedService
    state: Attendance = Attendance.UNKNOWN
    run: Run | None = None
    token: bytes = b""
    last_at: float = 0.0
    sent_at: float = 0.0
    given_at: float = 0.0
    """When the worker got its last request."""
    late_token: bytes = b""
    """Token of a request that the worker has not answered; empty for none."""
    tried: bool = False
    """Whether the worker got its request before it was proven, and has not ended it."""
    proven: bool = False
    """Whether the last request of the worker ended with a reply."""
    answered: bool = True
    """Whether a message arrived since the last HEARTBEAT to this worker."""
