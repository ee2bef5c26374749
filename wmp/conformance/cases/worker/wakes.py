"""WAKEs that a worker can never serve, and jobs that come twice (sections 3 and 4)."""

from __future__ import annotations

from typing import Any

from wmp import codec
from wmp.conformance.cases.worker.handshake import slowly
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.peers.offered_lock import GivenJob
from wmp.conformance.script.case import case
from wmp.message import Columns, Command, Field, Message


def _in_vain(talk: WorkerConversation, **fields: Any) -> None:
    manager, _ = talk.met(), talk.met()
    manager.clear()
    manager.wake(1, **fields)
    manager.expect(
        Command.READY,
        credit=0,
        where=lambda received: bool(received.message.to),
        what="the worker can never do the jobs of the WAKE",
    )
    for received in manager.inbox:
        gives = received.command is Command.GIVE and bool(received["want"]) and not received["hold"]
        talk.check(not gives, "GIVE answers a WAKE whose jobs the worker can never do")
    (job,) = manager.run(b"still there?")
    manager.done_of(job)


@case("WMP-3.9")
def role_never_offered(talk: WorkerConversation) -> None:
    """A WAKE for a role that the worker does not offer is answered by READY of credit 0."""
    _in_vain(talk, role="nobody's")


@case("WMP-3.9")
def needs_that_never_fit(talk: WorkerConversation) -> None:
    """A WAKE for needs above the resources is answered by READY of credit 0."""
    _in_vain(talk, needs={"slots": 1 << 20})


@case("WMP-3.9")
def an_older_wake_stays(talk: WorkerConversation) -> None:
    """A WAKE that the worker can never serve does not replace a pending WAKE."""
    first, second = talk.met(), talk.met()
    each = 2.0 + 4 * talk.wire.grace
    (job,) = first.run(slowly(talk, each), role="slow")
    second.clear()
    second.wake(1)
    received = second.wait_for(
        Command.READY, where=lambda received: received["credit"] == 0, within=talk.wire.grace
    )
    if received is None:
        talk.unimplemented("the worker has a window, and so always capacity")
    second.wake(1, role="nobody's")
    first.done_of(job, within=each + talk.wire.grace)
    second.lock(1.0 + 2 * talk.wire.grace, what="the older WAKE is pending")


@case("WMP-4.14", "WMP-6.6")
def one_job_twice_in_a_take(talk: WorkerConversation) -> None:
    """If a TAKE has two entries with one id, the higher attempt counts, and is answered once."""
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    fields: dict[int | str, Any] = {
        Field.NUMBER: manager.number + 1,
        Field.ACK: manager.received,
        Field.SESSION: manager.session,
        Field.ROLE: "echo",
        Field.NEEDS: {"slots": 1},
        Field.LOCK: lock.number,
        Field.MANAGER: manager.peer,
    }
    columns = Columns([5, 5], [2, 1], payloads=[b"twice", b"twice"])
    manager.number += 1
    manager.expects(5, b"twice")
    manager.given[manager.peer, 5] = GivenJob(5, 2, b"twice", True, {"slots": 1})
    manager.raw(*codec.encode(Message(Command.TAKE, manager.to, manager.path, fields, columns)))
    manager.done_of(5)
    manager.never(Command.DONE, during=1.0, again=False, what="the job is answered already")
