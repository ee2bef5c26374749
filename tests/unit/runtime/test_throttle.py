"""The messages of a peer that sends without a pause are dropped; honest peers are not affected."""

from __future__ import annotations

import pytest

from wmp.message import Command, Message
from wmp.runtime.driver.throttle import Throttle


def message(command: Command, identity: bytes = b"w", *hops: bytes | int) -> Message:
    return Message(command, (1, b"m"), (identity, 1, *hops))


@pytest.fixture
def throttle() -> Throttle:
    return Throttle(chatter=10, refused=4, forwards=True)


def admits(throttle: Throttle, link: bytes, what: Message, now: float) -> bool:
    return throttle.admits(link, what.command, what.source, now)


def admitted(throttle: Throttle, what: Message, count: int, now: float = 0.0) -> int:
    return sum(admits(throttle, b"l", what, now) for _ in range(count))


@pytest.mark.parametrize("command", [Command.READY, Command.GIVE, Command.PING, Command.BYE])
def test_messages_without_a_result_have_a_budget_that_grows_with_time(throttle, command):
    assert admitted(throttle, message(command), 100) == 50
    assert admitted(throttle, message(command), 100, now=1.0) == 10
    assert admitted(throttle, message(command), 100, now=100.0) == 50


def test_a_result_that_was_asked_for_renews_the_budget(throttle):
    throttle.sent(b"l", (1, b"w"), 20)
    for second in range(20):
        assert admitted(throttle, message(Command.READY), 40, now=second) == 40
        assert admits(throttle, b"l", message(Command.DONE), second)


@pytest.mark.parametrize("command", [Command.DONE, Command.STATUS, Command.ERROR])
def test_messages_that_nobody_asked_for_have_a_larger_budget_of_their_own(throttle, command):
    assert admitted(throttle, message(command), 1000) == 400
    assert admitted(throttle, message(Command.PING), 100) == 50
    assert admitted(throttle, message(command), 1000, now=1.0) == 80


@pytest.mark.rule("WMP-8.10")
def test_a_result_is_asked_for_once(throttle):
    throttle.sent(b"l", (1, b"w"), 3)
    throttle.sent(b"l", (1, b"w"), 1 << 40)
    assert admitted(throttle, message(Command.DONE), 10_000) == 8192 + 400
    assert admitted(throttle, message(Command.PING), 100) == 50


def test_results_are_counted_for_each_worker_behind_a_device(throttle):
    device = (b"d", 1, b"local")
    throttle.sent(b"l", (b"local", 1, b"d", 1, b"busy"), 600)
    assert admitted(throttle, message(Command.DONE, b"busy", *device), 600) == 600
    forged = [
        admits(throttle, b"l", message(Command.DONE, b"%d" % i, *device), 0.0) for i in range(99)
    ]
    assert sum(forged) == 50


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
    assert throttle.refuses(b"l", 0, "malformed", 10.0)


def test_messages_that_are_refused_for_other_reasons_have_a_budget_that_grows(throttle):
    ignored = [throttle.refuses(b"l", 0, "unknown", 0.0) for _ in range(21)]
    assert ignored.index(True) == 20
    assert [throttle.refuses(b"l", 0, "unknown", 10.0) for _ in range(21)].index(True) == 20
    assert not throttle.refuses(b"l", 0, "malformed", 10.0)


def test_many_connections_share_what_each_sends_above_a_tenth_of_its_budget(throttle):
    counts = [
        sum(admits(throttle, b"%d" % link, message(Command.READY), 0.0) for _ in range(100))
        for link in range(200)
    ]
    # One connection is below the shared budget of ten connections.
    assert counts[0] == 50
    assert counts[-1] == 5
    assert sum(counts) == 200 * 5 + 10 * 50


def test_many_connections_below_their_budgets_share_most_of_what_they_send(throttle):
    sent = [
        sum(admits(throttle, b"%d" % link, message(Command.PING), second) for link in range(300))
        for second in (tenth / 10 for tenth in range(100))
    ]
    # In each second, 300 connections send 10 messages each. A tenth of this is their own, and the
    # shared budget is that of ten connections.
    assert sum(sent[-10:]) == pytest.approx(300 + 100, abs=1)


def test_a_result_renews_the_part_that_is_not_shared(throttle):
    for link in range(200):
        for _ in range(100):
            admits(throttle, b"%d" % link, message(Command.READY), 0.0)
    throttle.sent(b"l", (1, b"w"), 20)
    for _ in range(20):
        assert admitted(throttle, message(Command.GIVE), 5) == 5
        assert admits(throttle, b"l", message(Command.DONE), 0.0)


