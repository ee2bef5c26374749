"""The device machine, rule by rule (spec §8)."""

from __future__ import annotations

import pytest
from attrs import evolve

from wmp.actions import Halt, Send
from wmp.core.device import DeviceMachine
from wmp.core.protocol.settings import DeviceSettings
from wmp.errors import DecodeError
from wmp.events import Closed, Drained, Garbled, Received, Ticked, Undelivered
from wmp.message import (
    SENT_BY_MANAGERS,
    SENT_BY_WORKERS,
    Command,
    ErrorCode,
    Field,
    Message,
)
from wmp.testing.peers.scripted_worker import sent

BELOW = b"routing-id"
ME = (b"d", 5)
UP = (0, 5, b"d", 7, b"m")
"""A ``to`` that leaves on upstream 0 for manager m."""
DOWN = (BELOW, 5, b"d", 1, b"w")
"""A ``to`` that leaves below for worker w."""
TAIL = (b"columns, unread", b"payload")


@pytest.fixture
def device():
    return DeviceMachine(DeviceSettings(identity=b"d", epoch=5, upstreams=3))


def arrive(device, link, message):
    return device.handle(Received(link, message), 0.0)


def from_worker(command, to=UP, fields=None, hops=(), frames=()):
    return Message(command, to, (b"w", 1, *hops), fields or {}, None, frames)


def from_manager(command, to=DOWN, fields=None, hops=()):
    return Message(command, to, (b"m", 7, *hops), fields or {}, None, TAIL)


def refused(actions):
    (error,) = sent(actions)
    assert error.command is Command.ERROR
    return error.fields[Field.CODE]


@pytest.mark.rule("WMP-8.1")
@pytest.mark.parametrize("command", [Command.READY, Command.PING])
def test_discovery_goes_to_every_upstream(device, command):
    actions = arrive(device, BELOW, from_worker(command, to=()))
    assert [action.link for action in actions] == [0, 1, 2]
    assert {action.message.source for action in actions} == {(b"w", 1, b"d", 5, BELOW)}
    assert {action.message.to for action in actions} == {()}


@pytest.mark.rule("WMP-8.1")
@pytest.mark.parametrize("command", [Command.READY, Command.PING])
def test_discovery_does_not_come_from_above(device, command):
    assert refused(arrive(device, 0, from_manager(command, to=()))) == ErrorCode.DIRECTION


@pytest.mark.rule("WMP-8.2", "WMP-8.3", "WMP-8.4", "WMP-12.2")
def test_everything_else_follows_its_path_both_ways(device):
    fields = {Field.NUMBER: 3, 999: "unknown", "x": [1]}
    message = from_worker(Command.DONE, fields=fields, frames=TAIL)
    (up,) = arrive(device, BELOW, message)
    assert up == Send(0, evolve(message, to=(7, b"m"), source=(b"w", 1, b"d", 5, BELOW)))
    assert up.message.frames is TAIL

    message = from_manager(Command.TAKE, fields=fields, hops=(b"above", 2, b"id"))
    (down,) = arrive(device, 2, message)
    assert down == Send(
        BELOW, evolve(message, to=(1, b"w"), source=(b"m", 7, b"above", 2, b"id", b"d", 5, 2))
    )


@pytest.mark.rule("WMP-8.3", "WMP-2.5")
def test_an_answer_finds_its_way_back_through_two_devices():
    lower = DeviceMachine(DeviceSettings(identity=b"low", epoch=1, upstreams=1))
    upper = DeviceMachine(DeviceSettings(identity=b"up", epoch=2, upstreams=2))
    (a,) = arrive(lower, b"worker-link", Message(Command.READY, (), (b"w", 1), {}))
    b = arrive(upper, b"lower-link", a.message)[1]

    wake = Message(Command.WAKE, b.message.answer_to, (b"m", 7), {})
    (c,) = arrive(upper, b.link, wake)
    assert c.link == b"lower-link"
    (d,) = arrive(lower, a.link, c.message)
    assert (d.link, d.message.to) == (b"worker-link", (1, b"w"))

    give = Message(Command.GIVE, d.message.answer_to, (b"w", 1), {})
    (e,) = arrive(lower, d.link, give)
    (f,) = arrive(upper, c.link, e.message)
    assert (f.link, f.message.to, f.message.sender) == (1, (7, b"m"), (b"w", 1))


@pytest.mark.rule("WMP-8.5")
def test_a_message_that_was_here_before_is_dropped(device):
    message = from_worker(Command.READY, to=(), hops=(b"d", 5, b"x", b"e", 1, b"y"))
    assert refused(arrive(device, BELOW, message)) == ErrorCode.LOOP
    # An earlier epoch of the same device counts as the same device.
    message = from_worker(Command.READY, to=(), hops=(b"d", 4, b"x"))
    assert refused(arrive(device, BELOW, message)) == ErrorCode.LOOP


@pytest.mark.rule("WMP-8.5")
def test_sixteen_devices_are_the_limit(device):
    hops = sum(((b"d%d" % i, 1, b"x") for i in range(15)), ())
    assert len(sent(arrive(device, BELOW, from_worker(Command.PING, to=(), hops=hops)))) == 3
    hops = (*hops, b"one more", 1, b"x")
    message = from_worker(Command.PING, to=(), hops=hops)
    assert refused(arrive(device, BELOW, message)) == ErrorCode.LOOP


