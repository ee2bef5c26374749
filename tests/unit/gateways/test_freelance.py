"""The clients and servers of Freelance, message by message."""

from __future__ import annotations

import pytest

from tests.unit.gateways.foreign import Driven
from wmp.actions import Reconnect
from wmp.codec import pack_frames
from wmp.events import Closed, Connected, Drained, Finished, Ticked
from wmp.foreign import Arrived, Emit, Left, Requested, Unsent, Withdrawn
from wmp.gateways.common.body import MAX_FRAMES
from wmp.gateways.common.reply_memory import ReplyMemory
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.common.server_machine import LazyServerMachine
from wmp.gateways.freelance.agent_machine import AgentClientMachine
from wmp.gateways.freelance.shotgun_machine import ShotgunClientMachine
from wmp.gateways.freelance.wire import AgentWire, ShotgunWire


class Several(Driven):
    """A client with several sockets."""

    def connect_to(self, *ports):
        for port in ports:
            self.feed(Connected(port))
        return self.sent_to

    def get_from(self, port, *frames):
        """Let a message of a server arrive."""
        return self.feed(Arrived(port, b"", frames))

    @property
    def sent_to(self):
        """The messages of the last step, with the numbers of their sockets."""
        return [(a.port, *a.frames) for a in self.actions if isinstance(a, Emit)]

    @property
    def reopened_links(self):
        return [a.link for a in self.actions if isinstance(a, Reconnect)]


# The failover client --------------------------------------------------------------------


@pytest.fixture
def failover():
    """Return a client of three servers, connected to all of them."""
    driven = Several(LazyClientMachine(1.0, 3, 3))
    driven.connect_to(0, 1, 2)
    return driven


@pytest.mark.rule("FREE-2.1", "FREE-2.2")
def test_each_try_goes_to_the_next_server_and_the_old_socket_is_replaced(failover):
    failover.feed(Requested(1, (b"one",)))
    assert failover.sent_to == [(0, b"", b"one")]

    failover.wait(1.0)
    assert (failover.reopened_links, failover.sent_to) == ([0], [(1, b"", b"one")])
    failover.get_from(0, b"", b"late")
    assert (failover.answers, failover.drops) == ([], ["no request"])
    failover.wait(1.0)
    assert (failover.reopened_links, failover.sent_to) == ([1], [(2, b"", b"one")])

    failover.get_from(2, b"", b"reply")
    assert failover.answers == [(1, (b"reply",), 3)]


@pytest.mark.rule("FREE-2.2")
def test_the_next_request_begins_with_the_server_of_the_last_reply(failover):
    failover.feed(Requested(1, (b"one",)))
    failover.wait(1.0)
    failover.get_from(1, b"", b"reply")
    failover.feed(Requested(2, (b"two",)))
    assert failover.sent_to == [(1, b"", b"two")]

    failover.wait(1.0)
    assert failover.sent_to == [(2, b"", b"two")]
    failover.connect_to(0)
    failover.wait(1.0)
    assert failover.sent_to == [(0, b"", b"two")]


@pytest.mark.rule("FREE-2.3")
@pytest.mark.parametrize(("servers", "tries"), [(1, 3), (3, 3)])
def test_a_request_ends_without_a_reply_after_its_last_try(servers, tries):
    client = Several(LazyClientMachine(1.0, tries, servers))
    client.connect_to(*range(servers))
    client.feed(Requested(1, (b"one",)))
    for left in range(tries - 1, -1, -1):
        client.wait(1.0)
        assert client.answers == ([] if left else [(1, None, tries)])
        client.connect_to(*range(servers))


# The shotgun client ---------------------------------------------------------------------


@pytest.fixture
def shotgun():
    driven = Several(ShotgunClientMachine(2.5))
    driven.connect_to(0, 1)
    return driven


@pytest.mark.rule("FREE-3.1", "FREE-1.2", "FREE-3.5")
def test_a_request_goes_once_to_every_server_under_a_sequence_of_its_own(shotgun):
    shotgun.feed(Requested(7, (b"one", b"")))
    assert shotgun.sent_to == [(0, b"", b"1", b"one", b""), (1, b"", b"1", b"one", b"")]
    shotgun.feed(Requested(8, (b"two",)))
    assert shotgun.sent_to == [(0, b"", b"2", b"two"), (1, b"", b"2", b"two")]

    shotgun.get_from(1, b"", b"2", b"second")
    assert shotgun.answers == [(8, (b"second",), 2)]
    shotgun.get_from(0, b"", b"1", b"first", b"")
    assert shotgun.answers == [(7, (b"first", b""), 2)]


