"""READY and WAKE (section 3), as tests of a worker."""

from __future__ import annotations

import itertools
from math import ceil

from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.peers.offered_lock import OfferedLock
from wmp.conformance.peers.played_manager import PlayedManager
from wmp.conformance.script.case import case
from wmp.message import Command


def slowly(talk: WorkerConversation, units: float) -> bytes:
    """Return the payload for a job of role ``slow`` that takes this long."""
    return b"%d" % talk.ms(units)


SHORT = 0.05
"""Units of a job that waits in the window."""


def fill(talk: WorkerConversation, manager: PlayedManager, units: float) -> list[int]:
    """Give slow jobs until the worker has no capacity. Return the ids of the jobs.

    The jobs that hold resources run for ``units`` after that, and longer by two waits of a script
    for "at once". The jobs behind them in the window are short: a worker may keep freed places of
    its window until a quarter of the window is free (WMP-3.10), and that must not take long.
    """
    units += 3 * talk.wire.grace
    talk.check(
        "slow" in talk.book.roles, "READY lacks the role 'slow'; the kit's cases need it", "WMP-3.1"
    )
    jobs: list[int] = []
    for _ in range(64):
        manager.inbox.clear()
        before = list(manager.locks)
        manager.wake(1, role="slow")
        for number in before:
            manager.no(number)
        received = manager.expect(
            Command.GIVE,
            Command.READY,
            where=lambda received: manager.is_open(received) or received["credit"] == 0,
            rule="WMP-3.9",
            what="the worker must answer WAKE by GIVE or by READY of credit 0",
        )
        if received.command is Command.READY:
            return jobs
        lasts = units if talk.book.locks[received["lock"]].locked else SHORT
        jobs += manager.take(received["lock"], slowly(talk, lasts), role="slow")
    talk.check(
        False,
        "the worker sent GIVE for more than 64 slow jobs; expected READY of credit 0",
        "WMP-4.1",
    )
    return jobs


@case("WMP-3.8", "WMP-6.6")
def plain_handshake(talk: WorkerConversation) -> None:
    """READY, WAKE, GIVE, TAKE, DONE: one job."""
    manager = talk.met()
    (job,) = manager.run(b"question")
    answer = manager.done_of(job)
    talk.check(
        answer == b"question", f"the result of role echo is {answer!r}; expected the payload"
    )


@case("WMP-1.1")
def one_identity(talk: WorkerConversation) -> None:
    """The worker uses one identity of 1 to 255 bytes, and one epoch, towards all managers."""
    first, second = talk.manager(), talk.manager()
    first.meet()
    second.pong()
    (job,) = second.run()
    second.done_of(job)
    talk.check(
        first.testee == second.testee,
        "two managers received messages of two identities or epochs; expected one worker",
    )


@case("WMP-1.3", "WMP-3.1", links=2)
def a_socket_for_each_manager(talk: WorkerConversation) -> None:
    """READY and PING go to every endpoint; each manager gets only its own answers."""
    managers = [talk.manager(endpoint=number) for number in range(2)]
    for manager in managers:
        manager.meet("WMP-1.3")
    for manager in managers:
        (job,) = manager.run(manager.identity)
        answer = manager.done_of(job)
        talk.check(
            answer == manager.identity,
            f"the result of role echo is {answer!r}; expected the payload",
        )


@case("WMP-1.5", "WMP-1.8", "WMP-2.5")
def answers_follow_the_latest_route(talk: WorkerConversation) -> None:
    """DONE takes the new route of a manager, once the worker has admitted the route."""
    manager, _ = talk.met(), talk.met()
    # The worker sends a PING each unit, and learns the new route from the answer.
    (job,) = manager.run(slowly(talk, 3.0), role="slow")
    manager.move(hops=(b"another", 9, 4))
    manager.pong()
    talk.settle()
    done = manager.expect(Command.DONE, within=3.0 + talk.wire.grace, rule="WMP-1.8")
    talk.check(done.jobs == [(job, 1)], f"DONE has the jobs {done.jobs}; expected {[(job, 1)]}")
    talk.check(
        done.message.to == manager.path[::-1],
        f"DONE goes to {done.message.to!r}; expected {manager.path[::-1]!r}",
    )


@case("WMP-1.8")
def jobs_survive_a_route(talk: WorkerConversation) -> None:
    """A change of route changes nothing that is remembered of a manager."""
    manager, _ = talk.met(), talk.met()
    manager.run(slowly(talk, 1.0), role="slow")
    for number in (4, 5, 6):
        manager.move(hops=(b"another", 9, number))
        manager.pong()
        talk.wait(0.2)
    manager.done_of(1, within=1.0 + talk.wire.grace, rule="WMP-1.8")


