"""A peer that sends without a pause is dropped or closed, and honest peers are not."""

from __future__ import annotations

import pytest

from wmp.message import Command, Message
from wmp.runtime.throttle import Throttle


def message(command: Command, identity: bytes = b"w", *hops: bytes | int) -> Message:
    return Message(command, (1, b"m"), (identity, 1, *hops))


@pytest.fixture
def throttle() -> Throttle:
    return Throttle(chatter=10, refused=4)


def admits(throttle: Throttle, link: bytes, what: Message, now: float) -> bool:
    return throttle.admits(link, what.command, what.source, now)


def admitted(throttle: Throttle, what: Message, count: int, now: float = 0.0) -> int:
    return sum(admits(throttle, b"l", what, now) for _ in range(count))


@pytest.mark.parametrize("command", [Command.READY, Command.GIVE, Command.PING, Command.BYE])
def test_messages_without_a_result_have_a_budget_that_grows_with_time(throttle, command):
    assert admitted(throttle, message(command), 100) == 50
    assert admitted(throttle, message(command), 100, now=1.0) == 10
    assert admitted(throttle, message(command), 100, now=100.0) == 50


def test_a_result_renews_the_budget(throttle):
    for _ in range(20):
        assert admitted(throttle, message(Command.READY), 40) == 40
        assert admits(throttle, b"l", message(Command.DONE), 0.0)


def test_a_connection_is_one_worker_whatever_identities_it_claims(throttle):
    counts = [admitted(throttle, message(Command.PING, b"%d" % i), 10) for i in range(20)]
    assert sum(counts) == 50
    assert admits(throttle, b"another", message(Command.PING), 0.0)


def test_workers_behind_a_device_have_a_budget_each_and_new_ones_share_one(throttle):
    device = (b"d", 1, b"local")
    assert admitted(throttle, message(Command.PING, b"loud", *device), 100) == 50
    assert admitted(throttle, message(Command.PING, b"calm", *device), 40) == 40
    new = [
        admits(throttle, b"l", message(Command.PING, b"%d" % i, *device), 0.0) for i in range(99)
    ]
    assert sum(new) == 48


def test_a_connection_with_too_many_refused_messages_is_ignored_for_a_while(throttle):
    ignored = [throttle.refuses(b"l", 0, "malformed", 0.0) for _ in range(21)]
    assert ignored.index(True) == 20
    assert throttle.ignores(b"l", 9.9)
    assert not throttle.ignores(b"another", 9.9)
    assert not throttle.ignores(b"l", 10.0)
    assert not throttle.refuses(b"l", 0, "malformed", 10.0)


def test_few_refused_messages_a_second_and_those_through_devices_do_no_harm(throttle):
    assert not any(throttle.refuses(b"l", 0, "malformed", second / 3) for second in range(300))
    assert not any(throttle.refuses(b"d", 1, "malformed", 0.0) for _ in range(300))


def test_messages_of_restarts_and_new_routes_cost_little(throttle):
    assert not any(throttle.refuses(b"l", 0, "duplicate", 0.0) for _ in range(999))
    assert any(throttle.refuses(b"l", 0, "duplicate", 0.0) for _ in range(99))


def test_the_budgets_remembered_are_bounded(throttle, monkeypatch):
    monkeypatch.setattr("wmp.runtime.throttle._MOST", 100)
    for number in range(1000):
        admits(throttle, b"%d" % number, message(Command.PING), 0.0)
        throttle.refuses(b"%d" % number, 0, "malformed", 0.0)
    assert len(throttle._budgets) <= 100
