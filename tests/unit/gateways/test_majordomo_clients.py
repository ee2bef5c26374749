"""The clients of Majordomo as machines."""

from __future__ import annotations

import pytest

from tests.unit.gateways.foreign import Driven
from tests.unit.gateways.majordomo import C
from wmp.actions import Reconnect
from wmp.events import Connected, Drained
from wmp.foreign import Arrived, Emit, Requested, Unsent, Withdrawn
from wmp.gateways.majordomo.client_machine import MajordomoClientMachine
from wmp.gateways.majordomo.pipelined_machine import MajordomoPipelinedMachine


class Client(Driven):
    """A client with short times."""

    def __init__(self, machine=None, **settings) -> None:
        super().__init__(machine or MajordomoClientMachine(1.0, 3, **settings))

    def up(self, port: int = 0) -> list:
        return self.feed(Connected(port))

    def ask(self, id: int, *body: bytes, service: bytes = b"echo") -> list:
        return self.feed(Requested(id, (service, *body)))

    def reply(self, *body: bytes, service: bytes = b"echo", port: int = 0) -> list:
        return self.feed(Arrived(port, b"", (b"", C, service, *body)))

    @property
    def ports(self) -> list[tuple[int, tuple[bytes, ...]]]:
        return [(action.port, action.frames) for action in self.actions if isinstance(action, Emit)]

    @property
    def opened(self) -> list[int]:
        return [action.link for action in self.actions if isinstance(action, Reconnect)]


@pytest.mark.rule("MDP-6.1", "MDP-6.4")
def test_a_request_is_sent_again_on_a_new_socket_and_given_up_in_the_end():
    client = Client()
    client.up()
    client.ask(7, b"x")
    assert client.ports == [(0, (b"", C, b"echo", b"x"))]
    for number in (2, 3):
        client.wait(1.0)
        assert (client.opened, client.ports) == ([0], [])
        client.reply(b"late")
        assert client.drops == ["no request"]
        client.up()
        assert client.ports == [(0, (b"", C, b"echo", b"x"))], number
    client.wait(1.0)
    assert client.answers == [(7, None, 3)]
    assert client.opened == [0]
    seen = client.machine.statistics()
    assert (seen.requests, seen.resent, seen.abandoned) == (1, 2, 1)


@pytest.mark.rule("MDP-6.2")
def test_each_request_in_progress_has_a_socket_of_its_own():
    client = Client(sockets=2)
    client.up()
    client.ask(1, b"1")
    client.ask(2, b"2")
    assert client.opened == [1]
    client.ask(3, b"3")
    assert (client.opened, client.ports) == ([], [])
    client.up(1)
    assert client.ports == [(1, (b"", C, b"echo", b"2"))]
    client.reply(b"two", port=1)
    assert client.answers == [(2, (b"two",), 1)]
    assert client.ports == [(1, (b"", C, b"echo", b"3"))]
    client.reply(b"one")
    client.reply(b"three", port=1)
    assert client.answers == [(3, (b"three",), 1)]
    client.ask(4, b"4")
    assert client.ports == [(0, (b"", C, b"echo", b"4"))]


@pytest.mark.rule("MDP-6.4", "MDP-6.5", "MDP-1.6")
@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ((b"", C, b"echo"), "invalid"),
        ((b"x", C, b"echo", b"y"), "invalid"),
        ((b"", b"MDPW01", b"echo", b"y"), "invalid"),
        ((b"", C, b"other", b"y"), "other service"),
    ],
)
def test_other_messages_are_no_reply(frames, reason):
    client = Client()
    client.up()
    client.ask(1, b"x")
    client.feed(Arrived(0, b"", frames))
    assert (client.drops, client.answers) == ([reason], [])
    client.reply(b"y")
    assert client.answers == [(1, (b"y",), 1)]


@pytest.mark.rule("MDP-6.4")
def test_a_withdrawn_request_that_was_sent_costs_its_socket():
    client = Client()
    client.up()
    client.ask(1, b"1")
    client.ask(2, b"2")
    client.feed(Withdrawn((1,)))
    assert client.opened == [0]
    client.reply(b"one")
    assert client.answers == []
    client.up()
    assert client.ports == [(0, (b"", C, b"echo", b"2"))]
    client.feed(Withdrawn((2,)))
    assert client.machine.deadline() is None


def test_a_withdrawn_request_that_waits_for_a_socket_is_never_sent():
    client = Client()
    client.up()
    for number in (1, 2, 3):
        client.ask(number, b"%d" % number)
    client.feed(Withdrawn((2, 4)))
    assert client.opened == []
    client.reply(b"one")
    assert client.ports == [(0, (b"", C, b"echo", b"3"))]