@case("WMP-3.1")
def ready_at_first(talk: WorkerConversation) -> None:
    """READY without ``to``, with credit, roles and resources, goes out on connecting."""
    ready = talk.manager().expect(Command.READY, within=talk.wire.patience)
    talk.check(
        not ready.message.to, f"the first READY goes to {ready.message.to!r}; expected no receiver"
    )
    talk.check(
        ready["credit"] >= 1,
        f"READY of an idle worker has credit {ready['credit']}; expected 1 or more",
    )
    talk.check(
        "echo" in ready["roles"],
        f"READY has the roles {ready['roles']!r}; expected 'echo' among them",
    )
    talk.check(bool(ready["resources"]), "READY names no resources; expected at least one")


@case("WMP-3.2", links=2)
def one_number_for_one_ready(talk: WorkerConversation) -> None:
    """One READY has the same number on several links; a new READY has a greater number."""
    first, second = talk.manager(), talk.manager(endpoint=1)
    ready = first.expect(Command.READY, within=talk.wire.patience)["ready"]
    other = second.expect(Command.READY, within=talk.wire.patience, rule="WMP-3.1")["ready"]
    talk.check(
        ready == other,
        f"READY has number {ready} on one link and {other} on another; expected one number",
    )
    first.pong()
    second.pong()
    talk.settle()
    first.inbox.clear()
    first.pong(ready=None)
    again = first.expect(Command.READY, rule="WMP-3.13")
    talk.check(
        again["ready"] > ready,
        f"the next READY has number {again['ready']}; expected more than {ready}",
    )


@case("WMP-3.9")
def woken_without_capacity(talk: WorkerConversation) -> None:
    """Without capacity WAKE gets READY of credit 0 with ``to`` at once, and GIVE later."""
    first, second = talk.met(), talk.met()
    jobs = fill(talk, first, 2.0)
    second.clear()
    second.wake(1)
    ready = second.expect(
        Command.READY,
        Command.GIVE,
        # A READY without a receiver answers no WAKE. A worker may send such a READY at any time.
        where=lambda received: second.is_open(received) or bool(received.message.to),
        what="WAKE is answered by READY to the manager that sent it, or by GIVE",
    )
    if ready.command is Command.READY:
        talk.check(
            ready["credit"] == 0,
            f"READY has credit {ready['credit']}; expected 0, because the worker has no capacity",
        )
    within = 2.5 + 6 * talk.wire.grace + 2 * SHORT * len(jobs)
    second.lock(within, what="a WAKE is pending and the worker has capacity again")


@case("WMP-3.9")
def pending_wake_does_not_age(talk: WorkerConversation) -> None:
    """A WAKE stays pending until it is answered, however long that takes."""
    first, second = talk.met(), talk.met()
    jobs = fill(talk, first, 8.0)
    second.wake(1)
    # A worker with a window may wait until a quarter of the window is free. Some of the short
    # jobs must end before that.
    within = 8.5 + 6 * talk.wire.grace + 2 * SHORT * len(jobs)
    second.lock(within, what="a WAKE is pending and the worker has capacity again")


@case("WMP-3.10", "WMP-3.17")
def turns(talk: WorkerConversation) -> None:
    """M managers that always have jobs are served in turn: each once in any 2·M places."""
    # The worker serves in the order of its locks. A worker with a window has several locks open at
    # a time, and the kit uses them in any order. So the case takes the lock with the lowest number
    # first. Such a worker may also give a quarter of its window to one manager at once. So the
    # bound grows with the number of jobs in a quarter, and each place is one job.
    managers = [talk.met() for _ in range(3)]
    for manager in managers:
        manager.wake(1)
    served: list[str] = []
    while len(served) < 3 * _bound(talk, managers):
        taker, lock = _oldest_lock(talk, managers)
        served += [taker.name] * lock.want
        wanted = lock.want
        taker.take(lock.number, *[slowly(talk, 0.1)] * wanted, role="slow")
        taker.wake(1)
    maximum = _bound(talk, managers)
    for start in range(len(served) - maximum + 1):
        some = set(served[start : start + maximum])
        missing = [manager.name for manager in managers if manager.name not in some]
        talk.check(
            not missing,
            f"the worker gave places to {served}; expected one place for each manager among any "
            f"{maximum} places in a row, but {missing} got none of {maximum} places",
        )