@pytest.mark.rule("FREE-3.2")
def test_later_replies_to_a_request_are_dropped(shotgun):
    shotgun.feed(Requested(1, (b"one",)))
    shotgun.get_from(0, b"", b"1", b"first")
    shotgun.get_from(1, b"", b"1", b"second")
    assert (shotgun.answers, shotgun.drops) == ([], ["no request"])
    assert shotgun.machine.statistics().dropped == {"no request": 1}


@pytest.mark.rule("FREE-3.3")
def test_a_shotgun_request_ends_at_its_time(shotgun):
    shotgun.feed(Requested(1, (b"one",)))
    shotgun.wait(1.0)
    shotgun.feed(Requested(2, (b"two",)))
    shotgun.wait(1.4)
    assert shotgun.answers == []
    shotgun.wait(0.1)
    assert shotgun.answers == [(1, None, 2)]
    shotgun.wait(1.0)
    assert shotgun.answers == [(2, None, 2)]


@pytest.mark.rule("FREE-3.4")
def test_a_server_that_is_connected_later_gets_the_requests_in_progress():
    client = Several(ShotgunClientMachine(2.5))
    client.feed(Requested(1, (b"one",)))
    assert client.sent_to == []
    assert client.connect_to(1) == [(1, b"", b"1", b"one")]
    client.feed(Requested(2, (b"two",)))
    client.get_from(1, b"", b"1", b"reply")
    # Also on a connection that was made again.
    assert client.connect_to(1) == [(1, b"", b"2", b"two")]


def test_a_shotgun_request_that_is_given_up_gets_no_reply(shotgun):
    shotgun.feed(Requested(1, (b"one",)))
    shotgun.feed(Withdrawn((1,)))
    shotgun.get_from(0, b"", b"1", b"reply")
    assert (shotgun.answers, shotgun.machine.deadline()) == ([], None)


# The agent ------------------------------------------------------------------------------


@pytest.fixture
def agent():
    """Return an agent whose servers 0 and 1 are alive."""
    driven = Several(AgentClientMachine(3.0, 2.0, 6.0))
    driven.connect_to(0, 1)
    for port in (0, 1):
        driven.get_from(port, b"PONG")
    return driven


@pytest.mark.rule("FREE-4.1")
def test_ping_is_the_first_message_of_a_connection_and_follows_silence():
    agent = Several(AgentClientMachine(3.0, 2.0, 6.0))
    assert agent.connect_to(0) == [(0, b"PING")]
    agent.wait(1.5)
    agent.get_from(0, b"PONG")
    assert [a for a in agent.wait(1.9) if isinstance(a, Emit)] == []
    assert [a.frames for a in agent.wait(0.1) if isinstance(a, Emit)] == [(b"PING",)]
    assert [a.frames for a in agent.wait(2.0) if isinstance(a, Emit)] == [(b"PING",)]


@pytest.mark.rule("FREE-4.3")
def test_a_request_waits_for_the_first_server_that_is_alive():
    agent = Several(AgentClientMachine(3.0, 2.0, 6.0))
    agent.connect_to(0, 1)
    agent.feed(Requested(1, (b"one",)))
    assert agent.sent_to == []
    agent.get_from(1, b"PONG")
    assert agent.sent_to == [(1, b"1", b"one")]

    agent.get_from(0, b"PONG")
    assert agent.sent_to == []  # the request has its server
    agent.feed(Requested(2, (b"two",)))
    assert agent.sent_to == [(0, b"2", b"two")]


@pytest.mark.rule("FREE-4.2", "FREE-4.4")
@pytest.mark.parametrize("how", ["silence", "end", "full"])
def test_the_requests_of_a_dead_server_go_to_the_next(agent, how):
    agent.machine.timeout = 30.0
    agent.feed(Requested(1, (b"one",)))
    assert agent.sent_to == [(0, b"1", b"one")]
    if how == "silence":
        for _ in range(3):
            agent.wait(1.5)
            agent.get_from(1, b"PONG")
        agent.wait(1.5)
        assert agent.reopened_links == [0]
    elif how == "end":
        agent.feed(Left(0, b""))
    else:
        agent.feed(Unsent(0, b""))
    assert (1, b"1", b"one") in agent.sent_to
    assert agent.machine.statistics().alive == (1,)
    assert agent.machine.statistics().resent == 1


@pytest.mark.rule("FREE-4.5")
def test_a_request_goes_out_once_on_a_connection_and_again_on_a_new_one(agent):
    agent.feed(Requested(1, (b"one",)))
    agent.feed(Left(0, b""))
    assert agent.sent_to == [(1, b"1", b"one")]
    agent.connect_to(0)
    agent.get_from(0, b"PONG")
    assert agent.sent_to == []
    agent.feed(Left(1, b""))
    assert agent.sent_to == [(0, b"1", b"one")]

    agent.get_from(0, b"PONG")
    assert agent.sent_to == []


