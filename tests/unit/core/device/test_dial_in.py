"""Managers that dial in to a device: both machines, rule by rule (spec §8)."""

from __future__ import annotations

import pytest
from attrs import evolve

from wmp.actions import Drop, Halt, Met, Send
from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings
from wmp.errors import DecodeError
from wmp.events import Closed, Connected, Disconnected, Garbled, Received, Ticked, Undelivered
from wmp.message import Command, ErrorCode, Field, Message
from wmp.runtime.sockets.dialed_connections import DialedConnections

BELOW = b"below"
DIALED, OTHER = 40, 77
"""Connections of the upper ROUTER."""
DOWN = (BELOW, 5, b"d", 1, b"w")
"""A ``to`` that leaves below for worker w."""
HOP = (b"d", 5)


@pytest.fixture
def device():
    return DeviceMachine(DeviceSettings(identity=b"d", epoch=5, upstreams=1, max_managers=3))


def arrive(machine, link, message, now=0.0):
    return machine.handle(Received(link, message), now)


def announcement(name=b"m", epoch=7, **fields):
    return Message(Command.PONG, (), (name, epoch), {Field.MAX_SILENCE: 6000, **fields})


def goodbye(name=b"m", epoch=7):
    return Message(Command.BYE, (), (name, epoch), {})


def wake(name=b"m", epoch=7, to=DOWN):
    fields = {Field.COUNT: 1, Field.ROLE: "default", Field.NEEDS: {}}
    return Message(Command.WAKE, to, (name, epoch), fields)


def from_worker(command, to=(), name=b"w"):
    return Message(command, to, (name, 1), {})


def reached(device, now=0.0):
    """The links over which a PING without a receiver leaves."""
    return [action.link for action in arrive(device, BELOW, from_worker(Command.PING), now)]


def refusal(actions):
    drop, error = actions
    assert isinstance(drop, Drop)
    assert error.message.command is Command.ERROR
    assert drop.reason == error.message.fields[Field.CODE]
    return error.link, drop.reason


# -- the device


@pytest.mark.rule("WMP-8.1", "WMP-8.12")
def test_a_manager_that_dials_in_is_an_upstream_from_its_first_message_on(device):
    assert reached(device) == [0]
    assert arrive(device, DIALED, announcement()) == [Met((b"m", 7), "")]
    assert reached(device) == [0, DIALED]
    assert arrive(device, DIALED, announcement()) == []
    # A message to a worker counts like an announcement.
    met, down = arrive(device, OTHER, wake(b"n", 9))
    assert (met, down.link) == (Met((b"n", 9), ""), BELOW)
    assert reached(device) == [0, DIALED, OTHER]
    assert device.statistics().managers == 2


@pytest.mark.rule("WMP-8.2", "WMP-8.3", "WMP-12.2")
def test_messages_follow_their_path_to_a_manager_that_dialed_in_and_back(device):
    arrive(device, DIALED, announcement())
    (down,) = arrive(device, DIALED, wake())
    assert down == Send(BELOW, evolve(wake(), to=(1, b"w"), source=(b"m", 7, *HOP, DIALED)))
    give = from_worker(Command.GIVE, down.message.answer_to)
    (up,) = arrive(device, BELOW, give)
    assert up == Send(DIALED, evolve(give, to=(7, b"m"), source=(b"w", 1, *HOP, BELOW)))


@pytest.mark.rule("WMP-8.12")
def test_a_goodbye_the_end_of_the_connection_and_silence_each_end_a_manager(device):
    for link in (DIALED, OTHER, 99):
        arrive(device, link, announcement())
    assert arrive(device, DIALED, goodbye()) == []
    assert reached(device) == [0, OTHER, 99]
    assert device.handle(Disconnected(OTHER), 1.0) == []
    assert reached(device) == [0, 99]
    assert device.deadline() == 6.0
    assert device.handle(Ticked(), 5.9) == []
    (drop,) = device.handle(Ticked(), 6.0)
    assert drop == Drop(
        "silent manager", 99, None, "the manager of connection 99 was silent for 6.0 s"
    )
    assert (reached(device), device.deadline()) == ([0], None)


@pytest.mark.rule("WMP-8.12")
def test_every_message_of_a_manager_ends_its_silence(device):
    arrive(device, DIALED, announcement(), 0.0)
    arrive(device, OTHER, announcement(), 1.0)
    assert device.deadline() == 6.0
    arrive(device, DIALED, wake(), 5.0)
    assert device.deadline() == 7.0
    (drop,) = device.handle(Ticked(), 7.0)
    assert drop.link == OTHER


