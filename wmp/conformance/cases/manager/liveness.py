"""Liveness, epochs, goodbye (section 9), as tests of a manager."""

from __future__ import annotations

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case
from wmp.message import Command, ErrorCode, counted


@case("WMP-9.2")
def pong_names_what_is_remembered(talk: ManagerConversation) -> None:
    """PONG names the remembered READY, credit and lock, and omits the unknown ones."""
    worker = talk.met()
    pong = worker.ask()
    for name in ("ready", "lock"):
        talk.check(pong[name] is None, f"PONG names {name} {pong[name]}; expected none")
    talk.check(pong["session"] >= 1, f"PONG names session {pong['session']}; expected 1 or more")
    talk.check(
        pong["max_silence"] > 0,
        f"PONG names max_silence {pong['max_silence']}; expected more than 0",
    )
    worker.ready(3)
    worker.give(1)
    worker.expect(Command.NO, rule="WMP-4.4")
    pong = worker.ask()
    for name, value in (("ready", 1), ("credit", 3), ("lock", worker.lock)):
        talk.check(pong[name] == value, f"PONG names {name} {pong[name]}; expected {value}")


@case("WMP-9.2")
def every_ping_is_answered(talk: ManagerConversation) -> None:
    """PING gets PONG at once, with ``to`` and without."""
    worker = talk.met()
    for to in ((), worker.to, (), worker.to):
        worker.ping(to=to)
        worker.expect(Command.PONG)


@case("WMP-9.3")
def silence_gives_a_worker_up(talk: ManagerConversation) -> None:
    """After ``max_silence`` in silence a worker's leases are lost and its READY is forgotten."""
    worker, other = talk.met(), talk.met()
    max_silence = talk.book.max_silence
    name = talk.submit(max_worker_losses=5)
    worker.take()
    worker.ready(5)
    worker.lively = False
    old = worker.session
    talk.wait(max_silence - 1.0)
    talk.check(
        not other.take(),
        "another worker received the job before `max_silence` of silence had passed",
        "WMP-6.4",
    )
    talk.wait(1.0 + 2 * talk.wire.grace)
    again = other.take()
    talk.check(
        len(again) == 1,
        f"another worker received NO; expected the job after {max_silence:g} units of silence",
    )
    other.done(*again)
    talk.end_of(name)
    worker.lively = True
    pong = worker.ask(to=())
    talk.check(
        pong["ready"] is None,
        f"PONG names READY {pong['ready']}; expected none after `max_silence` of silence",
    )
    talk.check(
        pong["session"] > old, f"PONG names session {pong['session']}; expected more than {old}"
    )


@case("WMP-9.3", "WMP-9.2")
def one_message_is_enough(talk: ManagerConversation) -> None:
    """Any message within ``max_silence`` keeps a worker's leases."""
    worker, other = talk.met(), talk.met()
    name = talk.submit()
    job = worker.take_job()
    talk.wait(2.5 * talk.book.max_silence)
    talk.check(
        not other.take(),
        "another worker received the job, although the first one sent messages in time",
        "WMP-6.4",
    )
    worker.done(job)
    talk.end_of(name)


@case("WMP-9.18", "WMP-9.19")
def beats(talk: ManagerConversation) -> None:
    """Beats keep the leases of a silent worker, and are answered over the worker's own route.

    A manager may count no beats: its PONG does not have ``max_stall`` then.
    """
    worker, other = talk.met(), talk.met()
    pong = worker.ask(beat_key=77)
    if pong["max_stall"] is None:
        return
    bound = pong["max_stall"] / talk.wire.unit
    name = talk.submit()
    job = worker.take_job()
    worker.lively = False
    speaker = talk.worker(
        "beats", identity=worker.identity, epoch=worker.epoch, testee=worker.testee, lively=False
    )
    worker.clear()
    talk.means = {"WMP-9.2": "WMP-9.19"}
    begun = talk.now
    until = begun + min(bound, 2 * talk.book.max_silence)
    while talk.now + 1.0 < until:
        speaker.ping(session=worker.session, ack=None, beat=77)
        worker.expect(Command.PONG, rule="WMP-9.19")
        talk.check(
            not speaker.received_all,
            "the manager answered a beat over its route; expected PONG over the worker's route",
            "WMP-9.19",
        )
        talk.wait(1.0)
    talk.check(
        not other.take(),
        "another worker received the job, although beats came in time",
        "WMP-9.18",
    )
    worker.lively = True
    worker.done(job)
    talk.end_of(name)


@case("WMP-9.18")
def beats_of_others(talk: ManagerConversation) -> None:
    """A beat with another key keeps no leases."""
    worker, other = talk.met(), talk.met()
    pong = worker.ask(beat_key=77)
    if pong["max_stall"] is None:
        return
    name = talk.submit(max_worker_losses=5)
    worker.take()
    worker.lively = False
    speaker = talk.worker(
        "stranger", identity=worker.identity, epoch=worker.epoch, testee=worker.testee, lively=False
    )
    until = talk.now + talk.book.max_silence + 2 * talk.wire.grace
    while talk.now < until:
        speaker.ping(session=worker.session, ack=None, beat=78)
        talk.wait(1.0)
    again = other.take()
    talk.check(
        len(again) == 1,
        "another worker received NO; expected the job, because only beats with a wrong key came",
    )
    other.done(*again)
    talk.end_of(name)