@pytest.mark.rule("FREE-4.4", "FREE-4.5")
def test_a_request_that_was_not_taken_may_go_to_the_same_server_later():
    agent = Several(AgentClientMachine(3.0, 2.0, 6.0))
    agent.connect_to(0)
    agent.get_from(0, b"PONG")
    agent.feed(Requested(1, (b"one",)))
    agent.feed(Unsent(0, b""))
    assert agent.sent_to == []
    agent.get_from(0, b"PONG")
    assert agent.sent_to == [(0, b"1", b"one")]


@pytest.mark.rule("FREE-4.6")
def test_the_first_reply_counts_from_whichever_server(agent):
    agent.feed(Requested(1, (b"one",)))
    agent.feed(Unsent(0, b""))
    assert agent.sent_to == [(1, b"1", b"one")]
    agent.get_from(0, b"1", b"first")
    assert agent.answers == [(1, (b"first",), 2)]
    agent.get_from(1, b"1", b"second")
    assert (agent.answers, agent.drops) == ([], ["no request"])


@pytest.mark.rule("FREE-4.7")
@pytest.mark.parametrize("alive", [True, False])
def test_an_agents_request_ends_at_its_time_counted_from_the_call(agent, alive):
    if not alive:
        agent.feed(Left(0, b""))
        agent.feed(Left(1, b""))
    agent.feed(Requested(1, (b"one",)))
    agent.wait(2.9)
    assert agent.answers == []
    agent.wait(0.1)
    assert agent.answers == [(1, None, 1 if alive else 0)]


@pytest.mark.rule("FREE-4.8")
def test_a_silent_connection_is_replaced_and_messages_of_the_old_one_do_not_count(agent):
    agent.wait(6.0)
    assert agent.machine.statistics().alive == ()
    agent.get_from(0, b"PONG")
    assert (agent.drops, agent.machine.statistics().alive) == (["no connection"], ())
    # The new connection is measured anew.
    agent.connect_to(0)
    agent.wait(5.9)
    assert agent.reopened_links == []
    agent.wait(0.1)
    assert agent.reopened_links == [0]


@pytest.mark.rule("FREE-4.9")
def test_a_server_that_is_added_later_stands_behind_the_others(agent):
    agent.connect_to(2)
    agent.get_from(2, b"PONG")
    agent.feed(Requested(1, (b"one",)))
    agent.feed(Left(0, b""))
    agent.feed(Left(1, b""))
    assert agent.sent_to == [(2, b"1", b"one")]


# Servers --------------------------------------------------------------------------------


def server(wire, **settings):
    return Driven(LazyServerMachine(slots=2, limit=3, wire=wire, **settings))


@pytest.mark.rule("FREE-5.2", "FREE-1.3")
@pytest.mark.parametrize("sequence", [b"1", b"\x00", b"any bytes", b"x" * 255])
def test_a_reply_has_the_sequence_of_its_request(sequence):
    shotgun, agents = server(ShotgunWire()), server(AgentWire())
    shotgun.get(b"", sequence, b"body", peer=b"c")
    assert shotgun.runs == [("", b"body")]
    shotgun.finish(b"reply")
    assert shotgun.sent == [(b"", sequence, b"reply")]

    agents.get(sequence, b"body", b"more", peer=b"c")
    assert agents.runs == [("frames", pack_frames((b"body", b"more")))]
    agents.finish([b"a", b"b"])
    assert agents.sent == [(sequence, b"a", b"b")]


@pytest.mark.rule("FREE-1.1", "FREE-1.4")
@pytest.mark.parametrize(
    ("wire", "frames"),
    [
        (ShotgunWire(), (b"",)),
        (ShotgunWire(), (b"", b"1")),
        (ShotgunWire(), (b"", b"", b"body")),
        (ShotgunWire(), (b"", b"x" * 256, b"body")),
        (ShotgunWire(), (b"1", b"body")),
        (ShotgunWire(), (b"", b"1", *[b"x"] * (MAX_FRAMES - 1))),
        (AgentWire(), ()),
        (AgentWire(), (b"PONG",)),
        (AgentWire(), (b"1",)),
        (AgentWire(), (b"", b"body")),
        (AgentWire(), (b"x" * 256, b"body")),
        (AgentWire(), (b"1", *[b"x"] * MAX_FRAMES)),
    ],
)
def test_a_server_drops_other_messages(wire, frames):
    driven = server(wire)
    driven.get(*frames, peer=b"c")
    reason = "invalid" if len(frames) <= MAX_FRAMES else "too many frames"
    assert (driven.runs, driven.sent, driven.drops) == ([], [], [reason])


