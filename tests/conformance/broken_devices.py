"""Broken devices, each with one fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from tests.ablation import worker_side
from tests.conformance.broken_common import ERRORS, FORMS
from tests.conformance.broken_peers import Bend, Link, Patch, bent, changed, switched
from wmp.core import device
from wmp.message import Command, ErrorCode, Field, Frame, Message

D = "device"
C = Command
DEVICE = (b"device", 3000)

for rule, bend in (*FORMS, *ERRORS):
    # A device does not read columns and payloads, and is the final receiver of no message.
    if rule not in ("WMP-2.3", "WMP-2.7", "WMP-2.8", "WMP-2.9"):
        bent(D, rule)(bend)


class _UpToOne(Bend):
    def says(self, link: Link, message: Message) -> Message | None:
        discovery = not message.to and message.command in (C.READY, C.PING)
        return None if discovery and link != 0 else message


bent(D, "WMP-1.4")(_UpToOne)
bent(D, "WMP-8.1")(_UpToOne)


@bent(D, "WMP-1.5")
class TakesConnectionsForWorkers(Bend):
    """Takes the first sender on a connection for the sender of all later messages."""

    def __attrs_post_init__(self) -> None:
        self.first: dict[Link, Any] = {}

    def wait_for(self, link: Link, message: Message) -> Message:
        if isinstance(link, int):
            return message
        return evolve(message, source=self.first.setdefault(link, message.source))


@bent(D, "WMP-1.6")
class KeepsSilentAboutGoneConnections(Bend):
    def says(self, link: Link, message: Message) -> Message | None:
        return None if message.fields.get(Field.CODE) == ErrorCode.UNREACHABLE else message


bent(D, "WMP-8.8")(KeepsSilentAboutGoneConnections)


@bent(D, "WMP-8.2")
class ForwardsWithoutPoppingTheRoute(Bend):
    def __attrs_post_init__(self) -> None:
        self.to: Any = ()

    def wait_for(self, link: Link, message: Message) -> Message:
        self.to = message.to
        return message

    def says(self, link: Link, message: Message) -> Message:
        ours = message.source[:2] == DEVICE
        return message if ours or not message.to else evolve(message, to=self.to)


@bent(D, "WMP-8.3")
class LeavesNoHop(Bend):
    def says(self, link: Link, message: Message) -> Message:
        return message if len(message.source) < 5 else evolve(message, source=message.source[:-3])


class _ForgesItsLocalId(Bend):
    """Takes the local id from the message's last hop."""

    def __attrs_post_init__(self) -> None:
        self.claimed: Any = None

    def wait_for(self, link: Link, message: Message) -> Message:
        self.claimed = message.source[-1] if message.hops else None
        return message

    def says(self, link: Link, message: Message) -> Message:
        if self.claimed is None or message.source[:2] == DEVICE:
            return message
        return evolve(message, source=(*message.source[:-1], self.claimed))


bent(D, "WMP-12.2")(_ForgesItsLocalId)


@bent(D, "WMP-8.4")
class DropsUnknownFields(Bend):
    def says(self, link: Link, message: Message) -> Message:
        known = {key: value for key, value in message.fields.items() if key in range(27)}
        return evolve(message, fields=known)


@bent(D, "WMP-2.3")
class PassesKnownKeysOnly(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        return message if all(key in range(27) for key in message.fields) else None


@bent(D, "WMP-8.4")
class ReadsColumns(Bend):
    def writes(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        return frames if len(frames) == 1 else [*frames[:2], *frames[2:3]]


switched(D, "WMP-8.5", worker_side.loop_check, "does not know its own hop")
switched(D, "WMP-8.5", worker_side.hop_limit, "forgets the hop limit")


@bent(D, "WMP-8.6")
class TakesOlderEpochsForItsOwn(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        to = message.to
        if len(to) >= 5 and to[2] == DEVICE[0]:
            return evolve(message, to=(to[0], DEVICE[1], *to[2:]))
        return message


@bent(D, "WMP-8.6")
class TakesEveryDeviceForItself(Bend):
    def wait_for(self, link: Link, message: Message) -> Message:
        to = message.to
        return evolve(message, to=(*to[:2], DEVICE[0], *to[3:])) if len(to) >= 5 else message


@bent(D, "WMP-8.7")
class PassesOnlyResultsOfJobsThatItSaw(Bend):
    def __attrs_post_init__(self) -> None:
        self.seen = False

    def wait_for(self, link: Link, message: Message) -> Message | None:
        self.seen = self.seen or message.command is C.TAKE
        return None if message.command is C.DONE and not self.seen else message


@bent(D, "WMP-8.9")
class DoesNotLookAtSides(Bend):
    """Accepts a local id of the wrong side."""

    def says(self, link: Link, message: Message) -> Message | None:
        wrong = message.fields.get(Field.CODE) == ErrorCode.MISROUTED
        return None if wrong and "side" in message.fields[Field.TEXT] else message


def directions(patch: Patch) -> None:
    """WMP-10.4: a message follows its ``to``, whatever its command and sender are."""
    every = frozenset(Command)
    patch.setattr(device, "SENT_BY_WORKERS", every)
    patch.setattr(device, "SENT_BY_MANAGERS", every)


switched(D, "WMP-10.4", directions)


@bent(D, "WMP-10.7")
class NamesNoPlaceInItsErrors(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.ERROR:
            return message
        return changed(message, session=None, about_number=None, about_peer=None)


@bent(D, "WMP-10.6")
class StopsUnknownCodes(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        return None if "later" in message.fields.get(Field.CODE, "") else message
