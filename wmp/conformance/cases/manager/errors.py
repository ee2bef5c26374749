"""Messages that a manager must refuse, ignore or answer (sections 2 and 10)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import evolve

from wmp import codec
from wmp.codec import CodecLimits
from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.peers.played_worker import PlayedWorker
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
from wmp.errors import DecodeError
from wmp.message import Columns, Command, ErrorCode, Field, Message


def _give(worker: PlayedWorker, lock: int) -> Message:
    """A GIVE that the manager would answer."""
    fields: dict[int | str, Any] = {
        Field.ROLES: ["echo"],
        Field.NEEDS: {"slots": 1},
        Field.LOCK: lock,
        Field.WANT: 1,
    }
    return Message(Command.GIVE, worker.to, worker.path, fields)


def _refused(
    talk: ManagerConversation, worker: PlayedWorker, bad: Iterable[BadMessage], rule: str
) -> None:
    """Check that each message is answered by the right ERROR, and has no effect."""
    for message in bad:
        if message.rule != rule:
            continue
        worker.refusal(message, rule)
        acts = {received.command for received in worker.inbox} & {Command.TAKE, Command.NO}
        talk.check(
            not acts,
            f"the manager acted on {message.what}; expected ERROR and no other effect",
            rule,
        )
    worker.never(
        Command.TAKE, Command.NO, Command.WAKE, rule=rule, what="a refused message has no effect"
    )


def _refused_gives(talk: ManagerConversation, rule: str) -> None:
    worker = talk.met()
    talk.submit()
    _refused(talk, worker, bad_heads(_give(worker, 1)), rule)
    talk.check(
        len(worker.take()) == 1,
        "the next correct GIVE received NO, although a job waits",
        "WMP-10.1",
    )


@case("WMP-2.1", profile="secure")
def no_head(talk: ManagerConversation) -> None:
    """A message whose head is not an array of five is refused."""
    _refused_gives(talk, "WMP-2.1")


@case("WMP-2.2", profile="secure")
def no_plain_cbor(talk: ManagerConversation) -> None:
    """Tags, indefinite lengths, duplicate keys, deep nesting and surplus bytes are refused."""
    _refused_gives(talk, "WMP-2.2")


@case("WMP-2.2")
def longer_forms_are_no_reason_to_die(talk: ManagerConversation) -> None:
    """Integers in a longer form than needed are accepted or refused."""
    worker = talk.met()
    head = bytes(codec.encode(Message(Command.PING, (), worker.path, {}))[0])
    # An epoch in eight bytes: the last item before the empty map.
    epoch = worker.epoch.to_bytes(2, "big")
    worker.raw(head.replace(b"\x19" + epoch, b"\x1b" + worker.epoch.to_bytes(8, "big")))
    received = worker.expect(Command.PONG, Command.ERROR)
    talk.remark(f"a longer integer is answered by {received.command.name}")


@case("WMP-2.3")
def unknown_keys(talk: ManagerConversation) -> None:
    """Unknown keys and columns are ignored."""
    worker = talk.met()
    name = talk.submit()
    give = _give(worker, 1)
    strange: dict[int | str, Any] = {
        1000: {"deep": [1, 2.5, None]},
        34: b"later",
        "application": "own",
    }
    job = worker.take_job()
    talk.submit()
    give = evolve(give, fields={**give.fields, Field.LOCK: 2, **strange})
    worker.promise(2, 1)
    worker.raw(*codec.encode(give))
    worker.expect(
        Command.TAKE,
        Command.NO,
        lock=2,
        what="the manager must ignore unknown keys and answer the GIVE",
    )
    worker.done(job)
    talk.end_of(name)


@case("WMP-2.4", profile="secure")
def wrong_types(talk: ManagerConversation) -> None:
    """A registered key with a value of the wrong type is malformed."""
    _refused_gives(talk, "WMP-2.4")


@case("WMP-2.5", profile="secure")
def no_path(talk: ManagerConversation) -> None:
    """A message whose ``from`` is not a path is refused."""
    _refused_gives(talk, "WMP-2.5")


@case("WMP-2.6", profile="secure")
def no_receiver(talk: ManagerConversation) -> None:
    """A message without its required ``to`` is refused."""
    _refused_gives(talk, "WMP-2.6")


@case("WMP-2.7", "WMP-9.6", profile="secure")
def somebody_else(talk: ManagerConversation) -> None:
    """A message for another peer is misrouted; for another epoch, superseded."""
    worker = talk.met()
    talk.means = {"WMP-7.2": "WMP-2.7"}  # an ack shows that the message was accepted
    assert worker.testee is not None
    identity, epoch = worker.testee
    talk.submit()
    give = _give(worker, 1)
    worker.promise(1, 1, hold=1e6)
    for to, code in (
        ((epoch, b"somebody"), ErrorCode.MISROUTED),
        ((epoch + 1, identity), ErrorCode.SUPERSEDED),
        ((b"\x00local", 9, b"device", epoch, identity), ErrorCode.MISROUTED),
        ((epoch - 1, identity), ErrorCode.SUPERSEDED),
    ):
        worker.raw(*codec.encode(evolve(give, to=to)))
        error = worker.expect(Command.ERROR)
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
            error.message.to == worker.path[::-1],
            f"ERROR goes to {error.message.to!r}; expected {worker.path[::-1]!r}",
            "WMP-10.2",
        )
        worker.never(Command.TAKE, Command.NO, what="the GIVE was for another peer")
    talk.check(len(worker.take()) == 1, "the next correct GIVE received NO, although a job waits")


def _done(worker: PlayedWorker, id: int, attempt: int) -> Message:
    fields: dict[int | str, Any] = {
        Field.NUMBER: worker.number + 1,
        Field.ACK: worker.received,
        Field.SESSION: worker.session,
        Field.MANAGER: worker.testee,
    }
    columns = Columns([id], [attempt], outcomes=[0], payloads=[b"refuse me"])
    return Message(Command.DONE, worker.to, worker.path, fields, columns)


def _refused_dones(talk: ManagerConversation, rule: str) -> None:
    worker = talk.met()
    talk.means = {"WMP-7.2": rule}  # an ack shows that the message was accepted
    name = talk.submit()
    job = worker.take_job()
    _refused(talk, worker, bad_columns(_done(worker, job.id, job.attempt)), rule)
    talk.not_ended(name, rule)
    worker.done(job)
    talk.end_of(name, rule="WMP-10.1")


@case("WMP-2.8", profile="secure")
def bad_columns_are_refused(talk: ManagerConversation) -> None:
    """Missing columns, columns of different lengths and columns of wrong types are refused."""
    _refused_dones(talk, "WMP-2.8")


@case("WMP-2.8")
def a_single_value(talk: ManagerConversation) -> None:
    """A single value in a column stands for k equal entries."""
    worker = talk.met()
    names = [talk.submit() for _ in range(3)]
    jobs = worker.some(3)
    head = codec.encode(_done(worker, 1, 1))[0]
    ids = bytes(job.id for job in jobs)
    payloads = b"".join(b"\x41" + bytes((65 + row,)) for row in range(3))
    columns = b"\xa4\x01\x83" + ids + b"\x02\x01\x04\x00\x05\x83" + payloads
    worker.number += 1
    for job in jobs:
        talk.book.finished.add(job.id)
    worker.raw(head, columns)
    results = [talk.end_of(name).payload for name in names]
    by_job = {job.payload.decode(): bytes((65 + row,)) for row, job in enumerate(jobs)}
    talk.check(
        results == [by_job[name] for name in names],
        f"the manager reported {results}; expected the results of DONE",
    )


@case("WMP-2.9", profile="secure")
def payload_frames(talk: ManagerConversation) -> None:
    """A message has as many payload frames as nulls."""
    _refused_dones(talk, "WMP-2.9")


@case("WMP-2.9")
def payload_outside(talk: ManagerConversation) -> None:
    """A small payload in a frame of its own is a payload like any other."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    head = codec.encode(_done(worker, job.id, job.attempt))[0]
    id = bytes((job.id,)) if job.id < 24 else b"\x18" + bytes((job.id,))
    worker.number += 1
    worker.raw(head, b"\xa4\x01\x81" + id + b"\x02\x81\x01\x04\x81\x00\x05\x81\xf6", b"outside")
    end = talk.end_of(name)
    talk.check(end.payload == b"outside", f"the result is {end.payload!r}; expected b'outside'")


