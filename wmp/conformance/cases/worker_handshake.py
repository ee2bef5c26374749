"""READY and WAKE (section 3), asked of a worker."""

from __future__ import annotations

from wmp.conformance.case import case
from wmp.conformance.talks import WorkerTalk
from wmp.message import Command

__all__ = ["plain_handshake", "ready_at_first"]


@case("WMP-3.8", "WMP-6.6")
def plain_handshake(talk: WorkerTalk) -> None:
    """READY, WAKE, GIVE, TAKE, DONE: one job."""
    manager = talk.met()
    (job,) = manager.run(b"question")
    answer = manager.done_of(job)
    talk.check(answer == b"question", f"echo answers {answer!r}")


@case("WMP-3.1")
def ready_at_first(talk: WorkerTalk) -> None:
    """READY without ``to``, with credit, roles and resources, when it connects."""
    ready = talk.manager().expect(Command.READY, within=talk.wire.patience)
    talk.check(not ready.message.to, "the first READY has a receiver")
    talk.check(ready["credit"] >= 1, "an idle worker says that it has no room")
    talk.check("echo" in ready["roles"], f"its roles are {ready['roles']!r}, without 'echo'")
    talk.check(bool(ready["resources"]), "it names no resources")
