"""Options of a node's sockets: queues, times, and the limits of connections."""

from __future__ import annotations

from attrs import field, frozen

from wmp.message import Limits
from wmp.runtime.checks import check_count, check_seconds

__all__ = ["Transport"]

_INT = 2**31 - 1
"""The largest option that libzmq takes; times are milliseconds there."""


@frozen(kw_only=True)
class Transport:
    """Options of the sockets. Times are seconds.

    Raises:
        ConfigError: A value is wrong.
    """

    high_water_mark: int = 1000
    """Messages that libzmq queues for a peer, each way."""
    max_frame: int = Limits.PAYLOAD
    """Largest frame that is received, so the largest payload; libzmq closes the connection of a
    peer that sends more.

    This node also refuses to send more: use the same value on all nodes.
    """
    linger: float = 0.5
    """Time for which a closed node tries to send its last messages."""
    heartbeat: float = 2.0
    """Interval of a DEALER's ZMTP heartbeats, which find dead hosts below WMP's own liveness."""
    reconnect: float = 0.05
    """Time that a DEALER waits before it tries again to connect; the wait doubles each time."""
    reconnect_max: float | None = None
    """The longest such wait.

    None: 0.1 s for an address of this machine, so that a worker that waits for its manager does not
    keep the manager waiting, and 1 s elsewhere.
    """
    handshake: float = 10.0
    """Time for ZMTP's greeting of a connecting peer, which holds a descriptor until then."""
    parked: int = 1000
    """Limit of the messages kept for a full pipe; further ones count as undelivered."""
    parked_bytes: int = field(default=64 << 20)
    """The same limit in bytes.

    Above either limit the connection of the peer is closed, since the peer reads nothing. It may
    connect again, and then undelivered messages are sent again.
    """
    parked_total: int = field(default=256 << 20)
    """The same for all peers together; the connection of the peer with the most is closed."""
    max_message: int = field(default=320 << 20)
    """Limit of the bytes of one message, all frames.

    The connection of a peer that sends more before the message ends is closed; on Linux and tcp
    only.
    """
    max_open: int = field(default=512 << 20)
    """The same limit for all connections together; the largest is closed first."""
    max_silent: int = 1000
    """Limit of the connections that have not sent a message yet, in the handshake or after it.

    Above it the oldest is closed.
    """

    max_chatter: int = 30
    """READY, GIVE, PING and BYE a second that are read of one worker without a result in between.

    Five times as many are read at once. The limit of STATUS, ERROR, and DONE that answer no TAKE
    is eight times as high. Messages above a limit are dropped.
    """
    max_refused: int = 20
    """Refused messages a second of one connection. Five times as many may come at once.

    A connection above this limit is ignored for 10 seconds. Messages that came through a device do
    not count.
    """

    def __attrs_post_init__(self) -> None:
        check_count("high_water_mark", self.high_water_mark, 1, _INT)
        # Jobs with small payloads share a frame of at most so many bytes, which must get through.
        check_count("max_frame", self.max_frame, Limits.COLUMNS, Limits.UINT)
        check_count("parked", self.parked)
        check_count("parked_bytes", self.parked_bytes)
        check_count("parked_total", self.parked_total)
        check_count("max_message", self.max_message, self.max_frame)
        check_count("max_open", self.max_open, self.max_frame)
        check_count("max_silent", self.max_silent, 1)
        check_count("max_chatter", self.max_chatter, 1)
        check_count("max_refused", self.max_refused, 1)
        for name in ("linger", "reconnect", "handshake"):
            check_seconds(name, getattr(self, name), most=_INT // 1000)
        if self.reconnect_max is not None:
            check_seconds("reconnect_max", self.reconnect_max, most=_INT // 1000)
        # libzmq keeps three times this value in 16 bits, in tenths of a second.
        check_seconds("heartbeat", self.heartbeat, most=2000)

    @property
    def payload(self) -> int:
        """Bytes of the longest payload that may be sent."""
        return min(self.max_frame, Limits.PAYLOAD)
