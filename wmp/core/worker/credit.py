"""READY: how a worker says what room it has, numbered and repeated as spec §3 asks."""

from __future__ import annotations

from typing import Any

from attrs import define

from wmp.core.worker.links import BACKOFF, LinkState, jitter
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager
from wmp.message import Command, Field

__all__ = ["Credit"]


@define(eq=False)
class Credit:
    """The READYs of one worker: one sequence for all managers (WMP-3.2).

    What each manager is believed to remember stands in ``Upstream.announced``; who is told,
    and when, is decided by :class:`wmp.core.worker.capacity.Capacity`.
    """

    board: WorkerOutbound
    number: int = 0
    """Of the newest READY."""
    came: bool = False
    """WAKE or TAKE came since READY was last said or repeated."""
    fresh: bool = False
    """The newest READY was for everybody and no WAKE came since: it may be said again."""
    _said: tuple[int, int] = (0, 0)
    """(credit, window) of the newest READY."""
    _wide: tuple[int, int] = (0, 0)
    """(number, credit) of the newest READY without ``to``."""
    _backoff: float = BACKOFF

    def met(self, upstream: RemoteManager) -> None:
        """A manager shows up that will have heard what was said without ``to``."""
        upstream.ready, upstream.announced = self._wide

    def say(
        self,
        credit: int,
        window: int,
        now: float,
        *,
        links: list[LinkState] | None = None,
        alone: list[RemoteManager] | None = None,
        same: bool = False,
    ) -> None:
        """READY without ``to`` on ``links``, and to each of ``alone``.

        Args:
            credit: Jobs there is room for.
            window: How many of them would wait.
            now: Seconds.
            links: Where everybody is told.
            alone: Who is told by name.
            same: With the number of the newest READY if that said just this (WMP-3.2).
        """
        links, alone = links or [], alone or []
        new = not (same and self.fresh and self._said == (credit, window))
        if new:
            self.number += 1
            self._said = (credit, window)
        self.fresh = not alone
        settings = self.board.settings
        fields: dict[int | str, Any] = {
            Field.READY: self.number,
            Field.CREDIT: credit,
            Field.WINDOW: window,
            Field.ROLES: settings.roles,
            Field.RESOURCES: dict(settings.resources),
        }
        if settings.label:
            fields[Field.LABEL] = settings.label
        told = list(alone)
        for link in links:
            if link.connected:
                self.board.broadcast(link, Command.READY, fields)
                self._wide = (self.number, credit)
                told += self.board.behind(link)
        for upstream in alone:
            self.board.send(upstream, Command.READY, fields, None, now)
        for upstream in told:
            upstream.ready, upstream.announced, upstream.told = self.number, credit, now
        if credit and new and not same:
            self._backoff = BACKOFF
            self.came = False
            self._arm(now)
        elif credit and ("ready",) not in self.board.timers:
            self._arm(now)

    def repeat(self, credit: int, window: int, now: float, *, said: bool) -> None:
        """The timer rang and there is room: say it again if nothing came (WMP-3.12)."""
        if self.came or said:
            self._backoff = BACKOFF
        else:
            self._backoff *= 2
            self.say(credit, window, now, links=self.board.links, same=True)
        self.came = False
        self._arm(now)

    def _arm(self, now: float) -> None:
        # The floor keeps the timer moving whatever the setting.
        settings = self.board.settings
        self._backoff = min(self._backoff, max(0.01, settings.ready_backoff_max))
        wait = self._backoff * jitter(settings.identity, self.number, settings.jitter)
        self.board.timers.set(("ready",), now + wait)