@case("WMP-2.9")
def large_payloads(talk: ManagerConversation) -> None:
    """Payloads of every size arrive unchanged, large ones in frames of their own."""
    worker = talk.met()
    for size in (0, 1, 4096, 4097, 300_000):
        payload = bytes(size)
        name = talk.submit(payload)
        lock = worker.give()
        take = worker.expect(Command.TAKE, lock=lock, rule="WMP-4.3", within=2.0)
        talk.check(
            take.payloads == [payload],
            f"the payload of {size} bytes arrives changed; expected it unchanged",
        )
        if size > 4096:
            apart = len(take.frames) == 3
            talk.check(
                apart,
                f"a payload of {size} bytes is in the columns; expected a frame of its own",
                level="should",
            )
        worker.done(*worker.held.values())
        end = talk.end_of(name, within=2.0)
        talk.check(
            end.payload == payload,
            f"the result differs from the payload of {size} bytes in DONE; expected equal bytes",
        )


@case("WMP-2.10", "WMP-1.1")
def above_the_limits(talk: ManagerConversation) -> None:
    """A message beyond the limits is refused."""
    worker = talk.met()
    talk.submit()
    ready = Message(
        Command.READY,
        (),
        worker.path,
        {
            Field.READY: 1,
            Field.CREDIT: 1,
            Field.ROLES: ["echo"],
            Field.RESOURCES: {"slots": 1},
        },
    )
    bad = list(too_much(ready))
    for bad_message in bad:
        if message := _message(bad_message):
            worker.receives_at(message.source)
    for rule in ("WMP-2.10", "WMP-1.1"):
        _refused(talk, worker, bad, rule)