@pytest.mark.rule("WMP-8.12", "WMP-8.8")
def test_an_answer_to_a_manager_that_has_gone_is_dropped_counted_and_reported(device):
    arrive(device, DIALED, announcement())
    done = from_worker(Command.DONE, (DIALED, 5, b"d", 7, b"m"))
    assert arrive(device, BELOW, done)[0].link == DIALED
    arrive(device, DIALED, goodbye())
    drop, error = arrive(device, BELOW, done)
    assert (drop.reason, error.link) == (ErrorCode.UNREACHABLE, BELOW)
    assert error.message.fields[Field.ABOUT_PEER] == (b"m", 7)
    assert device.statistics().dropped == {"unreachable": 1}


@pytest.mark.rule("WMP-8.12")
def test_errors_and_goodbyes_make_no_connection_that_of_a_manager(device):
    error = Message(Command.ERROR, DOWN, (b"m", 7), {Field.CODE: "unknown"})
    (drop,) = arrive(device, DIALED, error)
    assert drop.reason == "no manager"
    assert arrive(device, DIALED, goodbye()) == []
    (drop,) = arrive(device, DIALED, evolve(error, to=()))
    assert drop.reason == "ERROR"
    assert reached(device) == [0]


@pytest.mark.rule("WMP-8.9", "WMP-10.4", "WMP-8.12")
@pytest.mark.parametrize("command", [Command.READY, Command.PING, Command.GIVE, Command.DONE])
def test_a_worker_at_the_upper_router_is_refused_and_is_no_manager(device, command):
    actions = arrive(device, DIALED, from_worker(command))
    assert refusal(actions) == (DIALED, ErrorCode.DIRECTION)
    assert "workers connect to the address for workers" in actions[0].detail
    assert reached(device) == [0]


@pytest.mark.rule("WMP-8.9", "WMP-10.4")
def test_a_manager_at_the_router_for_workers_is_refused(device):
    actions = arrive(device, BELOW, announcement())
    assert refusal(actions) == (BELOW, ErrorCode.DIRECTION)
    assert "managers connect to the address for managers" in actions[0].detail


@pytest.mark.rule("WMP-2.6", "WMP-10.4")
def test_announcements_and_goodbyes_come_over_the_upper_router_only(device):
    assert refusal(arrive(device, 0, announcement())) == (0, ErrorCode.MALFORMED)
    assert refusal(arrive(device, 0, goodbye())) == (0, ErrorCode.DIRECTION)
    assert refusal(arrive(device, BELOW, goodbye(b"w", 1))) == (BELOW, ErrorCode.MALFORMED)


@pytest.mark.rule("WMP-8.13")
def test_a_manager_above_the_limit_is_refused_until_another_has_gone(device):
    links = (DIALED, OTHER, 99)
    for link in links:
        arrive(device, link, announcement())
    assert refusal(arrive(device, 100, announcement(b"n"))) == (100, ErrorCode.LIMIT)
    assert refusal(arrive(device, 100, wake(b"n"))) == (100, ErrorCode.LIMIT)
    assert reached(device) == [0, *links]
    arrive(device, OTHER, goodbye())
    arrive(device, 100, announcement(b"n"))
    assert reached(device) == [0, DIALED, 99, 100]


@pytest.mark.rule("WMP-8.13", "WMP-8.7")
def test_what_a_device_remembers_does_not_grow_with_managers_that_come_and_go(device):
    for link in range(1000, 6000):
        arrive(device, link, announcement(b"%d" % link))
        device.handle(Disconnected(link), 0.0) if link % 2 else arrive(device, link, goodbye())
    assert device._managers == {}
    assert device._forwarded == {}
    assert device._dropped == {}


@pytest.mark.rule("WMP-8.14")
def test_managers_of_one_identity_are_two_upstreams(device):
    arrive(device, DIALED, announcement(b"m", 7))
    arrive(device, OTHER, announcement(b"m", 7))
    assert reached(device) == [0, DIALED, OTHER]
    (of_one,) = arrive(device, DIALED, wake(b"m", 7))
    (of_other,) = arrive(device, OTHER, wake(b"m", 7))
    assert of_one.message.source != of_other.message.source
    arrive(device, OTHER, goodbye(b"m", 7))
    assert reached(device) == [0, DIALED]


