"""Numbered streams and sessions (section 7), as tests of a manager."""

from __future__ import annotations

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case
from wmp.message import Columns, Command


@case("WMP-7.1", "WMP-6.3")
def duplicate_is_dropped(talk: ManagerConversation) -> None:
    """A number that was received before is dropped, whatever its message is."""
    talk.means = {"WMP-7.2": "WMP-7.1"}  # an ack shows that a message was accepted
    worker = talk.met()
    first, second = talk.submit(), talk.submit()
    jobs = worker.some(2)
    by_name = {job.payload.decode(): job for job in jobs}
    worker.done(by_name[first])
    talk.end_of(first)
    worker.repeat()
    job = by_name[second]
    columns = Columns([job.id], [job.attempt], outcomes=[0], payloads=[b"not counted"])
    worker.send(Command.DONE, columns, manager=worker.testee, number=worker.number)
    talk.settle()
    talk.not_ended(second)
    worker.done(job)
    end = talk.end_of(second)
    talk.check(
        end.payload == job.payload, f"the result is {end.payload!r}; expected {job.payload!r}"
    )


@case("WMP-7.1")
def gap_is_asked_for_once(talk: ManagerConversation) -> None:
    """A number behind a gap is dropped and answered by PONG with ``again``, once for each gap."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    columns = Columns([job.id], [job.attempt], outcomes=[0], payloads=[b"behind the gap"])
    for number in (3, 4):
        worker.send(Command.DONE, columns, manager=worker.testee, number=number)
    pong = worker.expect(Command.PONG, where=lambda received: bool(received["again"]))
    talk.check(
        pong["ack"] == 0, f"PONG has ack {pong['ack']}; expected 0, because number 1 is missing"
    )
    worker.never(
        Command.PONG,
        where=lambda received: bool(received["again"]),
        what="the manager has already reported this gap",
    )
    talk.not_ended(name)
    worker.done(job, payloads=[b"in order"])
    end = talk.end_of(name)
    talk.check(end.payload == b"in order", f"the result is {end.payload!r}; expected b'in order'")


@case("WMP-7.2")
def acks_are_reported(talk: ManagerConversation) -> None:
    """Every message of the manager to a worker carries the ack of the worker's messages."""
    worker = talk.met()
    for count in range(1, 4):
        talk.submit()
        worker.done(*worker.take())
        pong = worker.ask()
        # An ack may be absent: only an ack that is too low makes a worker keep and repeat results.
        talk.check(
            pong["ack"] == count,
            f"PONG has ack {pong['ack']}; expected {count}",
            level="" if pong["ack"] is None else "must",
        )
        worker.clear()


@case("WMP-7.3")
def sent_again_on_a_new_route(talk: ManagerConversation) -> None:
    """Unacknowledged messages are sent again, in order, when the route changes."""
    worker = talk.met()
    worker.ack_override = 0
    worker.give(1, roles=["nothing"])
    worker.expect(Command.NO)
    talk.submit()
    job = worker.take_job()
    worker.move(talk.wire.dial())
    worker.ping()
    worker.expect(Command.NO, again=True, number=1)
    worker.expect(Command.TAKE, again=True, number=job.number)


@case("WMP-7.3")
def sent_again_when_asked(talk: ManagerConversation) -> None:
    """Unacknowledged messages are sent again from ack + 1 after ``again``."""
    worker = talk.met()
    worker.ack_override = 0
    talk.submit()
    worker.take()
    worker.ping(again=True)
    worker.expect(Command.TAKE, again=True, number=1)


@case("WMP-7.3", "WMP-7.4")
def sent_again_with_age(talk: ManagerConversation) -> None:
    """Unacknowledged messages are sent again after ``resend``; an ack of the future is ignored."""
    worker = talk.met()
    worker.ack_override = 99
    worker.ping()
    worker.ack_override = 0
    talk.submit()
    worker.take()
    worker.ack_override = 50
    worker.ping()
    worker.ack_override = 0
    worker.expect(Command.TAKE, again=True, number=1, within=3.5 + talk.wire.grace, rule="WMP-7.3")
    worker.ack_override = None
    worker.ping()
    worker.clear()
    worker.never(Command.TAKE, Command.NO, during=4.0, what="the worker has acknowledged the TAKE")


@case("WMP-7.4")
def ack_of_the_future(talk: ManagerConversation) -> None:
    """An ack of a number that was never sent is ignored; later messages are kept."""
    worker = talk.met()
    worker.ack_override = 99
    worker.ping()
    worker.ack_override = 0
    talk.submit()
    worker.take()
    worker.ack_override = 99
    worker.ping()
    worker.ack_override = 0
    worker.ping(again=True)
    worker.expect(Command.TAKE, again=True, number=1)


@case("WMP-7.5")
def forgotten_session(talk: ManagerConversation) -> None:
    """PING with ``to`` and without session opens a new session; leases of the old one are lost."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=5)
    worker.take()
    old = worker.session
    worker.forget_manager()
    # An earlier PONG may still be on its way.
    worker.expect(
        Command.PONG,
        where=lambda pong: pong["session"] > old,
        what=f"a PING without a session opens a session after {old}",
    )
    (again,) = other.take() or (None,)
    talk.check(
        again is not None,
        "another worker received NO; expected the job, because the session of its lease has ended",
    )
    if again is not None:
        other.done(again)
        talk.end_of(name)
    worker.give()
    answer = worker.expect(Command.NO, rule="WMP-4.4")
    talk.check(
        answer["number"] == 1,
        f"the first message of the new session has number {answer['number']}; expected 1",
    )


@case("WMP-7.5", "WMP-9.7")
def session_of_a_newer_epoch(talk: ManagerConversation) -> None:
    """A newer epoch of a worker gets a new session."""
    worker = talk.met()
    old = worker.session
    worker.restart()
    pong = worker.meet()
    talk.check(
        pong["session"] > old, f"PONG names session {pong['session']}; expected more than {old}"
    )


@case("WMP-7.7")
def other_session(talk: ManagerConversation) -> None:
    """A DONE of another session is dropped, and answered by PONG with the current session."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    columns = Columns([job.id], [job.attempt], outcomes=[0], payloads=[b"of another session"])
    worker.clear()
    worker.send(
        Command.DONE, columns, manager=worker.testee, session=worker.session + 7, number=1, ack=0
    )
    pong = worker.expect(Command.PONG)
    talk.check(
        pong["session"] == worker.session,
        f"PONG names session {pong['session']}; expected {worker.session}",
    )
    talk.not_ended(name)
    worker.done(job)
    talk.end_of(name)