@pytest.mark.rule("FREE-1.1", "FREE-1.4")
@pytest.mark.parametrize(
    ("machine", "frames"),
    [
        (ShotgunClientMachine, (b"",)),
        (ShotgunClientMachine, (b"", b"1")),
        (ShotgunClientMachine, (b"1", b"body", b"x")),
        (ShotgunClientMachine, (b"", b"1", *[b"x"] * (MAX_FRAMES - 1))),
        (AgentClientMachine, ()),
        (AgentClientMachine, (b"PING",)),
        (AgentClientMachine, (b"1",)),
        (AgentClientMachine, (b"1", *[b"x"] * MAX_FRAMES)),
    ],
)
def test_a_client_drops_other_messages(machine, frames):
    client = Several(machine())
    client.connect_to(0)
    client.feed(Requested(1, (b"one",)))
    client.get_from(0, *frames)
    assert (client.answers, client.drops) == ([], ["invalid"])


@pytest.mark.rule("FREE-5.3")
def test_ping_gets_pong_at_once_also_while_all_handlers_run():
    driven = server(AgentWire())
    for number in (b"1", b"2"):
        driven.get(number, b"body", peer=b"c")
    driven.get(b"PING", peer=b"d")
    assert driven.actions == [Emit(0, b"d", (b"PONG",))]


@pytest.mark.rule("FREE-5.5")
def test_a_repeated_request_runs_once_and_gets_the_same_reply_again():
    driven = server(AgentWire(), remember=6.0)
    driven.get(b"1", b"body", peer=b"c")
    driven.get(b"1", b"body", peer=b"c")
    assert (driven.runs, driven.sent) == ([], [])
    driven.finish(b"reply")
    driven.get(b"1", b"body", peer=b"c")
    assert (driven.runs, driven.sent) == ([], [(b"1", b"reply")])
    assert driven.machine.statistics().repeats == 2

    # Another client may use the same sequence.
    driven.get(b"1", b"body", peer=b"d")
    assert driven.runs == [("", b"body")]
    driven.now += 6.0
    driven.get(b"1", b"body", peer=b"c")
    assert driven.runs == [("", b"body")]


@pytest.mark.rule("FREE-5.5")
@pytest.mark.parametrize("end", ["failed", "left"])
def test_a_request_without_a_reply_may_come_again(end):
    driven = server(AgentWire())
    driven.get(b"1", b"body", peer=b"c")
    if end == "failed":
        driven.fail()
    else:
        for number in (b"2", b"3"):
            driven.get(number, b"body", peer=b"c")
        driven.feed(Left(0, b"c"))
        driven.finish(lane=1)
        driven.finish(lane=2)
        assert driven.machine.statistics().dropped == {"client left": 1}
    for number in (b"1", b"3") if end == "left" else (b"1",):
        driven.get(number, b"body", peer=b"c")
        assert driven.runs == [("", b"body")]


@pytest.mark.rule("FREE-5.6")
def test_the_memory_of_replies_is_bounded_and_forgets_the_oldest():
    memory = ReplyMemory(60.0, maximum=3, max_bytes=2000)
    keys = [(0, b"c", (b"%d" % number,)) for number in range(6)]
    for key in keys[:5]:
        assert memory.known(key, 1.0) is None
        memory.begin(key)
        assert memory.known(key, 1.0) == ()
        memory.end(key, (b"reply",), 1.0)
    assert [memory.known(key, 2.0) for key in keys[2:5]] == [(b"reply",)] * 3
    assert memory.known(keys[0], 2.0) is None

    memory.begin(keys[5])
    memory.end(keys[5], (b"x" * 1500,), 3.0)
    assert memory.known(keys[5], 3.0) == (b"x" * 1500,)
    assert memory.known(keys[4], 3.0) is None


@pytest.mark.rule("FREE-5.7")
def test_an_empty_frame_behind_the_sequence_is_dropped_by_a_setting():
    for guide, body in ((True, ("", b"body")), (False, ("frames", pack_frames((b"", b"body"))))):
        driven = server(AgentWire(guide=guide))
        driven.get(b"1", b"", b"body", peer=b"c")
        assert driven.runs == [body]


@pytest.mark.parametrize("make", [ShotgunClientMachine, AgentClientMachine])
def test_a_client_drains_and_closes(make):
    client = Several(make())
    client.connect_to(0)
    client.get_from(0, b"PONG") if make is AgentClientMachine else None
    client.feed(Requested(1, (b"one",)))
    client.feed(Drained())
    assert not client.halted
    client.wait(10.0)
    assert client.halted
    assert client.feed(Ticked()) == []

    client = Several(make())
    client.feed(Closed())
    assert client.halted
    assert client.feed(Finished(1, (1,), (), ())) == []