@case("WMP-9.6")
def older_epoch(talk: ManagerConversation) -> None:
    """A message of an older epoch gets ERROR superseded, and has no effect."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    old = (worker.identity, worker.epoch - 1)
    worker.receives_at(old)
    for command in (Command.BYE, Command.PING):
        worker.send(command, source=old, session=None, ack=None)
        error = worker.expect(Command.ERROR)
        talk.check(
            error["code"] == ErrorCode.SUPERSEDED,
            f"ERROR has code {error['code']!r}; expected 'superseded'",
        )
        about = error["about_peer"]
        talk.check(
            about is not None and tuple(about) == old, f"ERROR is about {about!r}; expected {old!r}"
        )
    worker.done(job)
    talk.end_of(name)


@case("WMP-9.7")
def newer_epoch(talk: ManagerConversation) -> None:
    """A newer epoch has new numbers, no READY and no leases."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=5)
    worker.take()
    worker.ready(5)
    worker.restart()
    pong = worker.meet()
    talk.check(
        pong["ready"] is None, f"PONG names READY {pong['ready']} of the older epoch; expected none"
    )
    talk.check(
        pong["lock"] is None, f"PONG names lock {pong['lock']} of the older epoch; expected none"
    )
    talk.check(
        pong["ack"] in (None, 0),
        f"PONG has ack {pong['ack']} of the older epoch; expected 0 or none",
    )
    again = other.take()
    talk.check(
        len(again) == 1,
        "another worker received NO; expected the job, because the worker that held the job "
        "has a newer epoch",
    )
    other.done(*again)
    talk.end_of(name)
    talk.submit()
    lock = worker.give()
    take = worker.expect(
        Command.TAKE, lock=lock, what="the lock numbers of a new epoch begin at 1 again"
    )
    talk.check(
        take["number"] == 1,
        f"the first TAKE of the new epoch has number {take['number']}; expected 1",
    )


@case("WMP-9.11")
def goodbye(talk: ManagerConversation) -> None:
    """At BYE the worker is forgotten, and its leases are queued again at once."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=5)
    worker.take()
    worker.ready(5)
    lock = other.give(1, hold=4.0)
    talk.settle()
    worker.bye()
    jobs = other.taken(lock, rule="WMP-9.11")
    talk.check(
        len(jobs) == 1, "the open GIVE of another worker received NO; expected the job after BYE"
    )
    other.done(*jobs)
    talk.end_of(name)
    talk.submit()
    worker.never(Command.WAKE, during=1.0, what="the worker has sent BYE")


@case("WMP-9.12", profile="reliable")
def unreachable(talk: ManagerConversation) -> None:
    """ERROR unreachable drops route and credit, but no lease."""
    device = (b"device", 3, b"\x00\x01\x02")
    worker, other = talk.met("behind", hops=device), talk.met()
    name = talk.submit()
    job = worker.take_job()
    worker.ready(5)
    worker.lively = False
    worker.error(
        ErrorCode.UNREACHABLE,
        source=device[:2],
        about=int(Command.TAKE),
        about_peer=(worker.identity, worker.epoch),
    )
    talk.settle()
    talk.check(
        not other.take(),
        "another worker received the job, although ERROR unreachable ends no lease",
        "WMP-9.12",
    )
    talk.submit(b"another")
    worker.never(Command.WAKE, what="ERROR unreachable drops the worker's route and credit")
    other.done(*other.take())
    worker.lively = True
    worker.move(talk.wire.dial(), hops=())
    pong = worker.ask()
    talk.check(
        not pong["credit"],
        f"PONG names credit {pong['credit']}; expected none after ERROR unreachable",
    )
    worker.done(job)
    talk.end_of(name)


@case("WMP-9.20", "WMP-7.3")
def open_give_of_a_lost_route(talk: ManagerConversation) -> None:
    """Open GIVEs of an unreachable worker get NO over the next route."""
    device = (b"device", 3, b"\x00\x01\x02")
    worker = talk.met("behind", hops=device)
    lock = worker.give(1, hold=5.0)
    talk.settle()
    worker.error(
        ErrorCode.UNREACHABLE,
        source=device[:2],
        about=int(Command.PONG),
        about_peer=(worker.identity, worker.epoch),
    )
    talk.settle()
    worker.move(talk.wire.dial(), hops=())
    worker.ping()
    worker.expect(Command.NO, lock=lock)


@case("WMP-9.13")
def missing_from_the_list(talk: ManagerConversation) -> None:
    """A job is lost if its TAKE was received and a PING does not list the job."""
    worker, other = talk.met(), talk.met()
    first, second = talk.submit(max_worker_losses=5), talk.submit(max_worker_losses=5)
    jobs = worker.some(2)
    worker.ping(held=jobs[1:])
    talk.settle()
    again = other.all()
    talk.check(
        [job.id for job in again] == [jobs[0].id],
        f"another worker received jobs {[job.id for job in again]}; expected {[jobs[0].id]}, the "
        "job that PING lacked",
    )
    worker.ping(held=[])
    talk.settle()
    again += other.all()
    talk.check(
        len(again) == 2,
        f"another worker received {counted(len(again), 'job')}; expected 2 after a PING that lists "
        "no job",
    )
    other.done(*again)
    talk.end_of(first)
    talk.end_of(second)


@case("WMP-9.13", "WMP-6.4")
def list_from_before(talk: ManagerConversation) -> None:
    """A job is kept if its TAKE was not received before the PING without it."""
    worker, other = talk.met(), talk.met()
    name = talk.submit()
    job = worker.take_job()
    worker.ack_override = 0
    worker.send(Command.PING, idle=True)
    talk.settle()
    talk.check(
        not other.take(),
        "another worker received the job, although its TAKE may still be on its way",
        "WMP-9.13",
    )
    worker.ack_override = None
    worker.done(job)
    talk.end_of(name)
