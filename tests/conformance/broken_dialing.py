"""Broken devices to which managers dial in, and broken managers that dial in."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.conformance.broken_peers import Bend, Link, Patch, bent, switched
from wmp.core import device
from wmp.core.manager import announcements
from wmp.message import Command, Field, Message

D, M = "device", "manager"
C = Command
UPPER = 1000


def _dialed(link: Link) -> bool:
    return isinstance(link, int) and link >= UPPER


@bent(D, "WMP-8.12")
class TakesEachManagerForAStranger(Bend):
    """Lets nobody in who dials in."""

    def wait_for(self, link: Link, message: Message) -> Message | None:
        return None if _dialed(link) else message


@bent(D, "WMP-8.12")
class IgnoresTheGoodbyeOfManagers(Bend):
    def wait_for(self, link: Link, message: Message) -> Message | None:
        return None if _dialed(link) and message.command is C.BYE else message


def never_silent(patch: Patch) -> None:
    """WMP-8.12: a manager that dialed in may be silent for ever."""
    patch.setattr(device.DeviceMachine, "deadline", lambda machine: None)
    patch.setattr(device.DeviceMachine, "_forget_silent", lambda machine, now: [])


switched(D, "WMP-8.12", never_silent)


@bent(D, "WMP-8.13")
class HasRoomForOneManager(Bend):
    """Forgets a manager when another one comes."""

    def __attrs_post_init__(self) -> None:
        self.newest: Link = 0

    def wait_for(self, link: Link, message: Message) -> Message:
        if _dialed(link) and message.command is C.PONG:
            self.newest = link
        return message

    def says(self, link: Link, message: Message) -> Message | None:
        return None if _dialed(link) and link != self.newest else message


@bent(D, "WMP-8.14")
class TakesOneIdentityForOneManager(Bend):
    """Sends everything for an identity to the connection on which the identity came first."""

    def __attrs_post_init__(self) -> None:
        self.first: dict[Any, Link] = {}
        self.whose: dict[Link, Any] = {}

    def wait_for(self, link: Link, message: Message) -> Message:
        if _dialed(link):
            self.first.setdefault(message.sender, link)
            self.whose[link] = message.sender
        return message

    def goes(self, link: Link, message: Message) -> Link:
        return self.first[self.whose[link]] if link in self.whose else link


@bent(M, "WMP-8.11")
class NeverAnnouncesItself(Bend):
    def says(self, link: Link, message: Message) -> Message | None:
        return None if message.command is C.PONG and not message.to else message


@bent(M, "WMP-8.11")
class AnnouncesItselfOnce(Bend):
    def __attrs_post_init__(self) -> None:
        self.announced: set[Link] = set()

    def says(self, link: Link, message: Message) -> Message | None:
        if message.command is not C.PONG or message.to:
            return message
        again = link in self.announced
        self.announced.add(link)
        return None if again else message


@bent(M, "WMP-8.11")
class AnnouncesItselfToTheFirstDevice(Bend):
    def says(self, link: Link, message: Message) -> Message | None:
        return None if link == 1 else message


def no_goodbye(patch: Patch) -> None:
    """WMP-8.11: the manager ends without BYE to its devices."""
    patch.setattr(announcements.Announcements, "leave", lambda announcements: None)


switched(M, "WMP-8.11", no_goodbye)


@bent(M, "WMP-2.4")
class AnnouncesNoExpire(Bend):
    def says(self, link: Link, message: Message) -> Message:
        if message.command is not C.PONG or message.to:
            return message
        fields = {key: value for key, value in message.fields.items() if key != Field.MAX_SILENCE}
        return evolve(message, fields=fields)
