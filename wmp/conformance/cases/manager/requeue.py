"""Jobs that are queued again (section 6), as tests of a manager."""

from __future__ import annotations

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case


def _given(talk: ManagerConversation, count: int) -> list[str]:
    """Return the names of the jobs that a new worker gets one after the other."""
    other = talk.met()
    return [other.take_job().payload.decode() for _ in range(count)]


def _in_order(talk: ManagerConversation, given: list[str], names: list[str]) -> None:
    talk.check(given == names, f"the jobs are granted in the order {given}; expected {names}")


@case("WMP-6.28", profile="reliable")
def lost_jobs_keep_their_order(talk: ManagerConversation) -> None:
    """Jobs that one BYE loses are queued before the waiting jobs, in the order of submission."""
    worker = talk.met()
    names = [talk.submit() for _ in range(4)]
    worker.some(3)
    worker.bye()
    talk.settle()
    _in_order(talk, _given(talk, 4), names)


@case("WMP-6.28")
def refused_jobs_keep_their_order(talk: ManagerConversation) -> None:
    """Jobs that one DONE refuses are queued before the waiting jobs, in the order of submission."""
    worker = talk.met()
    names = [talk.submit() for _ in range(4)]
    first, second, third = worker.some(3)
    worker.done(third, first, second, outcome=2)
    talk.settle()
    _in_order(talk, _given(talk, 4), names)


@case("WMP-6.28", profile="reliable")
def lost_jobs_stand_behind_higher_priorities(talk: ManagerConversation) -> None:
    """A lost job stands before the jobs of its own priority only."""
    worker = talk.met()
    low = talk.submit()
    worker.take_job()
    waits = talk.submit()
    high = talk.submit(priority=5)
    worker.bye()
    talk.settle()
    _in_order(talk, _given(talk, 3), [high, low, waits])


@case("WMP-6.28", profile="reliable")
def jobs_of_two_events(talk: ManagerConversation) -> None:
    """Jobs that two events queue again stand before the waiting jobs, in either order."""
    first, second = talk.met(), talk.met()
    names = [talk.submit() for _ in range(3)]
    first.take_job()
    second.take_job()
    first.bye()
    talk.settle()
    second.bye()
    talk.settle()
    given = _given(talk, 3)
    talk.check(
        given[2] == names[2],
        f"the jobs are granted in the order {given}; expected {names[2]} last, because its lease "
        "was not lost",
    )
    talk.remark(
        f"of two events, the job of the {'earlier' if given == names else 'later'} is first"
    )
