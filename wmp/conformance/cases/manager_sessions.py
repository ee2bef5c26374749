"""Messages that name another session (section 7), as tests of a manager."""

from __future__ import annotations

from wmp.conformance.case import case
from wmp.conformance.conversations import ManagerConversation
from wmp.message import Command

__all__ = ["a_give_of_another_session", "a_list_of_another_session"]


@case("WMP-7.7")
def a_give_of_another_session(talk: ManagerConversation) -> None:
    """A GIVE that names another session is served in the current session."""
    worker = talk.met()
    talk.submit()
    lock = worker.give(1, session=worker.session + 7)
    jobs = worker.taken(lock, rule="WMP-7.7")
    talk.check(len(jobs) == 1, "the GIVE gets no job, though one waits")


@case("WMP-7.7", "WMP-9.13")
def a_list_of_another_session(talk: ManagerConversation) -> None:
    """The ack and the list of a PING that names another session have no effect."""
    worker, other = talk.met(), talk.met()
    name = talk.submit()
    job = worker.one()
    talk.means = {"WMP-6.4": "WMP-7.7"}  # the list ends the lease of a worker that has its job
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
