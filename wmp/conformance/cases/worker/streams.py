"""Numbered streams and sessions (section 7), as tests of a worker."""

from __future__ import annotations

from wmp.conformance.cases.worker.handshake import slowly
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.script.case import case
from wmp.message import Command


@case("WMP-7.1")
def duplicate_is_dropped(talk: WorkerConversation) -> None:
    """A TAKE that arrives twice is handled once."""
    talk.means = {"WMP-6.6": "WMP-7.1"}
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(b"once")
    take = manager.number
    manager.repeat(take)
    manager.done_of(job)
    manager.repeat(take)
    manager.never(
        Command.DONE, again=False, during=1.0, what="the worker has already run this TAKE"
    )
    (job,) = manager.run(b"twice")
    manager.repeat(take)
    manager.done_of(job)


@case("WMP-7.1")
def gap_is_asked_for_once(talk: WorkerConversation) -> None:
    """A number behind a gap is dropped and answered by PING with ``again``, once for each gap."""
    talk.means = {"WMP-7.2": "WMP-7.1"}  # an ack shows that a message was accepted
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    number = manager.number
    for ahead in (2, 3):
        manager.take(999, b"behind the gap", ids=[90 + ahead], number=number + ahead)
    manager.lose("WMP-7.1", 92, 93)
    ping = manager.expect(Command.PING, where=lambda received: bool(received["again"]))
    talk.check(ping["ack"] == number, f"PING has ack {ping['ack']}; expected {number}")
    manager.never(
        Command.PING,
        where=lambda received: bool(received["again"]),
        what="the worker has already reported this gap",
    )
    manager.never(Command.DONE, what="the worker must drop a TAKE whose number is behind a gap")
    (job,) = manager.take(lock.number, b"in order", ids=[50])
    answer = manager.done_of(job)
    talk.check(
        answer == b"in order", f"the result of role echo is {answer!r}; expected the payload"
    )


@case("WMP-7.2")
def acks_are_reported(talk: WorkerConversation) -> None:
    """Every message of the worker to a manager carries the ack of the manager's messages."""
    manager, _ = talk.met(), talk.met()
    for _ in range(3):
        (job,) = manager.run()
        done = manager.expect(Command.DONE, where=lambda h, job=job: h.jobs[0][0] == job)  # type: ignore[misc]
        talk.check(
            done["ack"] == manager.number,
            f"DONE has ack {done['ack']}; expected {manager.number}",
            level="" if done["ack"] is None else "must",
        )


@case("WMP-7.3")
def sent_again_when_asked(talk: WorkerConversation) -> None:
    """Unacknowledged messages are sent again from ack + 1 after ``again``."""
    manager, _ = talk.met(), talk.met()
    manager.ack_override = 0
    (job,) = manager.run(b"question")
    manager.done_of(job)
    manager.pong(again=True)
    manager.expect(Command.DONE, again=True, number=1)


@case("WMP-7.3", "WMP-9.12")
def sent_again_on_a_new_route(talk: WorkerConversation) -> None:
    """Unacknowledged messages are sent again when the route changes."""
    manager, _ = talk.met(), talk.met()
    manager.ack_override = 0
    (job,) = manager.run(b"question")
    manager.done_of(job)
    manager.move(hops=(b"another", 9, 4))
    manager.pong()
    done = manager.expect(Command.DONE, again=True, number=1)
    talk.check(
        done.message.to == manager.path[::-1],
        f"DONE goes to {done.message.to!r}; expected {manager.path[::-1]!r}",
    )


@case("WMP-7.3")
def sent_again_with_age(talk: WorkerConversation) -> None:
    """Unacknowledged messages are sent again after ``resend``, until they are acknowledged."""
    manager, _ = talk.met(), talk.met()
    manager.ack_override = 0
    (job,) = manager.run(b"question")
    manager.done_of(job)
    manager.expect(Command.DONE, again=True, number=1, within=3.5 + talk.wire.grace)
    manager.ack_override = None
    manager.pong()
    manager.clear()
    manager.never(Command.DONE, during=4.0, what="the manager has acknowledged the DONE")


