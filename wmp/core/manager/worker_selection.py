"""The choice of the workers that are woken for waiting jobs, and of the open GIVEs that are served.

A policy of the user orders the candidates. Profiles find the candidates. A profile is the set of
all workers with the same roles and resources. A fleet has few profiles and many workers, or, with a
role for each host, as many profiles as workers. For each kind of jobs an :class:`Eligible` keeps
the profiles that suit the kind, the number of their workers with capacity, and these workers in the
order of their offers. So no search visits a worker without capacity or a profile that does not
suit. The time of a search grows with the number of wanted candidates, not with the number of
workers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from attrs import define, field

from wmp.core.manager.policy import Jobs, Policy
from wmp.core.manager.queues import FEW, Queue
from wmp.core.manager.remote_worker import BusyWorkers, Give, RemoteWorker, capacity, fits
from wmp.message import Kind

Line: TypeAlias = dict[bytes, tuple[int, RemoteWorker]]
"""(rank, worker) by identity, in the order of the ranks. Ranks only grow."""

_Key: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, int], ...]]
"""Roles and resources."""

_MAX_KINDS = 256
"""Number of kinds for which the suitable profiles are kept.

For other kinds the search is repeated.
"""


@define(eq=False)
class Eligible:
    """The workers that suit jobs of one kind.

    Invariant: ``credited`` contains the suitable profiles whose line ``credited`` is not empty, and
    ``giving`` the suitable profiles whose line ``giving`` is not empty. ``with_capacity`` counts
    the workers in the lines.
    """

    kind: Kind
    needs: dict[str, int]
    credited: dict[_Key, Profile] = field(factory=dict)
    giving: dict[_Key, Profile] = field(factory=dict)
    with_capacity: int = 0


@define(eq=False)
class Profile:
    """Workers that offer the same roles and resources, oldest offer first."""

    key: _Key
    credited: Line = field(factory=dict)
    """Workers with remembered credit."""
    giving: Line = field(factory=dict)
    """Workers with open GIVEs."""
    members: int = 0
    """Number of workers, with or without capacity."""
    with_capacity: int = 0
    """Number of the workers that are in one of the lines."""
    eligible: dict[Kind, Eligible] = field(factory=dict)
    """Kinds that the profile suits, as far as jobs of these kinds waited."""


@define(eq=False)
class Profiles:
    """All profiles of a manager's workers.

    Invariant: a worker is in ``credited`` of its profile if its credit is above 0, and only then.
    It is in ``giving`` if it has an open GIVE, and only then. It has capacity if it is in one of
    them. A worker that is served becomes the last in both. A profile without workers is removed.
    """

    busy: BusyWorkers = field(factory=BusyWorkers)
    """Number of workers without capacity, by the kinds of the jobs that they hold."""
    _all: dict[_Key, Profile] = field(factory=dict)
    _by_role: dict[str, dict[_Key, Profile]] = field(factory=dict)
    _of: dict[bytes, Profile] = field(factory=dict)
    """The profile of each worker, by identity."""
    _eligible: dict[Kind, Eligible] = field(factory=dict)
    _ranks: int = 0

    # -- workers

    def update(self, worker: RemoteWorker) -> None:
        """Put ``worker`` into the lines for its present credit and GIVEs."""
        profile = self._of.get(worker.identity) or self._join(worker)
        self._ranks += 1
        self._stand(profile, worker, credited=worker.credit > 0, giving=bool(worker.gives))

    def remove(self, worker: RemoteWorker) -> None:
        """Remove ``worker``. Called at its end, and before its roles or resources change."""
        profile = self._of.pop(worker.identity, None)
        if profile is None:
            return
        self._stand(profile, worker, credited=False, giving=False)
        profile.members -= 1
        if not profile.members:
            del self._all[profile.key]
            for role in profile.key[0]:
                suited = self._by_role.get(role, {})
                suited.pop(profile.key, None)  # a role may be listed twice
                if not suited:
                    self._by_role.pop(role, None)

    def mark_served(self, worker: RemoteWorker) -> None:
        """Put ``worker`` behind all others of its profile."""
        self._ranks += 1
        worker.served = self._ranks
        profile = self._of.get(worker.identity)
        if profile is None or not worker.has_capacity:
            return
        for line in (profile.credited, profile.giving):
            if line.pop(worker.identity, None) is not None:
                line[worker.identity] = (self._ranks, worker)

    # -- kinds

    def eligible(self, queue: Queue) -> Eligible:
        """Return the workers that suit jobs of ``queue``."""
        eligible = self._eligible.get(queue.kind)
        if eligible is None:
            if len(self._eligible) >= _MAX_KINDS:
                self._drop(next(iter(self._eligible)))
            eligible = self._eligible[queue.kind] = Eligible(queue.kind, dict(queue.needs))
            for profile in self._by_role.get(queue.kind.role, {}).values():
                _suit(profile, eligible)
        return eligible

    def suits(self, role: str, needs: dict[str, int]) -> bool:
        """Return whether a worker, with or without capacity, can do jobs of a role and needs."""
        profiles = self._by_role.get(role, ())
        return any(fits(needs, dict(resources)) for _, resources in profiles)

    def totals(self) -> Iterator[tuple[tuple[str, ...], tuple[tuple[str, int], ...], int]]:
        """Return roles, resources and number of the workers of each profile."""
        for (roles, resources), profile in self._all.items():
            yield roles, resources, profile.members

    def able(self, eligible: Eligible) -> int:
        """Return the number of workers that can take jobs of a kind, now or later."""
        return eligible.with_capacity + self.busy.counts.get(eligible.kind, 0)

    def offers(self, role: str) -> bool:
        """Return whether a worker offers a role, and any amount of any resource."""
        return any(
            any(amount for _, amount in resources) for _, resources in self._by_role.get(role, ())
        )

    def _drop(self, kind: Kind) -> None:
        del self._eligible[kind]
        for profile in self._by_role.get(kind.role, {}).values():
            profile.eligible.pop(kind, None)

    # -- helpers

    def _join(self, worker: RemoteWorker) -> Profile:
        key = worker.roles, tuple(sorted(worker.resources.items()))
        profile = self._all.get(key)
        if profile is None:
            profile = self._all[key] = Profile(key)
            for role in worker.roles:
                self._by_role.setdefault(role, {})[key] = profile
            for eligible in self._eligible.values():
                _suit(profile, eligible)
        profile.members += 1
        self._of[worker.identity] = profile
        return profile

    def _stand(
        self, profile: Profile, worker: RemoteWorker, *, credited: bool, giving: bool
    ) -> None:
        """Put a worker into the lines in which it belongs, and take it out of the others."""
        identity = worker.identity
        if credited:
            if identity not in profile.credited:
                profile.credited[identity] = (self._ranks, worker)
                if len(profile.credited) == 1:
                    for eligible in profile.eligible.values():
                        eligible.credited[profile.key] = profile
        elif profile.credited.pop(identity, None) is not None and not profile.credited:
            for eligible in profile.eligible.values():
                del eligible.credited[profile.key]
        if giving:
            if identity not in profile.giving:
                profile.giving[identity] = (self._ranks, worker)
                if len(profile.giving) == 1:
                    for eligible in profile.eligible.values():
                        eligible.giving[profile.key] = profile
        elif profile.giving.pop(identity, None) is not None and not profile.giving:
            for eligible in profile.eligible.values():
                del eligible.giving[profile.key]
        has_capacity = credited or giving
        if has_capacity != worker.has_capacity:
            change = 1 if has_capacity else -1
            profile.with_capacity += change
            for eligible in profile.eligible.values():
                eligible.with_capacity += change
            worker.set_has_capacity(has_capacity)


def _suit(profile: Profile, eligible: Eligible) -> None:
    """Add a profile to the profiles of a kind if the profile suits the kind."""
    roles, resources = profile.key
    if eligible.kind.role not in roles or not fits(eligible.needs, dict(resources)):
        return
    profile.eligible[eligible.kind] = eligible
    eligible.with_capacity += profile.with_capacity
    if profile.credited:
        eligible.credited[profile.key] = profile
    if profile.giving:
        eligible.giving[profile.key] = profile


def spread(count: int, limits: Sequence[int]) -> list[int]:
    """Share ``count`` jobs as evenly as the limits allow; earlier workers get the jobs that are
    left over.

    Returns:
        A share for each limit, and none above its limit. The sum of the shares is ``count``, or the
        sum of the limits if that is less.
    """
    if len(limits) == 1:
        return [min(count, limits[0])]
    shares = [0] * len(limits)
    # The smallest limits are filled first; the larger limits share the rest.
    order = sorted(range(len(limits)), key=limits.__getitem__)
    for filled, index in enumerate(order):
        even, odd = divmod(count, len(order) - filled)
        if limits[index] > even:
            # All further limits are large enough too. The policy's order decides who gets the jobs
            # that are left over.
            for index in sorted(order[filled:]):
                shares[index] = even + (odd > 0)
                odd -= 1
            break
        shares[index] = limits[index]
        count -= limits[index]
    return shares


_MIN = 8
"""Number of jobs that may always wait at a worker, within its window.

