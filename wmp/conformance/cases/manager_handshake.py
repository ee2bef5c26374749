"""READY and WAKE (section 3), asked of a manager."""

from __future__ import annotations

from wmp.conformance.case import case
from wmp.conformance.talks import ManagerTalk
from wmp.message import Command

__all__ = ["plain_handshake", "repeated_ready"]


@case("WMP-3.6", "WMP-1.2", "WMP-6.1")
def plain_handshake(talk: ManagerTalk) -> None:
    """READY, WAKE, GIVE, TAKE, DONE: one job."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_one()
    talk.check(job.payload == name.encode(), f"the payload is {job.payload!r}")
    talk.not_ended(name)
    worker.done(job, payloads=[b"answer"])
    end = talk.end_of(name)
    talk.check(end.payload == b"answer", f"the submitter was told {end.payload!r}")


@case("WMP-3.3")
def repeated_ready(talk: ManagerTalk) -> None:
    """A READY whose number is not greater is ignored; WAKE consumed its credit."""
    worker = talk.met()
    worker.ready(1)
    talk.submit()
    worker.expect(Command.WAKE)
    worker.ready(1, ready=worker.ready_number)
    worker.ready(1, ready=worker.ready_number)
    talk.submit()
    worker.never(Command.WAKE, during=2.0, what="a repeated READY brought credit back")
