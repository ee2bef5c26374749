"""Jobs (section 6), as tests of a worker."""

from __future__ import annotations

from wmp import codec
from wmp.conformance.cases.worker.handshake import slowly
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.script.case import case
from wmp.errors import DecodeError
from wmp.message import Command, Outcome


@case("WMP-6.6", slots=3)
def every_job_is_answered(talk: WorkerConversation) -> None:
    """Every job is answered once, by id and attempt, to the manager that gave the job."""
    first, second = talk.met(), talk.met()
    for round in range(4):
        for manager in (first, second):
            lock = manager.woken(3)
            count = min(3, lock.want)
            payloads = [b"%s %d %d" % (manager.identity, round, row) for row in range(count)]
            jobs = manager.take(lock.number, *payloads, attempt=round + 1)
            for job, payload in zip(jobs, payloads, strict=True):
                answer = manager.done_of(job, within=1.0 + talk.wire.grace)
                talk.check(
                    answer == payload,
                    f"the result of role echo is {answer!r}; expected the payload {payload!r}",
                )
    for manager in (first, second):
        manager.never(Command.DONE, again=False, what="the worker has already answered all jobs")


@case("WMP-6.6", "WMP-2.9")
def results_as_they_are(talk: WorkerConversation) -> None:
    """Payloads of every size come back unchanged."""
    manager = talk.met()
    for size in (0, 1, 4096, 4097, 300_000):
        payload = b"\x80" * size
        (job,) = manager.run(payload)
        done = manager.expect(Command.DONE, within=2.0)
        talk.check(done.jobs == [(job, 1)], f"DONE has the jobs {done.jobs}; expected {[(job, 1)]}")
        talk.check(
            done.payloads == [payload],
            f"the result of {size} bytes differs from the payload; expected the payload",
        )
        if size > 4096:
            apart = len(done.frames) == 3
            text = f"a result of {size} bytes is in the columns; expected a frame of its own"
            talk.check(apart, text, "WMP-2.9", "should")


@case("WMP-6.6")
def failing_job(talk: WorkerConversation) -> None:
    """A job that fails ends as *error*, with CBOR of type, text and traceback."""
    manager = talk.met()
    (job,) = manager.run(b"please fail", role="fail")
    payload = manager.done_of(job, Outcome.ERROR, within=1.0 + talk.wire.grace)
    expected = "expected CBOR of three texts: type, text and traceback"
    try:
        parts = codec.unpack_value(payload)
    except DecodeError as error:
        talk.check(False, f"the payload of DONE error cannot be read: {error}; {expected}")
        return
    texts = type(parts) is list and len(parts) == 3 and set(map(type, parts)) == {str}
    talk.check(texts, f"the payload of DONE error is {parts!r}; {expected}")
    talk.remark(f"the job failed with {parts[0]}: {parts[1]}")


@case("WMP-6.7")
def too_late(talk: WorkerConversation) -> None:
    """A job whose time has passed on arrival is not begun, and ends as *cancelled*."""
    manager = talk.met()
    lock = manager.woken(1)
    (job,) = manager.take(lock.number, b"too late", left=0.0)
    manager.done_of(job, Outcome.CANCELLED, rule="WMP-6.7")
    (job,) = manager.run(b"in time", left=100.0)
    manager.done_of(job, rule="WMP-6.7")


@case("WMP-6.9")
def status(talk: WorkerConversation) -> None:
    """The worker may send STATUS for a job that it holds."""
    manager = talk.met()
    (job,) = manager.run(slowly(talk, 0.5), role="slow")
    received = manager.wait_for(Command.STATUS, within=0.5)
    manager.done_of(job, within=0.5 + talk.wire.grace)
    if received is None:
        talk.inform("the worker sent no STATUS for a job of role 'slow'")
        return
    talk.check(
        received.jobs == [(job, 1)], f"STATUS has the jobs {received.jobs}; expected {[(job, 1)]}"
    )
    talk.inform("the worker sent STATUS for a job of role 'slow'")


@case("WMP-6.10")
def cancel_what_is_not_held(talk: WorkerConversation) -> None:
    """CANCEL of a job that the worker does not hold is answered by DONE cancelled."""
    manager = talk.met()
    manager.cancel(41, 42)
    for job in (41, 42):
        manager.done_of(job, Outcome.CANCELLED, rule="WMP-6.10")


@case("WMP-6.10")
def cancel_what_runs(talk: WorkerConversation) -> None:
    """CANCEL of a running job is answered by the job's own outcome."""
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 2.0), role="slow")
    talk.wait(0.2)
    manager.cancel(job)
    manager.done_of(job, None, within=2.0 + talk.wire.grace, rule="WMP-6.10")
    outcome = manager.answered[(manager.identity, manager.epoch), job, 1]
    talk.check(
        outcome in (Outcome.OK, Outcome.CANCELLED),
        f"the job ended as {outcome}; expected ok or cancelled",
    )
    manager.never(
        Command.DONE,
        again=False,
        during=2.0,
        rule="WMP-6.6",
        what="the worker has already answered the job",
    )


