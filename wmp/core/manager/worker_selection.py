"""WorkerSelection: the workers that are woken for waiting jobs, and the open GIVEs that are served.

Workers are grouped by profile: their roles and resources. A fleet has few profiles and many
workers. The time of a search grows with the profiles and the wanted candidates, not with the
waiting workers. A policy of the user orders the candidates.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from attrs import define, field

from wmp.core.manager.policy import Jobs, Policy
from wmp.core.manager.queues import FEW, Queue
from wmp.core.manager.remote_worker import Give, RemoteWorker, capacity, fits

__all__ = ["WorkerSelection", "spread"]


def spread(count: int, rooms: Sequence[int]) -> list[int]:
    """Share ``count`` jobs as evenly as the rooms allow; earlier workers get the odd jobs.

    Returns:
        A share for each room, none above it. Their sum is ``count``, or the sum of the rooms if
        that is less.
    """
    if len(rooms) == 1:
        return [min(count, rooms[0])]
    shares = [0] * len(rooms)
    # The smallest rooms come first: larger rooms then share the rest.
    order = sorted(range(len(rooms)), key=rooms.__getitem__)
    for place, index in enumerate(order):
        even, odd = divmod(count, len(order) - place)
        if rooms[index] > even:
            # All rooms behind it are large enough too. Among them the policy's order decides.
            for index in sorted(order[place:]):
                shares[index] = even + (odd > 0)
                odd -= 1
            break
        shares[index] = rooms[index]
        count -= rooms[index]
    return shares


_LEAST = 8
"""Jobs that may always wait at a worker, within its window: fewer would cost a message each."""

_PART = 4
"""Divisor: another message to a worker must bring this part of the jobs that wait there."""

_ALL = 1 << 62

_SEEN = 8
"""Number of offers that a policy which keeps their order sees at once for a single job."""

_Room = tuple[RemoteWorker, int, int]
"""A worker, the number of jobs that would start there at once, and the most that it may get."""

_Line = dict[bytes, tuple[int, RemoteWorker]]
"""Identity to (place, worker), in the order of the places, which only grow."""


@define(eq=False)
class _Profile:
    """Workers that offer the same roles and resources, oldest offer first."""

    roles: frozenset[str]
    resources: dict[str, int]
    credited: _Line = field(factory=dict)
    """Workers with remembered credit."""
    giving: _Line = field(factory=dict)
    """Workers with open GIVEs."""
    members: int = 0
    """Number of workers that can be reached, with or without room."""


@define(eq=False)
class WorkerSelection:
    """All workers of a manager that have room.

    Invariant: a worker is in ``credited`` exactly when its credit is above 0, and in ``giving``
    exactly when it has an open GIVE. A worker that is served becomes the last in both. ``members``
    of a profile counts the workers that ``_profile_of`` maps to it; a profile without workers is
    removed.
    """

    policy: Policy
    scan: int
    max_leases: int
    """Leases of one worker at most."""
    on_policy_error: Callable[[Exception], None]
    _profiles: dict[tuple[tuple[str, ...], tuple[tuple[str, int], ...]], _Profile] = field(
        factory=dict
    )
    _profile_of: dict[bytes, _Profile] = field(factory=dict)
    """By identity."""
    _places: int = 0

    def update(self, worker: RemoteWorker) -> None:
        """Index ``worker`` by its present credit and GIVEs."""
        worker.offer_cache = None
        profile = self._profile(worker)
        self._places += 1
        for line, stands in ((profile.credited, worker.credit > 0), (profile.giving, worker.gives)):
            if stands:
                line.setdefault(worker.identity, (self._places, worker))
            else:
                line.pop(worker.identity, None)

    def remove(self, worker: RemoteWorker) -> None:
        """Remove ``worker``; called before its roles or resources change, and at its end."""
        worker.offer_cache = None
        profile = self._profile_of.pop(worker.identity, None)
        if profile is not None:
            profile.credited.pop(worker.identity, None)
            profile.giving.pop(worker.identity, None)
            profile.members -= 1
            if not profile.members:
                del self._profiles[_key(worker)]

    def mark_served(self, worker: RemoteWorker) -> None:
        """Put ``worker`` behind all others."""
        self._places += 1
        worker.served = self._places
        worker.offer_cache = None
        profile = self._profile_of.get(worker.identity)
        if profile is None:
            return
        for line in (profile.credited, profile.giving):
            if line.pop(worker.identity, None) is not None:
                line[worker.identity] = (self._places, worker)

    def to_wake(self, queue: Queue, count: int) -> list[tuple[RemoteWorker, int]]:
        """Return the workers to wake for ``count`` jobs, with a number for each (WMP-3.4)."""
        profiles = self._eligible(queue)
        credited = [profile.credited for profile in profiles if profile.credited]
        if not credited:
            return []
        fair = _fair(count, profiles)
        kind, many = queue.kind, queue.waiting > FEW

        def rooms() -> Iterator[_Room]:
            for worker in _oldest(credited):
                left = worker.leases_left(queue, self.max_leases)
                if left > 0 and kind not in worker.woken and (many or queue.has_for(worker.mark)):
                    spare = min(left, max(0, worker.credit - worker.window))
                    room = min(left, worker.credit)
                    yield worker, spare, _worth(worker, queue, spare, room, fair)

        return self._share_out(queue, count, rooms())

    def to_serve(self, queue: Queue) -> list[tuple[RemoteWorker, int]]:
        """Return the workers whose open GIVEs get jobs, with a number for each (WMP-5.3)."""
        profiles = self._eligible(queue)
        giving = [profile.giving for profile in profiles if profile.giving]
        if not giving:
            return []
        fair = _fair(queue.waiting, profiles)

        def rooms() -> Iterator[_Room]:
            for worker in _oldest(giving):
                gives = worker.gives_for(queue)
                left = worker.leases_left(queue, self.max_leases) if gives else 0
                if left > 0:
                    want = sum(give.want for give in gives)
                    spare = min(left, want - sum(give.window for give in gives))
                    want = min(left, want)
                    yield worker, spare, _worth(worker, queue, spare, want, fair)

        return self._share_out(queue, queue.waiting, rooms())

    def most(self, give: Give, queue: Queue, *, held: bool) -> int:
        """Return how many of the waiting jobs a new GIVE may take (WMP-4.16).

        A GIVE that is not ``held`` is answered now: without jobs it costs a NO, and its WAKE was
        needless. The fair share may be small by now because other workers were quicker.
        """
        worker = give.worker
        fair = _fair(queue.waiting, self._eligible(queue))
        left = worker.leases_left(queue, self.max_leases)
        want, spare = min(left, give.want), min(left, give.want - give.window)
        if held:
            return max(spare, _worth(worker, queue, spare, want, fair))
        return max(spare, min(want, fair - worker.held.get(queue.kind, 0)))

    def _profile(self, worker: RemoteWorker) -> _Profile:
        profile = self._profile_of.get(worker.identity)
        if profile is None:
            key = _key(worker)
            profile = self._profiles.get(key)
            if profile is None:
                profile = _Profile(frozenset(worker.roles), dict(worker.resources))
                self._profiles[key] = profile
            profile.members += 1
            self._profile_of[worker.identity] = profile
        return profile

    def _eligible(self, queue: Queue) -> list[_Profile]:
        role, needs = queue.kind.role, queue.needs
        return [
            profile
            for profile in self._profiles.values()
            if role in profile.roles and fits(needs, profile.resources)
        ]

    def _share_out(
        self, queue: Queue, count: int, rooms: Iterator[_Room]
    ) -> list[tuple[RemoteWorker, int]]:
        """Let the policy choose among some workers at a time until there is room for all jobs.

        A policy that declines the first workers must not hide the workers behind them. A policy
        that asks in order sees few workers: the cost of a job must not grow with the number of idle
        workers.
        """
        chosen: list[_Room] = []
        found = 0
        scan = self.scan
        if getattr(self.policy, "in_order", False):
            scan = min(scan, max(_SEEN, 2 * count))
        while found < count and (some := list(islice(rooms, scan))):
            for room in self._choose(queue, count - found, some):
                chosen.append(room)
                found += max(0, room[1], room[2])
        return _share(count, chosen)

    def _choose(self, queue: Queue, count: int, rooms: list[_Room]) -> list[_Room]:
        """Ask the policy; an error of a user's function must not end the manager."""
        jobs = Jobs(queue.kind.role, queue.needs, count)
        known = {room[0].identity: room for room in rooms}
        offers = tuple([worker.offer() for worker, _, _ in rooms])
        try:
            answer = [offer.identity for offer in self.policy(jobs, offers)]
            chosen = [known.pop(identity) for identity in answer if identity in known]
        except Exception as error:  # noqa: BLE001 - a user's function; reported, jobs go on
            self.on_policy_error(error)
            return rooms
        return chosen


