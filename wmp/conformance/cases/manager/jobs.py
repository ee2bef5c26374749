"""Jobs and leases (section 6), as tests of a manager."""

from __future__ import annotations

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.script.case import case
from wmp.message import Columns, Command, Outcome


@case("WMP-6.1", profile="reliable")
def attempts_grow(talk: ManagerConversation) -> None:
    """A job stays with its manager until its end; every lease has a greater attempt."""
    worker = talk.met()
    name = talk.submit(max_worker_losses=5)
    attempts: list[int] = []
    for _ in range(3):
        attempts.append(worker.take_job("WMP-6.4" if attempts else "WMP-4.3").attempt)
        worker.restart()
        worker.meet()
    talk.check(
        attempts == sorted(set(attempts)),
        f"the attempts of the leases are {attempts}; expected growing numbers",
    )
    talk.not_ended(name)
    worker.done(worker.take_job("WMP-6.4"))
    talk.end_of(name)


@case("WMP-6.2", "WMP-7.2", profile="reliable")
def stale_attempt(talk: ManagerConversation) -> None:
    """A DONE of an older attempt does not end the job, and is acknowledged."""
    worker = talk.met()
    name = talk.submit(max_worker_losses=5)
    first = worker.take_job().attempt
    worker.restart()
    worker.meet()
    second = worker.take_job("WMP-6.4")
    worker.done(second, attempts=[first], payloads=[b"stale"])
    pong = worker.ask()
    talk.not_ended(name)
    talk.check(
        pong["ack"] == 1,
        f"PONG has ack {pong['ack']}; expected 1, the number of the stale DONE",
        "WMP-7.2",
    )
    worker.done(second, payloads=[b"fresh"])
    end = talk.end_of(name)
    talk.check(end.payload == b"fresh", f"the result is {end.payload!r}; expected b'fresh'")