@case("WMP-6.10")
def cancel_another_attempt(talk: WorkerConversation) -> None:
    """CANCEL of an attempt that is not held gets DONE. The attempt that is held continues."""
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 1.0), role="slow", attempt=3)
    manager.cancel(job, attempt=2)
    done = manager.expect(
        Command.DONE, what="the worker must answer CANCEL of an attempt that it does not hold"
    )
    talk.check(done.jobs == [(job, 2)], f"DONE has the jobs {done.jobs}; expected {[(job, 2)]}")
    talk.check(
        done.outcomes == [Outcome.CANCELLED],
        f"DONE has the outcomes {done.outcomes}; expected cancelled",
    )
    manager.done_of(job, within=1.0 + talk.wire.grace)


@case("WMP-6.10")
def cancel_unstarted(talk: WorkerConversation) -> None:
    """CANCEL with ``unstarted`` does not touch a job that has begun."""
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 1.0), role="slow")
    talk.wait(0.3)
    manager.cancel(job, unstarted=True)
    manager.done_of(job, Outcome.OK, within=1.0 + talk.wire.grace, rule="WMP-6.10")


@case("WMP-6.18")
def waiting_jobs_handed_back(talk: WorkerConversation) -> None:
    """Before a worker hands waiting jobs back, it withdraws held GIVEs and the reported window."""
    manager = talk.met()
    lock = manager.woken(64, role="slow")
    for _ in range(20):
        if lock.window:
            break
        for job in manager.take(lock.number, *[b"0"] * lock.want, role="slow"):
            manager.done_of(job, within=1.0 + talk.wire.grace)
        lock = manager.woken(64, role="slow")
    if not lock.window:
        talk.inform("the worker accepts no more jobs than it has resources for")
        return
    open_ = {number for number in manager.locks if talk.book.locks[number].hold}
    payloads = [slowly(talk, 5.0)] * lock.locked + [b"0"] * lock.window
    start = len(talk.lines)
    manager.take(lock.number, *payloads, role="slow")
    done = manager.wait_for(
        Command.DONE,
        within=4.0,
        where=lambda received: Outcome.CANCELLED in received.outcomes,
    )
    if done is None:
        talk.inform("the worker hands no waiting jobs back to the manager")
        return
    window = 0
    for received in manager.received_all:
        if received.line >= done.line:
            break
        if received.command is Command.READY:
            window = received["window"] or 0
        if received.command is Command.GIVE and received["hold"] and received.line >= start:
            open_.add(received["lock"])
        if received.command is Command.GIVE and not received["want"]:
            open_.discard(received["lock"])
    talk.check(
        not open_,
        f"DONE hands jobs back while the held GIVEs of locks {sorted(open_)} are open; expected "
        "first GIVE with 'want' 0 for each",
        level="must",
    )
    talk.check(
        not window,
        f"DONE hands jobs back while the newest READY has window {window}; expected first READY "
        "with window 0",
        level="must",
    )
    talk.inform("the worker hands waiting jobs back to the manager")


@case("WMP-6.14")
def what_runs_it_dies(talk: WorkerConversation) -> None:
    """A job whose process dies is answered by *lost*, with the cause."""
    manager = talk.met()
    if "die" not in talk.book.roles:
        talk.unimplemented("READY lacks the role 'die'")
    (job,) = manager.run(b"", role="die")
    cause = manager.done_of(job, Outcome.LOST, within=5.0 + talk.wire.patience, rule="WMP-6.14")
    talk.check(bool(cause), "DONE lost has no text; expected the cause")


@case("WMP-2.12", "WMP-2.11")
def checksums(talk: WorkerConversation) -> None:
    """A job with a checksum gets a result with one; a damaged job is refused."""
    manager = talk.met()
    (job,) = manager.run(b"123456789", checksums=[0xCBF43926])
    done = manager.expect(Command.DONE, within=2.0)
    columns = done.message.columns
    sums = None if columns is None or columns.checksums is None else list(columns.checksums)
    talk.check(done.jobs == [(job, 1)], f"DONE has the jobs {done.jobs}; expected {[(job, 1)]}")
    text = f"DONE has the checksums {sums}; expected [3421780262]"
    talk.check(sums == [0xCBF43926], text, "WMP-2.11")
    (damaged,) = manager.run(b"12345678", checksums=[0xCBF43926])
    manager.done_of(damaged, Outcome.REFUSED, within=2.0, rule="WMP-2.12")


@case("WMP-6.16")
def force(talk: WorkerConversation) -> None:
    """A job that continues after CANCEL may be ended by force."""
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 4.0), role="slow")
    talk.wait(0.2)
    manager.cancel(job)
    before = talk.now
    manager.done_of(job, None, within=4.0 + talk.wire.grace)
    talk.inform(
        f"the worker sent DONE {talk.now - before:.1f} units after CANCEL of the running job"
    )


@case("WMP-2.12", "WMP-2.11")
def checksum_above_32_bits(talk: WorkerConversation) -> None:
    """A checksum above 2**32 - 1 is well-formed, and fits no payload: the job is refused."""
    manager = talk.met()
    (job,) = manager.run(b"123456789", checksums=[0x1CBF43926])
    manager.done_of(job, Outcome.REFUSED, within=2.0, rule="WMP-2.12")
