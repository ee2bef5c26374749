"""Distributes a worker's free resources: answers to pending WAKEs, held GIVEs, READY.

Theory of operation. Every event that changes the free resources (a TAKE, a NO, results, time) ends
in one call of ``settle``, which distributes them in a fixed order:

1. GIVEs for pending WAKEs, the manager served least recently first (WMP-3.10);
2. READY of credit 0 to a manager whose WAKE cannot be served now (WMP-3.9);
3. a held GIVE if there is only one manager (spec §5), else READY to the managers that seem to
remember less credit than there is.

If nothing changed since the last call, ``settle`` sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from attrs import define

from wmp.core.protocol.resources import Needs, Resources, needs_of, within
from wmp.core.worker.credit import Credit
from wmp.core.worker.executions import Executions
from wmp.core.worker.locks import HOLD_PAUSE, Locks
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remote_manager import PendingWake, RemoteManager
from wmp.message import DEFAULT_NEEDS, Field, Message


@define(eq=False)
class Capacity:
    """Distributes the free resources of one worker; reads its jobs and changes none of them."""

    outbound: WorkerOutbound
    executions: Executions
    locks: Locks
    credit: Credit
    _servings: int = 0
    _arrivals: int = 0
    # Facts of the current event, on which ``settle`` acts.
    _woke: RemoteManager | None = None
    """The manager whose WAKE came."""
    _took: RemoteManager | None = None
    """The manager whose TAKE came."""

    # -- events

    def woken(self, manager: RemoteManager, link: int, message: Message, now: float) -> None:
        """Record a WAKE; ``settle`` answers it (WMP-3.8, 3.9)."""
        fields, settings = message.fields, self.outbound.settings
        role, needs, count = fields[Field.ROLE], needs_of(fields[Field.NEEDS]), fields[Field.COUNT]
        self.credit.woken(manager, count)
        self._woke = manager
        if role not in settings.roles or not self.executions.resources.capacity(needs):
            # This worker can never run jobs with these needs. An older WAKE that can be served
            # stays.
            detail = f"this worker can never run jobs of role {role!r} with needs {dict(needs)}"
            self.outbound.drop("wake in vain", link, message, detail)
            return
        if self.executions.draining:
            return
        if not within(needs, self.executions.usual):
            # Held GIVEs lock resources for jobs of other needs, and never bring jobs of these
            # needs.
            manager.hold_after = now + max(HOLD_PAUSE, settings.hold)
        self._arrivals += 1
        manager.wake = PendingWake(role, needs, count, self._arrivals)

    def take(
        self, manager: RemoteManager, fields: Mapping[int | str, Any], needs: Needs, count: int
    ) -> int:
        """Record a TAKE of ``count`` jobs; return the number of jobs that have a place."""
        lock, more = fields[Field.LOCK], fields.get(Field.MORE, False)
        self.credit.used = True
        self._took = manager
        known = lock in self.locks.of(manager.identity)
        if known:
            self._serve_mark(manager)
        kept = self.locks.take(manager, lock, count, more=more)
        if kept >= count:
            return count
        resources = self.executions.resources
        lacking = count - self.credit.of(needs, resources)
        if not known and lacking > 0 and not self.credit.closed:
            self.locks.lend(manager, needs, lacking)
        # The lock keeps its promised places, even if the window has become smaller.
        return max(kept, self.credit.of(needs, resources))

    def stall(self, manager: RemoteManager, now: float) -> None:
        """Withdraw the places promised to a manager whose jobs waited too long."""
        self.locks.withdraw(manager, now)
        if self.outbound.links.reachable(manager):
            self.credit.report(0, now, managers=[manager])

    # -- the distribution

    def settle(self, spare: Resources, now: float) -> None:
        """Promise the free resources to managers.

        Args:
            spare: Resources that are free beside the needs of waiting jobs. The call takes
                the promised resources out of them.
            now: Seconds.
        """
        credit, woke, took, usual = self.credit, self._woke, self._took, self.executions.usual
        served = self._serve_wakes(spare, now)
        jobs = credit.of(usual, spare)
        sent = False
        if woke is not None and woke not in served:
            self._answer_woke(woke, now)
            sent = True
        elif credit.greet_link(jobs, now):
            sent = True
        elif not self.executions.draining:
            sole = self._sole(now)
            covered = 0 if sole is None else self.locks.covered(sole)
            sent = credit.announce_resized(jobs + covered, now)
            if sole is not None:
                held = jobs > 0 and self._worth_holding(jobs, covered, took=took is sole)
                if held:
                    settings = self.outbound.settings
                    roles, hold = settings.roles, settings.hold
                    self.locks.open(sole, roles, usual, jobs, spare, now, hold)
                sent = sent or credit.announce_beside_hold(sole, jobs + covered, now)
                if held:
                    jobs = credit.of(usual, spare)
            if not sent:
                sent = credit.announce(jobs, now, took=took, holding=sole is not None)
        credit.end_step(jobs, now, sent=sent)
        self._woke = self._took = None

    def _serve_wakes(self, spare: Resources, now: float) -> list[RemoteManager]:
        """Send GIVEs for pending WAKEs, least recently served manager first (WMP-3.10).

        Returns:
            The managers that were served.
        """
        outbound, credit = self.outbound, self.credit
        served: list[RemoteManager] = []
        pending = [m for m in outbound.links.managers.values() if m.wake is not None]
        if not pending or credit.closed:
            return served
        pending = [manager for manager in pending if outbound.links.reachable(manager)]
        pending.sort(key=_turn)
        bundle = self.executions.window // 4
        for earlier, manager in enumerate(pending):
            wake = manager.wake
            assert wake is not None
            jobs = credit.of(wake.needs, spare)
            if jobs <= 0:
                # This manager waits for more resources than are free now. The managers after it
                # must not use them up.
                spare.set_aside(wake.needs)
                continue
            if jobs < bundle and not spare.fits(wake.needs):
                # Places in the window become free one by one. If each place went to another manager
                # at once, each job would need messages of its own.
                continue
            share = max(bundle, -(-jobs // (len(pending) - earlier)))
            manager.wake = None
            served.append(manager)
            self._serve_mark(manager)
            want = min(wake.count, share, jobs)
            self.locks.open(manager, (wake.role,), wake.needs, want, spare, now)
        return served

    def _answer_woke(self, woke: RemoteManager, now: float) -> None:
        """Answer a WAKE that cannot be served now: send READY of 0, withdraw held GIVEs."""
        wake = woke.wake
        if wake is not None:
            for manager in self.outbound.links.managers.values():
                locks = self.locks.of(manager.identity).values()
                if not any(within(wake.needs, lock.needs) for lock in locks):
                    self.locks.withdraw(manager, now)
        self.credit.report(0, now, managers=[woke])

    def _sole(self, now: float) -> RemoteManager | None:
        """Return the manager that gets held GIVEs, if the rules allow any (WMP-5.1, 5.2)."""
        outbound = self.outbound
        managers = outbound.links.managers.values()
        # WMP-17.3: managers on standby do not count.
        sole = (
            managers
            if len(managers) == 1
            else [candidate for candidate in managers if not candidate.standby]
        )
        if len(sole) != 1 or not outbound.settings.hold > 0:
            return None
        (manager,) = sole
        if manager.standby or manager.stream is None or now < manager.hold_after:
            return None
        for candidate in managers:  # a generator costs more
            if candidate.wake is not None:
                return None
        if self.executions.usual != DEFAULT_NEEDS:
            return None
        return manager if outbound.links.reachable(manager) else None

    def _worth_holding(self, jobs: int, covered: int, *, took: bool) -> bool:
        """Return whether a held GIVE for ``jobs`` jobs is worth its message.

        Args:
            jobs: Number of jobs that may come.
            covered: Number of jobs that may come already under held GIVEs.
            took: Whether the present event is a TAKE of the manager.
        """
        executions = self.executions
        whole = executions.places + executions.window
        return (
            4 * jobs >= whole
            or (not executions.parked and 2 * covered < whole)
            or (took and not covered)
        )

    def _serve_mark(self, manager: RemoteManager) -> None:
        self._servings += 1
        manager.served = self._servings


def _turn(manager: RemoteManager) -> tuple[int, float]:
    wake = manager.wake
    return manager.served, inf if wake is None else wake.arrival
