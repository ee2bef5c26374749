"""Moves of the peers around a device in drawn conversations."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from wmp import codec
from wmp.conformance.peers.conversations import DeviceConversation
from wmp.conformance.peers.neighbor import Neighbor
from wmp.conformance.wire.bad_messages import CODES, NOISE, bad_heads
from wmp.message import Command, Message


@define(eq=False)
class DeviceMoves:
    """Two peers below and two above a device that send drawn messages."""

    talk: DeviceConversation
    below: list[Neighbor] = field(factory=list)
    above: list[Neighbor] = field(factory=list)
    routes: dict[tuple[str, str], Any] = field(factory=dict)
    sent: int = 0

    def begin(self) -> None:
        first, above = self.talk.joined(2)
        self.above = list(above)
        self.below = [first, self.talk.below("second")]
        for lower in self.below:
            for upper in self.above:
                down, up = self.talk.route(upper, lower)
                self.routes[upper.name, lower.name] = down
                self.routes[lower.name, upper.name] = up
        self._clear()

    def move(self, name: str, *numbers: int) -> None:
        first, second, third = (*numbers, 0, 0, 0)[:3]
        getattr(self, f"_{name}")(first % 2, second % 2, third)

    def end(self) -> None:
        """Do nothing, because every move has been checked."""

    def _clear(self) -> None:
        self.talk.settle()
        for neighbor in (*self.below, *self.above):
            neighbor.inbox.clear()

    def _arrives(self, who: Neighbor, *others: Neighbor) -> None:
        """Check that the last message arrives once, at one neighbor and at no other."""
        label = f"n{self.sent}"
        who.expect(
            Command.PING,
            Command.PONG,
            where=lambda received: received["label"] == label,
            rule="WMP-8.2",
        )
        for neighbor in (who, *others):
            again = neighbor.wait_for(
                Command.PING,
                Command.PONG,
                where=lambda received: received["label"] == label,
                within=0.0,
            )
            self.talk.check(
                again is None,
                f"{neighbor.name} received the message too; expected only its receiver to get it",
                "WMP-8.2",
            )

    # -- moves: (below, above, number)

    def _up(self, lower: int, upper: int, _: int) -> None:
        self.sent += 1
        sender, receiver = self.below[lower], self.above[upper]
        to = self.routes[sender.name, receiver.name]
        sender.send(Command.PING, to=to, label=f"n{self.sent}", session=1, ack=0)
        self._arrives(receiver, self.above[1 - upper], *self.below)

    def _down(self, lower: int, upper: int, _: int) -> None:
        self.sent += 1
        sender, receiver = self.above[upper], self.below[lower]
        to = self.routes[sender.name, receiver.name]
        sender.send(Command.PONG, to=to, label=f"n{self.sent}", max_silence=6000, session=1)
        self._arrives(receiver, self.below[1 - lower], *self.above)

    def _all(self, lower: int, upper: int, _: int) -> None:
        self.sent += 1
        self.below[lower].send(Command.PING, label=f"n{self.sent}")
        for neighbor in self.above:
            self._arrives(neighbor, *self.below)

    def _noise(self, lower: int, upper: int, kind: int) -> None:
        side = (*self.below, *self.above)[(lower + 2 * upper) % 4]
        side.raw(*NOISE[kind % len(NOISE)])

    def _bad(self, lower: int, upper: int, kind: int) -> None:
        sender = self.below[lower]
        to = self.routes[sender.name, self.above[upper].name]
        bad = list(bad_heads(Message(Command.GIVE, to, sender.path, {12: 1, 13: 0})))
        sender.raw(*bad[kind * 3 % len(bad)].frames)

    def _astray(self, lower: int, upper: int, kind: int) -> None:
        sender = self.below[lower]
        to = list(self.routes[sender.name, self.above[upper].name])
        to[kind % 3] = (b"\x00nobody", 1, b"somebody")[kind % 3]
        sender.raw(*codec.encode(Message(Command.BYE, tuple(to), sender.path, {})))

    def _error(self, lower: int, upper: int, code: int) -> None:
        sender = self.above[upper]
        to = self.routes[sender.name, self.below[lower].name]
        sender.send(Command.ERROR, to=to, code=CODES[code % len(CODES)])
