"""GIVE, TAKE and NO (sections 4 and 5), as tests of a manager."""

from __future__ import annotations

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case
from wmp.message import Command, counted


@case("WMP-4.3")
def give_without_ready(talk: ManagerConversation) -> None:
    """A GIVE is served with and without a remembered READY."""
    worker = talk.met()
    talk.submit()
    talk.submit()
    talk.check(len(worker.take()) == 1, "GIVE received NO, although jobs wait")
    worker.ready(0)
    talk.check(
        len(worker.take()) == 1, "GIVE received NO after READY of credit 0, although a job waits"
    )


@case("WMP-4.3", "WMP-7.5")
def give_first_of_all(talk: ManagerConversation) -> None:
    """A GIVE is served as the first message of a worker."""
    known = talk.met()
    talk.submit()
    worker = talk.worker("out-of-the-blue", testee=known.testee)
    talk.check(len(worker.take()) == 1, "GIVE received NO, although a job waits")


@case("WMP-4.4")
def give_is_answered_at_once(talk: ManagerConversation) -> None:
    """A GIVE without hold is answered at once, by NO when no job waits."""
    worker = talk.met()
    lock = worker.give(3)
    worker.expect(Command.NO, lock=lock)
    lock = worker.give(3, roles=["other"])
    worker.expect(Command.NO, lock=lock)


@case("WMP-4.4", "WMP-5.3", profile="held-give")
def held_give_ends(talk: ManagerConversation) -> None:
    """The rest of a held GIVE gets NO, a margin before its hold ends."""
    worker = talk.met()
    for hold, margin in ((2.0, 0.5), (0.6, 0.3)):
        began = talk.now
        lock = worker.give(3, hold=hold)
        received = worker.expect(Command.NO, lock=lock, within=hold + talk.wire.grace)
        late = received.at - began - (hold - margin)
        talk.check(
            late <= talk.wire.grace + 1e-6,
            f"NO came {received.at - began:.3f} units after a GIVE with hold {hold:g}; "
            f"expected it {margin:g} units before the hold ends",
            "WMP-5.3",
        )


@case("WMP-4.4", "WMP-4.5", profile="held-give")
def held_give_is_used_and_closed(talk: ManagerConversation) -> None:
    """An open GIVE gets jobs until it is used up or answered; then it is closed."""
    worker = talk.met()
    lock = worker.give(2, hold=3.0)
    talk.settle()
    talk.submit()
    talk.submit()
    talk.submit()
    jobs = worker.taken(lock, within=4.0)
    talk.check(len(jobs) > 0, "the open GIVE received no job, although 3 jobs wait", "WMP-5.3")
    worker.never(Command.TAKE, Command.NO, during=4.0, what="the lock is used up or answered by NO")


@case("WMP-4.5")
def repeated_give(talk: ManagerConversation) -> None:
    """A GIVE whose lock is not greater than the last one is not served again."""
    worker = talk.met()
    for _ in range(4):
        talk.submit()
    lock = worker.give(1, lock=7)
    talk.check(len(worker.taken(lock)) == 1, "GIVE received NO, although jobs wait", "WMP-4.3")
    for again in (7, 3):
        worker.give(1, lock=again)
        worker.never(Command.TAKE, what=f"lock {again} is not greater than 7, which was served")


@case("WMP-4.5", profile="held-give")
def withdrawn_give(talk: ManagerConversation) -> None:
    """GIVE with ``want`` 0 withdraws an open lock, and gets NO."""
    worker = talk.met()
    lock = worker.give(2, hold=4.0)
    talk.settle()
    worker.give(0, lock=lock)
    worker.expect(Command.NO, lock=lock)
    talk.submit()
    worker.never(Command.TAKE, during=2.0, what="the lock was withdrawn")


@case("WMP-4.6")
def jobs_fit_the_give(talk: ManagerConversation) -> None:
    """A TAKE has jobs of the GIVE's roles and needs, and at most as many as it wants."""
    worker = talk.met(roles=["echo", "other"])
    for role in ("echo", "other", "echo", "other", "echo"):
        talk.submit(role=role)
    jobs = worker.all(roles=["other"])
    talk.check(
        len(jobs) == 2,
        f"the GIVE received {counted(len(jobs), 'job')}; expected the 2 of its role",
        "WMP-4.3",
    )
    worker.some(2)
    talk.check(
        not worker.take(5, needs={}), "a GIVE with empty needs received a job that needs a slot"
    )
    talk.check(
        not worker.take(5, roles=["third"]), "the GIVE received a job whose role it does not name"
    )
    worker.some(1)


@case("WMP-4.16")
def leases_fit_the_worker(talk: ManagerConversation) -> None:
    """A GIVE gets no more jobs than the worker can hold, whatever it wants."""
    worker = talk.met(resources={"slots": 3})
    for _ in range(7):
        talk.submit()
    worker.ready(0)
    jobs = worker.all(1 << 40)
    talk.check(
        len(jobs) <= 3,
        f"the worker has {len(jobs)} leases; expected at most 3, for its slots without a window",
    )
    talk.check(
        len(jobs) == 3,
        f"the worker received {counted(len(jobs), 'job')}; expected 3 for its 3 free slots",
        "WMP-4.3",
    )
    talk.check(not worker.take(1 << 40), "the worker received a job, although it has no free slot")
    worker.done(jobs.pop())
    jobs += worker.all(1 << 40)
    talk.check(
        len(jobs) == 3, f"the worker has {len(jobs)} leases; expected 3 after one DONE", "WMP-4.3"
    )


@case("WMP-4.7")
def take_names_its_owner(talk: ManagerConversation) -> None:
    """TAKE names the manager as the owner of its jobs."""
    worker = talk.met()
    talk.submit()
    lock = worker.give()
    take = worker.expect(Command.TAKE, lock=lock, rule="WMP-4.3")
    talk.check(
        tuple(take["manager"]) == worker.testee,
        f"TAKE names the owner {take['manager']!r}; expected {worker.testee!r}",
    )


@case("WMP-5.3")
def open_gives_come_first(talk: ManagerConversation) -> None:
    """An open GIVE gets a job before any worker is woken for the job."""
    holder, other = talk.met("holder"), talk.met("other")
    lock = holder.give(1, hold=5.0)
    other.ready(1)
    talk.settle()
    talk.submit()
    holder.expect(Command.TAKE, lock=lock, what="the GIVE is open and a job waits")
    other.never(Command.WAKE, during=1.0, what="an open GIVE already received the job")
