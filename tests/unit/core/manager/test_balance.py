"""Policies, and the distribution of jobs over the workers that a policy chose."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.manager.managers import make, submit
from wmp import balance
from wmp.balance import Jobs
from wmp.core.manager.worker_selection import spread
from wmp.errors import ConfigError
from wmp.events import Submitted
from wmp.message import Command, Field, Kind
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent


@frozen
class Fake:
    identity: bytes
    label: str = ""
    roles: tuple[str, ...] = ("default",)
    resources: Mapping[str, int] = MappingProxyType({})
    capacity: int = 1
    spare: int = 1
    leased: int = 0
    done: int = 0
    served: int = 0
    headers: Mapping[str, object] = MappingProxyType({})


def names(offers):
    return [offer.identity for offer in offers]


JOB = Jobs("default", {"slots": 1}, 1)


def test_any_asks_as_few_as_can_take_all():
    offers = [Fake(b"a", capacity=2), Fake(b"b", capacity=2), Fake(b"c", capacity=2)]
    assert names(balance.any_worker(Jobs("default", {}, 3), offers)) == [b"a", b"b"]


@pytest.mark.parametrize("far_capacity", [1, 4, 15])
def test_the_order_of_a_policy_stands_for_any_capacity_of_other_workers(far_capacity):
    def near_first(jobs, offers):
        return sorted(offers, key=lambda offer: offer.identity != b"near")

    manager = make(near_first, epoch=1)
    for name, capacity in ((b"far", far_capacity), (b"near", 2)):
        ScriptedWorker(manager, name, link=name).give(capacity, hold=5.0)
    takes = sent(manager.handle(Submitted([1], [b"x"], Kind()), 0.0), Command.TAKE)
    assert [take.receiver for take in takes] == [b"near"]


def test_least_recently_used_asks_the_longest_unserved_worker_first():
    offers = [Fake(b"a", served=9), Fake(b"b", served=0), Fake(b"c", served=4)]
    assert names(balance.least_recently_used(JOB, offers)) == [b"b", b"c", b"a"]


def test_most_free_asks_the_largest_capacity_first():
    offers = [Fake(b"a", spare=1), Fake(b"b", spare=5), Fake(b"c", spare=5, capacity=9)]
    assert names(balance.most_free(JOB, offers)) == [b"c", b"b", b"a"]


def test_by_role_has_a_policy_for_each():
    policy = balance.by_role({"gpu": lambda jobs, offers: offers[:1]})
    offers = [Fake(b"a", served=2), Fake(b"b", served=1)]
    assert names(policy(Jobs("gpu", {}, 1), offers)) == [b"a"]
    assert names(policy(JOB, offers)) == [b"b", b"a"]


def test_weighted_shares_in_proportion():
    policy = balance.weighted(lambda offer: {b"a": 1.0, b"b": 2.0, b"off": 0.0}[offer.identity])
    counts = {b"a": 0, b"b": 0}
    for _ in range(300):
        offers = [Fake(name, done=count) for name, count in counts.items()]
        counts[policy(JOB, [*offers, Fake(b"off")])[0].identity] += 1
    assert counts == {b"a": 100, b"b": 200}


def test_random_of_two_prefers_the_less_loaded_of_its_pair():
    policy = balance.random_of_two(random.Random(1))
    offers = [Fake(b"%d" % i, leased=i) for i in range(10)]
    firsts = [policy(JOB, offers)[0].leased for _ in range(2000)]
    assert min(firsts) == 0
    assert max(firsts) == 8  # the most loaded worker never wins a pair
    # With a single random choice the mean would be 4.5.
    assert 2.5 < sum(firsts) / len(firsts) < 3.5


@given(
    st.lists(
        st.builds(
            Fake,
            st.binary(min_size=1, max_size=2),
            capacity=st.integers(1, 9),
            spare=st.integers(0, 9),
            leased=st.integers(0, 9),
            served=st.integers(0, 99),
        ),
        max_size=12,
        unique_by=lambda offer: offer.identity,
    ),
    st.integers(1, 50),
    st.sampled_from(balance.names()),
)
def test_every_policy_answers_with_some_of_the_offers_once_each(offers, count, name):
    policy = balance.by_name(name, random.Random(0))
    chosen = policy(Jobs("default", {}, count), tuple(offers))
    assert len(set(names(chosen))) == len(chosen)
    assert set(names(chosen)) <= set(names(offers))
    assert bool(chosen) == bool(offers)


def test_names_are_checked():
    assert balance.by_name("most-free") is balance.most_free
    with pytest.raises(ConfigError, match="expected one of any, least_recently_used"):
        balance.by_name("fastest")
    with pytest.raises(ConfigError, match="pass rng"):
        balance.by_name("random_of_two")


@given(st.integers(0, 200), st.lists(st.integers(0, 40), max_size=10))
def test_spread_is_complete_and_even(count, capacities):
    shares = spread(count, capacities)
    assert sum(shares) == min(count, sum(capacities))
    assert all(0 <= share <= capacity for share, capacity in zip(shares, capacities, strict=True))
    # A worker that got fewer jobs than another worker, by more than one, is full.
    for share, capacity in zip(shares, capacities, strict=True):
        assert share == capacity or share >= max(shares) - 1
    # A worker with capacity left never gets fewer jobs than a worker behind it in the policy's
    # order.
    for index, (share, capacity) in enumerate(zip(shares, capacities, strict=True)):
        assert share == capacity or share >= max(shares[index:])


def offers_to(manager_policy_saw, **fields):
    """Return the offers that a policy sees for a worker with these READY fields, and the worker."""
    manager = make(manager_policy_saw, epoch=1)
    worker = ScriptedWorker(manager, resources={"slots": 4})
    worker.ready(4)
    message = worker.message(
        Command.READY,
        {
            Field.READY: 2,
            Field.CREDIT: 4,
            Field.ROLES: ["default"],
            Field.RESOURCES: {"slots": 4},
            **fields,
        },
    )
    worker.send(message)
    return manager, worker


def test_a_policy_reads_the_headers_of_the_newest_ready():
    shown = []

    def keep(jobs, offers):
        shown.extend(offers)
        return offers

    manager, worker = offers_to(keep, rack="r7", spot=True)
    manager.handle(Submitted([1], [b"x"], Kind()), 0.0)
    assert shown[-1].headers == {"rack": "r7", "spot": True}
    worker.ready(4, ready=3)
    manager.handle(Submitted([2], [b"x"], Kind()), 0.0)
    assert shown[-1].headers == {}
    assert shown[0].headers == {"rack": "r7", "spot": True}, "an offer is a value"


def test_an_offer_cannot_be_changed():
    def vandal(jobs, offers):
        offers[0].capacity = 99
        return offers

    manager, _ = offers_to(vandal)
    manager.handle(Submitted([1], [b"x"], Kind()), 0.0)
    assert manager.statistics().dropped == {"policy failed": 1}


@pytest.mark.parametrize(
    "policy", [balance.any_worker, balance.least_recently_used, balance.most_free]
)
@pytest.mark.parametrize("want", [1, 3, 10])
def test_a_policy_that_asks_a_lone_worker_is_not_called_and_the_worker_gets_as_many(policy, want):
    def given(policy):
        calls = []

        def watch(jobs, offers):
            calls.append(offers)
            return policy(jobs, offers)

        if getattr(policy, "asks_a_lone_worker", False):
            balance.asks_a_lone_worker(watch)
        manager = make(watch, epoch=1)
        worker = ScriptedWorker(manager)
        worker.ready(want)
        (wake,) = sent(submit(manager, *[b"x"] * 5), Command.WAKE)
        takes = sent(worker.give(want + 2, hold=5.0), Command.TAKE)
        takes += sent(submit(manager, *[b"late"] * 20), Command.TAKE)
        return len(calls), wake.fields[Field.COUNT], [take.columns for take in takes]

    calls, *lone = given(policy)
    others, *rest = given(lambda jobs, offers: policy(jobs, offers))
    assert calls == 0 < others
    assert lone == rest
    assert lone[1]
