"""A worker's credit: the number of jobs that may come, and the READYs that report this number (spec
§3).

READYs are numbered in one sequence for all managers and repeated with a backoff.
``RemoteManager.announced`` is the credit that a manager should remember.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import define, field

from wmp.core.protocol.resources import Needs, Resources
from wmp.core.worker.executions import Executions
from wmp.core.worker.locks import Locks
from wmp.core.worker.outbound import BACKOFF, LinkState, WorkerOutbound, jitter
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.timers import ReadyTimer
from wmp.message import Command, Field, Message

_REPEAT: Final = ReadyTimer()
"""The only timer for repeating READY."""


@define(eq=False)
class Credit:
    """The credit of one worker and its READYs."""

    outbound: WorkerOutbound
    executions: Executions
    locks: Locks
    number: int = 0
    """Number of the newest READY (WMP-3.2)."""
    used: bool = False
    """Whether a WAKE or TAKE came since READY was last sent or repeated."""
    forwards: tuple[bytes, ...] = ()
    """Identities of the forwarding managers whose capacity the worker offers (WMP-19.1)."""
    _repeatable: bool = False
    """Whether READY may be repeated: the newest READY was for all managers, and no WAKE came
    since.
    """
    _content: tuple[int, int] = (0, 0)
    """(credit, window) of the newest READY."""
    _broadcast: tuple[int, int] = (0, 0)
    """(number, credit) of the newest READY without ``to``."""
    _backoff: float = BACKOFF
    # Facts of the current event, on which ``end_step`` acts.
    _greeted: dict[bytes, None] = field(factory=dict)
    """Managers that must get a READY, whatever credit they remember."""
    _doubted: bytes | None = None
    """The manager whose PONG was compared: the worker now knows what the manager remembers."""
    _connected: LinkState | None = None
    """The link that was connected."""
    _due: bool = False
    """Whether the timer for repeating READY rang."""
    _resized: bool = False
    """Whether the resources changed."""

    # -- the number of jobs that may come

    @property
    def closed(self) -> bool:
        """Return whether no job may come: the worker ends, or keeps too many results (WMP-7.9)."""
        outbound = self.outbound
        return self.executions.draining or outbound.kept_bytes >= outbound.settings.unacked_bytes

    @property
    def window_left(self) -> int:
        """Return the number of further jobs that may wait here without resources."""
        executions = self.executions
        return max(0, executions.window - executions.parked - self.locks.windowed)

    def of(self, needs: Needs, spare: Resources) -> int:
        """Return the number of further jobs of ``needs`` that may come while ``spare`` is free."""
        if self.closed:
            return 0
        fits = spare.fits(needs)
        if not fits and not self.executions.resources.capacity(needs):
            return 0  # the worker can never run such a job
        return fits + self.window_left

    def _windowed_of(self, credit: int) -> int:
        """Return how many of ``credit`` jobs would wait without resources."""
        return min(credit, self.window_left + self.locks.windowed)

    # -- events

    def met(self, manager: RemoteManager, *, again: bool) -> None:
        """Record a new manager. ``again``: the worker knew an older epoch of the manager."""
        if again:
            self.greet(manager)
        else:  # the manager has received every READY without ``to``
            manager.ready, manager.announced = self._broadcast

    def greet(self, manager: RemoteManager) -> None:
        """Send READY to the manager at the end of the step, because it may wait for a READY."""
        self._greeted[manager.identity] = None

    def connected(self, link: LinkState) -> None:
        """Send READY on a link that was connected, perhaps again (WMP-3.1)."""
        self._connected = link

    def woken(self, manager: RemoteManager, count: int) -> None:
        """Count a WAKE, which uses up announced credit (WMP-3.5)."""
        manager.announced = max(0, manager.announced - count)
        self.used = True
        self._repeatable = False

    def compare(self, manager: RemoteManager, message: Message) -> None:
        """Compare the READY in a PONG; the end of the step repairs a difference (WMP-3.13)."""
        self._doubted = manager.identity
        remembered = message.fields.get(Field.READY)
        if remembered is None or remembered < manager.ready:
            manager.announced = 0
            # While the worker accepts no job, a manager that remembers no READY needs no READY.
            locked = self.locks.of(manager.identity)
            if remembered is not None and not locked and manager.wake is None:
                self.greet(manager)
            return
        credit = message.fields.get(Field.CREDIT, 0)
        # The manager remembers less credit than announced, even after the WAKEs that came. So a
        # WAKE was lost. The manager waits for its answer until a new READY comes, whatever credit
        # it remembers (WMP-3.5).
        lost = remembered == manager.ready and credit < manager.announced
        # This mark must stay until READY is sent; at present there may be no credit to report.
        known = manager.announced if remembered == manager.ready else credit
        manager.ready = remembered
        manager.announced = 0 if lost else min(known, credit)

    def resized(self) -> None:
        """Send READY on every link at the end of the step: the resources changed (WMP-3.15)."""
        self._resized = True

    def repeat_due(self) -> None:
        """Repeat READY at the end of the step: its timer rang (WMP-3.12)."""
        self._due = True

    # -- READY, at the end of a step

    def greet_link(self, credit: int, now: float) -> bool:
        """Send READY and discovery on a link that was connected; return whether READY was sent."""
        link = self._connected
        if link is None:
            return False
        self.report(credit, now, links=[link], same=True)
        self.outbound.discover(link, now)
        return True

    def announce_resized(self, credit: int, now: float) -> bool:
        """Send READY on every link if the resources changed; return whether READY was sent."""
        if self._resized:
            self.report(credit, now, links=self.outbound.links.states)
        return self._resized

    def announce_beside_hold(self, manager: RemoteManager, credit: int, now: float) -> bool:
        """Send READY to the manager that gets held GIVEs; return whether READY was sent.

        Jobs that need more than a held GIVE offers still come by WAKE, so the manager must remember
        some credit. READY is not sent at each step, because most of these WAKEs would be needless.
        """
        if manager.identity not in self._greeted:
            poor = manager.announced == 0 and credit > 0
            if not poor or now - manager.announced_at < self.outbound.links.interval(manager):
                return False
        self.report(credit, now, managers=[manager])
        return True

    def announce(
        self, credit: int, now: float, *, took: RemoteManager | None, holding: bool
    ) -> bool:
        """Send READY to managers that remember less credit than there is (WMP-3.11, 3.13).

        Args:
            credit: Jobs that may come.
            now: Seconds.
            took: The manager whose TAKE is handled.
            holding: Whether the manager gets held GIVEs.

        Returns:
            Whether READY was sent.
        """
        if holding and not self._greeted and self._doubted is None:
            return False
        links, whole = self.outbound.links, self.executions.places + self.executions.window
        lacking = [
            manager
            for manager in links.managers.values()
            if manager.identity in self._greeted
            or (credit > 0 and self._lacks(manager, credit, whole, manager is took, holding))
        ]
        behind: dict[int, list[RemoteManager]] = {}
        for manager in lacking:
            if links.reachable(manager):
                behind.setdefault(manager.link, []).append(manager)
        if not behind:
            return False
        wide = [links.states[index] for index, managers in behind.items() if len(managers) > 1]
        alone = [managers[0] for managers in behind.values() if len(managers) == 1]
        self.report(credit, now, links=wide, managers=alone)
        return True

    def _lacks(
        self, manager: RemoteManager, credit: int, whole: int, took: bool, holding: bool
    ) -> bool:
        """Return whether the manager should get a READY of ``credit``."""
        growth = credit - manager.announced
        if growth > 0 and self._doubted == manager.identity:
            return not self.locks.of(manager.identity) and manager.wake is None
        if holding:
            return False
        if took:
            return True
        if manager.wake is not None:
            return False
        return growth > 0 and (4 * growth >= whole or not self.executions.parked)

    def end_step(self, credit: int, now: float, *, sent: bool) -> None:
        """Repeat READY when it is due and no message came (WMP-3.12).

        Args:
            credit: Jobs that may come.
            now: Seconds.
            sent: Whether READY was sent in this step.
        """
        if self._due and credit > 0:
            if self.used or sent:
                self._backoff = BACKOFF
            else:
                self._backoff *= 2
                self.report(credit, now, links=self.outbound.links.states, same=True)
            self.used = False
            self._set_timer(now)
        if self._greeted:
            self._greeted.clear()
        self._doubted = self._connected = None
        self._due = self._resized = False

    def report(
        self,
        credit: int,
        now: float,
        *,
        links: Iterable[LinkState] = (),
        managers: Sequence[RemoteManager] = (),
        same: bool = False,
    ) -> None:
        """Send READY without ``to`` on ``links``, and to each of ``managers``.

        Args:
            credit: Jobs that may come.
            now: Seconds.
            links: Links on which READY is for all managers.
            managers: Receivers by name.
            same: Use the number of the newest READY if its content was the same (WMP-3.2).
        """
        settings = self.outbound.settings
        content = (credit, self._windowed_of(credit))
        new = not (same and self._repeatable and self._content == content)
        if new:
            self.number += 1
            self._content = content
        self._repeatable = not managers
        fields: dict[int | str, Any] = {
            Field.READY: self.number,
            Field.CREDIT: credit,
            Field.WINDOW: content[1],
            Field.ROLES: settings.roles,
            Field.RESOURCES: dict(self.executions.resources.total),
        }
        if self.forwards:
            fields[Field.FORWARDS] = self.forwards
        if settings.label:
            fields[Field.LABEL] = settings.label
        fields.update(settings.headers)
        reached = list(managers)
        for link in links:
            if link.connected:
                self.outbound.broadcast(link, Command.READY, fields)
                self._broadcast = (self.number, credit)
                reached += self.outbound.links.behind(link)
        for manager in managers:
            self.outbound.send(manager, Command.READY, fields, None, now)
        for manager in reached:
            manager.ready, manager.announced, manager.announced_at = self.number, credit, now
        if credit and new and not same:
            self._backoff = BACKOFF
            self.used = False
            self._set_timer(now)
        elif credit and _REPEAT not in self.outbound.timers:
            self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        settings = self.outbound.settings
        # At least 10 ms: with ``ready_backoff_max=0`` the timer would be due again at once.
        self._backoff = min(self._backoff, max(0.01, settings.ready_backoff_max))
        wait = self._backoff * jitter(settings.identity, self.number, settings.jitter)
        self.outbound.timers.set(_REPEAT, now + wait)
