"""Messages that never pass (sections 7 and 10), as tests of a worker."""

from __future__ import annotations

from typing import Any

from wmp import codec
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.peers.played_manager import PlayedManager
from wmp.conformance.script.case import case
from wmp.message import Columns, Command, ErrorCode, Field, Message, Outcome


def _unanswered(talk: WorkerConversation) -> tuple[PlayedManager, int]:
    """Return a manager that acknowledges nothing, and the job that the worker has answered."""
    manager, _ = talk.met(), talk.met()
    manager.ack_override = 0
    (job,) = manager.run(b"question")
    return manager, job


def _lost(talk: WorkerConversation, manager: PlayedManager, job: int, within: float) -> None:
    """Check that the DONE of a job has become DONE `lost` under its number."""
    done = manager.expect(
        Command.DONE,
        again=True,
        number=1,
        within=within,
        where=lambda received: received.outcomes == [Outcome.LOST],
        what="the manager refuses the result",
    )
    talk.check(done.jobs == [(job, 1)], f"DONE 1 has jobs {done.jobs}; expected [({job}, 1)]")


@case("WMP-7.14")
def refused_result(talk: WorkerConversation) -> None:
    """A DONE that its manager refuses becomes DONE `lost` under the same number."""
    manager, job = _unanswered(talk)
    done = manager.expect(Command.DONE, number=1)
    manager.refuse(done)
    _lost(talk, manager, job, talk.wire.grace)
    manager.ack_override = None
    manager.echoes("WMP-7.14")


@case("WMP-7.15")
def refused_twice(talk: WorkerConversation) -> None:
    """A worker whose other message is refused too forgets the session, and requests another."""
    manager, job = _unanswered(talk)
    done = manager.expect(Command.DONE, number=1)
    manager.refuse(done)
    _lost(talk, manager, job, talk.wire.grace)
    manager.clear()
    manager.answers = False
    manager.refuse(done)
    manager.expect(
        Command.PING,
        where=lambda received: bool(received.message.to) and received["session"] is None,
        what="the worker must forget the session",
    )
    manager.new_session()
    manager.answers = True
    manager.ack_override = None
    manager.pong()
    manager.echoes("WMP-7.15", within=12.0)


@case("WMP-7.12")
def result_without_ack(talk: WorkerConversation) -> None:
    """A DONE that was sent again ten times without an ack becomes DONE `lost`."""
    manager, job = _unanswered(talk)
    manager.expect(Command.DONE, number=1)
    manager.differs(1)
    _lost(talk, manager, job, 40.0 + 4 * talk.wire.grace)


@case("WMP-10.7")
def unreadable_take(talk: WorkerConversation) -> None:
    """ERROR about an unreadable TAKE names its session and number; the number stays open."""
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    number = manager.number + 1
    fields: dict[int | str, Any] = {
        Field.NUMBER: number,
        Field.ACK: manager.received,
        Field.SESSION: manager.session,
        Field.ROLE: "echo",
        Field.NEEDS: {"slots": 1},
        Field.LOCK: lock.number,
        Field.MANAGER: manager.peer,
    }
    columns = Columns([900], [1], payloads=[b"refuse me"])
    take = Message(Command.TAKE, manager.to, manager.path, fields, columns)
    manager.lose("WMP-10.7", 900)
    manager.raw(codec.encode(take)[0], b"\xa0")
    error = manager.expect(Command.ERROR, code=ErrorCode.MALFORMED)
    subject = error["session"], error["about"], error["about_number"]
    expected = manager.session, int(Command.TAKE), number
    text = f"ERROR names (session, about, about number) {subject}; expected {expected}"
    talk.check(subject == expected, text)
    (job,) = manager.take(lock.number, b"still there?")
    manager.done_of(job, rule="WMP-7.1")


@case("WMP-7.12")
def the_count_belongs_to_the_stream(talk: WorkerConversation) -> None:
    """An ack starts the count of repeats anew for the messages behind the acknowledged one."""
    manager, first = _unanswered(talk)
    manager.done_of(first)
    (second,) = manager.run(b"second question")
    manager.done_of(second)
    talk.means = {"WMP-7.1": "WMP-7.12"}
    for repeats, rule in ((6, "WMP-7.3"), (7, "WMP-7.12")):
        for _ in range(repeats):
            manager.pong(again=True)
            manager.expect(Command.DONE, again=True, number=2, rule=rule, what="PONG has 'again'")
            manager.clear()
        manager.ack_override = 1
    talk.means = {}
    manager.ack_override = None
    manager.echoes("WMP-7.12")


@case("WMP-7.11", "WMP-15.8")
def refusals_that_do_not_count(talk: WorkerConversation) -> None:
    """ERROR counts only with session, number and command of the refused message."""
    manager, job = _unanswered(talk)
    manager.done_of(job)
    talk.means = {"WMP-7.1": "WMP-7.11"}
    right = {"session": manager.session, "about": int(Command.DONE), "about_number": 1}
    for wrong in (
        {"session": manager.session + 7},
        {"about": int(Command.STATUS)},
        {"about_number": 2},
        {"about_peer": (b"somebody", 7)},
    ):
        manager.error(ErrorCode.LIMIT, **{**right, **wrong})
    manager.pong(again=True)
    done = manager.expect(Command.DONE, again=True, number=1, rule="WMP-7.3")
    talk.check(done.outcomes == [Outcome.OK], f"DONE was sent again with {done.outcomes}")
    talk.means = {}
    manager.ack_override = None
    manager.echoes("WMP-7.11")
