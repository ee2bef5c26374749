"""The settings of the machines. All times are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from wmp.message import DEFAULT_ROLE, Limits

__all__ = ["DeviceSettings", "ManagerSettings", "WorkerSettings"]


@frozen(kw_only=True)
class ManagerSettings:
    """Settings of a manager machine."""

    identity: bytes
    epoch: int
    label: str = ""
    expire: float = 6.0
    """Silence after which a worker is given up and its leases are queued again."""
    reconnect_grace: float | None = 1.0
    """Time in which a worker whose direct connection ended must return; None: until ``expire``."""
    wake_timeout: float = 0.25
    """Time for which jobs wait for a GIVE before twice as many workers are woken."""
    wake_scan: int = 64
    """Limit of the offers that a policy sees at once, the oldest first."""
    resend: float = 3.0
    """Age at which an unacknowledged message is sent again."""
    reply_margin: float = 0.5
    """A held GIVE is answered this long before its hold ends (at most half of the hold)."""
    bundle: int = 512
    """Jobs in one TAKE at most."""
    bundle_bytes: int = 1 << 20
    """Payload bytes in one TAKE at most (one job may exceed it alone)."""
    challenge: float = 1.0
    """Time in which a peer must answer when another process claims its identity."""
    max_jobs: int = 1_000_000
    """Limit of the jobs held, queued and leased; the runtime makes submitters wait."""
    max_bytes: int = 2 << 30
    """Payload bytes of these jobs above which no further job is taken. Payloads up to 512 bytes
    do not count."""
    max_leases: int = 8192
    """Limit of the leases of one worker, whatever capacity it reports."""
    max_workers: int = 100_000
    """Workers remembered at most."""
    max_identities: int = 10_000
    """Limit of the remembered workers that were met on one connection; a device may have many."""
    max_gives: int = 20_000
    """Limit of the held GIVEs. Further GIVEs are answered at once."""
    stories: int = 0
    """Jobs whose story is remembered, the newest ones; 0 keeps no stories and costs nothing."""


@frozen(kw_only=True)
class WorkerSettings:
    """Settings of a worker machine."""

    identity: bytes
    epoch: int
    label: str = ""
    roles: tuple[str, ...] = (DEFAULT_ROLE,)
    headers: Mapping[str, Any] = field(factory=dict)
    """Headers of the application for the policies of managers, sent in every READY."""
    resources: Mapping[str, int] = field(factory=lambda: {"slots": 1})
    """All resources of the worker; started jobs never exceed them."""
    window: int | None = None
    """Limit of the jobs taken beyond resources. None: jobs for ``window_time``, 0 for slow jobs."""
    window_time: float = 0.06
    window_max: int = 4096
    patience: float = 0.25
    """Time for which jobs may wait here while no job before them ends.

    Jobs that waited longer are handed back, at most once in this time. With a fixed ``window`` no
    job is handed back.
    """
    overrun_grace: float = 5.0
    """Time that a job may continue after its run limit before it is answered without an end."""
    lane_time: float = 0.02
    """Jobs are started in bundles that take about this long together.

    Each bundle costs a step of the worker and a message. Jobs of milliseconds would otherwise take
    twice their own time.
    """
    lane_max: int = 512
    hold: float = 5.0
    """Time for which a GIVE may be held while there is one manager; 0 keeps the plain handshake."""
    lock_timeout: float = 5.0
    """Time from the end of ``hold`` until a lock without an answer is released."""
    ping: float = 1.0
    """Interval of PINGs; lowered to a third of a manager's ``expire``."""
    least_expire: float = 0.3
    """A lower ``expire`` of a manager counts as this value, and makes no shorter interval."""
    silence: int = 3
    """Number of intervals without any message after which a link is replaced."""
    jitter: float = 0.25
    """Share of the interval by which READY and the search for managers may come earlier, at random.

    This spreads the messages of a fleet that was started at once. From 0 to less than 1.
    """
    ready_backoff_max: float = 32.0
    reconnect_backoff_max: float = 32.0
    resend: float = 3.0
    challenge: float = 1.0
    """Time in which a peer must answer when another process claims its identity."""
    unacked_bytes: int = 64 << 20
    """Limit of the payload bytes of results kept for resending; above it no more jobs are taken."""
    stories: int = 0
    """Jobs whose story is remembered, the newest ones; 0 keeps no stories and costs nothing."""


@frozen(kw_only=True)
class DeviceSettings:
    """Settings of a device machine."""

    identity: bytes
    epoch: int
    upstreams: int
    """Number of DEALER links, which are numbered from 0."""
    label: str = ""
    max_hops: int = Limits.HOPS