def test_a_request_waits_for_the_connection_and_a_client_that_drains_ends():
    client = Client()
    client.ask(1, b"x")
    assert client.ports == []
    client.up()
    client.feed(Unsent(0, b""))
    client.up()
    assert client.ports == [(0, (b"", C, b"echo", b"x"))]
    client.feed(Drained())
    assert not client.halted
    client.reply(b"y")
    assert client.halted


@pytest.mark.rule("MDP-6.3")
def test_many_requests_share_the_socket_of_a_stream_client():
    client = Client(MajordomoPipelinedMachine(5.0, window=2))
    for number in range(3):
        client.ask(number, b"%d" % number)
    client.up()
    assert [frames[3] for _, frames in client.ports] == [b"0", b"1"]
    client.reply(b"b", b"", service=b"echo")
    assert client.answers == [(1, (b"echo", b"b", b""), 1)]
    assert [frames[3] for _, frames in client.ports] == [b"2"]
    client.reply(b"c")
    client.reply(b"d")
    client.reply(b"e")
    assert (client.answers, client.drops) == ([], ["no request"])
    assert client.machine.deadline() is None


@pytest.mark.rule("MDP-6.3")
def test_the_requests_of_a_silent_broker_count_as_lost():
    client = Client(MajordomoPipelinedMachine(5.0, window=2))
    client.up()
    for number in range(3):
        client.ask(number, b"x")
    client.wait(4.0)
    client.reply(b"y")
    client.wait(4.0)
    assert client.opened == []
    client.wait(1.0)
    assert client.answers == [(0, None, 2)]
    assert client.opened == [0]
    seen = client.machine.statistics()
    assert (seen.requests, seen.replies, seen.lost, seen.waiting) == (3, 1, 2, 0)


def test_a_stream_client_that_drains_waits_for_its_replies():
    client = Client(MajordomoPipelinedMachine(5.0))
    client.up()
    client.ask(1, b"x")
    client.feed(Drained())
    assert not client.halted
    client.reply(b"y")
    assert client.halted


@pytest.mark.rule("MDP-6.6")
def test_a_request_is_sent_again_on_a_connection_that_was_made_again():
    client = Client()
    client.up()
    client.ask(1, b"x")
    client.up()  # the socket may still hold the request, so the socket is replaced
    assert (client.opened, client.ports) == ([0], [])
    client.reply(b"y")
    assert client.drops == ["no request"]
    client.up()
    assert (client.opened, client.ports) == ([], [(0, (b"", C, b"echo", b"x"))])
    client.reply(b"y")
    assert client.answers == [(1, (b"y",), 1)]
    client.up()
    assert (client.opened, client.ports) == ([], [])


@pytest.mark.rule("MDP-6.6")
@pytest.mark.parametrize("event", [Connected(0), Unsent(0, b"")], ids=["again", "unsent"])
def test_the_requests_of_a_stream_are_lost_with_their_connection(event):
    client = Client(MajordomoPipelinedMachine(5.0, window=3))
    client.up()
    client.up()  # nothing was sent, so nothing is lost
    assert client.opened == []
    for number in range(4):
        client.ask(number, b"x")
    client.feed(event)
    assert client.answers == [(0, None, 3)]
    assert (client.opened, client.ports) == ([0], [])
    client.feed(Unsent(0, b""))
    client.reply(b"late")
    assert (client.answers, client.opened) == ([], [])
    client.up()
    assert client.ports == [(0, (b"", C, b"echo", b"x"))]
    client.reply(b"y")
    assert client.answers == [(1, (b"echo", b"y"), 1)]
    seen = client.machine.statistics()
    assert (seen.requests, seen.replies, seen.lost, seen.waiting) == (4, 1, 3, 0)


@pytest.mark.rule("MDP-6.5")
def test_a_stream_takes_no_reply_of_a_service_that_it_did_not_ask():
    client = Client(MajordomoPipelinedMachine(5.0))
    client.up()
    client.ask(1, b"x")
    client.ask(2, b"x")
    client.ask(3, b"x", service=b"other")
    client.reply(b"y", service=b"third")
    assert (client.drops, client.answers) == (["other service"], [])
    client.reply(b"y", service=b"other")
    client.reply(b"y", service=b"other")
    assert (client.drops, client.answers) == (["other service"], [])
    for _ in range(2):
        client.reply(b"y")
        assert client.answers == [(1, (b"echo", b"y"), 1)]
    client.reply(b"y")
    assert client.drops == ["no request"]