def _fair(waiting: int, profiles: Sequence[_Profile]) -> int:
    """Return how many jobs of a kind a worker may hold while ``waiting`` wait, beyond those that
    start.

    A worker of quick jobs has a large window. If all jobs went there, other workers would be idle.
    So each worker may hold a share, which shrinks with the number of waiting jobs. A worker without
    others needs no share.
    """
    workers = sum([profile.members for profile in profiles])
    return max(_LEAST, -(-waiting // workers)) if workers > 1 else _ALL


def _worth(worker: RemoteWorker, queue: Queue, spare: int, room: int, fair: int) -> int:
    """Return how many jobs to send to a worker with ``room``, of which ``spare`` start at once.

    If many jobs wait at a worker, a few more jobs would wait there instead of here, at the price of
    a message. So they are sent when they are many, or when fewer jobs wait there. Only jobs of the
    same kind count: beside a stream of other jobs these would wait for ever.
    """
    held = worker.held.get(queue.kind, 0)
    most = min(room, fair - held)
    if held <= _LEAST:
        return most
    waits = held - capacity(queue.needs, worker.resources)
    few = min(most, queue.waiting) - spare < waits // _PART
    return min(most, spare) if waits > _LEAST and few else most


def _oldest(lines: Sequence[_Line]) -> Iterator[RemoteWorker]:
    """Yield workers, oldest offer first."""
    places: Iterable[tuple[int, RemoteWorker]]
    if len(lines) == 1:
        places = lines[0].values()
    else:
        # No two places are equal, so workers are never compared.
        places = heapq.merge(*(line.values() for line in lines))
    return (worker for _, worker in places)


def _share(count: int, rooms: Sequence[_Room]) -> list[tuple[RemoteWorker, int]]:
    """Spread jobs over workers: first the jobs that would start at once, then the others."""
    shares = spread(count, [spare for _, spare, _ in rooms])
    left = [max(0, most - share) for (_, _, most), share in zip(rooms, shares, strict=True)]
    rest = spread(count - sum(shares), left)
    return [(row[0], s + r) for row, s, r in zip(rooms, shares, rest, strict=True) if s + r]


def _key(worker: RemoteWorker) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    return worker.roles, tuple(sorted(worker.resources.items()))
