"""Workers with room: who could be woken, and whose GIVEs are open.

Workers are grouped by what they offer (roles and resources). A fleet has few such
profiles and many workers, so finding candidates for a job costs by the profiles that
exist and the candidates asked for, not by the workers that wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from attrs import define, field

from wmp.core.peers import Give, RemoteWorker, fits
from wmp.core.policy import Jobs, Policy
from wmp.core.queues import Queue

__all__ = ["Offers", "spread"]


def spread(count: int, rooms: Sequence[int]) -> list[int]:
    """Share ``count`` jobs as evenly as the rooms allow; odd ones go to the earlier.

    Returns:
        A share for each room, none above it; their sum is ``count`` or all the room.
    """
    shares = [0] * len(rooms)
    # The smallest rooms first: what they cannot take is then shared by those that can.
    order = sorted(range(len(rooms)), key=lambda index: (rooms[index], -index))
    for left, index in zip(range(len(rooms), 0, -1), order, strict=True):
        shares[index] = part = min(rooms[index], count // left)
        count -= part
    return shares


_Line = dict[bytes, tuple[int, RemoteWorker]]
"""Identity to (place, worker), in the order of the places, which only grow."""


@define(eq=False)
class _Profile:
    """Workers that offer the same roles and resources, oldest offer first."""

    roles: frozenset[str]
    resources: dict[str, int]
    credited: _Line = field(factory=dict)
    """Those with remembered credit."""
    giving: _Line = field(factory=dict)
    """Those with open GIVEs."""


@define(eq=False)
class Offers:
    """All offers of a manager's workers.

    Invariant: a worker stands in ``credited`` exactly when its credit is above 0, and in
    ``giving`` exactly when it has an open GIVE. Being served puts it last in both.
    """

    policy: Policy
    scan: int
    on_policy_error: Callable[[Exception], None]
    _profiles: dict[tuple[tuple[str, ...], tuple[tuple[str, int], ...]], _Profile] = field(
        factory=dict
    )
    _places: int = 0

    def update(self, worker: RemoteWorker) -> None:
        """Index ``worker`` by its credit and GIVEs as they are now."""
        profile = self._profile(worker)
        self._places += 1
        for line, stands in ((profile.credited, worker.credit > 0), (profile.giving, worker.gives)):
            if stands:
                line.setdefault(worker.identity, (self._places, worker))
            else:
                line.pop(worker.identity, None)

    def remove(self, worker: RemoteWorker) -> None:
        """Take ``worker`` out; called before its roles or resources change, and at its end."""
        key = _key(worker)
        profile = self._profiles.get(key)
        if profile is not None:
            profile.credited.pop(worker.identity, None)
            profile.giving.pop(worker.identity, None)
            if not profile.credited and not profile.giving:
                del self._profiles[key]

    def mark_served(self, worker: RemoteWorker) -> None:
        """Put ``worker`` behind all others."""
        self._places += 1
        worker.served = self._places
        profile = self._profile(worker)
        for line in (profile.credited, profile.giving):
            if line.pop(worker.identity, None) is not None:
                line[worker.identity] = (self._places, worker)

    def to_wake(self, queue: Queue, count: int) -> list[tuple[RemoteWorker, int]]:
        """Whom to wake for ``count`` jobs of ``queue``, and each for how many (WMP-3.4)."""
        lines = (p.credited for p in self._eligible(queue))
        workers = [w for w in self._oldest(lines) if queue.kind not in w.woken]
        chosen = self._choose(queue, count, workers)
        # What would start at once comes first; the windows only take what is left.
        starting = [max(0, w.credit - w.window) for w in chosen]
        shares = spread(count, starting)
        left = [w.credit - s for w, s in zip(chosen, shares, strict=True)]
        rest = spread(count - sum(shares), left)
        return [(w, s + r) for w, s, r in zip(chosen, shares, rest, strict=True) if s + r]

    def to_serve(self, queue: Queue) -> list[tuple[Give, int]]:
        """Which open GIVEs get jobs of ``queue``, and how many (WMP-5.3)."""
        lines = (p.giving for p in self._eligible(queue))
        gives = {w.identity: self._give_for(w, queue) for w in self._oldest(lines)}
        workers = [g.worker for g in gives.values() if g is not None]
        chosen = [
            give
            for worker in self._choose(queue, queue.waiting, workers)
            if (give := gives[worker.identity]) is not None
        ]
        starting = spread(queue.waiting, [max(0, g.want - g.window) for g in chosen])
        rest = spread(
            queue.waiting - sum(starting),
            [g.want - s for g, s in zip(chosen, starting, strict=True)],
        )
        return [(g, s + r) for g, s, r in zip(chosen, starting, rest, strict=True) if s + r]

    def _profile(self, worker: RemoteWorker) -> _Profile:
        key = _key(worker)
        profile = self._profiles.get(key)
        if profile is None:
            profile = _Profile(frozenset(worker.roles), dict(worker.resources))
            self._profiles[key] = profile
        return profile

    def _eligible(self, queue: Queue) -> Iterator[_Profile]:
        for profile in self._profiles.values():
            if queue.kind.role in profile.roles and fits(queue.needs, profile.resources):
                yield profile

    def _oldest(self, lines: Iterable[_Line]) -> Iterator[RemoteWorker]:
        """Up to ``scan`` workers, oldest offer first."""
        # No two places are equal, so workers are never compared.
        merged = heapq.merge(*(line.values() for line in lines))
        return (worker for _, worker in islice(merged, self.scan))

    def _give_for(self, worker: RemoteWorker, queue: Queue) -> Give | None:
        for give in worker.gives.values():
            if give.want and queue.kind.role in give.roles and fits(queue.needs, give.needs):
                return give
        return None

    def _choose(self, queue: Queue, count: int, workers: list[RemoteWorker]) -> list[RemoteWorker]:
        """Ask the policy; never let a user's function take the manager down."""
        if not workers:
            return workers
        jobs = Jobs(queue.kind.role, queue.needs, count)
        known = {worker.identity: worker for worker in workers}
        try:
            answer = [offer.identity for offer in self.policy(jobs, tuple(workers))]
            chosen = [known.pop(identity) for identity in answer if identity in known]
        except Exception as error:  # noqa: BLE001 - a user's function; reported, jobs go on
            self.on_policy_error(error)
            return workers
        return chosen


def _key(worker: RemoteWorker) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    return worker.roles, tuple(sorted(worker.resources.items()))
