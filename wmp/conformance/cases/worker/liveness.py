"""Liveness, epochs, goodbye (section 9), as tests of a worker."""

from __future__ import annotations

import itertools

from wmp.conformance.cases.worker.handshake import fill, slowly
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.peers.played_manager import PlayedManager
from wmp.conformance.script.case import case
from wmp.message import Command, ErrorCode, Outcome

_LATE = 0.05
"""Units by which a timer may be late."""


def _gaps(
    talk: WorkerConversation, manager: PlayedManager, during: float, *commands: Command
) -> list[float]:
    """Return the times between messages that the manager receives, of some commands or all."""
    talk.settle()
    began = talk.now
    manager.inbox.clear()
    talk.wait(during)
    received = [h.at for h in manager.inbox if not commands or h.command in commands]
    times = [began, *received, talk.now]
    return [after - before for before, after in itertools.pairwise(times)]


@case("WMP-9.1")
def pings_in_silence(talk: WorkerConversation) -> None:
    """A manager receives a message at least once an interval."""
    manager, _ = talk.met(), talk.met()
    longest = max(_gaps(talk, manager, 8.0))
    maximum = 1.0 + talk.wire.grace + _LATE
    talk.check(
        longest <= maximum,
        f"the manager received no message for {longest:.2f} units; expected one in each unit",
    )


@case("WMP-9.1")
def interval_of_a_manager(talk: WorkerConversation) -> None:
    """The interval is at most a third of the manager's ``max_silence``."""
    manager, _ = talk.met(max_silence=1.5), talk.met()
    manager.pong()
    longest = max(_gaps(talk, manager, 4.0))
    maximum = 0.5 + talk.wire.grace + _LATE
    talk.check(
        longest <= maximum,
        f"the manager received no message for {longest:.2f} units; expected one every 0.5 units, a "
        "third of `max_silence`",
    )


@case("WMP-9.15")
def min_silence(talk: WorkerConversation) -> None:
    """A manager with ``max_silence`` 0 receives few messages all the same."""
    manager = talk.met()
    manager.max_silence = 0.0
    manager.pong()
    talk.settle()
    manager.inbox.clear()
    talk.wait(1.0)
    # Ten PINGs, at most ten READYs, and at most ten GIVEs.
    count = len(manager.inbox)
    talk.check(
        count <= 40,
        f"the manager with `max_silence` 0 received {count} messages in one unit; "
        "expected at most 40",
    )


@case("WMP-9.1")
def pings_in_traffic(talk: WorkerConversation) -> None:
    """Every third interval there is a PING, although other messages are sent."""
    manager = talk.met()
    talk.settle()
    manager.inbox.clear()
    began = talk.now
    for _ in range(22):
        if manager.locks:
            (job,) = manager.take(next(iter(manager.locks)), b"busy")
            manager.done_of(job)
        else:
            (job,) = manager.run(b"busy")
            manager.done_of(job)
        talk.wait(0.3)
    pings = [h.at for h in manager.inbox if h.command is Command.PING and h.message.to]
    times = [began, *pings, talk.now]
    longest = max(after - before for before, after in itertools.pairwise(times))
    talk.check(
        longest <= 3.0 + talk.wire.grace + _LATE,
        f"the manager received no PING for {longest:.2f} units of traffic; expected one in 3",
    )


@case("WMP-9.1")
def looking_for_managers(talk: WorkerConversation) -> None:
    """On a link without a known manager the worker sends PING without ``to``."""
    manager = talk.manager(answers=False)
    manager.expect(
        Command.PING,
        within=talk.wire.patience + 1.5,
        where=lambda received: not received.message.to,
    )
    talk.over = True


