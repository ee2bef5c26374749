"""The life of a request of a Lazy Pirate client, as a table of states and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class RequestState(IntEnum):
    """The state of the request of a client."""

    ENDED = 0
    """No request is in progress."""
    PENDING = 1
    """The request waits for a connection."""
    SENT = 2
    """The request was sent, and the client waits for the reply."""


class RequestInput(IntEnum):
    """The events in the life of a request."""

    REQUEST = 0
    CONNECTED = 1
    """The socket is connected, and the request is sent."""
    UNSENT = 2
    """The request could not be sent."""
    REPLY = 3
    TIMEOUT = 4
    """The try has taken too long, and tries are left."""
    SPENT = 5
    """The last try has taken too long."""
    WITHDRAW = 6
    """The application wants no reply any more."""


_S = RequestState
_I = RequestInput

TRANSITIONS: Final[Mapping[tuple[RequestState, RequestInput], RequestState]] = {
    (_S.ENDED, _I.REQUEST): _S.PENDING,
    (_S.PENDING, _I.CONNECTED): _S.SENT,
    (_S.PENDING, _I.TIMEOUT): _S.PENDING,
    (_S.PENDING, _I.SPENT): _S.ENDED,
    (_S.PENDING, _I.WITHDRAW): _S.ENDED,
    (_S.SENT, _I.UNSENT): _S.PENDING,
    (_S.SENT, _I.REPLY): _S.ENDED,
    (_S.SENT, _I.TIMEOUT): _S.PENDING,
    (_S.SENT, _I.SPENT): _S.ENDED,
    (_S.SENT, _I.WITHDRAW): _S.ENDED,
}
"""The state that follows from each state by each input."""

_NONE = "no request is in progress"
_ONE = "another request is in progress, and this request waits for its end"

IGNORED: Final[Mapping[tuple[RequestState, RequestInput], str]] = {
    (_S.ENDED, _I.CONNECTED): _NONE,
    (_S.ENDED, _I.UNSENT): _NONE,
    (_S.ENDED, _I.REPLY): "a reply without a request is dropped",
    (_S.ENDED, _I.TIMEOUT): _NONE,
    (_S.ENDED, _I.SPENT): _NONE,
    (_S.ENDED, _I.WITHDRAW): _NONE,
    (_S.PENDING, _I.REQUEST): _ONE,
    (_S.PENDING, _I.UNSENT): "the request was not sent",
    (_S.PENDING, _I.REPLY): "the request was not sent, so this is not a reply to it",
    (_S.SENT, _I.REQUEST): _ONE,
    (_S.SENT, _I.CONNECTED): "a request is sent once in a try",
}
"""Every other pair, and the reason why it changes nothing."""
