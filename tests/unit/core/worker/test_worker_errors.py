"""The worker machine, rule by rule: messages that it may not act on (spec §2.7, §10)."""

from __future__ import annotations

import pytest
from attrs import evolve

from wmp.actions import Drop
from wmp.core.protocol.settings import WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.core.worker.sessions import MAX_MANAGERS
from wmp.errors import DecodeError
from wmp.events import Connected, Garbled, Received
from wmp.message import Columns, Command, Field, Message
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import sent

WRONG_WAY = (
    Command.READY,
    Command.GIVE,
    Command.DONE,
    Command.STATUS,
    Command.PING,
    Command.BYE,
)


@pytest.fixture
def worker():
    settings = WorkerSettings(identity=b"w", epoch=5, hold=0.0, window=0, resources={"slots": 2})
    return WorkerMachine(settings, 1)


@pytest.fixture
def manager(worker):
    manager = ScriptedManager(worker)
    manager.meet()
    manager.wake(2)
    manager.take(1, more=True)
    return manager


def state(worker):
    """Return all state that an invalid message must not change."""
    statistics = worker.statistics()
    return evolve(statistics, dropped={}), worker.deadline()


def refused(worker, message, link=0):
    """Return the one ERROR that answers ``message``; there must be no other action."""
    before = state(worker)
    drop, answer = worker.handle(Received(link, message), 0.0)
    assert isinstance(drop, Drop)
    assert drop.message is message
    assert answer.link == link
    assert answer.message.command is Command.ERROR
    assert answer.message.fields[Field.CODE] == drop.reason
    assert answer.message.to == message.answer_to
    assert state(worker) == before
    assert worker.statistics().dropped[drop.reason] >= 1
    return answer.message.fields


@pytest.mark.rule("WMP-2.6", "WMP-2.7", "WMP-10.2")
@pytest.mark.parametrize("command", [Command.WAKE, Command.TAKE, Command.NO, Command.PONG])
@pytest.mark.parametrize(
    "to",
    [(), (5, b"other"), (0, 1, b"d", 5, b"w"), (b"w", 5)],
    ids=["nobody", "somebody else", "a device", "turned around"],
)
def test_a_message_for_another_is_refused(worker, manager, command, to):
    fields = {
        Field.COUNT: 1,
        Field.ROLE: "default",
        Field.NEEDS: {"slots": 1},
        Field.MAX_SILENCE: 6000,
        Field.LOCK: 1,
        Field.MANAGER: (b"m1", 1),
        Field.NUMBER: 2,
        Field.SESSION: 1,
    }
    message = manager.message(command, fields, Columns([1], [1]), to=to)
    error = refused(worker, message)
    assert error[Field.CODE] == ("misrouted" if to else "malformed")
    # The ERROR is about the peer that the message names, if the message names one.
    named = (to[-1], to[-2]) if to and isinstance(to[-1], bytes) else None
    assert error.get(Field.ABOUT_PEER) == named


@pytest.mark.rule("WMP-2.7", "WMP-9.6")
@pytest.mark.parametrize("epoch", [4, 6])
def test_a_message_for_another_epoch_of_this_worker_is_superseded(worker, manager, epoch):
    message = manager.message(
        Command.PONG, {Field.MAX_SILENCE: 1, Field.SESSION: 1}, to=(epoch, b"w")
    )
    error = refused(worker, message)
    assert (error[Field.CODE], error[Field.ABOUT_PEER]) == ("superseded", (b"w", epoch))


@pytest.mark.rule("WMP-2.3")
def test_keys_that_are_not_known_are_ignored(worker, manager):
    message = manager.message(
        Command.WAKE,
        {Field.COUNT: 1, Field.ROLE: "default", Field.NEEDS: {"slots": 1}, 99: [1], "mine": "x"},
    )
    manager.no(1)
    assert sent(manager.send(message), Command.GIVE)


@pytest.mark.rule("WMP-10.4")
@pytest.mark.parametrize("command", WRONG_WAY)
def test_a_command_of_workers_is_answered_with_direction(worker, manager, command):
    error = refused(worker, manager.message(command, {Field.NUMBER: 7}))
    assert error[Field.CODE] == "direction"
    assert (error[Field.ABOUT], error[Field.ABOUT_NUMBER]) == (command, 7)


@pytest.mark.rule("WMP-10.1", "WMP-10.2", "WMP-10.4")
@pytest.mark.parametrize("code", ["malformed", "version", "command", "limit"])
@pytest.mark.parametrize("source", [(), (b"m9", 3), (b"m9", 3, b"d", 1, 0)])
def test_garbled_frames_are_counted_and_answered_where_a_way_back_exists(
    worker, manager, code, source
):
    before = state(worker)
    error = DecodeError("seen this, expected that", code=code, source=source, command=4)

    drop, answer = worker.handle(Garbled(0, error), 0.0)

    assert (drop.reason, drop.link, drop.detail) == (code, 0, "seen this, expected that")
    assert answer.message.to == source[::-1]
    assert answer.message.fields == {
        Field.CODE: code,
        Field.TEXT: "seen this, expected that",
        Field.ABOUT: 4,
        **({Field.VERSIONS: (1,)} if code == "version" else {}),
    }
    assert state(worker) == before
    assert worker.statistics().dropped[code] == 1


@pytest.mark.rule("WMP-10.3")
def test_no_error_is_answered(worker, manager):
    (drop,) = worker.handle(Garbled(0, DecodeError("bad", command=12)), 0.0)
    assert drop.reason == "malformed"
    for to in ((), (4, b"w"), (5, b"w"), (5, b"other")):
        for code in ("malformed", "superseded", "unreachable", "made up"):
            before = state(worker)
            actions = manager.error(code, to=to)
            assert not sent(actions)
            assert len(actions) == 1
            assert state(worker) == before


@pytest.mark.rule("WMP-10.6")
def test_an_error_of_an_unknown_code_is_counted_and_ignored(worker, manager):
    before = state(worker)
    (drop,) = manager.error("made up")
    assert drop.reason == "ERROR"
    assert state(worker) == before
    assert worker.statistics().dropped == {"ERROR": 1}


@pytest.mark.rule("WMP-2.6")
def test_an_error_without_receiver_is_for_the_neighbor(worker, manager):
    (drop,) = manager.error("malformed", to=())
    assert drop.reason == "ERROR malformed"


def test_a_device_that_reports_an_error_is_no_manager(worker, manager):
    device = ScriptedManager(worker, b"d")
    device.error("unreachable", about_peer=(b"m7", 1))
    assert len(worker.statistics().managers) == 1


def test_a_worker_remembers_a_bounded_number_of_managers(worker):
    worker.handle(Connected(0), 0.0)
    for number in range(MAX_MANAGERS):
        ScriptedManager(worker, b"m%d" % number).pong()
    one_more = ScriptedManager(worker, b"one more")
    message = one_more.message(Command.PONG, {Field.MAX_SILENCE: 6000, Field.SESSION: 1})
    assert refused(worker, message)[Field.CODE] == "limit"
    assert len(worker.statistics().managers) == MAX_MANAGERS


def test_an_expire_of_nothing_does_not_make_the_worker_spin(worker, manager):
    manager.max_silence = 0.0
    manager.pong()
    assert worker.deadline() >= 0.01


def test_every_drop_has_a_detail(worker, manager):
    strange = Message(Command.WAKE, (1, b"x"), (b"m1", 1), {})
    (drop, _) = worker.handle(Received(0, strange), 0.0)
    assert (drop.link, drop.message, drop.detail) == (
        0,
        strange,
        "this worker is not the receiver",
    )
