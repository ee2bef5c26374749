"""Options of a node's sockets: queues, times, and the limits of connections."""

from __future__ import annotations

from attrs import field, frozen

from wmp.duration import in_seconds
from wmp.message import Limits
from wmp.runtime.common.checks import check_count, check_seconds

_INT = 2**31 - 1
"""The largest value of an option that libzmq accepts; times are milliseconds there."""


@frozen(kw_only=True)
class Transport:
    """Options of the sockets. Each time is a number of seconds, or a ``timedelta``.

    Raises:
        ConfigError: A value is wrong.
    """

    high_water_mark: int = 1000
    """Number of messages that libzmq queues for a peer in each direction."""
    max_frame: int = Limits.PAYLOAD
    """Size of the largest frame that is received, and so of the largest payload.

    libzmq closes the connection of a peer that sends a larger frame. This node also refuses to send
    larger frames, so use the same value on all nodes.
    """
    linger: float = field(default=0.5, converter=in_seconds)
    """Time for which a closed node tries to send its last messages."""
    heartbeat: float = field(default=2.0, converter=in_seconds)
    """Interval of a DEALER's ZMTP heartbeats, by which libzmq itself finds dead hosts."""
    reconnect: float = field(default=0.05, converter=in_seconds)
    """Time for which a DEALER waits before it tries again to connect.

    The wait doubles each time.
    """
    reconnect_max: float | None = field(default=None, converter=in_seconds)
    """The longest wait before another attempt to connect.

    None: 1 s, but 0.1 s for an address of this machine: a manager there need not wait long for a
    worker that was started before it.
    """
    handshake: float = field(default=10.0, converter=in_seconds)
    """Time within which a connecting peer must finish ZMTP's greeting, which holds a descriptor
    until then.
    """
    parked: int = 1000
    """Maximum number of messages that are kept for a full pipe.

    Further messages count as undelivered.
    """
    parked_bytes: int = field(default=64 << 20)
    """Maximum number of bytes in the messages that are kept for a full pipe.

    Above this limit or the limit before it, the connection of the peer is closed, because the peer
    reads nothing. The peer may connect again, and then undelivered messages are sent again.
    """
    parked_total: int = field(default=256 << 20)
    """Maximum number of bytes in the messages that are kept for the full pipes of all peers.

    Above this limit the connection of the peer with the most bytes is closed.
    """
    max_message: int = field(default=320 << 20)
    """Maximum number of bytes of one message, in all its frames.

    The connection of a peer that sends more before the message ends is closed. This works on Linux
    with tcp only.
    """
    max_open: int = field(default=512 << 20)
    """Maximum number of bytes in the unfinished messages of all connections together.

    The connection with the most is closed first.
    """
    max_silent: int = 1000
    """Maximum number of connections that have not sent a message yet, in the handshake or after it.

    Above this limit the oldest of them is closed.
    """
    max_useless: int = 50
    """Number of connections in a second that may end without a message that the node can read. Five
    times as many may end at once.

    Above this limit the node accepts no connection for 0.02 s at a time. This works on Linux with
    tcp only.
    """
    max_chatter: int = 30
    """Number of READY, GIVE, PING and BYE that are read from one worker in a second without a
    result in between.

    Five times as many are read at once. Messages above the limit are dropped. A device also limits
    STATUS, ERROR, and each DONE that answers no TAKE. This second limit is eight times as high.

    A tenth of the number is for the worker alone. All workers together share one further budget, of
    ten workers, for their messages above that tenth.
    """
    max_refused: int = 20
    """Number of refused messages that one connection may send in a second. Five times as many may
    come at once.

    For frames that are not a message, the budget grows a hundred times more slowly. A connection
    above this limit is ignored for 10 seconds. Messages that came through a device do not count.

    A tenth of the number is for the connection alone. All connections together share one further
    budget, of ten connections, for their messages above that tenth.
    """

    def __attrs_post_init__(self) -> None:
        check_count("high_water_mark", self.high_water_mark, 1, _INT)
        # Jobs with small payloads share a frame of at most this size, which must be accepted.
        check_count("max_frame", self.max_frame, Limits.COLUMNS, Limits.UINT)
        check_count("parked", self.parked)
        check_count("parked_bytes", self.parked_bytes)
        check_count("parked_total", self.parked_total)
        check_count("max_message", self.max_message, self.max_frame)
        check_count("max_open", self.max_open, self.max_frame)
        check_count("max_silent", self.max_silent, 1)
        check_count("max_useless", self.max_useless, 1)
        check_count("max_chatter", self.max_chatter, 1)
        check_count("max_refused", self.max_refused, 1)
        for name in ("linger", "reconnect", "handshake"):
            check_seconds(name, getattr(self, name), maximum=_INT // 1000)
        if self.reconnect_max is not None:
            check_seconds("reconnect_max", self.reconnect_max, maximum=_INT // 1000)
        # libzmq keeps three times this value as a number of 16 bits, in tenths of a second.
        check_seconds("heartbeat", self.heartbeat, maximum=2000)

    @property
    def payload(self) -> int:
        """Bytes of the longest payload that may be sent."""
        return min(self.max_frame, Limits.PAYLOAD)
