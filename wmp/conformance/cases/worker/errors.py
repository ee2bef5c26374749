"""Messages that a worker must refuse, ignore or answer (sections 2 and 10)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import evolve

from wmp import codec
from wmp.conformance.cases.worker.handshake import slowly
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.peers.played_manager import PlayedManager
from wmp.conformance.script.case import case
from wmp.conformance.wire.bad_messages import (
    BadMessage,
    bad_columns,
    bad_heads,
    meaningless,
    misaddressed,
    noise_around,
    too_much,
)
from wmp.message import Columns, Command, ErrorCode, Field, Message


def _take(manager: PlayedManager, id: int = 900) -> Message:
    """A TAKE that the worker would run."""
    fields: dict[int | str, Any] = {
        Field.NUMBER: manager.number + 1,
        Field.ACK: manager.received,
        Field.SESSION: manager.session,
        Field.ROLE: "echo",
        Field.NEEDS: {"slots": 1},
        Field.LOCK: max(1, manager.last_lock),
        Field.MANAGER: (manager.identity, manager.epoch),
    }
    columns = Columns([id], [1], payloads=[b"refuse me"])
    return Message(Command.TAKE, manager.to, manager.path, fields, columns)


def _refused(
    talk: WorkerConversation, manager: PlayedManager, bad: Iterable[BadMessage], rule: str
) -> None:
    """Check that each message is answered by the right ERROR, and has no effect."""
    for message in bad:
        if message.rule != rule:
            continue
        manager.refusal(message, rule)
    manager.never(Command.DONE, rule=rule, what="a refused message has no effect")


def _refused_takes(talk: WorkerConversation, rule: str) -> None:
    manager, _ = talk.met(), talk.met()
    talk.means = {"WMP-7.2": rule}  # an ack shows that the message was accepted
    lock = manager.woken(1)
    manager.lose(rule, 900)
    take = _take(manager)
    _refused(talk, manager, bad_heads(take), rule)
    _refused(talk, manager, bad_columns(take), rule)
    (job,) = manager.take(lock.number, b"still there?")
    manager.done_of(job, rule="WMP-10.1")


@case("WMP-2.1", profile="secure")
def no_head(talk: WorkerConversation) -> None:
    """A message whose head is not an array of five is refused."""
    _refused_takes(talk, "WMP-2.1")


@case("WMP-2.2", profile="secure")
def no_plain_cbor(talk: WorkerConversation) -> None:
    """Tags, indefinite lengths, duplicate keys, deep nesting and surplus bytes are refused."""
    _refused_takes(talk, "WMP-2.2")


@case("WMP-2.2")
def longer_forms_are_no_reason_to_die(talk: WorkerConversation) -> None:
    """Integers in a longer form than needed are accepted or refused."""
    manager, _ = talk.met(), talk.met()
    pong: dict[int | str, Any] = {Field.MAX_SILENCE: talk.ms(6.0), Field.SESSION: manager.session}
    head = bytes(codec.encode(Message(Command.PONG, manager.to, manager.path, pong))[0])
    epoch = manager.epoch.to_bytes(2, "big")
    manager.raw(head.replace(b"\x19" + epoch, b"\x1b" + manager.epoch.to_bytes(8, "big")))
    manager.echoes()


@case("WMP-2.3")
def unknown_keys(talk: WorkerConversation) -> None:
    """Unknown keys and columns are ignored."""
    manager, _ = talk.met(), talk.met()
    manager.woken(1)
    take = _take(manager, 3)
    strange: dict[int | str, Any] = {1000: {"deep": [1, 2.5, None]}, "application": "own"}
    head, columns = codec.encode(evolve(take, fields={**take.fields, **strange}))
    data = bytes(columns)
    more = bytes((data[0] + 1,)) + data[1:] + b"\x17\x81\x65extra"
    manager.number += 1
    manager.expects(3, b"refuse me")
    manager.raw(head, more)
    answer = manager.done_of(
        3, rule="WMP-2.3", what="the worker must ignore unknown keys and run the job"
    )
    talk.check(
        answer == b"refuse me", f"the result of role echo is {answer!r}; expected the payload"
    )


@case("WMP-2.4", profile="secure")
def wrong_types(talk: WorkerConversation) -> None:
    """A registered key with a value of the wrong type is malformed."""
    _refused_takes(talk, "WMP-2.4")


@case("WMP-2.5", profile="secure")
def no_path(talk: WorkerConversation) -> None:
    """A message whose ``from`` is not a path is refused."""
    _refused_takes(talk, "WMP-2.5")


@case("WMP-2.6", profile="secure")
def no_receiver(talk: WorkerConversation) -> None:
    """A message without its required ``to`` is refused."""
    _refused_takes(talk, "WMP-2.6")


@case("WMP-2.7", "WMP-9.6", profile="secure")
def somebody_else(talk: WorkerConversation) -> None:
    """A message for another peer is misrouted; for another epoch, superseded."""
    manager, _ = talk.met(), talk.met()
    talk.means = {"WMP-7.2": "WMP-2.7"}  # an ack shows that the message was accepted
    assert manager.testee is not None
    identity, epoch = manager.testee
    manager.woken(1)
    manager.lose("WMP-2.7", 900)
    take = _take(manager)
    for to, code in (
        ((epoch, b"somebody"), ErrorCode.MISROUTED),
        ((epoch + 1, identity), ErrorCode.SUPERSEDED),
        ((b"\x00local", 9, b"device", epoch, identity), ErrorCode.MISROUTED),
        ((epoch - 1, identity), ErrorCode.SUPERSEDED),
    ):
        manager.raw(*codec.encode(evolve(take, to=to)))
        error = manager.expect(Command.ERROR)
        talk.check(
            error["code"] == code,
            f"the answer to 'to' {to!r} is ERROR {error['code']!r}; expected {code!r}",
        )
        about = error["about_peer"]
        talk.check(
            about is not None and tuple(about) == (to[-1], to[-2]),
            f"the answer to 'to' {to!r} is ERROR about {about!r}; expected the peer in 'to'",
        )
        talk.check(
            error.message.to == manager.path[::-1],
            f"ERROR goes to {error.message.to!r}; expected {manager.path[::-1]!r}",
            "WMP-10.2",
        )
        manager.never(Command.DONE, what="the message was for another peer")


@case("WMP-2.8", profile="secure")
def bad_columns_are_refused(talk: WorkerConversation) -> None:
    """Missing columns, columns of different lengths and columns of wrong types are refused."""
    _refused_takes(talk, "WMP-2.8")


@case("WMP-2.8", slots=3)
def a_single_value(talk: WorkerConversation) -> None:
    """A single value in a column stands for k equal entries."""
    manager, _ = talk.met(), talk.met()
    manager.woken(3)
    head = codec.encode(_take(manager))[0]
    manager.number += 1
    for id in (1, 2, 3):
        manager.expects(id, bytes((64 + id,)))
    columns = b"\xa3\x01\x83\x01\x02\x03\x02\x01\x05\x83\x41A\x41B\x41C"
    manager.raw(head, columns)
    for id in (1, 2, 3):
        answer = manager.done_of(id, None)
        outcome = manager.answered[(manager.identity, manager.epoch), id, 1]
        good = outcome == 2 or answer == bytes(
            (64 + id,)
        )  # the worker may refuse jobs beyond its capacity
        talk.check(good, f"the result of job {id}, role echo, is {answer!r}; expected the payload")


@case("WMP-2.9", profile="secure")
def payload_frames(talk: WorkerConversation) -> None:
    """A message has as many payload frames as nulls."""
    _refused_takes(talk, "WMP-2.9")


@case("WMP-2.9")
def payload_outside(talk: WorkerConversation) -> None:
    """A small payload in a frame of its own is a payload like any other."""
    manager, _ = talk.met(), talk.met()
    manager.woken(1)
    head = codec.encode(_take(manager))[0]
    manager.number += 1
    manager.expects(1, b"outside")
    manager.raw(head, b"\xa3\x01\x81\x01\x02\x81\x01\x05\x81\xf6", b"outside")
    answer = manager.done_of(1)
    talk.check(answer == b"outside", f"the result of role echo is {answer!r}; expected the payload")


@case("WMP-2.10", "WMP-1.1")
def above_the_limits(talk: WorkerConversation) -> None:
    """A message beyond the limits is refused."""
    manager, _ = talk.met(), talk.met()
    pong: dict[int | str, Any] = {
        Field.MAX_SILENCE: talk.ms(6.0),
        Field.SESSION: manager.session,
        Field.LABEL: "m",
    }
    bad = list(too_much(Message(Command.PONG, manager.to, manager.path, pong)))
    hops = manager.path[:2] + 17 * (b"device", 1, b"\x00")
    manager.receives_at(hops)
    manager.receives_at((b"i" * 256, manager.epoch))
    kept = [
        message for message in bad if "role" not in message.what and "resource" not in message.what
    ]
    for rule in ("WMP-2.10", "WMP-1.1"):
        _refused(talk, manager, kept, rule)


@case("WMP-10.1")
def garbage(talk: WorkerConversation) -> None:
    """The worker survives noise."""
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 0.5), role="slow")
    manager.lose("WMP-10.1", 900)
    pong: dict[int | str, Any] = {Field.MAX_SILENCE: talk.ms(6.0), Field.SESSION: 1}
    good = _take(manager)
    for frames in noise_around(good, Message(Command.PONG, manager.to, manager.path, pong)):
        manager.raw(*frames)
    talk.wait(1.5)  # the worker sends its periodic messages, also those without `to`
    manager.done_of(job, within=2.0 + talk.wire.grace, rule="WMP-10.1")


@case("WMP-10.1", "WMP-2.1", "WMP-2.4", "WMP-2.6", "WMP-2.7")
def what_is_not_for_it(talk: WorkerConversation) -> None:
    """A message that is unreadable, or for another peer, changes nothing."""
    talk.means = {"WMP-7.2": "WMP-10.1"}  # an ack shows that a message was accepted
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    manager.clear()
    manager.lose("WMP-10.1", 900)
    take = _take(manager)
    no = evolve(take, command=Command.NO, columns=None)
    for good in (take, no):
        for bad in meaningless(good):
            talk.remark(f"{bad.what}:")
            manager.raw(*bad.frames)
        for other in misaddressed(good):
            manager.raw(*codec.encode(other))
    for message in _for_managers(manager):
        manager.raw(*codec.encode(message))
    acts = (Command.DONE, Command.GIVE, Command.READY)
    manager.never(*acts, what="a message that is malformed or for another peer has no effect")
    (job,) = manager.take(lock.number, b"still there?")
    manager.done_of(job, rule="WMP-10.1")


@case("WMP-10.2")
def errors_find_their_way(talk: WorkerConversation) -> None:
    """ERROR follows the reversed ``from``, or goes to the neighbor if ``from`` is unreadable."""
    talk.met()
    manager = talk.met()
    manager.send(
        Command.WAKE, to=(1, b"somebody"), count=1, role="echo", needs={}, session=None, ack=None
    )
    error = manager.expect(Command.ERROR)
    talk.check(
        error.message.to == manager.path[::-1],
        f"ERROR goes to {error.message.to!r}; expected {manager.path[::-1]!r}",
    )
    manager.raw(b"not a message")
    error = manager.expect(Command.ERROR)
    talk.check(not error.message.to, f"ERROR goes to {error.message.to!r}; expected no receiver")


@case("WMP-10.3")
def errors_are_not_answered(talk: WorkerConversation) -> None:
    """No ERROR is answered by ERROR, not even a malformed one."""
    manager = talk.met()
    manager.provoke_by_errors(Command.DONE)


@case("WMP-10.4")
def command_version_direction(talk: WorkerConversation) -> None:
    """Unknown commands, other versions and managers' commands get codes of their own."""
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    manager.lose("WMP-10.4", 900)
    _refused(talk, manager, bad_heads(_take(manager)), "WMP-10.4")
    for message in _for_managers(manager):
        manager.raw(*codec.encode(message))
        error = manager.expect(Command.ERROR)
        talk.check(
            error["code"] == ErrorCode.DIRECTION,
            f"the answer to {message.command.name} is ERROR {error['code']!r}; expected "
            "'direction'",
        )
    (job,) = manager.take(lock.number, b"still there?")
    manager.done_of(job, rule="WMP-10.1")


def _for_managers(manager: PlayedManager) -> list[Message]:
    ready: dict[int | str, Any] = {4: 1, 5: 1, 7: ["echo"], 8: {"slots": 1}}
    give: dict[int | str, Any] = {7: ["echo"], 11: {"slots": 1}, 12: 1, 13: 1}
    commands = {Command.READY: ready, Command.GIVE: give, Command.PING: {}, Command.BYE: {}}
    return [Message(command, manager.to, manager.path, commands[command]) for command in commands]


@case("WMP-10.6")
def unknown_code(talk: WorkerConversation) -> None:
    """An ERROR with an unknown code is ignored."""
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 0.5), role="slow")
    manager.error("of a later version", about_peer=manager.testee)
    manager.error("of a later version", about_peer=(manager.identity, manager.epoch))
    manager.never(Command.ERROR, what="no ERROR may be answered by ERROR", rule="WMP-10.3")
    manager.done_of(job, within=0.5 + talk.wire.grace, rule="WMP-10.6")


@case("WMP-12.3")
def nothing_is_evaluated(talk: WorkerConversation) -> None:
    """Tags that would construct something are refused."""
    _refused_takes(talk, "WMP-12.3")
