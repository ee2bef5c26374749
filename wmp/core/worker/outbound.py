"""Messages of a worker: over which link they leave, PING, and messages to all behind a link."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from wmp.actions import Send, WorkerAction
from wmp.core.protocol.outbound import Outbound
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.protocol.timers import Timers
from wmp.core.worker.links import Links, LinkState
from wmp.core.worker.remote_manager import RemoteManager
from wmp.message import Columns, Command, Field, Link, Message

__all__ = ["WorkerOutbound"]


@define(eq=False)
class WorkerOutbound(Outbound[RemoteManager, WorkerAction]):
    """Messages to managers, and to everybody behind a link."""

    settings: WorkerSettings = field(kw_only=True)
    links: Links = field(kw_only=True)

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
        """The link over which a message to ``manager`` can leave now, None for none."""
        reachable = manager.path is not None and self.links.states[manager.link].connected
        return manager.link if reachable else None

    def send(
        self,
        manager: RemoteManager,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns | None,
        now: float,
    ) -> bool:
        """Send to one manager, and note when (WMP-9.1); False when no route is known."""
        sent = super().send(manager, command, fields, columns, now)
        if sent:
            manager.sent_at = now
        return sent

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
        listing: tuple[list[int], list[int]] | None = None,
    ) -> None:
        """PING one manager.

        Args:
            manager: The receiver.
            now: Seconds.
            again: Ask for everything after the last number received (WMP-7.1).
            listing: (ids, attempts) of the jobs held for the manager (WMP-9.9).
        """
        manager.pinged_at = now
        fields: dict[int | str, Any] = {}
        if again:
            fields[Field.AGAIN] = True
        if self.settings.label:
            fields[Field.LABEL] = self.settings.label
        columns = None
        if listing is not None:
            if listing[0]:
                columns = Columns(*listing)
            else:
                fields[Field.IDLE] = True
        if self.send(manager, Command.PING, fields, columns, now):
            manager.pinged_lock = manager.last_lock
            if manager.stream is None:
                manager.asked = True

    def discover(self, link: LinkState, now: float) -> None:
        """PING every manager behind ``link``."""
        link.pinged_at = now
        link.pings += 1
        fields: dict[int | str, Any] = {}
        if self.settings.label:
            fields[Field.LABEL] = self.settings.label
        self.broadcast(link, Command.PING, fields)