def _bound(talk: WorkerConversation, managers: list[PlayedManager]) -> int:
    """Return the number of places in which each of the managers must be served (WMP-3.10)."""
    windows = [lock.window for lock in talk.book.locks.values()]
    windows += [content[1] or 0 for content in talk.book.readies.values()]
    return 2 * len(managers) * max(1, ceil(max(windows, default=0) / 4))


def _oldest_lock(
    talk: WorkerConversation, managers: list[PlayedManager]
) -> tuple[PlayedManager, OfferedLock]:
    """Wait for a lock; return the lock that the worker offered first, and its manager."""
    open_locks: list[tuple[int, PlayedManager]] = []

    def given() -> bool:
        open_locks[:] = [(n, m) for m in managers for n, lock in m.locks.items() if lock.want]
        return bool(open_locks)

    talk.until(
        given,
        2.0 + talk.wire.grace,
        "WMP-3.8",
        "no manager received GIVE within 2 units, although the worker has capacity",
    )
    number, manager = min(open_locks, key=lambda numbered: numbered[0])
    return manager, manager.locks[number]


@case("WMP-3.11", slots=2)
def capacity_that_is_left(talk: WorkerConversation) -> None:
    """Capacity left after a TAKE is reported at once, before any DONE of those jobs."""
    manager, _ = talk.met(), talk.met()
    lock = manager.woken(1)
    talk.settle()
    manager.inbox.clear()
    (job,) = manager.take(lock.number, slowly(talk, 1.0), role="slow")
    received = manager.expect(
        Command.READY,
        Command.GIVE,
        where=lambda received: bool(received["credit"] or received["want"]),
        what="one of the two slots is free",
    )
    talk.remark(f"the worker reports its capacity by {received.command.name}")
    talk.check(
        not _answered(manager, job),
        "DONE came before the report of capacity; expected the report first",
    )


def _answered(manager: PlayedManager, job: int) -> bool:
    return any(id == job for _, id, _ in manager.answered)


@case("WMP-3.12")
def ready_backs_off(talk: WorkerConversation) -> None:
    """A READY that gets no answer is repeated with backoff up to 32 units, or not at all."""
    first, _ = talk.met(), talk.met()
    talk.settle()
    first.inbox.clear()
    began = talk.now
    talk.wait(40.0)
    times = [h.at - began for h in first.inbox if h.command is Command.READY and not h.message.to]
    talk.check(
        len(times) <= 9, f"the worker sent READY {len(times)} times in 40 units; expected at most 9"
    )
    gaps = [after - before for before, after in itertools.pairwise(times)]
    for number, gap in enumerate(gaps, 1):
        minimum = min(16.0, 0.4 * 2**number) - talk.wire.grace
        talk.check(
            gap >= minimum,
            f"repeat {number + 1} of READY came {gap:.2f} units after the one before; expected "
            f"{minimum:.2f} or more",
        )


@case("WMP-3.13")
def a_manager_that_forgot(talk: WorkerConversation) -> None:
    """PONG without READY, or with less credit, gets a READY at once."""
    manager, _ = talk.met(), talk.met()
    for changes in ({"ready": None}, {"credit": 0}):
        talk.settle()
        manager.inbox.clear()
        before = manager.ready
        manager.pong(**changes)
        ready = manager.expect(
            Command.READY, what="the worker has more capacity than the credit in PONG"
        )
        talk.check(
            ready["ready"] > before,
            f"READY has number {ready['ready']}; expected more than {before}",
        )
        talk.check(ready["credit"] >= 1, f"READY has credit {ready['credit']}; expected 1 or more")


@case("WMP-3.8", "WMP-4.2")
def jobs_of_empty_needs(talk: WorkerConversation) -> None:
    """A job without needs starts at once on the place that a worker without resources locks."""
    first, second = talk.met(), talk.met()
    lasts = 2.0 + talk.wire.grace
    jobs = fill(talk, first, lasts)
    second.clear()
    second.wake(1, needs={})
    received = second.expect(
        Command.READY,
        Command.GIVE,
        where=lambda received: received["credit"] == 0 or second.is_open(received),
        rule="WMP-3.9",
    )
    lock = talk.book.locks[received["lock"]] if received.command is Command.GIVE else None
    if lock is None or not lock.locked:
        does = "waits" if lock else "has no place"
        talk.inform(f"a job without needs {does} at a worker whose resources are in use")
        second.retire()
        for job in jobs:
            first.done_of(job, None, within=lasts + 6 * talk.wire.grace)
        return
    (job,) = second.take(lock.number, b"no needs", needs={})
    within = 1.0 + talk.wire.grace
    second.done_of(job, within=within, rule="WMP-3.8", what="the GIVE locked a place for the job")
