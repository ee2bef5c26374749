"""How far a manager reads a bad head (section 10)."""

from __future__ import annotations

from attrs import evolve

from wmp import codec
from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case
from wmp.conformance.wire.bad_messages import half_read
from wmp.message import Columns, Command, ErrorCode, Field


@case("WMP-10.2", profile="secure")
def sender_of_a_bad_head(talk: ManagerConversation) -> None:
    """ERROR about a head whose ``from`` can be read goes along the reversed ``from``."""
    worker = talk.met()
    for bad in half_read(worker.compose_give(1)):
        talk.remark(f"{bad.what}:")
        worker.raw(*bad.frames)
        error = worker.expect(Command.ERROR)
        talk.check(
            error.message.to == worker.path[::-1],
            f"the ERROR about {bad.what} goes to {error.message.to!r}; expected "
            f"{worker.path[::-1]!r}, because its 'from' can be read",
        )


@case("WMP-10.7", profile="secure")
def number_of_a_bad_head(talk: ManagerConversation) -> None:
    """ERROR about a DONE with one wrong field names the session and number of the DONE."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    columns = Columns([job.id], [job.attempt], outcomes=[0], payloads=[b"refuse me"])
    done = worker.compose(Command.DONE, columns, manager=job.owner)
    frames = codec.encode(evolve(done, fields={**done.fields, Field.CODEC: 7}))
    worker.raw(*frames)
    error = worker.expect(Command.ERROR, code=ErrorCode.MALFORMED)
    subject = error["session"], error["about"], error["about_number"]
    expected = worker.session, int(Command.DONE), worker.number + 1
    text = f"ERROR names (session, about, about number) {subject}; expected {expected}"
    talk.check(subject == expected, text)
    talk.not_ended(name)
    worker.done(job)
    talk.end_of(name, rule="WMP-7.1")


@case("WMP-18.1", "WMP-10.4")
def versions(talk: ManagerConversation) -> None:
    """ERROR version names the versions that the manager reads, and is of version 1."""
    worker = talk.met()
    head, *rest = codec.encode(worker.compose_give(1))
    worker.raw(b"\x85\x02" + bytes(head)[2:], *rest)
    error = worker.expect(Command.ERROR, rule="WMP-10.2")
    text = f"ERROR has code {error['code']!r}; expected 'version'"
    talk.check(error["code"] == ErrorCode.VERSION, text, "WMP-10.4")
    named = list(error["versions"] or ())
    talk.check(
        named == sorted(set(named)) and 1 in named and 2 not in named,
        f"ERROR names the versions {named}; expected an ascending list with 1 and without 2",
    )