@pytest.mark.rule("WMP-8.12", "WMP-10.1")
def test_frames_that_are_no_message_make_no_connection_that_of_a_manager(device):
    drop, error = device.handle(Garbled(DIALED, DecodeError("bad", source=(b"m", 7))), 0.0)
    assert (drop.link, error.link) == (DIALED, DIALED)
    looped = evolve(announcement(), source=(b"m", 7, *HOP, 3))
    assert refusal(arrive(device, DIALED, looped)) == (DIALED, ErrorCode.LOOP)
    assert reached(device) == [0]


@pytest.mark.rule("WMP-8.8")
def test_a_message_that_the_connection_of_a_manager_refuses_is_reported(device):
    arrive(device, DIALED, announcement())
    (up,) = arrive(device, BELOW, from_worker(Command.DONE, (DIALED, 5, b"d", 7, b"m")))
    drop, error = device.handle(Undelivered(DIALED, up.message), 0.0)
    assert (drop.reason, error.link) == ("undelivered", BELOW)
    assert error.message.fields[Field.CODE] == ErrorCode.UNREACHABLE


# -- the manager


@pytest.fixture
def manager():
    settings = ManagerSettings(identity=b"m", epoch=7, label="desk")
    return ManagerMachine(settings, least_recently_used)


def announced(actions):
    return [(action.link, action.message.to) for action in actions if isinstance(action, Send)]


@pytest.mark.rule("WMP-8.11", "WMP-1.2")
def test_a_manager_announces_itself_at_each_connection_and_in_each_interval(manager):
    (first,) = manager.handle(Connected(0), 0.0)
    assert first.message == Message(
        Command.PONG, (), (b"m", 7), {Field.MAX_SILENCE: 6000, Field.LABEL: "desk"}
    )
    assert announced(manager.handle(Connected(1), 0.5)) == [(1, ())]
    assert manager.deadline() == 1.0
    assert announced(manager.handle(Ticked(), 1.0)) == [(0, ())]
    assert announced(manager.handle(Connected(0), 1.2)) == [(0, ())]
    assert announced(manager.handle(Ticked(), 1.5)) == [(1, ())]
    assert manager.deadline() == 2.2


@pytest.mark.rule("WMP-8.11")
def test_a_manager_announces_nothing_over_a_connection_that_ended(manager):
    manager.handle(Connected(0), 0.0)
    manager.handle(Disconnected(0), 0.5)
    assert manager.deadline() is None
    assert manager.handle(Closed(), 1.0) == [Halt(None)]


@pytest.mark.rule("WMP-8.11")
def test_a_manager_that_ends_says_goodbye_to_its_devices(manager):
    manager.handle(Connected(0), 0.0)
    bye, halt = manager.handle(Closed(), 0.5)
    assert bye == Send(0, goodbye())
    assert halt == Halt(None)


@pytest.mark.rule("WMP-2.6", "WMP-10.1")
def test_an_end_node_refuses_a_goodbye_without_a_receiver(manager):
    actions = arrive(manager, b"id", goodbye(b"w", 1))
    assert refusal(actions) == (b"id", ErrorCode.MALFORMED)


@pytest.mark.parametrize(
    ("code", "reason"), [(ErrorCode.DIRECTION, "wrong side"), (ErrorCode.LIMIT, "device full")]
)
def test_a_refused_announcement_is_reported_with_the_remedy(manager, code, reason):
    manager.handle(Connected(0), 0.0)
    fields = {Field.CODE: code, Field.TEXT: "no", Field.ABOUT: int(Command.PONG)}
    error = Message(Command.ERROR, (7, b"m"), (b"x", 1), fields)
    counted, explained = arrive(manager, 0, error)
    assert counted.reason == f"ERROR {code}"
    assert explained.reason == reason
    assert explained.detail.startswith(
        "the node at address 1 of connect refuses this manager: no; "
    )
    assert len(arrive(manager, b"id", error)) == 1  # only a device refuses announcements


# -- the numbers of connections


@pytest.mark.rule("WMP-8.3", "WMP-8.13")
def test_each_drawn_routing_id_has_a_number_of_its_own_behind_those_of_the_dealers():
    ids = DialedConnections(port=None, first=2)
    drawn = [b"\0" + number.to_bytes(4, "big") for number in range(300)]
    links = [ids.link(routing_id) for routing_id in drawn]
    assert len(set(links)) == 300
    assert min(links) >= 2
    assert [ids.routing_id(link) for link in links] == drawn
    # Neither the number nor its order shows the routing id.
    assert sorted(links) != links
    assert ids.routing_id(1) is None
    assert ids.routing_id(2 + (1 << 32)) is None
    assert ids.link(b"chosen") is None
    assert ids.link(b"abcde") is None
