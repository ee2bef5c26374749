"""Start times, expiries and run limits (section 6), as tests of a manager."""

from __future__ import annotations

from wmp import codec
from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.peers.played_worker import HeldJob, PlayedWorker
from wmp.conformance.script.case import case
from wmp.message import Command, Outcome


@case("WMP-6.19", "WMP-6.21")
def time_to_the_expiry(talk: ManagerConversation) -> None:
    """``expires`` is the time to the expiry, rounded up; ``limits`` is the run limit."""
    worker = talk.met()
    began = talk.now
    talk.submit(expires=4.0, run_limit=2.0)
    talk.wait(1.0)
    lock = worker.give()
    take = worker.expect(Command.TAKE, lock=lock, rule="WMP-4.3")
    columns = take.message.columns
    assert columns is not None
    expires = (columns.expires_ms or [None])[0]
    limit = (columns.limits_ms or [None])[0]
    maximum = talk.ms(4.0 - 1.0) + 1 + talk.ms(2 * talk.wire.grace)
    minimum = talk.ms(4.0 - (take.at - began)) - 1
    good = expires is not None and minimum <= expires <= maximum
    talk.check(good, f"'expires' is {expires} ms; expected {minimum} to {maximum}", "WMP-6.19")
    talk.check(limit == talk.ms(2.0), f"'limits' is {limit} ms; expected {talk.ms(2.0)}")


@case("WMP-6.20")
def expires_in_the_queue(talk: ManagerConversation) -> None:
    """A job whose expiry passes in the queue ends, and is not granted any more."""
    worker = talk.met()
    name = talk.submit(expires=1.0)
    talk.end_of(name, "timeout", within=1.0 + talk.wire.grace)
    talk.check(
        not worker.take(),
        "the worker received the job; expected NO, because the job has expired",
        "WMP-6.20",
    )


@case("WMP-6.20")
def goes_on_after_its_expiry(talk: ManagerConversation) -> None:
    """A job that a worker has continues after its expiry."""
    worker = talk.met()
    name = talk.submit(expires=1.0)
    job = worker.take_job()
    talk.wait(2.0)
    talk.not_ended(name)
    worker.done(job)
    talk.end_of(name)


@case("WMP-6.20")
def returns_after_its_expiry(talk: ManagerConversation) -> None:
    """A job that comes back after its expiry ends, and is not granted again."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(expires=1.0)
    job = worker.take_job()
    talk.wait(2.0)
    worker.done(job, outcome=Outcome.CANCELLED, payloads=[b""])
    talk.end_of(name, "timeout")
    talk.check(
        not other.take(),
        "another worker received the job; expected NO, because the job has expired",
        "WMP-6.20",
    )


@case("WMP-6.22")
def overrun_ends_the_job(talk: ManagerConversation) -> None:
    """DONE overrun ends a job as timed out, with the text."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(run_limit=1.0, max_worker_losses=5)
    worker.done(worker.take_job(), outcome=Outcome.OVERRUN, payloads=[b"ran for too long"])
    talk.end_of(name, "timeout")
    talk.check(
        not other.take(),
        "another worker received the job; expected NO, because the job has ended",
        "WMP-6.22",
    )


@case("WMP-6.24")
def not_before_its_time(talk: ManagerConversation) -> None:
    """A delayed job is not granted before its time, and is granted then."""
    worker = talk.met()
    name = talk.submit(delay=2.0)
    talk.check(not worker.take(), "the worker received the job before its start time", "WMP-6.24")
    talk.wait(1.5 - talk.wire.grace / 2)
    talk.check(not worker.take(), "the worker received the job before its start time", "WMP-6.24")
    talk.wait(1.0 + talk.wire.grace)
    worker.done(worker.take_job())
    talk.end_of(name)


@case("WMP-6.24")
def behind_those_that_wait(talk: ManagerConversation) -> None:
    """A job whose time has come is granted after the jobs that were waiting then."""
    worker = talk.met()
    late, soon = talk.submit(delay=1.0), talk.submit()
    talk.wait(1.5 + talk.wire.grace)
    last = talk.submit()
    given = [job.payload.decode() for job in worker.some(3)]
    expected = [soon, late, last]
    talk.check(
        given == expected,
        f"the jobs are granted in the order {given}; expected {expected}",
        "WMP-6.24",
    )


_ERROR = codec.pack_error("ConnectionError", "refused")
_NAMES = "ConnectionError: refused\nbuiltins.ConnectionError builtins.OSError builtins.Exception"