def test_many_connections_with_refused_messages_are_ignored_sooner(throttle):
    def refused(link: int) -> int:
        answers = iter(lambda: throttle.refuses(b"%d" % link, 0, "malformed", 0.0), True)
        return sum(1 for _ in answers)

    counts = [refused(link) for link in range(200)]
    assert counts[0] == 20
    assert counts[-1] == 2
    assert sum(counts) == 200 * 2 + 10 * 20


def test_few_refused_messages_a_second_and_those_through_devices_do_no_harm(throttle):
    assert not any(throttle.refuses(b"l", 0, "unknown", second / 3) for second in range(300))
    assert not any(throttle.refuses(b"l", 0, "malformed", second * 30.0) for second in range(300))
    assert not any(throttle.refuses(b"d", 1, "malformed", 0.0) for _ in range(300))


def test_messages_of_restarts_and_new_routes_cost_little(throttle):
    assert not any(throttle.refuses(b"l", 0, "duplicate", 0.0) for _ in range(999))
    assert any(throttle.refuses(b"l", 0, "duplicate", 0.0) for _ in range(99))


@pytest.mark.parametrize("forwards", [True, False])
def test_a_worker_behind_a_device_is_known_after_its_results(forwards):
    throttle = Throttle(chatter=10, refused=4, forwards=forwards)
    device = (b"d", 1, b"local")
    for _ in range(1000):
        assert admits(throttle, b"l", message(Command.GIVE, b"busy", *device), 0.0)
        throttle.sent(b"l", (b"local", 1, b"d", 1, b"busy"), 1)
        assert admits(throttle, b"l", message(Command.DONE, b"busy", *device), 0.0)


def test_reports_of_a_device_cost_little(throttle):
    assert not any(throttle.refuses(b"d", 0, "ERROR unreachable", 0.0) for _ in range(999))


def test_messages_to_a_connection_do_not_count_against_it(throttle):
    assert not any(throttle.refuses(b"l", 0, "undelivered", 0.0) for _ in range(999))


def test_the_budgets_remembered_are_bounded(throttle, monkeypatch):
    monkeypatch.setattr("wmp.runtime.driver.throttle._MAX", 100)
    for number in range(1000):
        admits(throttle, b"%d" % number, message(Command.PING), 0.0)
        throttle.refuses(b"%d" % number, 0, "malformed", 0.0)
        throttle.sent(b"%d" % number, (1, b"w"), 1)
    assert len(throttle._budgets) <= 100
    assert len(throttle._owed) <= 100


def test_the_budgets_of_a_connection_end_with_it(throttle):
    assert admits(throttle, b"l", message(Command.PING), 0.0)
    assert not throttle.refuses(b"l", 0, "malformed", 0.0)
    throttle.sent(b"l", (1, b"w"), 1)

    throttle.forget(b"l")

    assert throttle._budgets == {}
    assert throttle._owed == {}


def test_a_node_that_drops_many_messages_in_a_row_rests(throttle):
    rests = [throttle.rests(drop / 200_000) for drop in range(256)]
    assert rests[:-1] == [0.0] * 255
    assert rests[-1] == pytest.approx(8 * 0.001275)
    assert sum(throttle.rests(1.0 + drop) for drop in range(256)) == 0.02


def test_messages_that_were_dropped_together_count_each(throttle):
    assert throttle.rests(1.0, 200, since=0.999) == 0.0
    assert throttle.rests(1.001, 56, since=1.0) == pytest.approx(8 * 0.002)


def test_a_connection_can_be_ignored_at_once(throttle):
    throttle.ignore(b"l", 0.0)
    assert throttle.ignores(b"l", 9.9)
    assert list(throttle.ignored(9.9)) == [b"l"]


def test_ignored_connections_are_listed_until_their_time_ends(throttle):
    for second, link in enumerate((b"a", b"b")):
        while not throttle.refuses(link, 0, "malformed", float(second)):
            pass
    assert list(throttle.ignored(9.9)) == [b"a", b"b"]
    assert list(throttle.ignored(10.0)) == [b"b"]
    assert list(throttle.ignored(11.0)) == []


def test_a_result_shows_that_a_node_reads_all_that_others_send(throttle):
    for drop in range(1000):
        assert throttle.rests(float(drop)) == 0.0
        if drop % 200 == 0:
            assert admits(throttle, b"honest", message(Command.DONE), float(drop))


def test_a_node_rests_after_it_has_read_every_ignored_connection(throttle):
    for number in range(200):
        while not throttle.refuses(b"%d" % number, 0, "malformed", 0.0):
            pass
    assert [bool(throttle.rests(float(drop))) for drop in range(400)].index(True) == 399


def test_frames_that_are_no_message_are_answered_up_to_a_limit(throttle):
    assert sum(throttle.answers(0.0) for _ in range(5000)) == 1000
    assert sum(throttle.answers(1.0) for _ in range(5000)) == 200