@case("WMP-6.2")
def an_attempt_not_yet_granted(talk: ManagerConversation) -> None:
    """A DONE of an attempt that was never granted does not end the job."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    worker.done(job, attempts=[job.attempt + 1], payloads=[b"from the future"])
    talk.settle()
    talk.not_ended(name)
    worker.done(job)
    talk.end_of(name)


@case("WMP-6.3")
def one_end(talk: ManagerConversation) -> None:
    """A job ends once, although several DONEs arrive and come from several workers."""
    worker, other = talk.met(), talk.met()
    name = talk.submit()
    job = worker.take_job()
    worker.done(job, payloads=[b"first"])
    end = talk.end_of(name)
    talk.check(end.payload == b"first", f"the result is {end.payload!r}; expected b'first'")
    worker.done(job, payloads=[b"second"])
    worker.done(job, outcome=Outcome.ERROR)
    other.done(job, payloads=[b"third"])
    worker.done(job, outcome=Outcome.CANCELLED)
    talk.wait(1.0)
    talk.collect_ends()
    talk.check(
        not other.take(), "another worker received the job; expected NO, because the job has ended"
    )


@case("WMP-6.2", "WMP-6.3")
def result_of_somebody_else(talk: ManagerConversation) -> None:
    """A DONE of a worker that does not hold the job does not end it."""
    worker, other = talk.met(), talk.met()
    name = talk.submit()
    job = worker.take_job()
    columns = Columns([job.id], [job.attempt], outcomes=[0], payloads=[b"not mine"])
    other.send(Command.DONE, columns, manager=other.testee)
    talk.settle()
    talk.not_ended(name)
    worker.done(job, payloads=[b"mine"])
    end = talk.end_of(name)
    talk.check(end.payload == b"mine", f"the result is {end.payload!r}; expected b'mine'")


@case("WMP-6.29")
def result_of_another_codec(talk: ManagerConversation) -> None:
    """A result whose codec is not that of its job is the end of the job."""
    worker = talk.met()
    frames = b"\x82\x41a\x41b"  # two frames in CBOR
    for codec in ("frames", "cbor"):
        name = talk.submit()
        worker.done(worker.take_job(), payloads=[frames], codec=codec)
        end = talk.end_of(name)
        talk.check(
            end.payload == frames,
            f"the result of codec {codec!r} is {end.payload!r}; expected {frames!r}",
        )


@case("WMP-6.4")
def lost_lease_goes_first(talk: ManagerConversation) -> None:
    """A job whose lease is lost is queued again at once, before the jobs that wait."""
    worker, other = talk.met(), talk.met()
    first = talk.submit()
    job = worker.take_job()
    talk.submit()
    talk.submit()
    worker.bye()
    talk.settle()
    again = other.take_job()
    talk.check(
        again.payload == job.payload,
        f"job {again.payload!r} was granted before {first}, whose lease was lost; expected "
        f"{first} first",
    )


@case("WMP-6.4", "WMP-1.8")
def a_route_is_no_lease(talk: ManagerConversation) -> None:
    """A lease survives a change of route."""
    worker, other = talk.met(), talk.met()
    name = talk.submit()
    job = worker.take_job()
    worker.move(talk.wire.dial())
    worker.ping()
    talk.settle()
    talk.check(
        not other.take(),
        "another worker received the job, although the first one still holds its lease",
    )
    worker.done(job)
    talk.end_of(name)


@case("WMP-6.17", "WMP-6.4", "WMP-6.15")
def a_job_is_lost_too_often(talk: ManagerConversation) -> None:
    """A job that is lost more often than max_worker_losses allows ends as lost."""
    name = talk.submit(max_worker_losses=1)
    for _ in range(2):
        worker = talk.met()
        worker.take_job("WMP-6.4")
        talk.not_ended(name)
        worker.restart()
        worker.meet()
    talk.end_of(name, "lost")
    talk.check(
        not worker.take(), "a worker received the job; expected NO, because the job has ended"
    )


@case("WMP-6.23", profile="reliable")
def leaving_costs_one_retry(talk: ManagerConversation) -> None:
    """A worker that takes a job and leaves, again and again, counts as one worker loss."""
    worker = talk.met()
    name = talk.submit(max_worker_losses=1)
    for _ in range(3):
        worker.take_job("WMP-6.23")
        worker.restart()
        worker.meet()
    talk.not_ended(name)
    other = talk.met()
    other.done(other.take_job())
    talk.end_of(name)


@case("WMP-6.17")
def what_never_left_costs_nothing(talk: ManagerConversation) -> None:
    """A lease whose TAKE could not be sent does not count as a worker loss."""
    worker, other = talk.met(), talk.met()
    worker.give(1, hold=talk.book.max_silence + 4.0)
    talk.settle()
    worker.lively = False
    assert worker.connection is not None
    talk.wire.hang_up(worker.connection)
    talk.wait(2 * talk.wire.grace)
    name = talk.submit(max_worker_losses=0)
    talk.wait(talk.book.max_silence + talk.wire.grace)
    talk.not_ended(name)
    other.done(other.take_job("WMP-9.3"))
    talk.end_of(name)


@case("WMP-6.5")
def refused_job(talk: ManagerConversation) -> None:
    """A refused job is granted again, to any worker that asks."""
    worker, other = talk.met(), talk.met()
    name = talk.submit()
    worker.done(worker.take_job(), outcome=Outcome.REFUSED, payloads=[b"no capacity"])
    talk.settle()
    talk.not_ended(name)
    other.done(other.take_job())
    talk.end_of(name)


@case("WMP-6.34", profile="reliable")
def begun_runs_are_counted(talk: ManagerConversation) -> None:
    """A lease that ended before the job began is no run; a lease that ended later is one."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=5)
    first = worker.take_job()
    worker.done(first, outcome=Outcome.REFUSED, payloads=[b"no capacity"])
    second = other.take_job("WMP-6.5")
    other.done(second, outcome=Outcome.CANCELLED, payloads=[b""])
    third = worker.take_job("WMP-6.11")
    cancelled = [Outcome.CANCELLED]
    worker.done(third, outcome=cancelled, payloads=[b""], texts=["the job had begun"])
    fourth = other.take_job("WMP-6.11")
    other.done(fourth, outcome=Outcome.LOST, payloads=[b"killed"])
    fifth = worker.take_job("WMP-6.15")
    counts = [job.begun for job in (first, second, third, fourth, fifth)]
    talk.check(
        counts == [0, 0, 0, 1, 2],
        f"the numbers of earlier runs in five TAKEs are {counts}; expected [0, 0, 0, 1, 2], after "
        "leases that ended as refused, as handed back, as cancelled after the job had begun, and "
        "as lost",
    )
    worker.done(fifth)
    talk.end_of(name)


@case("WMP-6.5", profile="reliable")
def refusals_cost_nothing(talk: ManagerConversation) -> None:
    """DONE refused does not count as a worker loss."""
    worker = talk.met()
    name = talk.submit(max_worker_losses=0)
    refused = 0
    for _ in range(40):
        jobs = worker.take()
        if jobs:
            talk.not_ended(name)
            if refused == 3:
                worker.done(jobs[0])
                talk.end_of(name)
                return
            worker.done(jobs[0], outcome=Outcome.REFUSED, payloads=[b"no capacity"])
            refused += 1
        talk.wait(1.0)
    talk.check(False, f"no worker received the job again after {refused} refusals within 40 units")