def _failed_of(worker: PlayedWorker) -> tuple[HeldJob, int | None]:
    """Take one job; return the job and ``failed`` of its TAKE."""
    lock = worker.give()
    take = worker.expect(Command.TAKE, lock=lock, rule="WMP-4.3")
    columns = take.message.columns
    assert columns is not None
    (job,) = worker.held.values()
    return job, 0 if columns.failed is None else columns.failed[0]


def _fails(worker: PlayedWorker, job: HeldJob, **columns: object) -> None:
    """Send DONE error for a job that is tried again."""
    worker.done(job, outcome=Outcome.ERROR, payloads=[_ERROR], again=True, **columns)


@case("WMP-6.26", "WMP-6.27")
def settings_of_a_job(talk: ManagerConversation) -> None:
    """A job with settings of its own is tried again as often as they allow, then ends."""
    worker = talk.met()
    name = talk.submit(retries=1, wait=2.0, max_worker_losses=0)
    job, failed = _failed_of(worker)
    talk.check(
        failed is None,
        f"'failed' is {failed}; expected null, because the job has settings of its own",
        "WMP-6.26",
    )
    _fails(worker, job, texts=[_NAMES])
    talk.check(not worker.take(), "the worker received the job before its start time", "WMP-6.27")
    talk.not_ended(name, "WMP-6.26")
    talk.wait(3.0 + talk.wire.grace)
    worker.done(
        worker.take_job("WMP-6.26"), outcome=Outcome.ERROR, payloads=[_ERROR], texts=[_NAMES]
    )
    talk.end_of(name, "error", rule="WMP-6.26")


@case("WMP-6.26")
def a_rejected_job(talk: ManagerConversation) -> None:
    """An error with an empty list of names is not tried again."""
    worker = talk.met()
    name = talk.submit(retries=5, wait=0.1)
    worker.done(worker.take_job(), outcome=Outcome.ERROR, payloads=[_ERROR], texts=["Reject: no\n"])
    talk.end_of(name, "error", rule="WMP-6.26")


@case("WMP-6.26", "WMP-6.27")
def waits_of_a_worker(talk: ManagerConversation) -> None:
    """A job without settings is given again after the wait that its worker asks for."""
    worker = talk.met()
    name = talk.submit(max_worker_losses=0)
    job, failed = _failed_of(worker)
    talk.check(failed == 0, f"'failed' is {failed} in the first attempt; expected 0", "WMP-6.26")
    _fails(worker, job, texts=[_NAMES], waits_ms=[talk.ms(2.0)])
    talk.check(not worker.take(), "the worker received the job before its start time", "WMP-6.27")
    talk.wait(3.0 + talk.wire.grace)
    job, failed = _failed_of(worker)
    talk.check(failed == 1, f"'failed' is {failed} after one failure; expected 1", "WMP-6.26")
    worker.done(job)
    talk.end_of(name)


@case("WMP-6.27")
def cancelled_while_it_waits(talk: ManagerConversation) -> None:
    """A job that waits for another attempt ends at once when it is cancelled."""
    worker = talk.met()
    name = talk.submit()
    _fails(worker, worker.take_job(), texts=[_NAMES], waits_ms=[talk.ms(50.0)])
    talk.settle()
    talk.cancel(name)
    talk.end_of(name, "cancelled", rule="WMP-6.27")


@case("WMP-6.27")
def no_time_for_another_attempt(talk: ManagerConversation) -> None:
    """A job whose deadline comes before its next attempt ends with the error."""
    worker = talk.met()
    name = talk.submit(timeout=20.0)
    worker.done(
        worker.take_job(),
        outcome=Outcome.ERROR,
        payloads=[_ERROR],
        texts=[_NAMES],
        waits_ms=[talk.ms(50.0)],
    )
    talk.end_of(name, "error", rule="WMP-6.27")


@case("WMP-6.12", "WMP-6.26", profile="times")
def a_cancelled_job_is_not_tried_again(talk: ManagerConversation) -> None:
    """An error of a cancelled job ends the job, although its settings allow another attempt."""
    worker, other = talk.met(), talk.met()
    name = talk.submit(retries=3, wait=0)
    job = worker.take_job()
    talk.cancel(name)
    worker.expect(Command.CANCEL, rule="WMP-6.8", what="the submitter cancelled the job")
    worker.done(job, outcome=Outcome.ERROR, payloads=[b"failed"], again=True)
    within = talk.now + talk.wire.grace
    while not any(end.name == name for end in talk.collect_ends()) and talk.now < within:
        talk.pump(within)
    talk.check(
        not other.take() and not worker.take(),
        "a worker received the job again; expected NO, because its submitter cancelled the job",
    )
    talk.check(
        any(end.name == name for end in talk.collect_ends()),
        f"{name} did not end, although its submitter cancelled the job and its attempt failed",
    )