def _message(bad: BadMessage) -> Message | None:
    try:
        return codec.decode(bad.frames, CodecLimits(hops=99, identity=999))
    except DecodeError:
        return None


@case("WMP-10.1")
def garbage(talk: ManagerConversation) -> None:
    """The manager survives noise."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    ready: dict[int | str, Any] = {4: 1, 5: 1, 7: ["still"], 8: {"slots": 1}}
    good = _done(worker, job.id, job.attempt)
    for frames in noise_around(good, Message(Command.READY, (), worker.path, ready)):
        worker.raw(*frames)
    talk.settle()
    talk.not_ended(name)
    worker.done(job)
    talk.end_of(name, within=2.0)


@case("WMP-10.1", "WMP-2.1", "WMP-2.4", "WMP-2.6", "WMP-2.7")
def what_is_not_for_it(talk: ManagerConversation) -> None:
    """A message that is unreadable, or for another peer, changes nothing."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    talk.submit()
    for good in (_give(worker, 2), _done(worker, job.id, job.attempt)):
        for bad in meaningless(good):
            talk.remark(f"{bad.what}:")
            worker.raw(*bad.frames)
        for other in misaddressed(good):
            worker.raw(*codec.encode(other))
    for message in _for_workers(worker):
        worker.raw(*codec.encode(message))
    worker.never(
        Command.TAKE,
        Command.NO,
        Command.WAKE,
        what="a message that is malformed or for another peer has no effect",
    )
    talk.not_ended(name)
    worker.done(job)
    talk.end_of(name)
    lock = worker.give(lock=2)
    talk.check(
        len(worker.taken(lock)) == 1, "the next correct GIVE received NO, although a job waits"
    )


