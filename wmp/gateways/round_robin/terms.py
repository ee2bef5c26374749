"""The settings of a server of round robin, and its counts."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from wmp.message import Peer


@frozen(kw_only=True)
class RoundRobinDoorSettings:
    """Settings of the server. Times are seconds."""

    epoch: int
    """Time of the start. With a counter it makes tokens that no earlier start has used."""
    group: str = "round-robin"
    """Name of the workers together."""
    role: str = "round-robin"
    """Role of the jobs of commands without a role of their own."""
    roles: Mapping[bytes, str] = field(factory=dict)
    """Roles by command."""
    served: tuple[str, ...] = ("round-robin",)
    """Roles of the jobs that the workers do."""
    priority: int = 0
    max_worker_losses: int = 3
    timeout: float | None = None
    """Seconds within which a message must be done; None for no limit."""
    heartbeat: float = 30.0
    """A registered worker that was silent for this time gets PING."""
    liveness: int = 3
    """Number of such times after which the worker has left."""
    leave: float = 15.0
    """Time that a worker has after DEREGISTER for the messages that it has."""
    busy_timeout: float | None = 3600.0
    """Time after which a message at a worker counts as lost; None for no limit."""
    max_queue: int | None = None
    """Maximum number of messages that wait for a worker."""
    limit_bytes: int = 512 << 20
    """Maximum number of bytes of all messages in progress, 512 bytes for each one included."""
    max_workers: int = 10_000
    max_slots: int = 1000
    """Maximum number of slots of one worker."""
    home: Peer | None = None
    """The gateway's own manager."""


@frozen
class RoundRobinDoorStatistics:
    """Counts of a server of round robin; a snapshot."""

    workers: int
    """Number of registered workers."""
    free: int
    """Number of their free slots."""
    requests: int
    replies: int
    waiting: int
    """Number of messages of clients in progress."""
    queued: int
    """Number of those that no worker of round robin has."""
    lost: int
    """Number of attempts that ended with their workers."""
    unanswered: Mapping[str, int]
    """Number of messages without a reply, by the end of their jobs."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped or could not be sent, by reason."""