@case("WMP-6.5", profile="held-give")
def not_to_who_refused(talk: ManagerConversation) -> None:
    """A worker that refused a job gets it again only after READY, GIVE, PING or session."""
    worker, other = talk.met(), talk.met()
    name = talk.submit()
    lock = worker.give(3, hold=4.0)
    worker.expect(Command.TAKE, lock=lock, rule="WMP-4.3")
    worker.lively = False  # after a PING of the worker the manager may give the job again
    worker.done(*worker.held.values(), outcome=Outcome.REFUSED, payloads=[b"no capacity"])
    worker.never(
        Command.TAKE, during=2.0, what="the worker has refused this job and sent nothing since"
    )
    other.done(other.take_job())
    worker.lively = True
    talk.end_of(name)


@case("WMP-6.7")
def time_left(talk: ManagerConversation) -> None:
    """``left`` is the time to the deadline, rounded up; null or absent without a deadline."""
    worker = talk.met()
    talk.submit()
    lock = worker.give()
    take = worker.expect(Command.TAKE, lock=lock, rule="WMP-4.3")
    columns = take.message.columns
    assert columns is not None
    talk.check(
        not any(columns.left_ms or ()),
        f"'left' is {columns.left_ms}; expected null, because the job has no deadline",
    )
    began = talk.now
    talk.submit(timeout=4.0)
    talk.wait(1.0)
    lock = worker.give()
    take = worker.expect(Command.TAKE, lock=lock, rule="WMP-4.3")
    columns = take.message.columns
    assert columns is not None
    left = (columns.left_ms or [None])[0]
    talk.check(left is not None, "'left' is null; expected the time to the deadline of the job")
    if left is None:
        return
    maximum, minimum = talk.ms(4.0 - 1.0) + 1, talk.ms(4.0 - (take.at - began)) - 1
    maximum += talk.ms(2 * talk.wire.grace)
    talk.check(minimum <= left <= maximum, f"'left' is {left} ms; expected {minimum} to {maximum}")


@case("WMP-6.8")
def deadline_in_the_queue(talk: ManagerConversation) -> None:
    """A job whose deadline passes in the queue ends, and is not granted any more."""
    worker = talk.met()
    name = talk.submit(timeout=1.0)
    talk.end_of(name, "timeout", within=1.0 + talk.wire.grace)
    talk.check(
        not worker.take(),
        "the worker received the job; expected NO, because the deadline of the job has passed",
        "WMP-6.3",
    )


@case("WMP-6.8")
def deadline_at_a_worker(talk: ManagerConversation) -> None:
    """A job whose deadline passes at a worker ends, and the worker gets CANCEL."""
    worker = talk.met()
    name = talk.submit(timeout=1.0)
    job = worker.take_job()
    worker.expect(
        Command.CANCEL,
        within=1.0 + talk.wire.grace,
        where=lambda received: (job.id, job.attempt) in received.jobs,
    )
    talk.end_of(name, "timeout")
    worker.done(job, payloads=[b"too late"])
    talk.settle()
    talk.collect_ends()


@case("WMP-6.9", "WMP-6.3", profile="status-cancel")
def status_is_no_result(talk: ManagerConversation) -> None:
    """STATUS does not end a job."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    worker.status(job, 0.5, "half of it")
    worker.status(job, None)
    talk.settle()
    talk.not_ended(name)
    worker.done(job)
    talk.end_of(name)
    reports = len(talk.statuses)
    talk.inform(f"the manager reported {reports} of 2 STATUS to the submitter")


@case("WMP-6.11")
def handed_back(talk: ManagerConversation) -> None:
    """DONE cancelled without CANCEL hands the job back, and is not a worker loss."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=0)
    for _ in range(2):
        worker.done(worker.take_job(), outcome=Outcome.CANCELLED, payloads=[b""])
        talk.settle()
        talk.not_ended(name)
    other.done(other.take_job())
    talk.end_of(name)


@case("WMP-6.12")
def cancelled_in_the_queue(talk: ManagerConversation) -> None:
    """A job that is cancelled in the queue is not granted."""
    worker = talk.met()
    first, name, last = talk.submit(), talk.submit(), talk.submit()
    talk.cancel(name)
    talk.end_of(name, "cancelled")
    given = sorted(job.payload.decode() for job in worker.all())
    talk.check(
        given == [first, last],
        f"the worker received {given}; expected {[first, last]}, because {name} was cancelled",
    )