@case("WMP-9.4")
def silent_link(talk: WorkerConversation) -> None:
    """A silent link gets a new socket: after three intervals, then with backoff."""
    manager = talk.manager(answers=False)
    first = manager.expect(Command.READY, within=talk.wire.patience)
    began = talk.now
    old = first.connection
    times = []
    for within in (4.0, 5.0, 6.0):
        connection = old
        received = manager.expect(
            Command.READY,
            within=within + 2 * talk.wire.grace,
            where=lambda received, old=connection: received.connection != old,  # type: ignore[misc]
            what="the link was silent for three intervals and needs a new socket",
        )
        manager.expect(
            Command.PING,
            within=1.0 + talk.wire.grace,
            where=lambda received, new=received.connection: received.connection == new,  # type: ignore[misc]
        )
        old = received.connection
        times.append(received.at)
    minimum = 2.5 - talk.wire.grace
    talk.check(
        times[0] - began >= minimum,
        f"the worker replaced its socket after {times[0] - began:.2f} units; expected "
        f"{minimum:.2f} or more",
    )
    manager.answers = True
    manager.pong()
    talk.settle()


@case("WMP-9.4")
def a_link_that_is_not_silent(talk: WorkerConversation) -> None:
    """A link over which any manager sends keeps its socket."""
    manager = talk.met()
    quiet = talk.met("quiet")
    quiet.answers = False
    manager.clear()
    connection = manager.connection
    talk.wait(12.0)
    talk.check(
        manager.connection == connection,
        "the worker replaced the socket of a link over which a manager sends; expected the old one",
    )


@case("WMP-9.5")
def pings_during_a_job(talk: WorkerConversation) -> None:
    """Liveness does not wait for user code."""
    manager, _ = talk.met(), talk.met()
    manager.run(slowly(talk, 4.0), role="slow")
    longest = max(_gaps(talk, manager, 3.5))
    maximum = 1.0 + talk.wire.grace + _LATE
    talk.check(
        longest <= maximum,
        f"the manager received no message for {longest:.2f} units while a job ran; expected one "
        "in each unit",
    )


@case("WMP-9.6")
def older_epoch(talk: WorkerConversation) -> None:
    """A message of an older epoch gets ERROR superseded, and has no effect."""
    manager, _ = talk.met(), talk.met()
    old = (manager.identity, manager.epoch - 1)
    source = (*old, *manager.hops)
    manager.receives_at(source)
    manager.send(
        Command.WAKE, source=source, count=1, role="echo", needs={"slots": 1}, session=9, ack=0
    )
    error = manager.expect(Command.ERROR)
    talk.check(
        error["code"] == ErrorCode.SUPERSEDED,
        f"ERROR has code {error['code']!r}; expected 'superseded'",
    )
    about = error["about_peer"]
    talk.check(
        about is not None and tuple(about) == old, f"ERROR is about {about!r}; expected {old!r}"
    )
    manager.never(Command.GIVE, where=manager.is_open, what="WAKE of an older epoch has no effect")
    (job,) = manager.run()
    manager.done_of(job)


@case("WMP-9.7")
def newer_epoch(talk: WorkerConversation) -> None:
    """A newer epoch of a manager gets READY, new numbers, and no DONE of the older epoch's jobs."""
    talk.means = {"WMP-7.2": "WMP-9.7"}  # the ack counts messages of the older epoch
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 1.0 + 3 * talk.wire.grace), role="slow")
    manager.clear()
    before = manager.ready
    manager.restart()
    manager.pong()
    manager.expect(
        Command.READY,
        within=1.5 + talk.wire.grace,
        # A READY that was sent before the restart, or a repeated READY, may still arrive.
        where=lambda received: received["ready"] > before,
        what=f"the new epoch of the manager must receive a READY with a number above {before}",
    )
    late = 3.0 + 3 * talk.wire.grace
    manager.never(Command.DONE, during=late, what=f"job {job} belongs to the older epoch")
    (job,) = manager.run(b"anew")
    done = manager.expect(Command.DONE)
    talk.check(
        done["number"] == 1,
        f"the first DONE to the new epoch has number {done['number']}; expected 1",
    )


