"""Which stored jobs a manager reserves ahead: as many as its workers may hold, of each kind.

The store may hold a million jobs. The manager holds only the jobs that its workers have, and as
many others as these workers could hold, so that a worker that becomes free need not wait for the
store.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from attrs import define, field

from wmp.core.manager.leases import Leases
from wmp.core.manager.queues import Queues
from wmp.core.manager.remote_worker import fits
from wmp.message import Kind
from wmp.store.contract import QueuedKind
from wmp.store.write_batch import Reservation

_MAX: Final = 4096
"""Limit of the jobs of one kind that are reserved ahead."""
_MAX_BYTES: Final = 64 << 20
"""Limit of the payload bytes of one reservation."""
_FRESH: Final = 0.02
"""Seconds for which the computed capacity for a kind counts: computing it visits all workers."""


@define(eq=False)
class KindDemand:
    """The known facts about the stored jobs of one kind."""

    kind: Kind
    more: bool = False
    """Whether jobs of the kind may be due in the store."""
    queued: int = 0
    """Number of the jobs that this manager left in the store, as far as known."""
    next_due: float = inf
    """When the next of the other jobs becomes due, on the clock of ``now``."""
    adding: int = 0
    """Number of jobs that are being added, and reserved with that."""
    surplus_since: float = inf
    """Since when more jobs wait here than the workers have capacity for."""
    capacity: int = 0
    """Number of jobs that the workers may hold, as it was last computed."""
    computed_at: float = -inf

    @property
    def waits(self) -> bool:
        """Whether jobs in the store wait for their time."""
        return self.next_due < inf

    def leaves(self, wait_ms: int, now: float) -> None:
        """Record that a job is left in the store; it is due in ``wait_ms``."""
        self.queued += 1
        if wait_ms:
            self.next_due = min(self.next_due, now + wait_ms / 1000)
        else:
            self.more = True

    def took(self, count: int, *, more: bool, next_due: float) -> None:
        """Record that jobs were reserved."""
        self.more = more
        self.next_due = min(self.next_due, next_due)
        self.queued = max(0, self.queued - count) if more or self.waits else 0


@define(eq=False)
class StoreDemand:
    """The demand of all kinds."""

    leases: Leases
    queues: Queues
    _kinds: dict[Kind, KindDemand] = field(factory=dict)

    def of(self, kind: Kind) -> KindDemand:
        """Return the demand of a kind."""
        demand = self._kinds.get(kind)
        if demand is None:
            demand = self._kinds[kind] = KindDemand(kind)
        return demand

    def wake(self, kinds: Iterable[QueuedKind], now: float) -> None:
        """Record that jobs of these kinds are queued in the store."""
        for queued in kinds:
            demand = self.of(queued.kind)
            if queued.count is not None:
                demand.queued = queued.count
            if queued.wait:
                demand.next_due = min(demand.next_due, now + queued.wait / 1000)
            else:
                demand.more = True

    def changed(self) -> None:
        """Compute all capacities anew: a worker came or reported another capacity."""
        for demand in self._kinds.values():
            if not demand.capacity:
                demand.computed_at = -inf

    def free(self, demand: KindDemand, now: float) -> int:
        """Return the number of further jobs of a kind that may wait here."""
        queue = self.queues.find(demand.kind)
        waiting = 0 if queue is None else queue.waiting
        return self.capacity(demand, now) - waiting - demand.adding

    def capacity(self, demand: KindDemand, now: float) -> int:
        """Return the number of jobs of a kind that the workers may hold."""
        if now - demand.computed_at >= _FRESH or now < demand.computed_at:
            kind, needs = demand.kind, dict(demand.kind.needs)
            total = 0
            for worker in self.leases.workers.values():
                if kind.role in worker.roles and fits(needs, worker.resources):
                    total += worker.credit + worker.held.get(kind, 0) + worker.woken.get(kind, 0)
                    total += sum(give.want for give in worker.gives.values())
            demand.capacity, demand.computed_at = min(total, _MAX), now
        return demand.capacity

    def reservations(self, now: float) -> list[Reservation]:
        """Return what to reserve now: a kind whose supply has shrunk to half of the capacity."""
        wanted = []
        for demand in self._kinds.values():
            if demand.next_due <= now:
                demand.more, demand.next_due = True, inf
            if demand.more:
                free = self.free(demand, now)
                if free > 0 and 2 * free >= demand.capacity:
                    wanted.append(Reservation(demand.kind, free, _MAX_BYTES))
        return wanted

    def next_due(self) -> float:
        """Return when the next jobs become due in the store; infinity for never."""
        return min((demand.next_due for demand in self._kinds.values()), default=inf)

    @property
    def stored(self) -> int:
        """The number of the jobs that wait in the store, as far as known."""
        return sum(
            max(1, demand.queued) for demand in self._kinds.values() if demand.more or demand.waits
        )

    def tidy(self) -> None:
        """Forget the kinds of which no jobs are known."""
        for kind, demand in tuple(self._kinds.items()):
            known = demand.more or demand.waits or demand.adding
            if not known and self.queues.find(kind) is None:
                del self._kinds[kind]

    def surplus(self, now: float) -> list[tuple[Kind, int]]:
        """Return the kinds of which too many jobs have waited here for 1 s.

        Returns:
            Each kind, and the number of jobs for which the workers have no capacity.
        """
        kinds = []
        for queue in self.queues:
            demand = self.of(queue.kind)
            demand.computed_at = -inf
            over = queue.waiting - self.capacity(demand, now)
            if over <= 0:
                demand.surplus_since = inf
            elif demand.surplus_since == inf:
                demand.surplus_since = now
            elif now - demand.surplus_since >= 1.0:
                kinds.append((queue.kind, over))
        return kinds

    def waiting(self) -> dict[Kind, int]:
        """Return the kinds of which jobs wait in the store, with their numbers as far as known."""
        return {kind: max(1, demand.queued) for kind, demand in self._kinds.items() if demand.more}
