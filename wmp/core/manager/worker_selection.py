"""WorkerSelection: which workers are woken for jobs that wait, and whose open GIVEs are served.

Workers are grouped by profile: their roles and resources. A fleet has few profiles and many
workers. The search for candidates takes time for the profiles and the wanted candidates, not
for the waiting workers. A policy of the user orders the candidates.
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
    """Share ``count`` jobs as evenly as the rooms allow; odd ones go to the earlier.

    Returns:
        A share for each room, none above it; their sum is ``count`` or all the room.
    """
    if len(rooms) == 1:
        return [min(count, rooms[0])]
    shares = [0] * len(rooms)
    # The smallest rooms first: what they cannot take is then shared by those that can.
    order = sorted(range(len(rooms)), key=rooms.__getitem__)
    for place, index in enumerate(order):
        even, odd = divmod(count, len(order) - place)
        if rooms[index] > even:
            # So have all behind it. The policy says which comes first, not the room.
            for index in sorted(order[place:]):
                shares[index] = even + (odd > 0)
                odd -= 1
            break
        shares[index] = rooms[index]
        count -= rooms[index]
    return shares


_LEAST = 8
"""Jobs that may always wait at a worker, within its window: fewer cost a message each."""

_PART = 4
"""Divisor: another message to a worker must bring this part of the jobs that wait there."""

_ALL = 1 << 62

_SEEN = 8
"""Offers that a policy which keeps their order sees at once for a single job."""

_Room = tuple[RemoteWorker, int, int]
"""A worker, what would start there at once, and what it may be given in all."""

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
    members: int = 0
    """How many there are that can be reached, with or without room."""


@define(eq=False)
class WorkerSelection:
    """All workers of a manager that have room.

    Invariant: a worker stands in ``credited`` exactly when its credit is above 0, and in
    ``giving`` exactly when it has an open GIVE. Being served puts it last in both. ``members`` of
    a profile counts the workers that ``_profile_of`` leads to it; it is forgotten with the last.
    """

    policy: Policy
    scan: int
    on_policy_error: Callable[[Exception], None]
    _profiles: dict[tuple[tuple[str, ...], tuple[tuple[str, int], ...]], _Profile] = field(
        factory=dict
    )
    _profile_of: dict[bytes, _Profile] = field(factory=dict)
    """By identity."""
    _places: int = 0

    def update(self, worker: RemoteWorker) -> None:
        """Index ``worker`` by its credit and GIVEs as they are now."""
        worker.offer_cache = None
        profile = self._profile(worker)
        self._places += 1
        for line, stands in ((profile.credited, worker.credit > 0), (profile.giving, worker.gives)):
            if stands:
                line.setdefault(worker.identity, (self._places, worker))
            else:
                line.pop(worker.identity, None)

    def remove(self, worker: RemoteWorker) -> None:
        """Take ``worker`` out; called before its roles or resources change, and at its end."""
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
        """The workers to wake for ``count`` jobs of ``queue``, each for how many (WMP-3.4)."""
        profiles = self._eligible(queue)
        credited = [profile.credited for profile in profiles if profile.credited]
        if not credited:
            return []
        fair = _fair(count, profiles)
        kind, many = queue.kind, queue.waiting > FEW
        return self._share_out(
            queue,
            count,
            (
                (w, spare := max(0, w.credit - w.window), _worth(w, queue, spare, w.credit, fair))
                for w in _oldest(credited)
                if kind not in w.woken and (many or queue.has_for(w.mark))
            ),
        )

    def to_serve(self, queue: Queue) -> list[tuple[RemoteWorker, int]]:
        """The workers whose open GIVEs get jobs of ``queue``, each how many (WMP-5.3)."""
        profiles = self._eligible(queue)
        giving = [profile.giving for profile in profiles if profile.giving]
        if not giving:
            return []
        fair = _fair(queue.waiting, profiles)

        def rooms() -> Iterator[_Room]:
            for worker in _oldest(giving):
                if gives := worker.gives_for(queue):
                    want = sum(give.want for give in gives)
                    spare = want - sum(give.window for give in gives)
                    yield worker, spare, _worth(worker, queue, spare, want, fair)

        return self._share_out(queue, queue.waiting, rooms())

    def most(self, give: Give, queue: Queue, *, held: bool) -> int:
        """How many of the jobs that wait a GIVE may take that has just come.

        A GIVE that is not ``held`` is answered now: without jobs it costs a NO, and its WAKE was
        in vain. The fair share may be small by now because other workers were quicker.
        """
        worker = give.worker
        fair = _fair(queue.waiting, self._eligible(queue))
        spare = give.want - give.window
        if held:
            return max(spare, _worth(worker, queue, spare, give.want, fair))
        return max(spare, min(give.want, fair - worker.held.get(queue.kind, 0)))

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

        A policy that declines the first workers must not hide those behind them. A policy that
        asks in order sees few: what a job costs must not grow with the workers that are idle.
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
        """Ask the policy; never let a user's function take the manager down."""
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
    """How many jobs of a kind one may hold while ``waiting`` wait, unless they start at once.

    A worker of quick jobs has a large window; were it filled with all there is, others would
    stand idle beside it. A share among all that could do them leaves each of them something,
    and shrinks as the end comes near. A worker without others shares with none.
    """
    workers = sum([profile.members for profile in profiles])
    return max(_LEAST, -(-waiting // workers)) if workers > 1 else _ALL


def _worth(worker: RemoteWorker, queue: Queue, spare: int, room: int, fair: int) -> int:
    """How many jobs to give to a worker that has ``room``, of which ``spare`` start at once.

    A few more jobs for a worker at which many wait would wait there instead of here, at the price
    of a message. They go once they are many, or once fewer wait there. Only jobs of the same kind
    count: beside a stream of other jobs these would wait for ever.
    """
    held = worker.held.get(queue.kind, 0)
    most = min(room, fair - held)
    if held <= _LEAST:
        return most
    waits = held - capacity(queue.needs, worker.resources)
    few = min(most, queue.waiting) - spare < waits // _PART
    return min(most, spare) if waits > _LEAST and few else most


def _oldest(lines: Sequence[_Line]) -> Iterator[RemoteWorker]:
    """Workers, oldest offer first."""
    places: Iterable[tuple[int, RemoteWorker]]
    if len(lines) == 1:
        places = lines[0].values()
    else:
        # No two places are equal, so workers are never compared.
        places = heapq.merge(*(line.values() for line in lines))
    return (worker for _, worker in places)


def _share(count: int, rooms: Sequence[_Room]) -> list[tuple[RemoteWorker, int]]:
    """Spread jobs over workers: first what would start at once, then up to a further bound."""
    shares = spread(count, [spare for _, spare, _ in rooms])
    left = [max(0, most - share) for (_, _, most), share in zip(rooms, shares, strict=True)]
    rest = spread(count - sum(shares), left)
    return [(row[0], s + r) for row, s, r in zip(rooms, shares, rest, strict=True) if s + r]


def _key(worker: RemoteWorker) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    return worker.roles, tuple(sorted(worker.resources.items()))
