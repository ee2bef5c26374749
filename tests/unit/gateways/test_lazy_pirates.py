"""The Lazy Pirate client and its server, message by message."""

from __future__ import annotations

import pytest

from tests.unit.gateways.foreign import Driven
from wmp.codec import pack_frames
from wmp.events import Closed, Drained
from wmp.foreign import Left, Requested, Unsent, Withdrawn
from wmp.gateways.common.body import MAX_FRAMES
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.common.server_machine import LazyServerMachine


@pytest.fixture
def client():
    """Return a connected client with three tries of a second."""
    driven = Driven(LazyClientMachine(1.0, 3))
    driven.connect()
    return driven


@pytest.fixture
def server():
    return Driven(LazyServerMachine(slots=2, limit=3))


# The client -----------------------------------------------------------------------------


@pytest.mark.rule("PIRATE-2.1")
def test_a_request_has_an_empty_frame_before_it_and_so_has_its_reply(client):
    client.feed(Requested(1, (b"one", b"")))
    assert client.sent == [(b"", b"one", b"")]

    for frames in ((b"one",), (b"",), (b"x", b"", b"one"), (b"", *[b"x"] * MAX_FRAMES)):
        client.get(*frames)
        assert (client.answers, client.drops) == ([], ["invalid"]), frames

    client.get(b"", b"reply", b"")
    assert client.answers == [(1, (b"reply", b""), 1)]


@pytest.mark.rule("PIRATE-2.2")
def test_requests_go_out_one_after_the_other(client):
    for number in (1, 2, 3):
        client.feed(Requested(number, (b"%d" % number,)))
        assert client.sent == ([(b"", b"1")] if number == 1 else [])

    client.get(b"", b"one")
    assert (client.answers, client.sent) == ([(1, (b"one",), 1)], [(b"", b"2")])
    client.get(b"", b"two")
    assert (client.answers, client.sent) == ([(2, (b"two",), 1)], [(b"", b"3")])


@pytest.mark.rule("PIRATE-2.3", "PIRATE-2.7")
def test_a_try_without_a_reply_is_followed_by_the_same_frames_on_a_new_socket(client):
    client.feed(Requested(1, (b"body",)))

    client.wait(0.9)
    assert client.actions == []
    client.wait(0.1)
    assert (client.reopened, client.sent) == (True, [])

    # The new socket is not connected yet: a message can only be of the old one.
    client.get(b"", b"late")
    assert (client.answers, client.drops) == ([], ["no request"])
    client.connect()
    assert client.sent == [(b"", b"body")]
    assert client.connect() == []  # sent once in a try
    client.get(b"", b"reply")
    assert client.answers == [(1, (b"reply",), 2)]


@pytest.mark.rule("PIRATE-2.4")
@pytest.mark.parametrize("connected", [True, False])
def test_a_request_ends_without_a_reply_after_its_last_try(client, connected):
    client.feed(Requested(1, (b"body",)))
    client.feed(Requested(2, (b"next",)))
    for _ in range(2):
        client.wait(1.0)
        assert (client.reopened, client.answers) == (True, [])
        if connected:
            client.connect()
            assert client.sent == [(b"", b"body")]

    client.wait(1.0)
    assert (client.reopened, client.answers) == (True, [(1, None, 3)])
    client.connect()
    assert client.sent == [(b"", b"next")]
    client.get(b"", b"reply")
    assert client.answers == [(2, (b"reply",), 1)]


@pytest.mark.rule("PIRATE-2.5")
def test_a_message_without_a_request_is_dropped(client):
    client.get(b"", b"unasked")
    assert client.drops == ["no request"]

    client.feed(Requested(1, (b"body",)))
    client.get(b"", b"reply")
    client.get(b"", b"reply")
    assert (client.answers, client.drops) == ([], ["no request"])


@pytest.mark.rule("PIRATE-2.6")
def test_a_request_that_is_given_up_leaves_its_socket(client):
    client.feed(Requested(1, (b"one",)))
    client.feed(Requested(2, (b"two",)))
    client.feed(Requested(3, (b"three",)))

    client.feed(Withdrawn((2,)))
    assert client.actions == []
    client.feed(Withdrawn((1,)))
    assert (client.reopened, client.sent) == (True, [])
    client.connect()
    assert client.sent == [(b"", b"three")]


@pytest.mark.rule("PIRATE-2.7")
def test_a_request_waits_for_a_connection_while_its_time_goes_on():
    client = Driven(LazyClientMachine(1.0, 1))
    client.feed(Requested(1, (b"body",)))
    assert client.actions == []
    client.wait(0.5)
    client.connect()
    assert client.sent == [(b"", b"body")]

    client.feed(Unsent(0, b""))
    client.connect()
    assert client.sent == [(b"", b"body")]
    client.wait(0.5)
    assert client.answers == [(1, None, 1)]


