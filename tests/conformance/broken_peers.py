"""Broken peers: this project's machines, each with one plausible fault.

A bent peer is a good testee with a bend. A bend is a function that changes received messages, sent
messages or written frames, or a switch that removes a safeguard of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from attrs import define, evolve, field, frozen

from wmp import codec
from wmp.codec import CodecLimits
from wmp.conformance.script.rules import PROFILES
from wmp.conformance.wire.virtual import Sends
from wmp.conformance.wire.wire import JobEnd, SubmittedJob, Terms
from wmp.errors import DecodeError
from wmp.message import Frame, Message

_LIMITS = CodecLimits(hops=99)
Patch = pytest.MonkeyPatch
Link = int | bytes
Sent = tuple[Link, Message | None, Sequence[Frame] | None]
"""A message to send: link, message, frames; None for the replacement of a link's socket."""


@define(eq=False)
class Bend:
    """The base of all bends: it changes nothing, and a peer overrides one of these methods."""

    terms: Terms = field(factory=Terms)
    now: float = 0.0

    def wait_for(self, link: Link, message: Message) -> Message | None:
        """Return the received message for the machine; None to drop it."""
        return message

    def says(self, link: Link, message: Message) -> Message | Sequence[Message] | None:
        """Return the messages to send in place of the machine's message."""
        return message

    def orders(self, sends: list[Sent]) -> list[Sent]:
        """Return the messages of one step of the machine in the order in which they are sent."""
        return sends

    def goes(self, link: Link, message: Message) -> Link:
        """Return the link over which the message is sent."""
        return link

    def writes(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Return the frames to write in place of the right frames."""
        return frames

    def reads(self, frames: Sequence[Frame]) -> Sequence[Frame] | None:
        """Return the frames to read in place of the frames that arrived; None for nothing."""
        return frames

    def ends(self, ends: list[JobEnd]) -> list[JobEnd]:
        """Return the ends that the submitter receives."""
        return ends

    def job(self, job: SubmittedJob) -> SubmittedJob:
        """Return the job to submit in place of the submitter's job."""
        return job

    def learns(self) -> bool:
        """Return whether the machine learns that a message could not be sent."""
        return True

    def sleeps(self, testee: Any) -> bool:
        """Return whether the machine's timers never ring."""
        return False


@define(eq=False)
class Bent:
    """A testee with a bend."""

    testee: Any
    bend: Bend
    device: bool = False

    @property
    def ended(self) -> bool:
        return bool(self.testee.ended)

    def start(self, now: float) -> Sends:
        return self._out(self.testee.start(now), now)

    def receive(self, link: Link, frames: Sequence[Frame], now: float) -> Sends:
        self.bend.now = now
        read = self.bend.reads(frames)
        if read is None:
            return ()
        frames = read
        try:
            message = self._read(frames)
        except DecodeError:
            return self._out(self.testee.receive(link, frames, now), now)
        received = self.bend.wait_for(link, message)
        if received is None:
            return ()
        if received is not message:
            frames = codec.encode(received)
        return self._out(self.testee.receive(link, frames, now), now)

    def undelivered(self, link: Link, frames: Sequence[Frame], now: float) -> Sends:
        if not self.bend.learns():
            return ()
        return self._out(self.testee.undelivered(link, frames, now), now)

    def deadline(self) -> float | None:
        if self.bend.sleeps(self.testee):
            lanes = [lane.due for lane in self.testee._lanes.values()]
            return min(lanes, default=None)
        due: float | None = self.testee.deadline()
        return due

    def tick(self, now: float) -> Sends:
        if self.bend.sleeps(self.testee):
            now = max(now, self.testee.deadline() or now)
        return self._out(self.testee.tick(now), now)

    def submit(self, job: SubmittedJob, now: float) -> Sends:
        return self._out(self.testee.submit(self.bend.job(job), now), now)

    def cancel(self, name: str, now: float) -> Sends:
        return self._out(self.testee.cancel(name, now), now)

    def ends(self) -> list[JobEnd]:
        return self.bend.ends(self.testee.ends())

    def drain(self, now: float) -> Sends:
        return self._out(self.testee.drain(now), now)

    def restart(self, now: float) -> Sends:
        return self._out(self.testee.restart(now), now)

    def _read(self, frames: Sequence[Frame]) -> Message:
        return codec.peek(frames, _LIMITS) if self.device else codec.decode(frames, _LIMITS)

    def _out(self, sends: Sends, now: float) -> Sends:
        self.bend.now = now
        out: list[Sent] = []
        for link, frames in sends:
            if frames is None:
                out.append((link, None, None))
                continue
            message = self._read(frames)
            bent = self.bend.says(link, message)
            if bent is None:
                continue
            for bent_message in [bent] if isinstance(bent, Message) else bent:
                encoded = frames if bent_message is message else codec.encode(bent_message)
                out.append(
                    (self.bend.goes(link, bent_message), bent_message, self.bend.writes(encoded))
                )
        return [(link, frames) for link, _, frames in self.bend.orders(out)]


@frozen
class BentPeer:
    """A broken peer."""

    name: str
    rule: str
    """The rule that the peer breaks."""
    testee: str
    bend: type[Bend] = Bend
    switch: Callable[[Patch], None] | None = None
    make: Callable[[Terms], Any] | None = None
    """Maker of the testee to bend, in place of the good testee."""
    profiles: Collection[str] = PROFILES
    """The profiles whose cases the peer plays."""


BROKEN_PEERS: list[BentPeer] = []


def bent(testee: str, rule: str) -> Callable[[type[Bend]], type[Bend]]:
    """Put a bend among the broken peers."""

    def add(bend: type[Bend]) -> type[Bend]:
        define(eq=False, slots=False)(bend)
        BROKEN_PEERS.append(BentPeer(_words(bend.__name__), rule, testee, bend))
        return bend

    return add


def switched(testee: str, rule: str, switch: Callable[[Patch], None], name: str = "") -> None:
    """Put a machine without one of its safeguards among the broken peers."""
    BROKEN_PEERS.append(BentPeer(name or f"without {switch.__name__}", rule, testee, switch=switch))


def built(testee: str, rule: str, name: str, make: Callable[[Terms], Any]) -> None:
    """Put a machine with forbidden settings among the broken peers."""
    BROKEN_PEERS.append(BentPeer(name, rule, testee, make=make))


def _words(name: str) -> str:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def changed(message: Message, **fields: Any) -> Message:
    """Return a message with changed fields, given by name; None removes a field."""
    from wmp.message import Field

    keys = dict(message.fields)
    for name, value in fields.items():
        key = getattr(Field, name.upper())
        keys.pop(key, None)
        if value is not None:
            keys[key] = value
    return evolve(message, fields=keys)


def columned(message: Message, **columns: Any) -> Message:
    """Return a message with changed columns."""
    assert message.columns is not None
    return evolve(message, columns=evolve(message.columns, **columns))
