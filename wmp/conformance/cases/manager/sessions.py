"""Messages of another session, and messages that never pass (section 7), for a manager."""

from __future__ import annotations

from wmp import codec
from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case
from wmp.message import Columns, Command, ErrorCode


@case("WMP-7.7")
def a_give_of_another_session(talk: ManagerConversation) -> None:
    """A GIVE that names another session is served in the current session."""
    worker = talk.met()
    talk.submit()
    lock = worker.give(1, session=worker.session + 7)
    jobs = worker.taken(lock, rule="WMP-7.7")
    talk.check(len(jobs) == 1, "the GIVE received no job, although a job waits")


@case("WMP-7.7", "WMP-9.13")
def a_list_of_another_session(talk: ManagerConversation) -> None:
    """The ack and the list of a PING that names another session have no effect."""
    worker, other = talk.met(), talk.met()
    name = talk.submit()
    job = worker.take_job()
    talk.means = {"WMP-6.4": "WMP-7.7"}  # the list would end the lease of a worker
    worker.inbox.clear()
    worker.send(Command.PING, idle=True, session=worker.session + 7, ack=worker.received)
    pong = worker.expect(Command.PONG, rule="WMP-9.2")
    talk.check(
        pong["session"] == worker.session,
        f"PONG names session {pong['session']}; expected the current session {worker.session}",
    )
    talk.settle()
    talk.check(not other.take(), "the list of another session voids a lease", "WMP-9.13")
    worker.done(job)
    talk.end_of(name)


@case("WMP-7.7")
def an_ack_of_another_session(talk: ManagerConversation) -> None:
    """The ack of a message that names another session has no effect: the TAKE is sent again."""
    worker = talk.met()
    worker.ack_override = 0
    talk.submit()
    job = worker.take_job()
    worker.send(Command.PING, session=worker.session + 7, ack=job.number)
    worker.expect(
        Command.TAKE,
        again=True,
        number=job.number,
        within=3.5 + talk.wire.grace,
        what="only an ack of another session has acknowledged the TAKE",
    )