With fewer, each job would cost a message.
"""

_PART = 4
"""A further message to a worker must bring at least the jobs that wait there, divided by this
number.
"""

_ALL = 1 << 62

_SEEN = 8
"""Number of offers that a policy sees for a single job if it keeps their order."""

_Candidate = tuple[RemoteWorker, int, int]
"""A worker, the number of jobs that would start there at once, and the maximum number that it
may get.
"""


@define(eq=False)
class WorkerSelection:
    """All workers of a manager that have credit or an open GIVE."""

    policy: Policy
    scan: int
    max_leases: int
    """Limit of the leases of one worker."""
    on_policy_error: Callable[[Exception], None]
    profiles: Profiles = field(factory=Profiles)
    """These workers by profile."""

    def update(self, worker: RemoteWorker) -> None:
        """Put ``worker`` into the lines for its present credit and GIVEs."""
        worker.offer_cache = None
        self.profiles.update(worker)

    def remove(self, worker: RemoteWorker) -> None:
        """Remove ``worker``. Called at its end, and before its roles or resources change."""
        worker.offer_cache = None
        self.profiles.remove(worker)

    def mark_served(self, worker: RemoteWorker) -> None:
        """Put ``worker`` behind all others of its profile."""
        worker.offer_cache = None
        self.profiles.mark_served(worker)

    def to_wake(self, queue: Queue, count: int) -> list[tuple[RemoteWorker, int]]:
        """Return the workers to wake for ``count`` jobs, with the jobs for each (WMP-3.4)."""
        eligible = self.profiles.eligible(queue)
        if not eligible.credited:
            return []
        fair = _fair(count, self.profiles.able(eligible))
        return self._search(queue, count, fair, eligible.credited.values(), self._wakeable, False)

    def to_serve(self, queue: Queue) -> list[tuple[RemoteWorker, int]]:
        """Return the workers whose open GIVEs get jobs, with the jobs for each (WMP-5.3)."""
        eligible = self.profiles.eligible(queue)
        if not eligible.giving:
            return []
        fair = _fair(queue.waiting, self.profiles.able(eligible))
        return self._search(
            queue, queue.waiting, fair, eligible.giving.values(), self._servable, True
        )

    def _search(
        self,
        queue: Queue,
        count: int,
        fair: int,
        profiles: Collection[Profile],
        judge: Callable[[RemoteWorker, Queue, int], _Candidate | None],
        giving: bool,
    ) -> list[tuple[RemoteWorker, int]]:
        """Return the workers of some profiles that get jobs, with the jobs for each.

        Args:
            queue: The queue of the jobs.
            count: Number of the jobs.
            fair: Number of these jobs that a worker may hold.
            profiles: The profiles.
            judge: Returns a worker as a candidate; None for a worker that can get no job.
            giving: Whether open GIVEs are served; else workers are woken.
        """
        lines = [profile.giving if giving else profile.credited for profile in profiles]
        if len(lines) == 1 and len(lines[0]) == 1:
            # A lone worker is often judged in vain: once for each result and each new job.
            ((_, worker),) = lines[0].values()
            candidate = judge(worker, queue, fair)
            if candidate is None:
                return []
            if getattr(self.policy, "asks_a_lone_worker", False):
                # The result is that of ``_share``.
                share = min(count, max(candidate[1], candidate[2]))
                return [(worker, share)] if share > 0 else []
            return self._share_out(queue, count, iter((candidate,)))
        judged = (judge(worker, queue, fair) for worker in _oldest(lines))
        return self._share_out(
            queue, count, (candidate for candidate in judged if candidate is not None)
        )

    def _wakeable(self, worker: RemoteWorker, queue: Queue, fair: int) -> _Candidate | None:
        """Return a worker with credit as a candidate, if a WAKE may bring it jobs."""
        if queue.kind in worker.woken:
            return None
        left = worker.leases_left(queue, self.max_leases)
        if left <= 0 or not (queue.waiting > FEW or queue.has_for(worker.mark)):
            return None
        spare = min(left, max(0, worker.credit - worker.window))
        maximum = _worth(worker, queue, spare, min(left, worker.credit), fair)
        return (worker, spare, maximum) if spare > 0 or maximum > 0 else None

    def _servable(self, worker: RemoteWorker, queue: Queue, fair: int) -> _Candidate | None:
        """Return a worker with open GIVEs as a candidate, if they may bring it jobs."""
        want = window = 0
        for give in worker.gives_for(queue):
            want += give.want
            window += give.window
        left = worker.leases_left(queue, self.max_leases) if want else 0
        if left <= 0:
            return None
        spare = min(left, want - window)
        maximum = _worth(worker, queue, spare, min(left, want), fair)
        return (worker, spare, maximum) if spare > 0 or maximum > 0 else None

    def maximum(self, give: Give, queue: Queue, *, held: bool) -> int:
        """Return the number of the waiting jobs that a new GIVE may take (WMP-4.16).

        A GIVE without ``hold`` is answered at once, by NO if it gets no job. Then the WAKE before
        the GIVE was needless: other workers were quicker, and the fair share of this worker is
        small now.
        """
        worker = give.worker
        counted = worker.has_capacity or queue.kind in worker.held
        able = self.profiles.able(self.profiles.eligible(queue))
        fair = _fair(queue.waiting, able + (not counted))
        left = worker.leases_left(queue, self.max_leases)
        want, spare = min(left, give.want), min(left, give.want - give.window)
        if held:
            return max(spare, _worth(worker, queue, spare, want, fair))
        return max(spare, min(want, fair - worker.held.get(queue.kind, 0)))

    def _share_out(
        self, queue: Queue, count: int, candidates: Iterator[_Candidate]
    ) -> list[tuple[RemoteWorker, int]]:
        """Let the policy choose among some workers at a time until the chosen workers can take all
        jobs.

        A policy that declines the first workers must not hide the workers behind them. A policy
        that asks in order sees few workers, because the cost of a job must not grow with the number
        of idle workers.
        """
        chosen: list[_Candidate] = []
        covered = 0
        scan = self.scan
        if getattr(self.policy, "in_order", False):
            scan = min(scan, max(_SEEN, 2 * count))
        while covered < count and (some := list(islice(candidates, scan))):
            for candidate in self._choose(queue, count - covered, some):
                chosen.append(candidate)
                covered += max(0, candidate[1], candidate[2])
        return _share(count, chosen) if chosen else []

    def _choose(self, queue: Queue, count: int, candidates: list[_Candidate]) -> list[_Candidate]:
        """Ask the policy. An error of the user's function must not end the manager."""
        jobs = Jobs(queue.kind.role, queue.needs, count)
        known = {candidate[0].identity: candidate for candidate in candidates}
        offers = tuple([worker.offer() for worker, _, _ in candidates])
        try:
            answer = [offer.identity for offer in self.policy(jobs, offers)]
            chosen = [known.pop(identity) for identity in answer if identity in known]
        except Exception as error:  # noqa: BLE001 - a user's function; reported, jobs still run
            self.on_policy_error(error)
            return candidates
        return chosen


