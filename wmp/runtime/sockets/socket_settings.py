"""The settings of a node's sockets: CURVE keys, a context to share, and options."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypedDict

import zmq
from attrs import evolve, field, frozen

from wmp.runtime.common.shown_options import shown_options
from wmp.runtime.sockets.security import Security
from wmp.runtime.sockets.transport import Transport

Context = zmq.Context[zmq.Socket[bytes]]


class SocketOptions(TypedDict, total=False):
    """The options of every object that opens ZeroMQ sockets, as named arguments.

    Attributes:
        security: CURVE keys. Without keys only local addresses may be bound. An object that
            connects needs the ``server_key`` of its peers.
        context: A ``zmq.Context`` to share. ``inproc://`` reaches only nodes with the same
            context. Without a shared context no node answers over ``inproc://``.
        transport: Queues, times and limits of the sockets.
    """

    security: Security | None
    context: Context | None
    transport: Transport | None


shows_socket_options: Final = shown_options(
    SocketOptions, dict.fromkeys(SocketOptions.__annotations__)
)
"""Lets ``inspect.signature`` list the options of a constructor by name."""


def _or_default(transport: Transport | None) -> Transport:
    return transport if transport is not None else Transport()


@frozen(kw_only=True)
class SocketSettings:
    """The socket options of one node, which travel together from its constructor to its sockets."""

    security: Security | None = None
    """CURVE keys."""
    context: Context | None = None
    """The context of the sockets. None: the node makes a separate context at its start."""
    transport: Transport = field(default=None, converter=_or_default)
    """Queues, times and limits of the sockets."""

    @classmethod
    def of(cls, options: SocketOptions) -> SocketSettings:
        """Return the settings for the named arguments of a constructor.

        Raises:
            TypeError: An argument is unknown.
        """
        _check_known(options)
        return cls(**options)

    def with_queue(self, more: int) -> SocketSettings:
        """Return these settings with a queue of ``more`` messages more for each peer."""
        mark = self.transport.high_water_mark + more
        return evolve(self, transport=evolve(self.transport, high_water_mark=mark))


def _check_known(names: Iterable[str]) -> None:
    from difflib import get_close_matches  # for errors alone

    known = sorted(SocketOptions.__annotations__)
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the others are {', '.join(known)}"
            raise TypeError(f"got an unexpected keyword argument {name!r}; {hint}")
