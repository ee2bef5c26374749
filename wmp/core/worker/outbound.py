"""What a worker sends, and over which link: addressed, stamped, kept when it is numbered.

Owns the links, the managers known and the actions of the ``handle`` call that runs. What
to say is decided elsewhere.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field

from wmp.actions import Send, WorkerAction
from wmp.core.protocol.outbound import Outbound
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.protocol.timers import Timers
from wmp.core.worker.links import LinkState, jitter
from wmp.core.worker.remote_manager import RemoteManager
from wmp.message import Columns, Command, Field, Limits, Link, Message

__all__ = ["WorkerOutbound"]


@define(eq=False)
class WorkerOutbound(Outbound[RemoteManager, WorkerAction]):
    """Links and managers of one worker."""

    settings: WorkerSettings = field(kw_only=True)
    links: list[LinkState] = field(kw_only=True)
    upstreams: dict[bytes, RemoteManager] = field(factory=dict)

    @classmethod
    def of(cls, settings: WorkerSettings, links: int) -> WorkerOutbound:
        """Return the outbound side of a worker with so many links, numbered from 0."""
        return cls(
            (settings.identity, settings.epoch),
            Timers(),
            max(0.01, settings.resend),
            settings=settings,
            links=[LinkState(index) for index in range(links)],
        )

    # -- who is where

    def reachable(self, upstream: RemoteManager) -> bool:
        """Whether a message to it can leave now."""
        return upstream.path is not None and self.links[upstream.link].connected

    def behind(self, link: LinkState) -> list[RemoteManager]:
        """Managers whose route is over ``link``."""
        index = link.index
        return [u for u in self.upstreams.values() if u.link == index and u.path is not None]

    def interval(self, upstream: RemoteManager) -> float:
        """Seconds between signs of life to it (WMP-9.1)."""
        # A floor, so that no setting and no peer can make a timer that never moves on.
        return max(0.01, min(self.settings.ping, upstream.expire / 3))

    # -- saying

    def broadcast(self, link: LinkState, command: Command, fields: dict[int | str, Any]) -> None:
        """Send without ``to``, for whoever is behind ``link``."""
        if link.connected:
            self.actions.append(Send(link.index, Message(command, (), self.me, fields)))

    def link_to(self, upstream: RemoteManager) -> Link | None:
        """The link over which a message to ``upstream`` can leave now, None for none."""
        return upstream.link if self.reachable(upstream) else None

    def send(
        self,
        upstream: RemoteManager,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns | None,
        now: float,
    ) -> bool:
        """Send to one manager, and note that it heard from this worker (WMP-9.1)."""
        sent = super().send(upstream, command, fields, columns, now)
        if sent:
            upstream.sent = now
        return sent

    def ping(
        self, upstream: RemoteManager, now: float, *, again: bool = False, listed: bool = False
    ) -> None:
        """PING one manager; ``listed`` adds the jobs held for it (WMP-9.9)."""
        upstream.pinged = now
        fields: dict[int | str, Any] = {}
        if again:
            fields[Field.AGAIN] = True
        if self.settings.label:
            fields[Field.LABEL] = self.settings.label
        columns = None
        if listed and (listing := upstream.listing(Limits.JOBS)) is not None:
            if listing[0]:
                columns = Columns(*listing)
            else:
                fields[Field.IDLE] = True
        if self.send(upstream, Command.PING, fields, columns, now):
            upstream.pinged_lock = upstream.last_lock
            if upstream.stream is None:
                upstream.asked = True

    def discover(self, link: LinkState, now: float) -> None:
        """PING whoever is behind ``link``."""
        link.pinged = now
        link.pings += 1
        fields: dict[int | str, Any] = {}
        if self.settings.label:
            fields[Field.LABEL] = self.settings.label
        self.broadcast(link, Command.PING, fields)

    # -- liveness

    def check_ping(self, upstream: RemoteManager, now: float) -> bool:
        """The ping timer rang; False when the manager must be given up."""
        gone = upstream.heard + upstream.expire
        if gone <= now:
            return False
        if self._ping_due(upstream) <= now:
            self.ping(upstream, now, listed=True)
            upstream.pinged = upstream.sent = now  # tried, at least: no storm without a way
        self.timers.set(("ping", upstream.identity), min(gone, self._ping_due(upstream)))
        return True

    def _ping_due(self, upstream: RemoteManager) -> float:
        """One interval after the last word in the direction that is silent longer (WMP-9.1).

        And every third interval whatever is said: only PONG shows that a WAKE or READY was
        lost (WMP-3.13), and held GIVEs alone are traffic enough to never ask.
        """
        interval = self.interval(upstream)
        silent = min(upstream.sent, max(upstream.heard, upstream.pinged)) + interval
        return min(silent, upstream.pinged + 3 * interval)

    def link_due(self, link: LinkState) -> tuple[float, float]:
        """When ``link`` must be replaced, and when to look for managers behind it."""
        settings = self.settings
        behind = self.behind(link)
        interval = min(map(self.interval, behind), default=max(0.01, settings.ping))
        most = settings.reconnect_backoff_max
        silent = link.silent_at(interval, max(1, settings.silence), most)
        if behind:
            # A device may have got a further manager: it would never hear of this worker
            # while the others keep it busy.
            devices = any(u.path is not None and len(u.path) > 2 for u in behind)
            seek = link.pinged + 3 * interval if devices else float("inf")
        else:
            factor = jitter(settings.identity, link.pings, settings.jitter)
            seek = link.pinged + interval * factor
        return silent, seek
