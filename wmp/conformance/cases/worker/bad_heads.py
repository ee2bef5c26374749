"""How far a worker reads a bad head (section 10)."""

from __future__ import annotations

from attrs import evolve

from wmp import codec
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.script.case import case
from wmp.conformance.wire.bad_messages import half_read
from wmp.message import Command, ErrorCode, Field


@case("WMP-10.2", profile="secure")
def sender_of_a_bad_head(talk: WorkerConversation) -> None:
    """ERROR about a head whose ``from`` can be read goes along the reversed ``from``."""
    manager = talk.met()
    for bad in half_read(manager.compose_wake(1)):
        talk.remark(f"{bad.what}:")
        manager.raw(*bad.frames)
        error = manager.expect(Command.ERROR)
        talk.check(
            error.message.to == manager.path[::-1],
            f"the ERROR about {bad.what} goes to {error.message.to!r}; expected "
            f"{manager.path[::-1]!r}, because its 'from' can be read",
        )


@case("WMP-10.7", profile="secure")
def number_of_a_bad_head(talk: WorkerConversation) -> None:
    """ERROR about a NO with one wrong field names the session and number of the NO."""
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    no = manager.compose_no(lock.number)
    manager.raw(*codec.encode(evolve(no, fields={**no.fields, Field.ROLES: 7})))
    error = manager.expect(Command.ERROR, code=ErrorCode.MALFORMED)
    subject = error["session"], error["about"], error["about_number"]
    expected = manager.session, int(Command.NO), manager.number + 1
    text = f"ERROR names (session, about, about number) {subject}; expected {expected}"
    talk.check(subject == expected, text)
    (job,) = manager.take(lock.number, b"still there?")
    manager.done_of(job, rule="WMP-7.1")


@case("WMP-18.1", "WMP-10.4")
def versions(talk: WorkerConversation) -> None:
    """ERROR version names the versions that the worker reads, and is of version 1."""
    manager = talk.met()
    head, *rest = codec.encode(manager.compose_wake(1))
    manager.raw(b"\x85\x02" + bytes(head)[2:], *rest)
    error = manager.expect(Command.ERROR, rule="WMP-10.2")
    text = f"ERROR has code {error['code']!r}; expected 'version'"
    talk.check(error["code"] == ErrorCode.VERSION, text, "WMP-10.4")
    named = list(error["versions"] or ())
    talk.check(
        named == sorted(set(named)) and 1 in named and 2 not in named,
        f"ERROR names the versions {named}; expected an ascending list with 1 and without 2",
    )
