"""A node of a Binary Star as a machine: its state, the state of its peer, votes of clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Final, assert_never

from attrs import define, field, frozen

from wmp.actions import Drop, Halt
from wmp.errors import ConfigError, StarConflict
from wmp.events import (
    Closed,
    Drained,
    Ticked,
)
from wmp.foreign import (
    Arrived,
    Emit,
    ForeignAction,
    Frames,
    Settled,
    Unsent,
    Voted,
)
from wmp.gateways.binary_star.claims import ClaimSeal
from wmp.gateways.binary_star.election import TRANSITIONS, StarInput, StarState

_State = StarState
_Input = StarInput


StarEvent = Arrived | Unsent | Voted | Settled | Ticked | Drained | Closed
"""``Settled`` starts a node that has not received anything yet."""


class StarRole(Enum):
    """The role of a node, which never changes."""

    PRIMARY = "primary"
    """The node that is active after both nodes have started."""
    BACKUP = "backup"


_OWN: Final[Mapping[StarRole, StarState]] = {
    StarRole.PRIMARY: _State.PRIMARY,
    StarRole.BACKUP: _State.BACKUP,
}


@frozen
class StarStatistics:
    """Counts of a node; a snapshot."""

    state: StarState
    peer: StarState | None
    """The last state that the peer reported; None if it reported none."""
    takeovers: int
    """Number of times that this node became active."""
    refused: int
    """Number of requests of clients that were not for this node."""
    dropped: Mapping[str, int]
    """Number of messages that were dropped, by reason."""


@define(eq=False)
class StarMachine:
    """Sans-I/O node. Port 0 publishes the state of this node, and gets the states of the peer.

    Args:
        role: The role.
        heartbeat: Seconds between two messages with the state.
        max_silence: Seconds without a message of the peer after which a request is a vote.
        believed: Whether only the peer can send states: its connection is authenticated. Otherwise
            no state can end this node (STAR-2.4).
        seal: Seals the states of both nodes, in place of ``believed``; None for plain states.
    """

    role: StarRole
    heartbeat: float = 1.0
    max_silence: float = 2.0
    believed: bool = True
    seal: ClaimSeal | None = None
    settings: None = field(default=None, init=False)
    state: StarState = field(init=False)
    peer: StarState | None = field(default=None, init=False)
    _publish_at: float | None = field(default=None, init=False)
    """When the state is due to be published; None before the start."""
    _silent_at: float = field(default=0.0, init=False)
    """The time after which the peer counts as silent."""
    _takeovers: int = field(default=0, init=False)
    _refused: int = field(default=0, init=False)
    _dropped: Counter[str] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        self.state = _OWN[self.role]

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, None for never."""
        return None if self.state is _State.HALTED else self._publish_at

    def handle(self, event: StarEvent, now: float) -> list[ForeignAction]:
        """Take one event; return the actions to perform now, in order."""
        if self.state is _State.HALTED:
            return []
        actions: list[ForeignAction] = []
        due = self._publish_at
        if due is None:  # STAR-2.3: the time of the peer counts from the start
            self._silent_at = now + self.max_silence
            self._publish(now, actions)
        elif now > due:
            late = now - due
            self._silent_at += late  # STAR-2.3: this process did not run
            stopped = late >= self.max_silence - self.heartbeat
            self._publish_at = now + self.heartbeat / 4 if stopped else now  # STAR-1.4
        match event:
            case Arrived(_, _, frames):
                self._receive(frames, now, actions)
            case Voted():
                silent = now > self._silent_at
                self._step(_Input.VOTE if silent else _Input.REQUEST, now, actions)
                self._refused += self.state is not _State.ACTIVE
            case Ticked():
                if self._publish_at is not None and now >= self._publish_at:
                    self._publish(now, actions)
            case Drained() | Closed():
                self.state = _State.HALTED
                actions.append(Halt(None))
            case Unsent() | Settled():
                pass  # Only the time of the last message counts.
            case _:
                assert_never(event)
        return actions

    @property
    def active(self) -> bool:
        """Whether this node serves the clients."""
        return self.state is _State.ACTIVE

    def statistics(self) -> StarStatistics:
        """Return a snapshot for people and programs."""
        return StarStatistics(
            self.state, self.peer, self._takeovers, self._refused, dict(self._dropped)
        )

    def _publish(self, now: float, actions: list[ForeignAction]) -> None:
        self._publish_at = now + self.heartbeat
        text = b"%d" % self.state
        frames = (text,) if self.seal is None else self.seal.seal(text)
        actions.append(Emit(0, b"", frames))

    def _receive(self, frames: Frames, now: float, actions: list[ForeignAction]) -> None:
        """Take a message of the peer (STAR-1.1)."""
        if self.seal is not None:
            claim = self.seal.open(frames)
            if claim is None:
                detail = "a state does not have the seal of this pair; give both nodes the same key"
                actions.append(self._drop("no seal", detail))
                return
            if claim.new and not self.active:  # STAR-1.6; an active node may have to wait (1.4)
                self._publish(now, actions)
            if not claim.answers:
                actions.append(self._drop("no answer"))
                return
            frames = (claim.state,)
        text = bytes(frames[0]) if len(frames) == 1 else b""
        if text not in (b"1", b"2", b"3", b"4"):
            actions.append(self._drop("invalid"))
            return
        peer = _State(int(text))
        what = _Input.SAME_ROLE if peer is _OWN[self.role] else _Input(int(text))
        if not self.believed and self.seal is None and self._ends(what):
            # STAR-2.4: nor is it a sign of life, so that two passive nodes do not wait for ever.
            detail = (
                f"an unproven message claims that the other node is {peer.name.lower()}, while "
                f"this node is {self.state.name.lower()}, and this node goes on; give both nodes "
                "a shared key, so that such a claim is believed"
            )
            actions.append(self._drop("unproven claim", detail))
            return
        self.peer = peer
        self._silent_at = now + self.max_silence
        if what is _Input.SAME_ROLE and self.active:  # STAR-2.6
            detail = f"the other node was started as {self.role.value}, as this node"
            actions.append(self._drop("same role", detail))
            return
        self._step(what, now, actions)

    def _ends(self, what: StarInput) -> bool:
        return TRANSITIONS.get((self.state, what)) is _State.HALTED

    def _drop(self, reason: str, detail: str = "") -> Drop:
        self._dropped[reason] += 1
        return Drop(reason, detail=detail)

    def _step(self, what: StarInput, now: float, actions: list[ForeignAction]) -> None:
        """Change the state by the table."""
        before = self.state
        target = TRANSITIONS.get((before, what), before)
        if target is before:
            return
        self.state = target
        if target is _State.HALTED:
            actions.append(Halt(self._explain(before, what)))
            return
        self._takeovers += target is _State.ACTIVE
        self._publish(now, actions)  # STAR-1.3: the peer need not wait for the next heartbeat

    def _explain(self, before: StarState, what: StarInput) -> Exception:
        if what is _Input.SAME_ROLE:
            return ConfigError(
                f"both nodes of this Binary Star have the role {self.role.value}; start one of "
                "them with the other role"
            )
        return StarConflict(
            f"both nodes of this Binary Star are {before.name.lower()}; this node ends, so that "
            "the other node or a new start decides; check the connection between the nodes"
        )
