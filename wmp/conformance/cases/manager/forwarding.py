"""Workers that are forwarding managers (section 19), as tests of a manager."""

from __future__ import annotations

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case
from wmp.message import Command


@case("WMP-19.9")
def its_own_capacity(talk: ManagerConversation) -> None:
    """A worker that offers the capacity of the manager itself gets no job."""
    worker = talk.met()
    assert worker.testee is not None
    worker.ready(1, forwards=(b"forwarder", worker.testee[0]))
    name = talk.submit()
    what = "`forwards` of the worker's READY names the manager itself"
    worker.never(Command.WAKE, Command.TAKE, what=what)
    jobs = worker.take(1)
    talk.check(not jobs, f"the manager answered GIVE by TAKE, although {what}; expected NO")
    other = talk.met()
    other.ready(1, forwards=(b"forwarder",))
    other.serve(name)
