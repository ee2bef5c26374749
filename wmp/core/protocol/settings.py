"""The settings of the machines. All times are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from wmp.message import DEFAULT_ROLE, Limits


@frozen(kw_only=True)
class ManagerSettings:
    """Settings of a manager machine."""

    identity: bytes
    epoch: int
    label: str = ""
    max_silence: float = 6.0
    """Silence after which a worker is given up and its leases are queued again."""
    reconnect_grace: float | None = 1.0
    """Time in which a worker must return after the end of its direct connection; None: until
    ``max_silence``.
    """
    max_stall: float = 60.0
    """Time after the last message of a worker itself for which beats keep its leases; 0: beats do
    not count. Beats come from another process while a handler keeps the worker's process from
    running.
    """
    wake_timeout: float = 0.25
    """Time after which twice as many workers are woken, if jobs wait and no GIVE comes."""
    wake_scan: int = 64
    """Maximum number of offers that a policy sees at the same time, the oldest first."""
    resend: float = 3.0
    """Age at which an unacknowledged message is sent again."""
    reply_margin: float = 0.5
    """Time before the end of its hold at which a held GIVE is answered; at most half of the hold.
    """
    bundle: int = 512
    """Maximum number of jobs in one TAKE."""
    bundle_bytes: int = 1 << 20
    """Maximum number of payload bytes in one TAKE; the payload of a single job may be larger."""
    announce: float = 1.0
    """Interval of the announcements to the devices to which the manager dials in."""
    challenge: float = 1.0
    """Time in which a peer must answer when another process claims its identity."""
    orphan_ttl: float = 300.0
    """Time for which workers keep stored jobs and their results without a manager of the store."""
    max_jobs: int = 1_000_000
    """Maximum number of jobs, queued and leased.

    The runtime makes submitters wait at this limit.
    """
    max_bytes: int = 2 << 30
    """Number of payload bytes of these jobs from which on the manager accepts no further job.

    Payloads up to 512 bytes do not count.
    """
    max_leases: int = 8192
    """Limit of the leases of one worker, whatever capacity it reports."""
    max_workers: int = 100_000
    """Maximum number of workers that are remembered."""
    max_identities: int = 10_000
    """Maximum number of workers that are remembered for one connection; a device may have many
    workers.
    """
    max_gives: int = 20_000
    """Limit of the held GIVEs. Further GIVEs are answered at once."""
    stories: int = 0
    """Number of the newest jobs whose stories are kept; 0 keeps no stories and costs nothing."""


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
    """Number of jobs beyond the resources that may wait here.

    None: the number of jobs that end within ``window_time``; none if the jobs are slow.
    """
    window_time: float = 0.15
    window_max: int = 4096
    patience: float = 0.25
    """Time for which jobs may wait here while no earlier job ends.

    Jobs that have waited longer are handed back, at most once in this time. With a fixed ``window``
    no job is handed back.
    """
    overrun_grace: float = 5.0
    """Time for which a job may continue after its run limit.

    After this time the job is answered as overrun although it has not ended.
    """
    lane_time: float = 0.08
    """Time that the jobs of one bundle should take together.

    Each bundle costs a step of the worker and a message. If each job of a few milliseconds had a
    bundle of its own, the steps and messages would take as long as the jobs.
    """
    lane_max: int = 512
    hold: float = 5.0
    """Time for which a GIVE may be held while there is only one manager; 0 sends no held GIVE."""
    lock_timeout: float = 5.0
    """Time after the end of ``hold`` at which a lock without an answer is released."""
    ping: float = 1.0
    """Interval of PINGs; it is shorter if a third of a manager's ``max_silence`` is shorter."""
    min_silence: float = 0.3
    """Minimum of a manager's ``max_silence`` that counts: a lower one makes no shorter interval."""
    silence: int = 3
    """Number of intervals without any message after which a link is replaced."""
    jitter: float = 0.25
    """Share of the interval by which READY and the search for managers may come earlier.

    The share is drawn for each worker, so that a fleet that starts at the same time does not send
    at the same time. From 0 to less than 1.
    """
    ready_backoff_max: float = 32.0
    reconnect_backoff_max: float = 32.0
    resend: float = 3.0
    challenge: float = 1.0
    """Time in which a peer must answer when another process claims its identity."""
    beat_key: int = field(default=0, repr=False)
    """Secret number by which another process may send beats for the worker; 0: none does."""
    unacked_bytes: int = 64 << 20
    """Limit of the payload bytes of results that are kept for resending.

    Above this limit the worker accepts no further jobs.
    """
    stories: int = 0
    """Number of the newest jobs whose stories are kept; 0 keeps no stories and costs nothing."""


@frozen(kw_only=True)
class DeviceSettings:
    """Settings of a device machine."""

    identity: bytes
    epoch: int
    upstreams: int
    """Number of DEALER links, which are numbered from 0."""
    label: str = ""
    max_hops: int = Limits.HOPS
    max_managers: int = Limits.MANAGERS
    """Maximum number of managers that dial in. Each receives every READY."""
    max_silence: float = 6.0
    """Silence after which a manager that dialed in is forgotten."""
