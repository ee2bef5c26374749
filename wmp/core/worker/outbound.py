"""What a worker sends, and over which link: addressed, stamped, kept when it is numbered.

Owns the links, the managers known and the actions of the ``handle`` call that runs. What
to say is decided elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from attrs import define, field

from wmp.actions import Drop, Send, WorkerAction
from wmp.core.protocol import error_replies
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.protocol.timers import Timers
from wmp.core.worker.links import LinkState, jitter
from wmp.core.worker.remote_manager import RemoteManager
from wmp.message import Columns, Command, Field, Limits, Message, Path, Peer

__all__ = ["WorkerOutbound"]


@define(eq=False)
class WorkerOutbound:
    """Links and managers of one worker.

    Invariant: ``kept_bytes`` is the sum of the sizes of all streams.
    """

    settings: WorkerSettings
    links: list[LinkState]
    timers: Timers[Hashable] = field(factory=Timers)
    upstreams: dict[bytes, RemoteManager] = field(factory=dict)
    actions: list[WorkerAction] = field(factory=list)
    dropped: Counter[str] = field(factory=Counter)
    kept_bytes: int = 0
    """Results kept until they are acknowledged, with an allowance for each job."""
    me: Peer = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.me = (self.settings.identity, self.settings.epoch)

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

    def drop(
        self,
        reason: str,
        link: int | None = None,
        message: Message | None = None,
        detail: str = "",
    ) -> None:
        """Count and report something that is ignored."""
        self.dropped[reason] += 1
        self.actions.append(Drop(reason, link, message, detail))

    def refuse(
        self, link: int, message: Message, code: str, text: str, peer: Peer | None = None
    ) -> None:
        """Drop a message and answer ERROR (WMP-10.2)."""
        self.drop(code, link, message, text)
        self.actions += error_replies.refusal(self.me, link, message, code, text, peer)

    def broadcast(self, link: LinkState, command: Command, fields: dict[int | str, Any]) -> None:
        """Send without ``to``, for whoever is behind ``link``."""
        if link.connected:
            self.actions.append(Send(link.index, Message(command, (), self.me, fields)))

    def send(
        self,
        upstream: RemoteManager,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns | None,
        now: float,
    ) -> bool:
        """Send to one manager, with the ack on board (WMP-7.2); False when no way is known."""
        path = upstream.path
        if path is None or not self.links[upstream.link].connected:
            return False
        stream = upstream.stream
        if stream is not None:
            fields = {**fields, Field.ACK: stream.received, Field.SESSION: stream.session}
        upstream.sent = now
        self._post(upstream.link, path, command, fields, columns)
        return True

    def push(
        self,
        upstream: RemoteManager,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns,
        now: float,
        size: int,
    ) -> None:
        """Number, keep and send (DONE, STATUS); without a way it is kept until there is one."""
        stream = upstream.stream
        assert stream is not None, "only a session has jobs"
        kept = stream.push(command, fields, columns, now, size)
        self.kept_bytes += size
        self.timers.arm(("resend", upstream.identity), now + self.resend)
        self.send(upstream, command, kept.fields, columns, now)

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

    # -- numbered streams

    @property
    def resend(self) -> float:
        """Seconds after which what is not acknowledged is sent again."""
        return max(0.01, self.settings.resend)

    def acknowledge(self, upstream: RemoteManager, number: int) -> None:
        """The manager has received up to ``number``."""
        stream = upstream.stream
        if stream is not None:
            before = stream.size
            stream.acknowledge(number)
            self.kept_bytes -= before - stream.size

    def replay(self, upstream: RemoteManager, now: float) -> None:
        """Send again what is not acknowledged (WMP-7.3)."""
        stream = upstream.stream
        if stream is not None and self.reachable(upstream):
            for kept in stream.replay(now):
                self.send(upstream, kept.command, kept.fields, kept.columns, now)

    def check_resend(self, upstream: RemoteManager, now: float) -> None:
        """The resend timer rang."""
        due = None if upstream.stream is None else upstream.stream.overdue(self.resend)
        if due is None:
            return
        if due <= now:
            self.replay(upstream, now)
            due = now + self.resend
        self.timers.set(("resend", upstream.identity), due)

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

    def _post(
        self,
        link: int,
        to: Path,
        command: Command,
        fields: dict[int | str, Any],
        columns: Columns | None,
    ) -> None:
        self.actions.append(Send(link, Message(command, to, self.me, fields, columns)))
