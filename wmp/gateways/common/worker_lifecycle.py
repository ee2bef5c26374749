"""The life of a worker of another protocol, as a table of states and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class ForeignWorkerState(IntEnum):
    """The state of a worker of another protocol."""

    CLOSED = 0
    """The socket is not connected yet."""
    IDLE = 1
    """READY was sent, and no request is in progress."""
    BUSY = 2
    """A handler runs."""
    WAITING = 3
    """The peer was silent for too long. The worker waits before it replaces its socket."""


class ForeignWorkerInput(IntEnum):
    """The events in the life of a worker of another protocol."""

    CONNECTED = 0
    """The socket is connected, for the first time or again."""
    REQUEST = 1
    SIGN = 2
    """Any other message of the peer."""
    FINISHED = 3
    """The handler ended."""
    SILENT = 4
    """The peer was silent for as long as the settings allow."""
    DUE = 5
    """The wait is over."""


_S = ForeignWorkerState
_I = ForeignWorkerInput

TRANSITIONS: Final[Mapping[tuple[ForeignWorkerState, ForeignWorkerInput], ForeignWorkerState]] = {
    (_S.CLOSED, _I.CONNECTED): _S.IDLE,
    (_S.IDLE, _I.CONNECTED): _S.IDLE,  # READY again
    (_S.IDLE, _I.REQUEST): _S.BUSY,
    (_S.IDLE, _I.SIGN): _S.IDLE,
    (_S.IDLE, _I.SILENT): _S.WAITING,
    (_S.BUSY, _I.CONNECTED): _S.BUSY,
    (_S.BUSY, _I.REQUEST): _S.BUSY,  # the request waits
    (_S.BUSY, _I.SIGN): _S.BUSY,
    (_S.BUSY, _I.FINISHED): _S.IDLE,
    (_S.WAITING, _I.CONNECTED): _S.IDLE,
    (_S.WAITING, _I.REQUEST): _S.BUSY,
    (_S.WAITING, _I.SIGN): _S.IDLE,
    (_S.WAITING, _I.DUE): _S.CLOSED,
}
"""The state that follows from each state by each input."""

_NO_HANDLER = "no handler runs"
_WORKING = "a peer need not send anything to a busy worker"

IGNORED: Final[Mapping[tuple[ForeignWorkerState, ForeignWorkerInput], str]] = {
    (_S.CLOSED, _I.REQUEST): "the worker has not sent READY on this connection",
    (_S.CLOSED, _I.SIGN): "the worker has not sent READY on this connection",
    (_S.CLOSED, _I.FINISHED): _NO_HANDLER,
    (_S.CLOSED, _I.SILENT): "silence counts from READY on",
    (_S.CLOSED, _I.DUE): "the socket was replaced already",
    (_S.IDLE, _I.FINISHED): _NO_HANDLER,
    (_S.IDLE, _I.DUE): "the peer is not silent",
    (_S.BUSY, _I.SILENT): _WORKING,
    (_S.BUSY, _I.DUE): _WORKING,
    (_S.WAITING, _I.FINISHED): _NO_HANDLER,
    (_S.WAITING, _I.SILENT): "the silence was noticed already",
}
"""Every other pair, and the reason why it changes nothing."""
