"""A manager's announcements to the devices to which it dials in (WMP-8.11).

Such a manager opens a DEALER to the upper ROUTER of a device. The device learns of the manager only
by a message: PONG without ``to``, at each connection and in every interval. BYE without ``to``
takes the announcement back.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field

from wmp.actions import Send
from wmp.core.manager.remote_worker import ManagerOutbound
from wmp.core.manager.timers import AnnounceTimer
from wmp.core.protocol.settings import ManagerSettings
from wmp.message import Command, ErrorCode, Field, Link, Message

_SHORTEST: Final = 0.01
"""Shortest interval, in seconds, whatever the setting is."""

_ADVICE: Final = {
    ErrorCode.DIRECTION: (
        "wrong side",
        "expected the address that a device binds for managers",
    ),
    ErrorCode.LIMIT: (
        "device full",
        "raise max_managers of the device, or end managers that are not needed",
    ),
}
"""Reason of the drop and advice for people, by the code of a device's ERROR."""


@define(eq=False)
class Announcements:
    """The links of a manager to devices, and the announcements over them.

    Invariant: an ``AnnounceTimer`` is set for each connected link.
    """

    outbound: ManagerOutbound
    settings: ManagerSettings
    _connected: dict[int, None] = field(factory=dict)

    def connected(self, link: Link, now: float) -> None:
        """Announce the manager over a link that is connected, for the first time or again."""
        if isinstance(link, int):
            self._connected[link] = None
            self.announce(link, now)

    def disconnected(self, link: Link) -> None:
        """Stop announcing the manager over a link whose connection ended."""
        if isinstance(link, int) and link in self._connected:
            del self._connected[link]
            self.outbound.timers.clear(AnnounceTimer(link))

    def announce(self, link: int, now: float) -> None:
        """Send the announcement over a link, now and after the interval."""
        settings = self.settings
        fields: dict[int | str, object] = {Field.MAX_SILENCE: int(settings.max_silence * 1000)}
        if settings.label:
            fields[Field.LABEL] = settings.label
        self._send(link, Command.PONG, fields)
        self.outbound.timers.set(AnnounceTimer(link), now + max(_SHORTEST, settings.announce))

    def leave(self) -> None:
        """Take the announcements back, because the manager ends."""
        for link in self._connected:
            self._send(link, Command.BYE, {})
            self.outbound.timers.clear(AnnounceTimer(link))
        self._connected.clear()

    def refused(self, link: Link, message: Message) -> None:
        """Report for people that the node at the other end of a link refuses the announcement.

        Args:
            link: The link of an ERROR.
            message: The ERROR.
        """
        fields = message.fields
        if isinstance(link, bytes) or message.hops or fields.get(Field.ABOUT) != Command.PONG:
            return
        reason, advice = _ADVICE.get(fields[Field.CODE], ("", ""))
        if reason:
            text = fields.get(Field.TEXT, "")
            detail = f"the node at address {link + 1} of connect refuses this manager: {text}"
            self.outbound.drop(reason, detail=f"{detail}; {advice}")

    def _send(self, link: int, command: Command, fields: dict[int | str, object]) -> None:
        self.outbound.actions.append(Send(link, Message(command, (), self.outbound.me, fields)))
