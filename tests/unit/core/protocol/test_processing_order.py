"""The order of processing of the specification (section 13): the first step that fails decides."""

from __future__ import annotations

import re

import build_wmp
import pytest
from attrs import evolve

from tests.unit.core.manager import managers
from tests.unit.core.manager.managers import errors, lease
from tests.unit.core.worker import workers
from wmp.core.device import DeviceMachine
from wmp.core.protocol.settings import DeviceSettings
from wmp.events import Received
from wmp.message import Command, ErrorCode, Field, Message
from wmp.testing.peers.scripted_manager import ScriptedManager
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent

ELSEWHERE = (9, b"other")
"""A ``to`` of another node."""


@pytest.fixture
def manager():
    return managers.make()


@pytest.fixture
def worker(manager):
    worker = ScriptedWorker(manager)
    worker.ping()
    return worker


def test_a_manager_looks_at_the_direction_before_the_receiver(manager, worker):
    no = worker.message(Command.NO, {Field.NUMBER: 1, Field.SESSION: 1, Field.LOCK: 1})

    actions = manager.handle(Received(worker.link, evolve(no, to=ELSEWHERE)), 0.0)

    assert errors(actions) == [ErrorCode.DIRECTION]


def test_a_manager_looks_at_the_receiver_before_the_holder_of_the_identity(manager, worker):
    ping = evolve(worker.message(Command.PING, {}), to=ELSEWHERE)

    actions = manager.handle(Received(b"another-link", ping), 0.0)

    assert errors(actions) == [ErrorCode.MISROUTED]
    assert not sent(actions, Command.PONG), "no challenge goes out"


def test_a_manager_looks_at_the_holder_before_session_and_number(manager, worker):
    lease(manager, worker, b"job")
    done = worker.compose_done([(1, 1)], [b"result"], [0], number=7, session=9)

    actions = manager.handle(Received(b"another-link", done), 0.0)

    (pong,) = sent(actions, Command.PONG)
    assert Field.CHALLENGE in pong.fields
    assert Field.AGAIN not in pong.fields


def test_a_manager_looks_at_the_session_before_the_number(manager, worker):
    lease(manager, worker, b"job")

    (pong,) = sent(worker.done([1], number=7, session=9), Command.PONG)

    assert Field.AGAIN not in pong.fields


def test_a_manager_reads_the_ack_of_a_message_with_a_wrong_number(manager, worker):
    lease(manager, worker, b"job")

    worker.done([1], number=7, ack=1)

    assert not sent(worker.ping(again=True), Command.TAKE)


def test_a_worker_keeps_the_same_order():
    worker = workers.make()
    manager = workers.met(worker)
    ready = manager.message(Command.BYE, {})
    take = manager.compose_take(1, [b"job"], number=7, session=9)

    first = worker.handle(Received(0, evolve(ready, to=ELSEWHERE)), 0.0)
    second = worker.handle(Received(0, evolve(take, to=ELSEWHERE)), 0.0)
    stranger = ScriptedManager(worker, hops=(b"d", 1, b"x"))
    third = stranger.send(stranger.compose_take(1, [b"job"], number=7, session=9))

    codes = [message.fields.get(Field.CODE) for message in sent([*first, *second])]
    assert codes == [ErrorCode.DIRECTION, ErrorCode.MISROUTED]
    (ping,) = sent(third, Command.PING)
    assert Field.CHALLENGE in ping.fields


def test_a_device_looks_at_direction_loop_and_path_in_this_order():
    device = DeviceMachine(DeviceSettings(identity=b"d", epoch=5, upstreams=1))
    been_here = (b"w", 1, b"d", 5, b"x")

    def answer(command, source, to=ELSEWHERE):
        actions = device.handle(Received(b"below", Message(command, to, source, {})), 0.0)
        return [message.fields[Field.CODE] for message in sent(actions, Command.ERROR)]

    assert answer(Command.NO, been_here) == [ErrorCode.DIRECTION]
    assert answer(Command.BYE, been_here) == [ErrorCode.LOOP]
    assert answer(Command.BYE, (b"w", 1)) == [ErrorCode.MISROUTED]


def test_every_word_that_the_specification_defines_is_in_the_glossary():
    spec = build_wmp.SPEC.read_text(encoding="utf-8")
    glossary = (build_wmp.SPEC.parent / "glossary.md").read_text(encoding="utf-8")
    table = spec[spec.index("| word | meaning |") : spec.index("## 1. ")]
    words = re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE)[1:]

    assert len(words) > 10
    assert [word for word in words if f"\n| {word} |" not in glossary] == []