@case("WMP-9.8")
def superseded_others(talk: WorkerConversation) -> None:
    """After ERROR superseded about another epoch the worker continues, or forgets that manager."""
    manager, _ = talk.met(), talk.met()
    assert manager.testee is not None
    identity, epoch = manager.testee
    manager.error(ErrorCode.SUPERSEDED, about_peer=(identity, epoch - 1))
    (job,) = manager.run(slowly(talk, 1.0), role="slow")
    talk.wait(0.2)
    manager.error(ErrorCode.SUPERSEDED, about_peer=(manager.identity, manager.epoch))
    manager.lose("WMP-9.8", job)
    manager.answers = False
    manager.never(
        Command.DONE,
        during=3.0,
        what=f"job {job} belongs to an epoch that the worker has forgotten",
    )


@case("WMP-9.9")
def held_jobs(talk: WorkerConversation) -> None:
    """A directed PING may list held jobs; a PING that lists some lists all of them."""
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 4.0 + 2 * talk.wire.grace), role="slow")
    talk.settle()  # a PING from before the TAKE may be on its way
    manager.inbox.clear()
    ping = manager.expect(
        Command.PING, within=2.0 + talk.wire.grace, where=lambda received: bool(received.message.to)
    )
    if ping["idle"]:
        talk.check(False, "PING reports idle, although the worker holds a job", level="must")
    if not ping.jobs:
        talk.inform("PING lists no held jobs")
        return
    talk.check(
        ping.jobs == [(job, 1)],
        f"PING lists the jobs {ping.jobs}; expected {[(job, 1)]}",
        level="must",
    )
    talk.inform("PING lists the held jobs")


@case("WMP-9.9", slots=2)
def jobs_of_two_owners(talk: WorkerConversation) -> None:
    """A PING has neither a list nor ``idle`` while the worker holds a job of another owner."""
    manager, _ = talk.met(), talk.met()
    manager.owner = (b"elsewhere", 77)
    manager.run(slowly(talk, 4.0 + 2 * talk.wire.grace), role="slow")
    talk.settle()  # a PING from before the TAKE may be on its way
    manager.inbox.clear()
    ping = manager.expect(
        Command.PING, within=2.0 + talk.wire.grace, where=lambda received: bool(received.message.to)
    )
    lists = bool(ping.jobs or ping["idle"])
    text = "PING has a list or `idle`, though a job of another owner is held"
    talk.check(not lists, text, level="must")


@case("WMP-9.10")
def goodbye(talk: WorkerConversation) -> None:
    """A worker that ends sends BYE to every manager that it knows."""
    first, second = talk.met(), talk.met()
    talk.over = True
    talk.wire.drain()
    for manager in (first, second):
        manager.expect(Command.BYE, within=5.0 + talk.wire.grace)


@case("WMP-9.10")
def goodbye_after_work(talk: WorkerConversation) -> None:
    """A worker that ends finishes or hands back its jobs, and then sends BYE."""
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 1.0), role="slow")
    talk.wait(0.2)
    talk.over = True
    talk.wire.drain()
    manager.expect(Command.BYE, within=8.0 + talk.wire.grace)
    key = (manager.identity, manager.epoch), job, 1
    talk.check(
        key in manager.answered, f"BYE came before the DONE of job {job}; expected DONE first"
    )


@case("WMP-9.12")
def unreachable(talk: WorkerConversation) -> None:
    """ERROR unreachable drops the route, but no job: DONE comes over the next route."""
    manager, _ = talk.met(), talk.met("other")
    (job,) = manager.run(slowly(talk, 1.0), role="slow")
    talk.wait(0.2)
    manager.answers = False
    manager.error(
        ErrorCode.UNREACHABLE,
        source=(b"between", 7),
        about=int(Command.PING),
        about_peer=(manager.identity, manager.epoch),
    )
    talk.wait(1.5)
    manager.inbox.clear()
    manager.answers = True
    manager.move(hops=(b"another", 9, 4))
    manager.pong()
    if not any(id == job for _, id, _ in manager.answered):
        manager.done_of(job, rule="WMP-9.12")