@case("WMP-7.13", "WMP-6.15")
def refused_take(talk: ManagerConversation) -> None:
    """NO takes the place of a refused TAKE; the lease is lost, and the job is given again."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=1)
    worker.ack_override = 0
    lock = worker.give(1)
    take = worker.expect(Command.TAKE, lock=lock, number=1)
    job = worker.held[take.jobs[0][0]]
    worker.lose(job)
    worker.refuse(take)
    worker.expect(Command.NO, again=True, number=1, lock=lock, what="the worker refuses the TAKE")
    worker.ack_override = None
    worker.ping()
    again = other.take_job()
    talk.check(again.attempt == 2, f"the job is given as attempt {again.attempt}; expected 2")
    other.done(again)
    talk.end_of(name)


@case("WMP-7.13", "WMP-6.34")
def refused_take_of_several(talk: ManagerConversation) -> None:
    """The jobs of a refused TAKE have not begun, are no worker losses, and go out one by one."""
    worker, other = talk.met(), talk.met()
    names = [talk.submit(max_worker_losses=0) for _ in range(2)]
    worker.ack_override = 0
    lock = worker.give(2)
    take = worker.expect(Command.TAKE, lock=lock, number=1)
    if len(take.jobs) < len(names):
        talk.unimplemented("the manager sends the jobs of a GIVE in a TAKE each")
    for id, _ in take.jobs:
        worker.lose(worker.held[id])
    worker.refuse(take)
    worker.expect(Command.NO, again=True, number=1, lock=lock, what="the worker refuses the TAKE")
    worker.ack_override = None
    worker.ping()
    jobs = other.all()
    takes = {job.number for job in jobs}
    talk.check(
        len(takes) == len(names),
        f"{len(jobs)} jobs of the refused TAKE come again in {len(takes)} TAKEs; expected 2 in 2",
    )
    begun = [job.begun for job in jobs]
    talk.check(begun == [0, 0], f"TAKE names {begun} earlier runs; expected none", "WMP-6.34")
    other.done(*jobs)
    for name in names:
        talk.end_of(name)


@case("WMP-7.15")
def refused_no(talk: ManagerConversation) -> None:
    """A manager whose NO is refused opens a new session."""
    worker = talk.met()
    worker.ack_override = 0
    lock = worker.give(1)
    no = worker.expect(Command.NO, lock=lock)
    before = worker.session
    worker.refuse(no)
    worker.expect(
        Command.PONG,
        where=lambda received: received["session"] > before,
        what="the worker refuses NO",
    )
    worker.ack_override = None
    talk.submit()
    talk.check(len(worker.take()) == 1, "the GIVE in the new session gets no job", "WMP-4.4")


@case("WMP-7.12", "WMP-6.15", "WMP-6.34")
def take_without_ack(talk: ManagerConversation) -> None:
    """A TAKE that was sent again ten times without an ack becomes NO; its jobs may have begun."""
    worker = talk.met()
    for _ in range(2):
        talk.submit(max_worker_losses=5)
    worker.ack_override = 0
    lock = worker.give(2)
    take = worker.expect(Command.TAKE, lock=lock, number=1)
    worker.differs(1)
    lost = [worker.held[row[0]] for row in take.jobs]
    for job in lost:
        worker.lose(job)
    within = 40.0 + 4 * talk.wire.grace
    worker.expect(Command.NO, again=True, number=1, lock=lock, within=within)
    other = talk.met()
    # A manager that sends one job in a TAKE has not lost the second job yet.
    given = {job.id: job for job in other.all()}
    again = given.get(lost[0].id)
    talk.check(
        again is not None,
        "another worker received NO; expected the job of the TAKE that had no ack",
        "WMP-6.4",
    )
    if again is not None:
        text = f"job {again.id} is given again with {again.begun} earlier runs; expected 1"
        talk.check(again.begun == 1, text, "WMP-6.34")
        other.done(*given.values())


@case("WMP-10.7")
def unreadable_done(talk: ManagerConversation) -> None:
    """ERROR about an unreadable DONE names its session and number; the number stays open."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    columns = Columns([job.id], [job.attempt], outcomes=[0], payloads=[b"refuse me"])
    done = worker.compose(Command.DONE, columns, manager=worker.testee)
    worker.raw(codec.encode(done)[0], b"\xa0")
    error = worker.expect(Command.ERROR, code=ErrorCode.MALFORMED)
    subject = error["session"], error["about"], error["about_number"]
    expected = worker.session, int(Command.DONE), worker.number + 1
    text = f"ERROR names (session, about, about number) {subject}; expected {expected}"
    talk.check(subject == expected, text)
    talk.not_ended(name)
    worker.done(job)
    talk.end_of(name, rule="WMP-7.1")


@case("WMP-7.11", "WMP-15.8")
def refusals_that_do_not_count(talk: ManagerConversation) -> None:
    """ERROR counts only with session, number and command of the refused message."""
    talk.means = {"WMP-7.1": "WMP-7.11"}  # a NO under the number of the TAKE
    worker = talk.met()
    name = talk.submit()
    worker.ack_override = 0
    lock = worker.give(1)
    take = worker.expect(Command.TAKE, lock=lock, number=1)
    job = worker.held[take.jobs[0][0]]
    right = {"session": worker.session, "about": int(Command.TAKE), "about_number": 1}
    for wrong in (
        {"session": worker.session + 7},
        {"about": int(Command.NO)},
        {"about_number": 2},
        {"about_peer": (b"somebody", 7)},
    ):
        worker.error(ErrorCode.LIMIT, **{**right, **wrong})
    worker.never(Command.NO, Command.TAKE, again=False, what="no ERROR is about its message")
    talk.means = {}
    worker.ack_override = None
    worker.done(job)
    talk.end_of(name)
