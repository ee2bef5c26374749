"""READY and WAKE (section 3), as tests of a manager."""

from __future__ import annotations

from math import ceil, log2

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case
from wmp.message import Command, counted


@case("WMP-3.6", "WMP-6.1")
def plain_handshake(talk: ManagerConversation) -> None:
    """READY, WAKE, GIVE, TAKE, DONE: one job."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_after_wake()
    talk.check(
        job.payload == name.encode(), f"TAKE has the payload {job.payload!r}; expected {name!r}"
    )
    talk.not_ended(name)
    worker.done(job, payloads=[b"answer"])
    end = talk.end_of(name)
    talk.check(
        end.payload == b"answer",
        f"the manager reported the result {end.payload!r}; expected b'answer'",
    )


@case("WMP-1.1")
def one_identity(talk: ManagerConversation) -> None:
    """The manager uses one identity of 1 to 255 bytes, and one epoch."""
    first, second = talk.met(), talk.met()
    talk.check(
        first.testee == second.testee,
        "two workers received messages of two identities or epochs; expected one manager",
    )
    talk.submit()
    talk.check(
        first.take_after_wake().attempt == 1,
        "the first attempt of a job does not have the number 1",
        "WMP-6.1",
    )


@case("WMP-1.2", "WMP-1.8", "WMP-2.5")
def answers_follow_the_latest_route(talk: ManagerConversation) -> None:
    """A message to a worker uses the connection and path on which the worker is now."""
    worker = talk.met()
    worker.ready(1)
    worker.ping()
    worker.expect(Command.PONG)
    old = worker.connection
    talk.met("stays", connection=old, hops=(b"device", 3, b"\x00\x09"))  # keeps ``old`` open
    worker.move(talk.wire.dial(), hops=(b"device", 3, b"\x00\x01\x02"))
    pong = worker.ask()
    talk.check(pong.connection != old, "PONG came over the connection that the worker has left")
    talk.check(
        pong.message.to == worker.path[::-1],
        f"PONG goes to {pong.message.to!r}; expected {worker.path[::-1]!r}",
    )
    worker.ready(1)
    talk.submit()
    wake = worker.expect(Command.WAKE, what="jobs wait and the worker has credit")
    talk.check(wake.connection != old, "WAKE came over the connection that the worker has left")
    talk.check(
        wake.message.to == worker.path[::-1],
        f"WAKE goes to {wake.message.to!r}; expected {worker.path[::-1]!r}",
    )


@case("WMP-1.5", "WMP-1.8")
def a_connection_is_no_identity(talk: ManagerConversation) -> None:
    """Two workers on one connection count as two; one worker on two connections counts as one."""
    first = talk.met(hops=(b"device", 3, b"\x00\x01"))
    second = talk.met(connection=first.connection, hops=(b"device", 3, b"\x00\x02"))
    talk.check(
        first.session != 0 and second.session != 0,
        "PONG names session 0; expected 1 or more",
        "WMP-7.5",
    )
    first.ready(2)
    pong = second.ask()
    talk.check(
        pong["ready"] is None,
        f"PONG names READY {pong['ready']}, which another worker on this connection sent",
    )
    first.move(talk.wire.dial(), hops=())
    pong = first.ask()
    talk.check(
        pong["ready"] == 1,
        f"PONG names READY {pong['ready']}; expected 1, which was sent over another connection",
        "WMP-1.8",
    )


@case("WMP-3.3")
def repeated_ready(talk: ManagerConversation) -> None:
    """A READY whose number is not greater is ignored: it does not restore consumed credit."""
    worker = talk.met()
    worker.ready(1)
    talk.submit()
    worker.expect(Command.WAKE)
    talk.means = {"WMP-3.4": "WMP-3.3"}  # such a WAKE uses the credit of the repeated READY
    worker.ready(1, ready=worker.ready_number)
    worker.ready(1, ready=worker.ready_number)
    talk.submit()
    worker.never(Command.WAKE, during=2.0, what="a repeated READY must not restore credit")


@case("WMP-3.3", "WMP-9.2")
def newest_ready_replaces(talk: ManagerConversation) -> None:
    """The newest READY replaces credit and roles; an older one changes nothing."""
    worker = talk.met()
    worker.ready(3, ready=5)
    worker.ready(4, ready=6, roles=["other"])
    worker.ready(9, ready=4)
    pong = worker.ask()
    talk.check(pong["ready"] is not None, "PONG names no READY; expected READY 6", "WMP-9.2")
    talk.check(pong["ready"] == 6, f"PONG names READY {pong['ready']}; expected 6")
    talk.check(pong["credit"] == 4, f"PONG names credit {pong['credit']}; expected 4")
    talk.submit(role="echo")
    worker.never(Command.WAKE, during=1.0, what="the newest READY does not offer the role")
    talk.submit(role="other")
    wake = worker.expect(Command.WAKE)
    talk.check(wake["role"] == "other", f"WAKE is for role {wake['role']!r}; expected 'other'")


@case("WMP-3.3")
def resources_of_the_newest_ready(talk: ManagerConversation) -> None:
    """The newest READY replaces the resources: they may become less, and return."""
    worker = talk.met()
    worker.ready(2)
    talk.settle()
    talk.means = {"WMP-3.4": "WMP-3.3"}  # such a WAKE is for the resources of an earlier READY
    worker.ready(2, resources={"slots": 0})
    talk.submit()
    worker.never(Command.WAKE, during=1.0, what="the newest READY lacks resources for the job")
    talk.means = {}
    worker.ready(2, resources={"slots": 2})
    wake = worker.expect(Command.WAKE, rule="WMP-3.6")
    talk.check(wake["count"] == 1, f"WAKE is for {wake['count']} jobs; expected 1", "WMP-3.5")


@case("WMP-3.4")
def wake_where_it_fits(talk: ManagerConversation) -> None:
    """WAKE goes out only for credit, role and resources, and never for more than the credit."""
    other = talk.met("other", roles=["other"])
    poor = talk.met("poor", resources={"memory": 100})
    busy = talk.met("busy")
    fit = talk.met("fit")
    other.ready(5)
    poor.ready(5)
    busy.ready(0)
    fit.ready(2)
    for _ in range(5):
        talk.submit()
    woken = 0
    while (wake := fit.wait_for(Command.WAKE, within=1.0)) is not None:
        woken += wake["count"]
    talk.check(
        woken > 0,
        f"no worker received WAKE, although {fit.name} has credit, role and resources",
        "WMP-3.6",
    )
    for worker in (other, poor, busy):
        worker.never(Command.WAKE, what="the worker lacks credit, role or resources for the job")
    pong = fit.ask()
    left = pong["credit"]
    talk.check(
        left == 2 - woken,
        f"PONG names credit {left}; expected {2 - woken}: the credit 2 of READY, less {woken} of "
        "WAKE",
    )


@case("WMP-3.5")
def one_job_wakes_one(talk: ManagerConversation) -> None:
    """A waiting job wakes one worker; after each timeout without GIVE at most twice as many."""
    times = _wakes(talk)
    talk.check(bool(times), "no worker received WAKE, although a job waits", "WMP-3.6")
    late = 0.6 * talk.wire.grace  # how late a message may arrive
    for number, at in enumerate(times[1:], 2):
        minimum = 0.25 * ceil(log2(number)) - late - 1e-6
        talk.check(
            at - times[0] >= minimum,
            f"worker {number} received WAKE for the job {at - times[0]:.3f} units after the first; "
            f"expected {minimum:.3f} or later",
        )


@case("WMP-3.5", profile="liveness")
def who_does_not_come(talk: ManagerConversation) -> None:
    """If the woken worker sends no GIVE, all others are woken in the end."""
    woken = len(_wakes(talk))
    talk.check(woken > 0, "no worker received WAKE, although a job waits", "WMP-3.6")
    talk.check(
        woken == 4,
        f"{woken} of 4 workers received WAKE within 3 units; expected 4, because none sent GIVE",
    )


def _wakes(talk: ManagerConversation) -> list[float]:
    """Return the times of the WAKEs for one job, which no worker answers."""
    workers = [talk.met() for _ in range(4)]
    for worker in workers:
        worker.ready(1)
    talk.settle()
    talk.submit()
    talk.wait(3.0)
    received = [worker.wait_for(Command.WAKE, within=0.0) for worker in workers]
    return sorted(wake.at for wake in received if wake is not None)


@case("WMP-3.5")
def give_answers_wake(talk: ManagerConversation) -> None:
    """A WAKE that is answered by GIVE wakes no other worker."""
    first, second = talk.met(), talk.met()
    first.ready(1)
    talk.submit()
    first.expect(Command.WAKE)
    second.ready(1)
    talk.check(len(first.take()) == 1, "GIVE received NO, although a job waits", "WMP-4.3")
    second.never(Command.WAKE, during=2.0, what="no job waits")


@case("WMP-3.6")
def ready_while_jobs_wait(talk: ManagerConversation) -> None:
    """READY gets WAKE at once if jobs wait for which no worker was woken."""
    talk.submit()
    talk.submit()
    first, second = talk.met(), talk.met()
    first.ready(1)
    wake = first.expect(Command.WAKE)
    talk.check(
        wake["count"] == 1,
        f"WAKE is for {counted(wake['count'], 'job')}; expected 1, the credit of the worker",
    )
    second.ready(1)
    second.expect(Command.WAKE)


@case("WMP-3.7")
def everybody_gets_some(talk: ManagerConversation) -> None:
    """Two workers that always have capacity are both woken repeatedly."""
    workers = [talk.met(), talk.met()]
    woken = {worker.name: 0 for worker in workers}
    for worker in workers:
        worker.ready(1)
    talk.settle()
    for _ in range(12):
        name = talk.submit()
        taker = None
        for _ in range(40):
            taker = next((w for w in workers if w.wait_for(Command.WAKE, within=0.0)), None)
            if taker is not None:
                break
            talk.wait(max(0.02, talk.wire.grace / 10))
        talk.check(taker is not None, "no worker received WAKE, although a job waits", "WMP-3.6")
        if taker is None:
            return
        woken[taker.name] += 1
        jobs = taker.take()
        if jobs:
            taker.done(*jobs)
            talk.end_of(name, rule="WMP-6.3")
        taker.ready(1)
        talk.settle()
    few = min(woken.values())
    talk.check(
        few >= 2,
        f"the workers received WAKE for {woken} of 12 jobs; expected at least 2 for each worker",
    )


@case("WMP-3.14")
def ready_of_no_credit(talk: ManagerConversation) -> None:
    """After READY of credit 0 a worker is not woken; another worker is woken at once."""
    workers = [talk.met(), talk.met()]
    for worker in workers:
        worker.ready(1)
    talk.settle()
    talk.submit()
    taker, other = workers
    if taker.wait_for(Command.WAKE) is None:
        taker, other = other, taker
        taker.expect(Command.WAKE)
    taker.ready(0)
    other.expect(Command.WAKE, what="the worker that received WAKE has reported no capacity")
    taker.never(Command.WAKE, during=2.0, what="the worker has reported no capacity")
