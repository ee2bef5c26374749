"""The settings of a server of round robin, and its counts."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from wmp.message import Peer


@frozen(kw_only=True)
class RoundRobinDoorSettings:
    """Settings of the server. The door checks them and has their defaults. Times are seconds."""

    epoch: int
    """Time of the start. With a counter it makes tokens that no earlier start has used."""
    group: str
    """Name of the workers together."""
    role: str
    """Role of the jobs of commands without a role of their own."""
    roles: Mapping[bytes, str]
    """Roles by command."""
    served: tuple[str, ...]
    """Roles of the jobs that the workers do."""
    priority: int
    max_worker_losses: int
    timeout: float | None
    """Seconds within which a message must be done; None for no limit."""
    heartbeat: float
    """A registered worker that was silent for this time gets PING."""
    liveness: int
    """Number of such times after which the worker has left."""
    leave: float
    """Time that a worker has after DEREGISTER for the messages that it has."""
    busy_timeout: float | None
    """Time after which a message at a worker counts as lost; None for no limit."""
    max_queue: int | None
    """Maximum number of messages that wait for a worker."""
    limit_bytes: int
    """Maximum number of bytes of all messages in progress, 512 bytes for each one included."""
    max_workers: int
    max_slots: int
    """Maximum number of slots of one worker."""
    home: Peer | None
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