@case("WMP-7.4")
def ack_of_the_future(talk: WorkerConversation) -> None:
    """An ack of a number that was never sent is ignored; later messages are kept."""
    manager, _ = talk.met(), talk.met()
    manager.ack_override = 99
    manager.pong()
    manager.ack_override = 0
    (job,) = manager.run(b"question")
    manager.done_of(job)
    manager.ack_override = 99
    manager.pong()
    manager.ack_override = 0
    manager.pong(again=True)
    manager.expect(Command.DONE, again=True, number=1)


@case("WMP-7.6")
def newer_session(talk: WorkerConversation) -> None:
    """A newer session ends the old one: its jobs get no DONE, its locks are free."""
    manager, other = talk.met(), talk.met()
    manager.run(slowly(talk, 1.0 + 3 * talk.wire.grace), role="slow")
    talk.wait(0.2)
    manager.new_session()
    manager.pong()
    manager.never(
        Command.DONE,
        during=3.0 + 3 * talk.wire.grace,
        what="the job belongs to an ended session",
    )
    manager.run(b"of the new session")
    done = manager.expect(Command.DONE)
    talk.check(
        done["session"] == manager.session,
        f"DONE names session {done['session']}; expected {manager.session}",
    )
    talk.check(
        done["number"] == 1,
        f"the first DONE of the new session has number {done['number']}; expected 1",
    )
    lock = manager.woken(1)
    manager.new_session()
    manager.pong()
    talk.check(
        lock.number not in manager.locks, "the kit kept a lock; report this as a fault of the kit"
    )
    other.wake(1)
    other.lock(what="the session of the other manager ended, which released its lock")


@case("WMP-7.6")
def older_session(talk: WorkerConversation) -> None:
    """A message of an older session is dropped."""
    talk.means = {"WMP-7.2": "WMP-7.6"}  # an ack shows that a message was accepted
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run()
    manager.done_of(job)
    manager.new_session()
    manager.pong()
    manager.take(999, b"from before", ids=[77], session=manager.session - 1, number=1, ack=0)
    manager.lose("WMP-7.6", 77)
    manager.never(Command.DONE, during=1.0, what="the TAKE belongs to an ended session")
    (job,) = manager.run(b"of the new session", ids=[78])
    manager.done_of(job)


@case("WMP-7.6")
def an_ack_of_an_older_session(talk: WorkerConversation) -> None:
    """The ack of an older session has no effect: the DONE is sent again."""
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run()
    manager.done_of(job)
    manager.new_session()
    manager.pong()
    manager.ack_override = 0
    (job,) = manager.run(b"of the new session", ids=[78])
    manager.expect(Command.DONE, number=1)
    manager.pong(session=manager.session - 1, ack=1)
    manager.expect(
        Command.DONE,
        again=True,
        number=1,
        within=3.5 + talk.wire.grace,
        what="only an ack of an older session has acknowledged the DONE",
    )


@case("WMP-7.8", "WMP-7.16")
def forgotten_session(talk: WorkerConversation) -> None:
    """A number above 1 from an unknown manager gets PING without session, and nothing else."""
    known = talk.met()
    stranger = talk.manager("stranger")
    stranger.number = 4
    stranger.take(999, b"whose?", ids=[9])
    stranger.lose("WMP-7.16", 9)
    ping = stranger.expect(Command.PING, where=lambda received: bool(received.message.to))
    talk.check(ping["session"] is None, f"PING names session {ping['session']}; expected none")
    stranger.never(
        Command.DONE,
        during=1.0,
        rule="WMP-7.16",
        what="the worker knows no session of this manager and must drop the TAKE",
    )
    stranger.new_session()
    stranger.pong()
    stranger.echoes("WMP-7.8", within=12.0)
    talk.check(
        known.testee == stranger.testee,
        "two managers received messages of two identities; expected one worker",
        "WMP-1.1",
    )