def test_a_withdrawn_request_that_was_not_sent_leaves_the_socket_open():
    client = Driven(LazyClientMachine(1.0, 1))
    client.feed(Requested(1, (b"body",)))

    client.feed(Withdrawn((1,)))

    assert client.actions == []
    assert client.machine.deadline() is None


def test_a_client_that_ends_waits_for_its_requests_or_not(client):
    client.feed(Requested(1, (b"body",)))
    client.feed(Drained())
    assert not client.halted
    client.get(b"", b"reply")
    assert client.halted

    other = Driven(LazyClientMachine())
    other.feed(Requested(1, (b"body",)))
    other.feed(Closed())
    assert other.halted


def test_the_counts_of_a_client(client):
    client.feed(Requested(1, (b"one",)))
    client.get(b"", b"reply")
    client.feed(Requested(2, (b"two",)))
    for _ in range(3):
        client.wait(1.0)
        client.connect()

    seen = client.machine.statistics()

    assert (seen.requests, seen.replies, seen.resent, seen.abandoned) == (2, 1, 2, 1)


# The server -----------------------------------------------------------------------------


@pytest.mark.rule("PIRATE-1.2", "PIRATE-3.1")
def test_a_request_is_answered_once_to_its_connection_with_its_envelope(server):
    server.get(b"id", b"", b"one", peer=b"a")
    server.get(b"", b"two", b"", peer=b"b")
    assert server.runs == [("frames", pack_frames([b"two", b""]))]

    server.finish([b"second", b""], lane=2)
    assert (server.sent, server.actions[0].peer) == ([(b"", b"second", b"")], b"b")
    server.finish(b"first", lane=1)
    assert (server.sent, server.actions[0].peer) == ([(b"id", b"", b"first")], b"a")
    server.finish(b"first", lane=1)
    assert (server.sent, server.drops) == ([], ["no such request"])


@pytest.mark.rule("PIRATE-1.1", "PIRATE-1.2", "PIRATE-3.2")
@pytest.mark.parametrize(
    "frames",
    [
        (b"body",),
        (b"",),
        (b"id", b""),
        (b"1", b"2", b"3"),
        (*[b"x"] * 9, b"", b"b"),
        (b"",) * (MAX_FRAMES + 1),
    ],
)
def test_a_message_without_envelope_or_body_is_dropped(server, frames):
    server.get(*frames, peer=b"a")

    reason = "invalid" if len(frames) <= MAX_FRAMES else "too many frames"
    assert (server.runs, server.sent, server.drops) == ([], [], [reason])
    server.get(b"", b"body", peer=b"a")
    assert server.runs == [("", b"body")]


@pytest.mark.rule("PIRATE-3.3")
def test_a_failed_request_gets_no_reply_and_frees_its_slot(server):
    for number in range(3):
        server.get(b"", b"%d" % number, peer=b"a")

    server.fail(lane=1)

    assert (server.sent, server.runs) == ([], [("", b"2")])
    assert server.machine.statistics().failed == 1


@pytest.mark.rule("PIRATE-3.4")
def test_requests_begin_in_order_and_wait_up_to_a_limit(server):
    begun = []
    for number in range(6):
        server.get(b"", b"%d" % number, peer=b"%d" % number)
        begun += server.runs
    assert server.drops == ["limit"]
    for lane in range(1, 6):
        server.finish(b"", lane=lane)
        begun += server.runs
    assert [payload for _, payload in begun] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.rule("PIRATE-3.5")
def test_requests_of_a_connection_that_ended_are_not_begun_or_interrupted(server):
    for number, peer in enumerate((b"a", b"b", b"a", b"b")):
        server.get(b"", b"%d" % number, peer=peer)

    server.feed(Left(0, b"a"))
    assert server.interrupted == [1]
    server.finish(b"", lane=1)
    assert (server.sent, server.runs) == ([], [("", b"3")])
    assert server.machine.statistics().dropped == {"client left": 1}


def test_a_server_that_ends_first_answers_what_has_arrived(server):
    for number in range(3):
        server.get(b"", b"%d" % number, peer=b"a")

    server.feed(Drained())
    server.get(b"", b"late", peer=b"a")
    assert server.drops == ["draining"]
    for lane in (1, 2):
        server.finish(b"", lane=lane)
        assert not server.halted
    server.finish(b"", lane=3)
    assert (server.sent, server.halted) == ([(b"", b"")], True)
