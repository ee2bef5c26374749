"""Named amounts: a worker's resources in total, locked, in use and free (spec §4)."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, frozen

from wmp.errors import LocalProtocolError
from wmp.message import Limits, counted

Needs = tuple[tuple[str, int], ...]
"""The needs of one job: amounts by resource, sorted by name, without zeros."""


def needs_of(amounts: Mapping[str, int]) -> Needs:
    """Return the canonical form of a ``needs`` field."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def within(needs: Needs, limit: Needs) -> bool:
    """Return whether ``limit`` contains the amount of each resource that ``needs`` names."""
    maximum = dict(limit)
    return all(amount <= maximum.get(name, 0) for name, amount in needs)


@define(eq=False)
class Resources:
    """The total amounts of resources, and the free part.

    Besides the named amounts every job takes one *place*. There are as many places as a message may
    have jobs. The places bound the number of jobs without needs.

    Invariant: 0 ≤ free[name] ≤ total[name], 0 ≤ places ≤ ``Limits.JOBS``. When the total amounts
    became smaller, a free amount may be below 0 until enough of the earlier jobs have ended.
    """

    total: dict[str, int]
    free: dict[str, int]
    places: int = Limits.JOBS
    shrunk: bool = False
    """Whether a total amount ever became smaller."""

    @classmethod
    def of(cls, total: Mapping[str, int]) -> Resources:
        """Return resources of ``total``, all of them free."""
        return cls(dict(total), dict(total))

    def capacity(self, needs: Needs) -> int:
        """Return how many jobs with these needs fit at the same time into all resources."""
        count: int = Limits.JOBS
        total = self.total
        for name, amount in needs:
            fit = total.get(name, 0) // amount
            if fit < count:  # a comparison costs less than a call
                count = fit
        return count

    def fits(self, needs: Needs) -> int:
        """Return how many jobs with these needs fit into the free resources."""
        count = self.places
        free = self.free
        for name, amount in needs:
            fit = free.get(name, 0) // amount
            if fit < count:
                count = fit
        return count if count > 0 else 0

    def resize(self, total: Mapping[str, int]) -> None:
        """Change the total amounts (WMP-3.15). A name that is left out has the amount 0."""
        for name in {**self.total, **total}:
            more = total.get(name, 0) - self.total.get(name, 0)
            self.free[name] = self.free.get(name, 0) + more
            self.shrunk = self.shrunk or more < 0
        self.total = {name: total.get(name, 0) for name in self.free}

    @property
    def overdrawn(self) -> bool:
        """Return whether more is locked or in use than there is."""
        return self.shrunk and min(self.free.values(), default=0) < 0

    def take(self, needs: Needs, count: int = 1) -> None:
        """Take the resources of ``count`` jobs.

        Raises:
            LocalProtocolError: They do not fit; call ``fits`` first (WMP-4.1).
        """
        if not count:
            return
        free = self.free
        fits = count <= self.places
        for name, amount in needs:
            fits = fits and amount * count <= free.get(name, 0)
        if not fits:
            raise LocalProtocolError(
                f"resources for {counted(count, 'job')} with needs {dict(needs)} were requested; "
                f"only {self.fits(needs)} fit into the free {self.free}"
            )
        for name, amount in needs:
            free[name] -= amount * count
        self.places -= count

    def release(self, needs: Needs, count: int = 1) -> None:
        """Release the resources of ``count`` jobs."""
        for name, amount in needs:
            self.free[name] += amount * count
        self.places += count

    def spare(self) -> Resources:
        """Return a copy, for planning."""
        return Resources(self.total, dict(self.free), self.places)

    def set_aside(self, needs: Needs) -> None:
        """Reserve the free part of one job's needs, so that later requests do not take it.

        Without the reservation, small jobs could keep a job with large needs waiting for ever.
        """
        free = self.free
        for name, amount in needs:
            free[name] = max(0, free.get(name, 0) - amount)
        self.places = max(0, self.places - 1)

    @property
    def used(self) -> dict[str, int]:
        """Amounts that are locked or in use, by name."""
        return {name: amount - self.free[name] for name, amount in self.total.items()}

    def check(self) -> None:
        """Raise AssertionError when the invariant does not hold."""
        assert 0 <= self.places <= Limits.JOBS, self.places
        assert self.free.keys() == self.total.keys()
        for name, amount in self.free.items():
            assert amount <= self.total[name], (name, amount, self.total[name])
            assert amount >= 0 or self.shrunk, (name, amount)


@frozen
class Offered:
    """The workers of a forwarding manager offer other capacity than before, or other roles."""

    roles: tuple[str, ...]
    resources: Mapping[str, int]
    """The sum of the resources of these workers, without those that the own jobs of the manager
    need."""
    forwards: tuple[bytes, ...]
    """Identities of the manager and of the forwarding managers among these workers."""
