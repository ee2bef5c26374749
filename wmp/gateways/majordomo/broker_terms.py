"""The workers of a Majordomo broker as it knows them: each worker, and the workers of a service."""

from __future__ import annotations

from collections import OrderedDict

from attrs import define, field, frozen

from wmp.actions import Run
from wmp.gateways.common.attendance import Attendance
from wmp.message import Peer


@frozen(kw_only=True)
class WorkersTerms:
    """Settings of the workers' half. Times are seconds."""

    epoch: int
    """Time of the start. With a counter it makes tokens that no earlier start has used."""
    group: str = "majordomo"
    """First part of the names of the groups."""
    heartbeat: float = 2.5
    """Time after which a worker to which nothing was sent gets HEARTBEAT."""
    max_silence: float = 7.5
    """Silence after which an idle worker is forgotten."""
    strict: bool = False
    """Whether the silence of a busy worker counts, too."""
    busy_timeout: float | None = None
    """Time after which a request counts as lost, and its worker as late; None for no limit."""
    max_workers: int = 10_000
    linger: float = 10.0
    """Time after which a service without workers is forgotten."""
    home: Peer | None = None
    """The manager whose submitters take results of any codec."""


@define(eq=False)
class StaffedService:
    """A service with workers."""

    group: str
    role: str
    idle: OrderedDict[bytes, MajordomoAttendant] = field(factory=OrderedDict)
    """The idle workers, the one that was used least recently first."""
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
    answered: bool = True
    """Whether a message arrived since the last HEARTBEAT to this worker."""
