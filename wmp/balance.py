"""Balancing: policies choose the workers to which waiting jobs are offered. Policies are callables.

A policy gets the waiting jobs and the workers that could do them. It returns the workers in the
order in which they are asked, and decides nothing else. The number of jobs for each worker follows
from its capacity. A worker that is not returned is not asked this time. A policy of your own is a
function of a few lines::

    def nearest(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
        return sorted(offers, key=lambda offer: offer.headers.get("rack") != "r7")

Offers are frozen values. ``headers`` come from the worker's application: ``wmp.Worker(...,
headers={"rack": "r7"})``.

A policy must be fast, because it runs for every burst of jobs, and must not block. It sees at most
``wake_scan`` offers at once, the oldest first. A policy that keeps this order is marked with
``@in_order``; then it sees only as many offers as the jobs need. A policy that never declines the
only worker is marked with ``@asks_a_lone_worker``; then it is not called for one worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from wmp.core.manager.policy import Jobs, Offer, Policy, asks_a_lone_worker, in_order
from wmp.errors import ConfigError

__all__ = [
    "Jobs",
    "Offer",
    "Policy",
    "Rng",
    "any_worker",
    "asks_a_lone_worker",
    "by_name",
    "by_role",
    "in_order",
    "least_recently_used",
    "most_free",
    "names",
    "random_of_two",
    "weighted",
]


class Rng(Protocol):
    """The part of :class:`random.Random` that policies use."""

    def random(self) -> float:
        """Return a float in [0, 1)."""


@in_order
@asks_a_lone_worker
def any_worker(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
    """Ask as few workers as can take all jobs: the fewest messages, no fairness."""
    chosen: list[Offer] = []
    capacity = 0
    for offer in offers:
        if capacity >= jobs.count:
            break
        chosen.append(offer)
        capacity += offer.capacity
    return chosen


@in_order
@asks_a_lone_worker
def least_recently_used(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
    """Ask first the workers that have waited longest since they were served."""
    return sorted(offers, key=lambda offer: offer.served)


@asks_a_lone_worker
def most_free(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
    """Ask the workers with the most free capacity first; ties go to the least recently served."""
    return sorted(offers, key=lambda offer: (-offer.spare, -offer.capacity, offer.served))


def by_role(policies: Mapping[str, Policy], default: Policy = least_recently_used) -> Policy:
    """Make a policy that uses a policy for each role of jobs."""

    def choose(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
        return policies.get(jobs.role, default)(jobs, offers)

    return choose


def weighted(weigh: Callable[[Offer], float]) -> Policy:
    """Share in proportion: ask first the workers that had the fewest jobs for their weight.

    Args:
        weigh: Returns the worker's weight. A worker of weight 2 gets twice as many jobs as a
            worker of weight 1 while both have capacity. A worker with a weight of 0 or less is
            not asked.
    """

    def choose(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
        weights = [(weigh(offer), offer) for offer in offers]
        loads = [
            ((offer.done + offer.leased) / weight, offer.served, index, offer)
            for index, (weight, offer) in enumerate(weights)
            if weight > 0
        ]
        return [offer for _, _, _, offer in sorted(loads)]

    return choose


def random_of_two(rng: Rng) -> Policy:
    """Draw two workers and ask the less loaded one first: nearly as even as comparing all workers.

    The other workers follow in their order, so that many jobs still reach many workers.
    """

    def choose(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
        if len(offers) < 2:
            return offers
        first = int(rng.random() * len(offers))
        second = int(rng.random() * (len(offers) - 1))
        if second >= first:
            second += 1
        pair = sorted((offers[first], offers[second]), key=lambda offer: offer.leased)
        return [*pair, *(o for i, o in enumerate(offers) if i not in (first, second))]

    return choose


_PLAIN: Mapping[str, Policy] = {
    "any": any_worker,
    "least_recently_used": least_recently_used,
    "most_free": most_free,
}


def names() -> tuple[str, ...]:
    """Return the names that :func:`by_name` accepts."""
    return (*_PLAIN, "random_of_two")


def by_name(name: str, rng: Rng | None = None) -> Policy:
    """Return the built-in policy of this name, for flags and files.

    Args:
        name: One of :func:`names`; ``-`` counts as ``_``.
        rng: Source of random numbers for ``random_of_two``; other policies need none.

    Raises:
        ConfigError: There is no such policy, or ``random_of_two`` lacks ``rng``.
    """
    name = name.replace("-", "_")
    if name == "random_of_two":
        if rng is None:
            raise ConfigError("the policy random_of_two needs a random number generator; pass rng=")
        return random_of_two(rng)
    if name not in _PLAIN:
        raise ConfigError(f"there is no policy {name!r}; expected one of {', '.join(names())}")
    return _PLAIN[name]
