"""Workers with capacity by profile, and the profiles that suit jobs of a kind.

A profile is the roles and resources of a worker. A fleet has few profiles and many workers, or a
role for each host and so as many profiles as workers. For each kind of jobs an :class:`Eligible`
keeps the profiles that suit the kind, the number of their workers that have capacity, and their
workers in the order of their offers. So no search passes workers that have no capacity, or profiles
that do not suit.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import define, field

from wmp.core.manager.queues import Queue
from wmp.core.manager.remote_worker import BusyWorkers, RemoteWorker, fits
from wmp.message import Kind

__all__ = ["Eligible", "Line", "Profile", "Profiles"]

Line: TypeAlias = dict[bytes, tuple[int, RemoteWorker]]
"""Identity to (place, worker), in the order of the places, which only grow."""

_Key: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, int], ...]]
"""Roles and resources."""

_MOST_KINDS = 256
"""Kinds for which the suitable profiles are kept; they can be found again."""


@define(eq=False)
class Eligible:
    """The workers that suit jobs of one kind.

    Invariant: ``credited`` and ``giving`` have those profiles of these workers whose lines of this
    name are not empty; ``with_capacity`` counts the workers in the lines.
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
    """Those with remembered credit."""
    giving: Line = field(factory=dict)
    """Those with open GIVEs."""
    members: int = 0
    """Number of workers, with or without capacity."""
    with_capacity: int = 0
    """Number of those in either line."""
    eligible: dict[Kind, Eligible] = field(factory=dict)
    """Kinds that the profile suits, as far as they were asked for."""


@define(eq=False)
class Profiles:
    """All profiles of a manager's workers.

    Invariant: a worker is in ``credited`` of its profile exactly when its credit is above 0, and
    in ``giving`` exactly when it has an open GIVE; it has capacity when it is in either. A worker
    that is served becomes the last in both. A profile without workers is removed.
    """

    busy: BusyWorkers = field(factory=BusyWorkers)
    """Workers without capacity by the kinds of the jobs that they hold."""
    _all: dict[_Key, Profile] = field(factory=dict)
    _by_role: dict[str, dict[_Key, Profile]] = field(factory=dict)
    _of: dict[bytes, Profile] = field(factory=dict)
    """By identity of the worker."""
    _eligible: dict[Kind, Eligible] = field(factory=dict)
    _places: int = 0

    # -- workers

    def update(self, worker: RemoteWorker) -> None:
        """Index ``worker`` by its present credit and GIVEs."""
        profile = self._of.get(worker.identity) or self._join(worker)
        self._places += 1
        self._stand(profile, worker, credited=worker.credit > 0, giving=bool(worker.gives))

    def remove(self, worker: RemoteWorker) -> None:
        """Remove ``worker``; called before its roles or resources change, and at its end."""
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
        """Put ``worker`` behind all others."""
        self._places += 1
        worker.served = self._places
        profile = self._of.get(worker.identity)
        if profile is None or not worker.has_capacity:
            return
        for line in (profile.credited, profile.giving):
            if line.pop(worker.identity, None) is not None:
                line[worker.identity] = (self._places, worker)

    # -- kinds

    def eligible(self, queue: Queue) -> Eligible:
        """Return the workers that suit jobs of ``queue``."""
        found = self._eligible.get(queue.kind)
        if found is None:
            if len(self._eligible) >= _MOST_KINDS:
                self._drop(next(iter(self._eligible)))
            found = self._eligible[queue.kind] = Eligible(queue.kind, dict(queue.needs))
            for profile in self._by_role.get(queue.kind.role, {}).values():
                _suit(profile, found)
        return found

    def able(self, queue: Queue) -> int:
        """Return how many workers can take jobs of ``queue`` now, or after those they hold."""
        return self.eligible(queue).with_capacity + self.busy.counts.get(queue.kind, 0)

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
                profile.credited[identity] = (self._places, worker)
                if len(profile.credited) == 1:
                    for eligible in profile.eligible.values():
                        eligible.credited[profile.key] = profile
        elif profile.credited.pop(identity, None) is not None and not profile.credited:
            for eligible in profile.eligible.values():
                del eligible.credited[profile.key]
        if giving:
            if identity not in profile.giving:
                profile.giving[identity] = (self._places, worker)
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
    """Add a profile to the profiles that suit a kind, if it does."""
    roles, resources = profile.key
    if eligible.kind.role not in roles or not fits(eligible.needs, dict(resources)):
        return
    profile.eligible[eligible.kind] = eligible
    eligible.with_capacity += profile.with_capacity
    if profile.credited:
        eligible.credited[profile.key] = profile
    if profile.giving:
        eligible.giving[profile.key] = profile