@case("WMP-9.21")
def misrouted(talk: WorkerConversation) -> None:
    """ERROR misrouted about a manager releases the manager's locks at once."""
    manager, other = talk.met(), talk.met("other")
    manager.woken(64)
    talk.settle()
    other.clear()
    other.wake(1)
    other.expect(Command.READY, where=lambda received: received["credit"] == 0, rule="WMP-3.9")
    manager.answers = False
    manager.error(
        ErrorCode.MISROUTED,
        source=(b"between", 7),
        about=int(Command.GIVE),
        about_peer=(manager.identity, manager.epoch),
    )
    manager.locks.clear()
    other.lock(what="ERROR misrouted about the other manager releases its lock")
    talk.over = True


@case("WMP-9.21")
def another_in_its_place(talk: WorkerConversation) -> None:
    """A new manager on a new connection without hops replaces the old one, whose locks end."""
    gone = talk.met("gone", hops=())
    gone.woken(64)
    talk.settle()
    gone.answers = False
    old, began = gone.connection, talk.now
    new = talk.manager("new", hops=())
    new.answers = False
    new.expect(
        Command.READY,
        within=4.0 + 2 * talk.wire.grace,
        where=lambda received: received.connection != old,
        rule="WMP-9.4",
    )
    gone.locks.clear()
    new.answers = True
    new.pong()
    new.expect(
        Command.READY,
        Command.GIVE,
        where=lambda received: bool(received["credit"] or received["want"]),
        what="the new manager replaces the old one, whose lock ends",
    )
    talk.check(
        talk.now - began < 5.0 + 3 * talk.wire.grace,
        f"the kit needed {talk.now - began:.2f} units for this case, which is too slow; repeat it",
    )


@case("WMP-9.22")
def question_after_a_pause(talk: WorkerConversation) -> None:
    """A worker that was stopped asks the manager before it begins a job."""
    manager = talk.met(max_silence=1.5)
    manager.pong()
    lock = manager.woken()
    manager.answers = False
    with talk.stopped():
        manager.inbox.clear()
        (job,) = manager.take(lock.number, b"old")
        talk.wait(1.6 + talk.wire.grace)
        if manager.inbox:
            talk.unimplemented("the worker sends messages while the kit has stopped its process")
    ping = manager.expect(
        Command.PING,
        where=lambda received: bool(received["challenge"]),
        what="the worker sent nothing for `max_silence`, and must ask before it begins a job",
    )
    talk.check(
        bool(ping.message.to) and ping["session"] == manager.session,
        f"PING with `challenge` has the session {ping['session']!r}; expected a directed PING of "
        f"session {manager.session}",
    )
    manager.pong()
    manager.never(
        Command.DONE,
        # A worker may hand back a job that has waited for long, and has not begun it then.
        where=lambda done: set(done.outcomes) != {Outcome.CANCELLED},
        during=0.3 + talk.wire.grace,
        what=f"no PONG has answered the question of PING, so job {job} must not begin",
    )
    manager.answers = True
    manager.pong(answer=ping["challenge"])
    if all(id != job for _, id, _ in manager.answered):
        manager.done_of(job, None, what=f"PONG has answered the question, so job {job} may begin")
    (job,) = manager.run(b"anew")
    manager.done_of(job)


@case("WMP-9.14")
def silent_manager(talk: WorkerConversation) -> None:
    """A manager silent for its ``max_silence`` is given up: no DONE, free capacity."""
    manager, other = talk.met(), talk.met("other")
    fill(talk, manager, 30.0)
    other.wake(1)
    manager.answers = False
    silent = manager.last_sent
    lock = other.lock(
        manager.max_silence + 1.5 + 3 * talk.wire.grace,
        what="the manager that gave the running jobs was silent for its `max_silence`",
    )
    took = talk.now - silent
    talk.check(
        took >= manager.max_silence - talk.wire.grace - 1e-6,
        f"the worker gave the manager up after {took:.2f} units; expected "
        f"{manager.max_silence:g} or more",
    )
    (job,) = other.take(lock.number, b"instead")
    other.done_of(job)
    manager.never(Command.DONE, what="the worker has given up this manager and its jobs")
