"""The holder of an identity, and the claims to it (§15)."""

import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from messages import BYE, Message
from stream import Claim, Peer

LOST = ("unreachable", "misrouted")  # codes of ERROR that mean that the route is lost
REFUSALS = ("malformed", "limit")  # codes of ERROR that mean that the message is never accepted

P = TypeVar("P", bound=Peer)


class Claims(Generic[P]):
    """The part of an end node that decides whether a message counts as one of its sender."""

    unit: float
    me: list[Any]
    peers: dict[bytes, P]
    challenges: int
    complain: Callable[..., None]
    resend: Callable[[P], None]

    # --- defined by a subclass ---

    def meet(self, identity: bytes, epoch: int) -> P:
        """Make a record of an unknown peer."""
        raise NotImplementedError

    def forget(self, peer: P) -> None:
        """Drop everything that belongs to a record, which is already removed."""
        raise NotImplementedError

    def ask_again(self, peer: P, **more: Any) -> None:
        """Ask for the messages after a gap, or send the given fields instead."""
        raise NotImplementedError

    def refused(self, connection: Any, message: Message) -> None:
        """Act on the report of a peer that it serves another process (WMP-15.8)."""
        raise NotImplementedError

    def admits(self, connection: Any, message: Message) -> bool:
        """Return whether a message comes from the holder of its identity.

        If not, it is a claim (WMP-15.1).
        """
        (identity, epoch), back = message.sender[:2], message.sender[::-1]
        peer = self.peers.get(identity)
        if peer is None or (peer.connection, peer.to) == (connection, back):
            return True
        same_route = (peer.connection, peer.to[:-2]) == (connection, back[:-2])
        if peer.connection is None or (same_route and epoch > peer.epoch):  # WMP-15.2
            if epoch != peer.epoch:
                if message.command == BYE:  # WMP-15.7
                    return False
                self.part(identity)
            peer.claim = None
            return True
        self.answer(connection, message)
        if peer.claim is None:
            self.challenges += 1
            until = time.monotonic() + self.unit
            peer.claim = Claim(connection, message, self.challenges, until)
            self.ask_again(peer, challenge=self.challenges)
        return False

    def answer(self, connection: Any, message: Message) -> None:
        """Answer a challenge that came over another route than that of the identity's holder."""

    def admit(self, peer: P) -> None:
        """Admit a claim: the holder of the identity is gone (WMP-15.6)."""
        claim, peer.claim = peer.claim, None
        if not claim:
            return
        identity, epoch = claim.message.sender[:2]
        if claim.message.command == BYE:
            return self.part(identity) if epoch == peer.epoch else None
        if epoch != peer.epoch:
            self.part(identity)
            peer = self.peers[identity] = self.meet(identity, epoch)
        peer.connection, peer.to = claim.connection, claim.message.sender[::-1]
        peer.heard = time.monotonic()
        self.resend(peer)
        self.ask_again(peer, again=True)

    def error(self, connection: Any, message: Message) -> None:
        """Act on an ERROR that has a receiver, for the route over which it came (WMP-15.8)."""
        fields, code = message.fields, message.fields["code"]
        default = message.sender[:2] if code in REFUSALS else [b"", 0]
        identity, epoch = about = fields.get("about_peer", default)
        peer = self.peers.get(identity)
        if message.to != self.me[::-1]:
            return
        if code == "superseded" and about == self.me:
            self.refused(connection, message)
        hops = message.sender[:1:-1]
        if peer and peer.epoch == epoch and peer.connection == connection is not None:
            if peer.to[: len(hops)] != hops or len(hops) > len(peer.to) - 2:
                return
            kept = peer.stream.refused(fields) if peer.stream and code in REFUSALS else None
            if kept:
                self.replace(peer, kept, fields.get("text", ""))
            elif code == "superseded" and not peer.claim:
                self.part(identity)
            elif code == "superseded" or code in LOST:
                self.unreachable(peer)

    def unreachable(self, peer: P) -> None:
        """Drop a peer's route and credit, and nothing else (WMP-9.12)."""
        peer.connection, peer.credit = None, 0
        self.admit(peer)

    def part(self, identity: bytes) -> None:
        """Forget a peer."""
        peer = self.peers.pop(identity, None)
        if peer:
            self.forget(peer)

    def refuse(self, peer: P) -> None:
        """End a claim, because the holder has answered (WMP-15.5)."""
        claim, peer.claim = peer.claim, None
        about = claim.message.sender[:2] if claim else []
        if claim and about[1] != peer.epoch:
            self.complain(claim.connection, claim.message, "superseded", about_peer=about)
