"""Balancing: who is offered jobs that wait. Policies are plain callables.

A policy gets what waits and the workers that could do it, and returns the workers in the
order in which they are to be asked. It decides nothing else: how many jobs each gets
follows from their room, and a worker that is not returned is not asked this time. A
policy of one's own is a function of a few lines::

    def nearest(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
        return sorted(offers, key=lambda offer: offer.headers.get("rack") != "r7")

Offers are frozen values. ``headers`` is what a worker's application says of the worker:
``wmp.Worker(..., headers={"rack": "r7"})``.

Policies must be fast, they run for every burst; they must not block. They see at most
``wake_scan`` offers at once, the oldest first. One that keeps that order says so with
``@in_order``, and sees no more of them than there are jobs for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from wmp.core.manager.policy import Jobs, Offer, Policy, in_order
from wmp.errors import ConfigError

__all__ = [
    "Jobs",
    "Offer",
    "Policy",
    "Rng",
    "any_worker",
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
        """A float in [0, 1)."""


@in_order
def any_worker(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
    """Ask as few workers as can take all: the fewest messages, no fairness."""
    chosen: list[Offer] = []
    capacity = 0
    for offer in offers:
        if capacity >= jobs.count:
            break
        chosen.append(offer)
        capacity += offer.room
    return chosen


@in_order
def least_recently_used(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
    """Ask those first that have waited longest since they were served."""
    return sorted(offers, key=lambda offer: offer.served)


def most_free(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
    """Ask those first that have most free capacity; ties go to the least recently served."""
    return sorted(offers, key=lambda offer: (-offer.spare, -offer.room, offer.served))


def by_role(policies: Mapping[str, Policy], default: Policy = least_recently_used) -> Policy:
    """Make a policy that uses the policy of each job's role."""

    def choose(jobs: Jobs, offers: Sequence[Offer]) -> Sequence[Offer]:
        return policies.get(jobs.role, default)(jobs, offers)

    return choose


def weighted(weigh: Callable[[Offer], float]) -> Policy:
    """Share in proportion: ask those first whose jobs so far are fewest for their weight.

    Args:
        weigh: The worker's weight, above 0; one of weight 2 is given twice as many jobs as
            one of weight 1 while both have room. A weight of 0 or less: not asked.
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
    """Draw two, ask the less loaded first: nearly as even as looking at all of them.

    The rest follow in their order, so that many jobs still reach many workers.
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
    """The names that :func:`by_name` knows."""
    return (*_PLAIN, "random_of_two")


def by_name(name: str, rng: Rng | None = None) -> Policy:
    """The built-in policy of that name, for flags and files.

    Args:
        name: One of :func:`names`; ``-`` serves as ``_``.
        rng: Where ``random_of_two`` draws from; the others need none.

    Raises:
        ConfigError: No such policy, or ``random_of_two`` without ``rng``.
    """
    name = name.replace("-", "_")
    if name == "random_of_two":
        if rng is None:
            raise ConfigError("policy random_of_two needs a random number generator: pass rng")
        return random_of_two(rng)
    if name not in _PLAIN:
        raise ConfigError(f"unknown policy {name!r}; expected one of {', '.join(names())}")
    return _PLAIN[name]