def _fair(waiting: int, workers: int) -> int:
    """Return the number of jobs of a kind that a worker may hold while ``waiting`` jobs wait.

    Jobs that start at once do not count. A worker of quick jobs has a large window. If this worker
    got all jobs, other workers would be idle. So each worker may hold a share, which shrinks with
    the number of waiting jobs. ``workers`` is the number of workers that can take such jobs now, or
    that hold such jobs and can take others afterwards. Workers that are busy with other jobs get
    none of these jobs, and therefore have no share. If there is only one worker, it needs no share.
    """
    return max(_MIN, -(-waiting // workers)) if workers > 1 else _ALL


def _worth(worker: RemoteWorker, queue: Queue, spare: int, free: int, fair: int) -> int:
    """Return the number of jobs to send to a worker that accepts ``free`` jobs.

    ``spare`` of these jobs start at once. If many jobs already wait at the worker, a few more jobs
    would wait there instead of here, and would cost a message. So a few jobs are sent only when few
    jobs wait at the worker; many jobs are sent at once. Only jobs of the same kind count. Otherwise
    a stream of other jobs at the worker could keep the jobs here waiting for ever.
    """
    held = worker.held.get(queue.kind, 0)
    maximum = free if free < fair - held else fair - held
    if held <= _MIN:
        return maximum
    waits = held - capacity(queue.needs, worker.resources)
    if waits <= _MIN:
        return maximum
    few = min(maximum, queue.waiting) - spare < waits // _PART
    return min(maximum, spare) if few else maximum


def _oldest(lines: Sequence[Line]) -> Iterator[RemoteWorker]:
    """Yield workers, oldest offer first."""
    ranked: Iterable[tuple[int, RemoteWorker]]
    if len(lines) == 1:
        ranked = lines[0].values()
    else:
        # No two ranks are equal, so the comparison never reaches the workers.
        ranked = heapq.merge(*(line.values() for line in lines))
    return (worker for _, worker in ranked)


def _share(count: int, candidates: Sequence[_Candidate]) -> list[tuple[RemoteWorker, int]]:
    """Spread jobs over workers: first the jobs that would start at once, then the others."""
    shares = spread(count, [spare for _, spare, _ in candidates])
    left = [
        max(0, maximum - share) for (_, _, maximum), share in zip(candidates, shares, strict=True)
    ]
    rest = spread(count - sum(shares), left)
    return [(row[0], s + r) for row, s, r in zip(candidates, shares, rest, strict=True) if s + r]