@case("WMP-10.2")
def errors_find_their_way(talk: ManagerConversation) -> None:
    """ERROR follows the reversed ``from``, or goes to the neighbor if ``from`` is unreadable."""
    worker = talk.met(hops=(b"device", 3, b"\x00\x01\x02"))
    worker.send(Command.PING, to=(1, b"somebody"), source=worker.path, session=None, ack=None)
    error = worker.expect(Command.ERROR)
    talk.check(
        error.message.to == worker.path[::-1],
        f"ERROR goes to {error.message.to!r}; expected {worker.path[::-1]!r}",
    )
    worker.raw(b"not a message")
    error = worker.expect(Command.ERROR)
    talk.check(not error.message.to, f"ERROR goes to {error.message.to!r}; expected no receiver")


@case("WMP-10.3")
def errors_are_not_answered(talk: ManagerConversation) -> None:
    """No ERROR is answered by ERROR, not even a malformed one."""
    worker = talk.met()
    worker.provoke_by_errors(Command.GIVE)


@case("WMP-10.4")
def command_version_direction(talk: ManagerConversation) -> None:
    """Unknown commands, other versions and workers' commands get codes of their own."""
    _refused_gives(talk, "WMP-10.4")
    worker = talk.met()
    for message in _for_workers(worker):
        worker.raw(*codec.encode(message))
        error = worker.expect(Command.ERROR)
        name = message.command.name
        talk.check(
            error["code"] == ErrorCode.DIRECTION,
            f"the answer to {name} is ERROR {error['code']!r}; expected 'direction'",
        )


def _for_workers(worker: PlayedWorker) -> list[Message]:
    stream: dict[int | str, Any] = {Field.NUMBER: 1, Field.SESSION: 1}
    wake: dict[int | str, Any] = {Field.COUNT: 1, Field.ROLE: "echo", Field.NEEDS: {"slots": 1}}
    manager: dict[int | str, Any] = {**stream, Field.MANAGER: worker.testee}
    return [
        Message(Command.WAKE, worker.to, worker.path, wake),
        Message(Command.NO, worker.to, worker.path, {**stream, Field.LOCK: 1}),
        Message(Command.CANCEL, worker.to, worker.path, manager, Columns([1], [1])),
        Message(Command.PONG, worker.to, worker.path, {Field.MAX_SILENCE: 6000, Field.SESSION: 1}),
    ]


@case("WMP-10.5")
def another_owner(talk: ManagerConversation) -> None:
    """A DONE for another owner, for which the manager does not forward, gets ERROR unknown."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    columns = Columns([job.id], [job.attempt], outcomes=[0], payloads=[b"somebody's"])
    worker.send(Command.DONE, columns, manager=(b"somebody", 1))
    error = worker.expect(Command.ERROR)
    talk.check(
        error["code"] == ErrorCode.UNKNOWN, f"ERROR has code {error['code']!r}; expected 'unknown'"
    )
    talk.not_ended(name)
    worker.done(job)
    talk.end_of(name)


@case("WMP-10.5")
def a_job_never_given_out(talk: ManagerConversation) -> None:
    """A DONE entry of a job that was never granted gets ERROR unknown; other entries count."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    columns = Columns(
        [job.id + 1000, job.id],
        [1, job.attempt],
        outcomes=[0, 0],
        payloads=[b"nobody's", b"mine"],
    )
    talk.book.finished.add(job.id)
    worker.send(Command.DONE, columns, manager=worker.testee)
    error = worker.expect(Command.ERROR)
    talk.check(
        error["code"] == ErrorCode.UNKNOWN, f"ERROR has code {error['code']!r}; expected 'unknown'"
    )
    end = talk.end_of(name)
    talk.check(end.payload == b"mine", f"the result is {end.payload!r}; expected b'mine'")


@case("WMP-10.6")
def unknown_code(talk: ManagerConversation) -> None:
    """An ERROR with an unknown code is ignored."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    worker.error("of a later version", about_peer=(worker.identity, worker.epoch))
    worker.error("of a later version", about_peer=worker.testee)
    worker.never(Command.ERROR, what="no ERROR may be answered by ERROR", rule="WMP-10.3")
    worker.done(job)
    talk.end_of(name)


@case("WMP-12.3")
def nothing_is_evaluated(talk: ManagerConversation) -> None:
    """Tags that would construct something are refused."""
    _refused_gives(talk, "WMP-12.3")
