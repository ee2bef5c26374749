"""The states of a node of a Binary Star, as a table of states and inputs (specs/binary-star.md)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class StarState(IntEnum):
    """The state of a node. The numbers 1 to 4 are those of the messages (STAR-1.1)."""

    HALTED = 0
    """The node has ended with an error."""
    PRIMARY = 1
    """The node of the role primary has started, and knows nothing of its peer."""
    BACKUP = 2
    """The node of the role backup has started, and knows nothing of its peer."""
    ACTIVE = 3
    """The node serves the clients."""
    PASSIVE = 4
    """The peer serves the clients."""


class StarInput(IntEnum):
    """The events in the life of a node."""

    PEER_PRIMARY = 1
    """The peer is in the state PRIMARY, and this node has the role backup."""
    PEER_BACKUP = 2
    PEER_ACTIVE = 3
    PEER_PASSIVE = 4
    SAME_ROLE = 5
    """The peer has the role of this node."""
    REQUEST = 6
    """A request of a client while the peer is not silent."""
    VOTE = 7
    """A request of a client while the peer is silent."""


_S = StarState
_I = StarInput

STARTS: Final = (_S.PRIMARY, _S.BACKUP)
"""The first states of the two roles."""

TRANSITIONS: Final[Mapping[tuple[StarState, StarInput], StarState]] = {
    (_S.PRIMARY, _I.PEER_BACKUP): _S.ACTIVE,
    (_S.PRIMARY, _I.PEER_ACTIVE): _S.PASSIVE,
    (_S.PRIMARY, _I.SAME_ROLE): _S.HALTED,
    (_S.PRIMARY, _I.VOTE): _S.ACTIVE,
    (_S.BACKUP, _I.PEER_ACTIVE): _S.PASSIVE,
    (_S.BACKUP, _I.SAME_ROLE): _S.HALTED,
    (_S.ACTIVE, _I.PEER_ACTIVE): _S.HALTED,
    (_S.ACTIVE, _I.REQUEST): _S.ACTIVE,
    (_S.ACTIVE, _I.VOTE): _S.ACTIVE,
    (_S.PASSIVE, _I.PEER_PRIMARY): _S.ACTIVE,
    (_S.PASSIVE, _I.PEER_BACKUP): _S.ACTIVE,
    (_S.PASSIVE, _I.PEER_PASSIVE): _S.HALTED,
    (_S.PASSIVE, _I.SAME_ROLE): _S.HALTED,
    (_S.PASSIVE, _I.VOTE): _S.ACTIVE,
}
"""The state that follows from each state by each input."""

_ENDED = "the node has ended"
_WAITS = "the peer decides first, and then this node follows"
_DROPPED = "the request is dropped: its client asks the other node"

IGNORED: Final[Mapping[tuple[StarState, StarInput], str]] = {
    **{(_S.HALTED, star_input): _ENDED for star_input in _I},
    (_S.PRIMARY, _I.PEER_PRIMARY): "a node of the role primary gets SAME_ROLE",
    (_S.PRIMARY, _I.PEER_PASSIVE): _WAITS,
    (_S.PRIMARY, _I.REQUEST): _DROPPED,
    (_S.BACKUP, _I.PEER_PRIMARY): _WAITS,
    (_S.BACKUP, _I.PEER_BACKUP): "a node of the role backup gets SAME_ROLE",
    (_S.BACKUP, _I.PEER_PASSIVE): _WAITS,
    (_S.BACKUP, _I.REQUEST): _DROPPED,
    (_S.BACKUP, _I.VOTE): "a backup that never met an active peer does not serve",
    (_S.ACTIVE, _I.PEER_PRIMARY): "the peer has started again, and will be passive",
    (_S.ACTIVE, _I.PEER_BACKUP): "the peer has started again, and will be passive",
    (_S.ACTIVE, _I.SAME_ROLE): "a node that serves does not end because its peer started wrongly",
    (_S.ACTIVE, _I.PEER_PASSIVE): "this is the normal state of a pair",
    (_S.PASSIVE, _I.PEER_ACTIVE): "this is the normal state of a pair",
    (_S.PASSIVE, _I.REQUEST): _DROPPED,
}
"""Every other pair, and the reason why it changes nothing."""