@case("WMP-7.8", profile="liveness")
def no_way_back(talk: WorkerConversation) -> None:
    """A worker that has forgotten a session with used numbers does not enter that session again."""
    manager, other = talk.met(), talk.met()
    (job,) = manager.run()
    manager.done_of(job)
    manager.answers = False
    talk.wait(manager.max_silence + 1.0 + 2 * talk.wire.grace)
    talk.check(other.answers, "the kit stopped a manager; report this as a fault of the kit")
    manager.clear()
    manager.pong()
    ping = manager.expect(Command.PING, where=lambda received: bool(received.message.to))
    talk.check(
        ping["session"] is None,
        f"PING names session {ping['session']}; expected none, because the worker forgot it",
    )
    manager.take(999, b"do not", ids=[40])
    manager.pong()
    manager.take(999, b"do not", ids=[41])
    manager.lose("WMP-7.8", 40, 41)
    manager.never(
        Command.DONE,
        again=False,
        during=1.5,
        what="the worker has forgotten the session and must drop the TAKE",
    )
    manager.never(
        Command.PING,
        where=lambda received: received["session"] == manager.session,
        what="the worker must not enter a session again that it has forgotten",
    )
    manager.new_session()
    manager.answers = True
    manager.pong()
    manager.echoes(within=12.0)


@case("WMP-7.9")
def results_are_kept(talk: WorkerConversation) -> None:
    """A DONE is kept until its ack, however long that takes."""
    manager, _ = talk.met(), talk.met()
    manager.ack_override = 0
    (job,) = manager.run(b"keep me")
    manager.done_of(job)
    talk.wait(10.0)
    manager.clear()
    manager.pong(again=True)
    done = manager.expect(Command.DONE, again=True, number=1)
    talk.check(
        done.payloads == [b"keep me"],
        f"DONE was sent again with {done.payloads}; expected [b'keep me']",
    )


@case("WMP-7.10")
def no_session_yet(talk: WorkerConversation) -> None:
    """A worker names no session before it has entered one; it enters by the PONG to its PING."""
    talk.met()
    stranger = talk.manager("stranger", answers=False)
    stranger.wake(1, session=None, ack=None)
    talk.settle()
    for received in stranger.received_all:
        named = received["session"] is not None or received["ack"] is not None
        talk.check(not named, f"{received.command.name} names a session that no message opened")
    stranger.session = 5
    for _ in range(2):
        # The first PONG may answer no PING. The worker then sends PING, and the next PONG answers.
        stranger.pong()
        stranger.wait_for(
            Command.PING, within=1.5, where=lambda received: bool(received.message.to)
        )
    stranger.expect(
        Command.PING,
        within=3.0 + talk.wire.grace,
        where=lambda received: received["session"] == 5,
        what="PONG names session 5",
    )


@case("WMP-7.10")
def first_number_of_all(talk: WorkerConversation) -> None:
    """A worker enters the session of a message with the number 1, and answers its jobs."""
    talk.means = {"WMP-6.6": "WMP-7.10"}
    talk.met()
    stranger = talk.manager("stranger")
    (job,) = stranger.take(999, b"first of all")
    stranger.done_of(job, None, within=2.0 + talk.wire.grace, rule="WMP-7.10")


@case("WMP-7.10")
def a_pong_with_an_ack(talk: WorkerConversation) -> None:
    """After a PING without session the next PONG leads into its session, whatever its ack is."""
    talk.met()
    stranger = talk.manager("stranger", answers=False)
    stranger.session = 5
    stranger.pong(ack=7)
    stranger.wait_for(Command.PING, within=1.5, where=lambda received: bool(received.message.to))
    stranger.pong(ack=7)
    stranger.expect(
        Command.PING,
        within=3.0 + talk.wire.grace,
        where=lambda received: received["session"] == 5,
        what="PONG names session 5, and its ack is ignored",
    )