@case("WMP-6.12")
def cancelled_at_a_worker(talk: ManagerConversation) -> None:
    """A job that is cancelled at a worker gets CANCEL, and no further attempt."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=5)
    job = worker.take_job()
    talk.cancel(name)
    worker.expect(
        Command.CANCEL,
        where=lambda received: (job.id, job.attempt) in received.jobs,
        what="the submitter cancelled the job",
    )
    worker.done(job, outcome=Outcome.CANCELLED, payloads=[b""])
    talk.end_of(name, "cancelled")
    talk.check(
        not other.take(),
        "another worker received the job; expected NO, because the job was cancelled",
    )


@case("WMP-6.12")
def cancelled_and_lost(talk: ManagerConversation) -> None:
    """A cancelled job whose worker is lost ends as cancelled, and is not granted again."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(max_worker_losses=5)
    worker.take_job()
    talk.cancel(name)
    worker.expect(Command.CANCEL)
    worker.bye()
    talk.end_of(name, "cancelled")
    talk.check(
        not other.take(),
        "another worker received the job; expected NO, because the job was cancelled",
    )


@case("WMP-6.12", "WMP-6.3")
def result_beats_cancel(talk: ManagerConversation) -> None:
    """A result that arrives during a cancellation ends the job, once."""
    worker = talk.met()
    name = talk.submit()
    job = worker.take_job()
    talk.cancel(name)
    worker.expect(Command.CANCEL)
    worker.done(job, payloads=[b"finished before"])
    talk.until(
        lambda: any(end.name == name for end in talk.collect_ends()),
        talk.wire.grace,
        "WMP-6.3",
        "the manager reported no end of a job whose result came during its cancellation",
    )


@case("WMP-6.13")
def order_of_submission(talk: ManagerConversation) -> None:
    """Jobs of one priority are granted in the order of submission."""
    worker = talk.met()
    names = [talk.submit() for _ in range(6)]
    given: list[bytes] = []
    for want in (1, 2, 3):
        given += [job.payload for job in worker.some(want)]
    talk.check(
        given == [name.encode() for name in names],
        f"the jobs are granted in the order {given}; expected {names}",
    )


@case("WMP-6.13")
def higher_priorities_first(talk: ManagerConversation) -> None:
    """A job of higher priority is granted before jobs of lower priority, whenever it arrives."""
    worker = talk.met()
    low = talk.submit()
    high = talk.submit(priority=5)
    talk.settle()
    given = [job.payload.decode() for _ in range(2) for job in worker.take()]
    talk.check(
        given == [high, low], f"the jobs are granted in the order {given}; expected {[high, low]}"
    )


@case("WMP-2.13", "WMP-2.11")
def damaged_result(talk: ManagerConversation) -> None:
    """A result that does not fit its checksum does not end the job."""
    worker = talk.met()
    name = talk.submit(max_worker_losses=5)
    worker.done(worker.take_job(), payloads=[b"damaged"], checksums=[0xCBF43926])
    talk.settle()
    talk.not_ended(name, "WMP-2.13")
    worker.done(worker.take_job("WMP-2.13"), payloads=[b"123456789"], checksums=[0xCBF43926])
    end = talk.end_of(name, rule="WMP-2.11")
    talk.check(end.payload == b"123456789", f"the result is {end.payload!r}; expected b'123456789'")


@case("WMP-6.15")
def lost_at_the_worker(talk: ManagerConversation) -> None:
    """DONE lost counts as a worker loss; above max_worker_losses the job ends as lost."""
    worker = talk.met()
    name = talk.submit(max_worker_losses=1)
    worker.done(worker.take_job(), outcome=Outcome.LOST, payloads=[b"killed by signal 9"])
    talk.settle()
    talk.not_ended(name)
    worker.done(worker.take_job(), outcome=Outcome.LOST, payloads=[b"killed by signal 9"])
    end = talk.end_of(name, "lost")
    talk.check(
        b"signal 9" in end.payload,
        f"the end has the text {end.payload!r}; expected the cause, b'signal 9'",
    )


@case("WMP-2.13", "WMP-2.11")
def checksum_above_32_bits(talk: ManagerConversation) -> None:
    """A checksum above 2**32 - 1 is well-formed, and fits no result."""
    worker = talk.met()
    name = talk.submit(max_worker_losses=5)
    worker.done(worker.take_job(), payloads=[b"123456789"], checksums=[0x1CBF43926])
    talk.settle()
    talk.not_ended(name, "WMP-2.13")
    worker.done(worker.take_job("WMP-2.13"))
    talk.end_of(name)
