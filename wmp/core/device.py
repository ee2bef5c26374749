"""The device machine: a worker to the peers above, a manager to the peers below.

Spec §8. READY and PING without a receiver go to all upstreams; every other message follows its
path. A device remembers no job, lock or peer (WMP-8.7). So a device can be restarted at any moment:
each message brings the facts that the device needs.

An ``int`` link is a DEALER to an upstream, ``bytes`` name a connection below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from attrs import define, evolve, field, frozen

from wmp.actions import DeviceAction, Drop, Halt, Send
from wmp.core.protocol import error_replies
from wmp.core.protocol.settings import DeviceSettings
from wmp.core.protocol.statistics import Statistics
from wmp.events import Closed, DeviceEvent, Drained, Garbled, Received, Ticked, Undelivered
from wmp.message import (
    SENT_BY_MANAGERS,
    SENT_BY_WORKERS,
    Command,
    ErrorCode,
    Link,
    Message,
    Path,
    Peer,
    counted,
)

__all__ = ["DeviceMachine", "DeviceStatistics"]

_DISCOVERY = frozenset({Command.READY, Command.PING})


@frozen
class DeviceStatistics(Statistics):
    """Counts of the messages that a device passed on or dropped; a snapshot."""

    forwarded: Mapping[str, int]
    """Number of messages sent on, by command."""
    dropped: Mapping[str, int]
    """Number of messages ignored, by reason."""


@define(eq=False)
class DeviceMachine:
    """Sans-I/O device.

    Args:
        settings: Identity, number of upstream links, hop limit.
    """

    settings: DeviceSettings
    _me: Peer = field(init=False)
    _forwarded: dict[Command, int] = field(factory=dict, init=False)
    _dropped: dict[str, int] = field(factory=dict, init=False)
    _halted: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._me = (self.settings.identity, self.settings.epoch)

    def deadline(self) -> float | None:
        """None: a device has no timers."""
        return None

    def handle(self, event: DeviceEvent, now: float) -> list[DeviceAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        match event:
            case Received(link, message):
                return self._received(link, message)
            case Garbled(link, error):
                drop = self._drop(error.code, link, None, str(error))
                return [drop, *error_replies.garbled(self._me, link, error)]
            case Undelivered(link, message):
                return self._undelivered(link, message)
            case Ticked():
                return []
            case Drained() | Closed():
                self._halted = True
                return [Halt(None)]
            case _:
                assert_never(event)

    def statistics(self) -> DeviceStatistics:
        """Return a snapshot for people and programs."""
        forwarded = {command.name: count for command, count in self._forwarded.items()}
        return DeviceStatistics(forwarded, dict(self._dropped))

    # -- messages

    def _received(self, link: Link, message: Message) -> list[DeviceAction]:
        command, identity = message.command, self._me[0]
        upward = isinstance(link, bytes)
        if command not in (SENT_BY_WORKERS if upward else SENT_BY_MANAGERS):
            side = "below" if upward else "above"
            text = f"{command.name} does not come from {side}"
            return self._refuse(link, message, ErrorCode.DIRECTION, text)
        if not message.to and command is Command.ERROR:
            # An ERROR for this device itself has no receiver beyond it.
            return [self._drop("ERROR", link, message)]
        if identity in message.source[2::3]:
            text = "the message has passed this device before"
            return self._refuse(link, message, ErrorCode.LOOP, text)
        if message.hops >= self.settings.max_hops:
            passed = counted(message.hops, "device")
            text = f"the message has passed {passed}; the limit is {self.settings.max_hops}"
            return self._refuse(link, message, ErrorCode.LOOP, text)
        if not message.to:
            if command not in _DISCOVERY:
                return self._refuse(link, message, ErrorCode.MISROUTED, "'to' names no receiver")
            self._forwarded[command] = self._forwarded.get(command, 0) + self.settings.upstreams
            onward = self._passed(message, link, ())
            return [Send(upstream, onward) for upstream in range(self.settings.upstreams)]
        return self._follow(link, message)

    def _passed(self, message: Message, link: Link, to: Path) -> Message:
        """Return the message to pass on, with this device on its path (WMP-8.3)."""
        source = (*message.source, *self._me, link)
        columns, frames = message.columns, message.frames
        return Message(message.command, to, source, message.fields, columns, frames)

    def _follow(self, link: Link, message: Message) -> list[DeviceAction]:
        """Send on to the connection that the first hop of ``to`` names (WMP-8.2)."""
        to = message.to
        if len(to) < 5 or to[2] != self._me[0]:
            text = "the first hop of 'to' is not this device"
            return self._refuse(link, message, ErrorCode.MISROUTED, text)
        if to[1] != self._me[1]:
            # Local ids of an earlier epoch of this device mean nothing now. The end nodes find a
            # new route.
            text = "'to' names an earlier epoch of this device"
            return self._refuse(link, message, ErrorCode.UNREACHABLE, text, _end(to))
        local = to[0]
        if isinstance(local, bytes) == isinstance(link, bytes):
            text = "'to' leads back to the side from which the message came"
            return self._refuse(link, message, ErrorCode.MISROUTED, text)
        if isinstance(local, int) and local >= self.settings.upstreams:
            text = f"there is no upstream {local}; this device has {self.settings.upstreams}"
            return self._refuse(link, message, ErrorCode.UNREACHABLE, text, _end(to))
        self._forwarded[message.command] = self._forwarded.get(message.command, 0) + 1
        return [Send(local, self._passed(message, link, to[3:]))]

    def _undelivered(self, link: Link, message: Message) -> list[DeviceAction]:
        """Report an undelivered message to its sender (WMP-8.8)."""
        drop = self._drop("undelivered", link, message)
        if not message.to or message.command is Command.ERROR:
            return [drop]
        # The message already has this device's hop. The last item of the hop is the link over which
        # the message came.
        came_from = message.source[-1]
        received = evolve(message, source=message.source[:-3])
        text = "the connection named in 'to' is closed, or its pipe is full"
        sends = error_replies.refusal(
            self._me, came_from, received, ErrorCode.UNREACHABLE, text, _end(message.to)
        )
        return [drop, *sends]

    def _refuse(
        self, link: Link, message: Message, code: str, text: str, peer: Peer | None = None
    ) -> list[DeviceAction]:
        drop = self._drop(code, link, message, text)
        return [drop, *error_replies.refusal(self._me, link, message, code, text, peer)]

    def _drop(self, reason: str, link: Link, message: Message | None, detail: str = "") -> Drop:
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        return Drop(reason, link, message, detail)


def _end(to: Path) -> Peer:
    """Return the (identity, epoch) at the end of a ``to``."""
    return to[-1], to[-2]  # type: ignore[return-value]