def test_the_error_of_a_device_names_its_own_limit():
    device = DeviceMachine(DeviceSettings(identity=b"d", epoch=5, upstreams=1, max_hops=2))
    hops = (b"a", 1, b"x", b"b", 1, b"x", b"c", 1, b"x")
    (error,) = sent(arrive(device, BELOW, from_worker(Command.PING, to=(), hops=hops)))
    assert error.fields[Field.TEXT] == "the message has passed 3 devices; the limit is 2"


@pytest.mark.rule("WMP-8.6")
def test_a_path_through_another_device_is_misrouted(device):
    for to in ((7, b"m"), (0, 5, b"other", 7, b"m")):
        message = from_worker(Command.GIVE, to=to)
        assert refused(arrive(device, BELOW, message)) == ErrorCode.MISROUTED


@pytest.mark.rule("WMP-8.6")
def test_a_path_through_an_earlier_start_is_unreachable(device):
    (error,) = sent(arrive(device, BELOW, from_worker(Command.GIVE, to=(0, 4, b"d", 7, b"m"))))
    assert error.fields[Field.CODE] == ErrorCode.UNREACHABLE
    assert error.fields[Field.ABOUT_PEER] == (b"m", 7)
    assert error.to == (1, b"w")


@pytest.mark.rule("WMP-8.7")
def test_a_device_holds_nothing(device):
    for index in range(50):
        arrive(device, b"l%d" % index, from_worker(Command.READY, to=()))
        arrive(device, b"l%d" % index, from_worker(Command.GIVE))
    fresh = DeviceMachine(DeviceSettings(identity=b"d", epoch=5, upstreams=3))
    message = from_manager(Command.TAKE)
    assert arrive(device, 1, message) == arrive(fresh, 1, message)
    assert device.deadline() is None
    assert device.handle(Ticked(), 1e9) == []


@pytest.mark.rule("WMP-8.8", "WMP-1.6")
def test_an_undeliverable_message_is_reported_to_its_sender(device):
    (send,) = arrive(device, 2, from_manager(Command.TAKE, fields={Field.NUMBER: 9}))

    actions = device.handle(Undelivered(send.link, send.message), 0.0)

    (error,) = sent(actions)
    assert actions[-1].link == 2
    assert error.to == (7, b"m")
    assert error.fields[Field.CODE] == ErrorCode.UNREACHABLE
    assert error.fields[Field.ABOUT_PEER] == (b"w", 1)
    assert (error.fields[Field.ABOUT], error.fields[Field.ABOUT_NUMBER]) == (Command.TAKE, 9)


@pytest.mark.rule("WMP-8.8", "WMP-10.3")
def test_errors_and_discovery_are_not_reported(device):
    (send,) = arrive(device, 2, from_manager(Command.ERROR, fields={Field.CODE: "limit"}))
    assert sent(device.handle(Undelivered(send.link, send.message), 0.0)) == []
    send, *_ = arrive(device, BELOW, from_worker(Command.READY, to=()))
    assert sent(device.handle(Undelivered(send.link, send.message), 0.0)) == []


@pytest.mark.rule("WMP-8.9")
def test_a_message_does_not_leave_on_the_side_it_came_from(device):
    message = from_worker(Command.GIVE, to=(b"other worker", 5, b"d", 1, b"w2"))
    assert refused(arrive(device, BELOW, message)) == ErrorCode.MISROUTED
    message = from_manager(Command.TAKE, to=(1, 5, b"d", 8, b"m2"))
    assert refused(arrive(device, 0, message)) == ErrorCode.MISROUTED


def test_an_upstream_that_does_not_exist_is_unreachable(device):
    message = from_worker(Command.GIVE, to=(3, 5, b"d", 7, b"m"))
    assert refused(arrive(device, BELOW, message)) == ErrorCode.UNREACHABLE


@pytest.mark.rule("WMP-8.2", "WMP-10.4")
def test_commands_come_from_their_side(device):
    for command in SENT_BY_MANAGERS - {Command.ERROR}:
        assert refused(arrive(device, BELOW, from_worker(command))) == ErrorCode.DIRECTION
    for command in SENT_BY_WORKERS - {Command.ERROR}:
        assert refused(arrive(device, 0, from_manager(command))) == ErrorCode.DIRECTION


@pytest.mark.rule("WMP-10.1", "WMP-10.2", "WMP-10.3")
def test_garbage_is_counted_and_answered_on_its_connection(device):
    (error,) = sent(device.handle(Garbled(BELOW, DecodeError("no CBOR")), 0.0))
    assert (error.to, error.fields[Field.CODE]) == ((), ErrorCode.MALFORMED)
    garbled = DecodeError("bad", source=(b"w", 1), command=Command.ERROR)
    assert sent(device.handle(Garbled(BELOW, garbled), 0.0)) == []
    assert device.statistics().dropped == {"malformed": 2}


def test_an_error_to_the_neighbour_ends_here(device):
    message = Message(Command.ERROR, (), (b"m", 7), {Field.CODE: ErrorCode.MALFORMED})
    assert sent(arrive(device, 0, message)) == []


def test_no_message_stops_a_device(device):
    fields = {Field.CODE: ErrorCode.SUPERSEDED, Field.ABOUT_PEER: ME}
    for link in (0, BELOW):
        arrive(device, link, Message(Command.ERROR, (), (b"m", 7), fields))
    assert len(sent(arrive(device, BELOW, from_worker(Command.READY, to=())))) == 3


@pytest.mark.parametrize("event", [Drained(), Closed()])
def test_it_stops_at_once(device, event):
    assert device.handle(event, 0.0) == [Halt(None)]
