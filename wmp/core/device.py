"""The device machine: a worker to the peers above, a manager to the peers below.

Spec §8. READY and PING without a receiver go to all upstreams; every other message follows its
path. A device remembers no job, lock or worker (WMP-8.7). So a device can be restarted at any
moment: each message brings the facts that the device needs. Only of the managers that dial in it
remembers the connections, and these managers announce themselves again and again.

An ``int`` link leads up: to an upstream by its number, a DEALER's, or above these numbers to the
connection of a manager that dialed in. ``bytes`` name a connection below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from attrs import define, evolve, field, frozen

from wmp.actions import DeviceAction, Drop, Halt, Met, Send
from wmp.core.protocol import error_replies
from wmp.core.protocol.settings import DeviceSettings
from wmp.core.protocol.statistics import Statistics
from wmp.events import (
    Closed,
    DeviceEvent,
    Disconnected,
    Drained,
    Garbled,
    Received,
    Ticked,
    Undelivered,
)
from wmp.message import (
    SENT_BY_MANAGERS,
    SENT_BY_WORKERS,
    Command,
    ErrorCode,
    Field,
    Link,
    Message,
    Path,
    Peer,
    counted,
)

_DISCOVERY = frozenset({Command.READY, Command.PING})


@frozen
class DeviceStatistics(Statistics):
    """Counts of the messages that a device passed on or dropped; a snapshot."""

    forwarded: Mapping[str, int]
    """Number of messages sent on, by command."""
    dropped: Mapping[str, int]
    """Number of messages ignored, by reason."""
    managers: int = 0
    """Number of managers that have dialed in."""


@define(eq=False)
class DeviceMachine:
    """Sans-I/O device.

    Args:
        settings: Identity, number of upstream links, limits.
    """

    settings: DeviceSettings
    _me: Peer = field(init=False)
    _managers: dict[int, float] = field(factory=dict, init=False)
    """When the last message of each manager that dialed in came, by its link; the longest silent
    one first."""
    _forwarded: dict[Command, int] = field(factory=dict, init=False)
    _dropped: dict[str, int] = field(factory=dict, init=False)
    _halted: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._me = (self.settings.identity, self.settings.epoch)

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due; None while no manager has dialed in."""
        for at in self._managers.values():
            return None if self._halted else at + self.settings.max_silence
        return None

    def handle(self, event: DeviceEvent, now: float) -> list[DeviceAction]:
        """Take one event; return the actions to perform now, in order."""
        if self._halted:
            return []
        match event:
            case Received(link, message):
                return self._received(link, message, now)
            case Garbled(link, error):
                drop = self._drop(error.code, link, None, str(error))
                return [drop, *error_replies.garbled(self._me, link, error)]
            case Undelivered(link, message):
                return self._undelivered(link, message)
            case Disconnected(link):
                if isinstance(link, int):
                    self._managers.pop(link, None)
                return []
            case Ticked():
                return self._forget_silent(now)
            case Drained() | Closed():
                self._halted = True
                return [Halt(None)]
            case _:
                assert_never(event)

    def statistics(self) -> DeviceStatistics:
        """Return a snapshot for people and programs."""
        forwarded = {command.name: count for command, count in self._forwarded.items()}
        return DeviceStatistics(forwarded, dict(self._dropped), len(self._managers))

    # -- messages

    def _received(self, link: Link, message: Message, now: float) -> list[DeviceAction]:
        command, identity = message.command, self._me[0]
        if isinstance(link, bytes):
            dialed, right = False, command in SENT_BY_WORKERS
        else:
            dialed = link >= self.settings.upstreams
            goodbye = dialed and command is Command.BYE and not message.to
            right = goodbye or command in SENT_BY_MANAGERS
        if not right:
            return self._refuse(link, message, ErrorCode.DIRECTION, _wrong_side(command, link))
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
        if dialed and isinstance(link, int):
            return self._from_manager(link, message, now)
        if not message.to:
            if command not in _DISCOVERY:
                text = f"'to' is empty, which {command.name} may not have here"
                return self._refuse(link, message, ErrorCode.MALFORMED, text)
            managers = self._managers
            count = self.settings.upstreams + len(managers)
            self._forwarded[command] = self._forwarded.get(command, 0) + count
            onward = self._passed(message, link, ())
            return [Send(up, onward) for up in (*range(self.settings.upstreams), *managers)]
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
        upstreams = self.settings.upstreams
        if isinstance(local, int) and local >= upstreams and local not in self._managers:
            has = counted(upstreams, "upstream")
            text = f"no manager is connected as {local}; this device has {has}"
            return self._refuse(link, message, ErrorCode.UNREACHABLE, text, _end(to))
        self._forwarded[message.command] = self._forwarded.get(message.command, 0) + 1
        return [Send(local, self._passed(message, link, to[3:]))]

    # -- managers that dial in

    def _from_manager(self, link: int, message: Message, now: float) -> list[DeviceAction]:
        """Take a message over the upper ROUTER, of a manager that dials in (WMP-8.12)."""
        managers, command = self._managers, message.command
        if command is Command.BYE:
            managers.pop(link, None)
            return []
        actions: list[DeviceAction] = []
        if managers.pop(link, None) is None:
            if command is Command.ERROR:
                return [self._drop("no manager", link, message)]
            if len(managers) >= self.settings.max_managers:
                maximum = counted(self.settings.max_managers, "manager has", "managers have")
                text = f"{maximum} dialed in to this device, its limit"
                return self._refuse(link, message, ErrorCode.LIMIT, text)
            label = message.fields.get(Field.LABEL, "")
            actions.append(Met(message.sender, label))
        managers[link] = now
        if message.to:
            actions += self._follow(link, message)
        return actions

    def _forget_silent(self, now: float) -> list[DeviceAction]:
        """Forget the managers that dialed in and were silent for too long."""
        actions: list[DeviceAction] = []
        for link, at in tuple(self._managers.items()):
            if at + self.settings.max_silence > now:
                break
            del self._managers[link]
            text = f"the manager of connection {link} was silent for {now - at:.1f} s"
            actions.append(self._drop("silent manager", link, None, text))
        return actions

    # -- refusals

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


def _wrong_side(command: Command, link: Link) -> str:
    """Return the reason why a command may not come from one side, for people."""
    if isinstance(link, bytes):
        text = f"{command.name} does not come from below"
        return f"{text}; managers connect to the address for managers (--bind-managers)"
    text = f"{command.name} does not come from above"
    return f"{text}; workers connect to the address for workers (--bind)"


def _end(to: Path) -> Peer:
    """Return the (identity, epoch) at the end of a ``to``."""
    return to[-1], to[-2]  # type: ignore[return-value]
