"""The bound on WAKEs, and the memory of locks (sections 3 and 4), as tests of a manager."""

from __future__ import annotations

from math import ceil, log2

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case
from wmp.message import Command


@case("WMP-3.5", profile="liveness")
def the_bound_returns(talk: ManagerConversation) -> None:
    """A grant ends the doubling of the bound: the bound is the number of waiting jobs again."""
    workers = [talk.met() for _ in range(4)]
    for worker in workers:
        worker.ready(1)
    talk.settle()
    talk.submit()
    talk.submit()
    talk.wait(1.0)
    woken = [worker for worker in workers if worker.wait_for(Command.WAKE, within=0.0)]
    if len(woken) < len(workers):
        talk.unimplemented(f"{len(woken)} of 4 workers received WAKE within 1 unit; expected 4")
    first, *others = woken
    talk.check(len(first.take()) == 1, "the GIVE got no job", "WMP-4.3")
    for other in others:
        other.ready(0)
    talk.settle()
    fresh = [talk.met() for _ in range(4)]
    for worker in fresh:
        worker.ready(1)
    talk.wait(1.0)
    wakes = [worker.wait_for(Command.WAKE, within=0.0) for worker in fresh]
    times = sorted(wake.at for wake in wakes if wake is not None)
    talk.check(bool(times), "no worker received WAKE, though a job waits", "WMP-3.6")
    late = 0.6 * talk.wire.grace  # how late a message may arrive
    for number, at in enumerate(times[1:], 2):
        minimum = 0.25 * ceil(log2(number)) - late - 1e-6
        talk.check(
            at - times[0] >= minimum,
            f"worker {number} received WAKE for the job {at - times[0]:.3f} units after the first; "
            f"expected {minimum:.3f} or later",
        )


@case("WMP-4.5")
def withdrawal_of_nothing(talk: ManagerConversation) -> None:
    """A GIVE with ``want`` 0 for a lock that is not open has no answer and no effect."""
    talk.means = {"WMP-4.4": "WMP-4.5"}  # a NO in answer is for no lock that is open
    worker = talk.met()
    worker.give(0, lock=5)
    worker.never(Command.TAKE, Command.NO, what="no lock was open")
    talk.means = {}
    pong = worker.ask()
    talk.check(
        pong["lock"] is None,
        f"PONG names lock {pong['lock']}; expected none, as only a withdrawal came",
    )
    talk.submit()
    worker.lock = 4
    lock = worker.give(1, lock=5)
    talk.check(len(worker.taken(lock)) == 1, "GIVE after a withdrawal of its lock gets no job")


@case("WMP-4.5", profile="reliable")
def forgotten_locks(talk: ManagerConversation) -> None:
    """A manager that has forgotten a worker has forgotten the worker's locks."""
    worker = talk.met()
    lock = worker.give(1, lock=7)
    worker.expect(Command.NO, lock=lock)
    worker.bye()
    talk.settle()
    worker.lively = True
    worker.forget_session()
    worker.inbox.clear()
    worker.ping(to=())
    pong = worker.expect(Command.PONG, rule="WMP-9.11")
    talk.check(pong["lock"] is None, f"PONG names lock {pong['lock']} after BYE; expected none")


@case("WMP-4.16")
def twice_the_window(talk: ManagerConversation) -> None:
    """The leases of a worker are at most what its resources run at once plus twice its window."""
    worker = talk.met(resources={"slots": 2})
    for _ in range(12):
        talk.submit()
    worker.ready(9, window=3)
    jobs = worker.all(1 << 40)
    talk.check(
        len(jobs) <= 8,
        f"the worker has {len(jobs)} leases; expected at most 8: 2 for its slots plus twice its "
        "window of 3",
    )
