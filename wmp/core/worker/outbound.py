"""A worker's links, the managers behind them, and the messages that leave over them.

This module decides when a manager is pinged, when a link is replaced, and over which link a message
to one manager or to all behind a link leaves.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import define, field

from wmp.actions import Send, WorkerAction
from wmp.core.protocol.outbound import Kept, Outbound
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.protocol.timers import Timers
from wmp.core.worker.remote_manager import RemoteManager
from wmp.message import Columns, Command, Field, Link, Message, Peer

BACKOFF: Final = 1.0
"""Seconds of the first wait of every backoff. The wait then doubles."""


def jitter(identity: bytes, number: int, share: float) -> float:
    """Return a factor above 1 - ``share`` and up to 1, which differs between workers and numbers.

    The core draws no random numbers. A checksum gives factors that differ as well and can be
    replayed.
    """
    seed = zlib.crc32(number.to_bytes(8, "big"), zlib.crc32(identity))
    return 1.0 - share * seed / 2**32


@define(eq=False)
class LinkState:
    """One DEALER: whether it is connected, and when a message came over it."""

    index: int
    connected: bool = False
    received_at: float = 0.0
    """When the last message came over the link; connecting and replacing the socket count too."""
    pinged_at: float = 0.0
    """When PING without ``to`` was last sent over the link."""
    pings: int = 0
    doubted: tuple[bytes, ...] = ()
    """Managers at the other end of the link before the link was connected again (WMP-9.12)."""
    replaced: int = 0
    """Number of replacements of the socket since the last message."""
    refused_since: float | None = None
    """When a manager behind the link first reported that another process has the identity of
    this worker; None when no manager reported it since a manager was met."""
    refused_at: float = 0.0
    """Time of the last such report."""

    def receive(self, now: float) -> None:
        """Record a message over the link."""
        self.received_at = now
        self.replaced = 0

    def silent_at(self, interval: float, silence: int, maximum: float) -> float:
        """Return when the socket must be replaced if no message comes.

        The first time, this is after ``silence`` intervals. Then there is an additional backoff,
        which doubles up to ``maximum``.
        """
        due = self.received_at + silence * interval
        if self.replaced:
            due += min(maximum, BACKOFF * 2.0 ** min(self.replaced - 1, 30))
        return due


@define(eq=False)
class Links:
    """The links and the managers of one worker."""

    settings: WorkerSettings
    states: list[LinkState]
    managers: dict[bytes, RemoteManager] = field(factory=dict)
    """The managers by identity."""

    # -- routes of managers

    def reachable(self, manager: RemoteManager) -> bool:
        """Return whether a message to the manager can leave now."""
        return manager.path is not None and self.states[manager.link].connected

    def behind(self, link: LinkState) -> list[RemoteManager]:
        """Yield the managers whose route is over ``link``."""
        index = link.index
        return [m for m in self.managers.values() if m.link == index and m.path is not None]

    # -- liveness

    def interval(self, manager: RemoteManager) -> float:
        """Return the limit of the seconds between messages to the manager (WMP-9.1)."""
        # The lower bound lets the timer advance with any setting and any peer.
        return max(0.01, min(self.settings.ping, manager.max_silence / 3))

    def ping_due(self, manager: RemoteManager) -> float:
        """Return when PING to the manager is due.

        PING is due one interval after the last message in the direction that has been silent longer
        (WMP-9.1). PING is also due every third interval, whatever else is sent: only PONG shows
        that a WAKE or READY was lost (WMP-3.13), and the traffic of held GIVEs alone would put PING
        off for ever.
        """
        interval = self.interval(manager)
        received = max(manager.received_at, manager.pinged_at)
        return min(min(manager.sent_at, received) + interval, manager.pinged_at + 3 * interval)

    def silent_at(self, link: LinkState) -> float:
        """Return when the socket of ``link`` must be replaced if no message comes (WMP-9.4)."""
        settings = self.settings
        interval = self.shortest(self.behind(link))
        return link.silent_at(interval, max(1, settings.silence), settings.reconnect_backoff_max)

    def discovery_due(self, link: LinkState) -> float:
        """Return when to search for managers behind ``link``."""
        settings, behind = self.settings, self.behind(link)
        interval = self.shortest(behind)
        if not behind:
            return link.pinged_at + interval * jitter(
                settings.identity, link.pings, settings.jitter
            )
        # A device on the link may get a further manager. The other managers keep the link busy, so
        # without this search the new manager would never receive a message of this worker.
        devices = any(m.path is not None and len(m.path) > 2 for m in behind)
        return link.pinged_at + 3 * interval if devices else float("inf")

    def due(self, link: LinkState) -> float:
        """Return when ``link`` must be checked again."""
        return min(self.silent_at(link), self.discovery_due(link))

    def shortest(self, managers: Iterable[RemoteManager]) -> float:
        """Return the shortest interval of some managers, or that of this worker without any."""
        return min(map(self.interval, managers), default=max(0.01, self.settings.ping))


@define(eq=False)
class WorkerOutbound(Outbound[RemoteManager, WorkerAction]):
    """Messages to managers, and to all managers behind a link."""

    settings: WorkerSettings = field(kw_only=True)
    links: Links = field(kw_only=True)
    keeps: dict[Peer, float] = field(factory=dict, kw_only=True)
    """Seconds for which jobs are kept without a manager, by owner (WMP-14.5)."""

    @classmethod
    def of(cls, settings: WorkerSettings, links: Links) -> WorkerOutbound:
        """Return the outbound side of a worker."""
        return cls(
            (settings.identity, settings.epoch),
            Timers(),
            max(0.01, settings.resend),
            settings=settings,
            links=links,
        )

    def link_to(self, manager: RemoteManager) -> Link | None:
        """Return the link over which a message to ``manager`` can be sent now, or None."""
        reachable = manager.path is not None and self.links.states[manager.link].connected
        return manager.link if reachable else None

    def acknowledge(self, manager: RemoteManager, fields: Mapping[int | str, Any]) -> None:
        """Drop acknowledged messages; DONEs of stored jobs wait for ``kept`` (WMP-14.4)."""
        stream = manager.stream
        known = stream is not None and fields.get(Field.SESSION) == stream.session
        if self.keeps and known and stream is not None:
            ack = fields.get(Field.ACK, 0)
            written = fields.get(Field.KEPT, ack)
            for kept in stream.kept if written < ack <= stream.sent else ():
                if written < kept.number <= ack and self.is_stored(kept):
                    manager.unwritten.append(kept)
                    self.kept_bytes += kept.size
            unwritten = manager.unwritten
            while unwritten and unwritten[0].number <= written:
                self.kept_bytes -= unwritten.popleft().size
        super().acknowledge(manager, fields)

    def is_stored(self, kept: Kept) -> bool:
        """Return whether a message is a DONE of jobs that outlive their manager."""
        return kept.command is Command.DONE and kept.fields[Field.MANAGER] in self.keeps

    def note_sent(self, manager: RemoteManager, now: float) -> None:
        """Record that a message leaves: PING is due one interval later (WMP-9.1)."""
        manager.sent_at = now

    def broadcast(self, link: LinkState, command: Command, fields: dict[int | str, Any]) -> None:
        """Send without ``to``, for every manager behind ``link``."""
        if link.connected:
            self.actions.append(Send(link.index, Message(command, (), self.me, fields)))

    def ping(
        self,
        manager: RemoteManager,
        now: float,
        *,
        again: bool = False,
        challenge: int = 0,
        answer: int = 0,
        listing: tuple[list[int], list[int]] | None = None,
        owner: Peer | None = None,
        more: bool = False,
    ) -> None:
        """Send PING to one manager.

        Args:
            manager: The receiver.
            now: Seconds.
            again: Ask for all messages after the last number received (WMP-7.1).
            challenge: Ask whether the manager is there, under this number (WMP-15.3).
            answer: The challenge that this PING answers (WMP-15.4).
            listing: (ids, attempts) of the jobs held for the manager (WMP-9.9).
            owner: The owner of these jobs, if the list is about one owner (WMP-14.6).
            more: Whether the list is not whole.
        """
        manager.pinged_at = now
        fields: dict[int | str, Any] = {}
        if again:
            fields[Field.AGAIN] = True
        if self.settings.label:
            fields[Field.LABEL] = self.settings.label
        if self.settings.beat_key:
            fields[Field.BEAT_KEY] = self.settings.beat_key
        columns = None
        if listing is not None:
            if listing[0]:
                columns = Columns(*listing)
            else:
                fields[Field.IDLE] = True
            if owner is not None and manager.stream is not None:
                fields |= {Field.MANAGER: owner, Field.SENT: manager.stream.sent}
                if more:
                    fields[Field.MORE] = True
        if challenge:
            fields[Field.CHALLENGE] = challenge
        if answer:
            fields[Field.ANSWER] = answer
        if self.send(manager, Command.PING, fields, columns, now):
            manager.pinged_lock = manager.last_lock
            if manager.stream is None and not answer:
                manager.session_requested = True

    def beats(self) -> list[tuple[int, float, Message]]:
        """Return the beats that another process may send for this worker (WMP-9.17).

        Each has the number of its link, the seconds for which the manager counts beats, and the
        message.
        """
        key = self.settings.beat_key
        return [
            (
                manager.link,
                manager.max_stall,
                Message(
                    Command.PING,
                    manager.path,
                    self.me,
                    {Field.SESSION: manager.stream.session, Field.BEAT: key},
                ),
            )
            for manager in self.links.managers.values()
            if key and manager.max_stall and manager.path is not None and manager.stream is not None
        ]

    def discover(self, link: LinkState, now: float) -> None:
        """Send PING to every manager behind ``link``."""
        link.pinged_at = now
        link.pings += 1
        fields: dict[int | str, Any] = {}
        if self.settings.label:
            fields[Field.LABEL] = self.settings.label
        self.broadcast(link, Command.PING, fields)
