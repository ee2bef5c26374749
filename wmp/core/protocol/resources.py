"""Named amounts: what a worker has, what is locked or in use, what still fits (spec §4)."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define

from wmp.errors import LocalProtocolError
from wmp.message import Limits

__all__ = ["Needs", "Resources", "needs_of", "within"]

Needs = tuple[tuple[str, int], ...]
"""Resource to amount, sorted by name, no zeros: what one job takes."""


def needs_of(amounts: Mapping[str, int]) -> Needs:
    """The canonical form of a ``needs`` field."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def within(needs: Needs, limit: Needs) -> bool:
    """Whether a job of ``needs`` takes no more than ``limit`` of anything."""
    most = dict(limit)
    return all(amount <= most.get(name, 0) for name, amount in needs)


@define(eq=False)
class Resources:
    """The total amounts of resources, and the free part.

    Besides the named amounts every job takes one *place*, of which there are as many as a
    message may have jobs. Without it, jobs that need nothing would have no bound at all.

    Invariant: 0 ≤ free[name] ≤ total[name], 0 ≤ places ≤ ``Limits.JOBS``.
    """

    total: dict[str, int]
    free: dict[str, int]
    places: int = Limits.JOBS

    @classmethod
    def of(cls, total: Mapping[str, int]) -> Resources:
        """All of ``total``, and all of it free."""
        return cls(dict(total), dict(total))

    def capacity(self, needs: Needs) -> int:
        """How many such jobs fit at once when nothing else runs."""
        count: int = Limits.JOBS
        for name, amount in needs:
            count = min(count, self.total.get(name, 0) // amount)
        return count

    def fits(self, needs: Needs) -> int:
        """How many such jobs fit in what is free now."""
        count = self.places
        free = self.free
        for name, amount in needs:
            count = min(count, free.get(name, 0) // amount)
        return count

    def take(self, needs: Needs, count: int = 1) -> None:
        """Take what ``count`` jobs need.

        Raises:
            LocalProtocolError: it does not fit; ask ``fits`` first (WMP-4.1).
        """
        free = self.free
        fits = count <= self.places
        for name, amount in needs:
            fits = fits and amount * count <= free.get(name, 0)
        if not fits:
            raise LocalProtocolError(
                f"{count} jobs of {dict(needs)} were to be taken, "
                f"only {self.fits(needs)} fit in {self.free}"
            )
        for name, amount in needs:
            free[name] -= amount * count
        self.places -= count

    def release(self, needs: Needs, count: int = 1) -> None:
        """Give back what ``count`` jobs took."""
        for name, amount in needs:
            self.free[name] += amount * count
        self.places += count

    def spare(self) -> Resources:
        """A copy to plan with."""
        return Resources(self.total, dict(self.free), self.places)

    def set_aside(self, needs: Needs) -> None:
        """Keep what there is of one such job's needs from those who are asked later.

        Somebody who waits for much would otherwise never see that much free at once.
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
            assert 0 <= amount <= self.total[name], (name, amount, self.total[name])
