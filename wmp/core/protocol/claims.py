"""The holder of an identity: the one route over which a message counts for its sender (spec §15).

A route is a link and the hops of a path. Only a node on a route can send over it: this node's own
socket determines the link, and each device appends the hop that its own socket determines. So a
message over the route that holds an identity counts for that peer. A message over another route, or
with another epoch, is a claim to the identity. The holder is asked over its route, and the claim is
admitted when no answer arrives.

:meth:`Claims.judge` judges all messages of both machines, and :func:`is_on_route` all reports about
a third peer.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Generic, Protocol, TypeVar

from attrs import define

from wmp.core.protocol import error_replies
from wmp.core.protocol.outbound import Outbound, Receiver
from wmp.core.protocol.timers import ClaimTimer
from wmp.message import Command, ErrorCode, Field, Link, Message, Path, Peer

BELIEVED = frozenset({ErrorCode.SUPERSEDED, ErrorCode.MISROUTED, ErrorCode.UNREACHABLE})
"""Codes of the ERRORs that can change a state (WMP-15.8). The others are only counted."""


class Standing(Enum):
    """The relation of a message to the holder of its sender's identity."""

    MOVED = "moved"
    """The holder has moved to another route, over which its session continues."""
    RESTARTED = "restarted"
    """Another epoch takes over the identity. The holder is forgotten first (WMP-9.7)."""
    CLAIMED = "claimed"
    """The message is dropped, and the holder is challenged."""


@define(eq=False)
class Claim:
    """A message of a held identity came over another route, or with an older epoch."""

    link: Link
    path: Path
    """The ``to`` that reaches the peer that claims the identity."""
    command: Command
    """The command of the message."""
    forgetful: bool
    """Whether the message reports that its sender has forgotten the session, or leaves."""
    number: int
    """Number of the challenge that was sent to the holder."""

    @property
    def epoch(self) -> int:
        """The epoch in the claim."""
        return self.path[-2]  # type: ignore[return-value]


class Holder(Receiver, Protocol):
    """The part of a remote peer that :class:`Claims` uses."""

    claim: Claim | None
    confirmed_at: float
    """When the holder last answered a challenge."""

    @property
    def epoch(self) -> int:
        """Epoch of the peer."""


_Holder = TypeVar("_Holder", bound=Holder)
_Action = TypeVar("_Action")


@define(eq=False)
class Claims(Generic[_Holder, _Action]):
    """The claims to the identities of all remote peers of one machine.

    Args:
        outbound: Sends the messages of the machine.
        patience: Returns the seconds in which a holder must answer (WMP-15.6).
        challenge: Sends a challenge with this number to a holder.
    """

    outbound: Outbound[_Holder, _Action]
    patience: Callable[[_Holder], float]
    challenge: Callable[[_Holder, int, float], None]
    number: int = 0
    """Number of the newest challenge."""

    def judge(
        self, holder: _Holder, link: Link, path: Path, message: Message, now: float
    ) -> Standing:
        """Judge a message that came over another route or with another epoch (WMP-15.2 to 15.5).

        Args:
            holder: The peer that holds the identity of the message's sender.
            link: Link of the message.
            path: The ``to`` of an answer.
            message: The message; it is dropped if it is a claim.
            now: Seconds.
        """
        outbound, epoch = self.outbound, path[-2]
        assert isinstance(epoch, int)
        lost = outbound.link_to(holder) is None
        here = link == holder.link and path[:-2] == _hops(holder)
        if lost or (here and epoch > holder.epoch):
            if message.command is Command.BYE and epoch != holder.epoch:
                # The process that leaves never held the identity (WMP-15.7).
                outbound.drop("goodbye of another epoch", link, message)
                return Standing.CLAIMED
            self.end(holder)
            return Standing.MOVED if epoch == holder.epoch else Standing.RESTARTED
        outbound.drop(Standing.CLAIMED.value, link, message)
        if holder.claim is not None:
            return Standing.CLAIMED  # at most one claim is examined at a time
        self.number += 1
        claim = Claim(link, path, message.command, ends_session(message), self.number)
        patience = self.patience(holder)
        if now < holder.confirmed_at + patience / 4:
            # The holder has just answered, and many claims must not cause as many answers.
            self._refuse(holder, claim)
            return Standing.CLAIMED
        holder.claim = claim
        self.outbound.timers.set(ClaimTimer(holder.identity), now + patience)
        self.challenge(holder, claim.number, now)
        return Standing.CLAIMED

    def answered(self, holder: _Holder, number: int, now: float) -> None:
        """End a claim, because the holder answered a challenge over its route (WMP-15.5)."""
        claim = holder.claim
        if claim is not None and claim.number == number:
            self.end(holder)
            holder.confirmed_at = now
            self._refuse(holder, claim)

    def end(self, holder: _Holder) -> Claim | None:
        """End the claim to an identity. Return the claim, or None if there is none."""
        claim = holder.claim
        if claim is not None:
            holder.claim = None
            self.outbound.timers.clear(ClaimTimer(holder.identity))
        return claim

    def _refuse(self, holder: _Holder, claim: Claim) -> None:
        """Report the failure of a claim to the peer that raised the claim.

        A worker with two routes to its manager claims its own identity, and gets no report.
        """
        if claim.epoch != holder.epoch:
            peer: Peer = (holder.identity, claim.epoch)
            text = f"another process with epoch {holder.epoch} holds this identity and answers"
            self.outbound.actions.append(
                error_replies.superseded(
                    self.outbound.me, claim.link, claim.path, claim.command, text, peer
                )
            )


def ends_session(message: Message) -> bool:
    """Return whether the sender leaves, or has forgotten the session (WMP-7.8, WMP-9.11)."""
    if message.command is Command.PING:
        fields = message.fields
        return bool(message.to) and Field.SESSION not in fields and Field.ANSWER not in fields
    return message.command is Command.BYE


def is_on_route(message: Message, link: Link, holder: Holder) -> bool:
    """Return whether a node on the route to ``holder`` sent ``message``: a device or the far end.

    The hops of such a message are the hops of the route that are nearest to this node.
    """
    hops, route = message.source[:1:-1], _hops(holder)
    return link == holder.link and hops == route[: len(hops)]


def _hops(holder: Holder) -> Path:
    """Return the hops of the route to ``holder``, nearest first."""
    path = holder.path
    return () if path is None else path[:-2]
