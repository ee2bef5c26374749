"""Expiries and run limits (section 6), as tests of a worker."""

from __future__ import annotations

from wmp.conformance.cases.worker.handshake import slowly
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.script.case import case
from wmp.message import Command, Outcome

_GRACE = 5.0
"""Units that an attempt may continue after its limit before it is answered: ``overrun_grace``."""


@case("WMP-6.19")
def expired_on_arrival(talk: WorkerConversation) -> None:
    """A job whose expiry has passed on arrival is not begun, and ends as *cancelled*."""
    manager = talk.met()
    lock = manager.woken(1)
    (job,) = manager.take(lock.number, b"too late", expires_ms=[0])
    manager.done_of(job, Outcome.CANCELLED, rule="WMP-6.19")
    (job,) = manager.run(b"in time", expires_ms=[talk.ms(100.0)])
    manager.done_of(job, rule="WMP-6.19")


@case("WMP-6.19")
def goes_on_after_its_expiry(talk: WorkerConversation) -> None:
    """A job that has begun before its expiry continues after it."""
    manager = talk.met()
    (job,) = manager.run(slowly(talk, 2.0), role="slow", expires_ms=[talk.ms(1.0)])
    manager.done_of(job, Outcome.OK, within=2.0 + talk.wire.grace, rule="WMP-6.19")


@case("WMP-6.21")
def runs_too_long(talk: WorkerConversation) -> None:
    """A job that runs for longer than its limit is answered by *overrun*."""
    manager, _ = talk.met(), talk.met()
    (job,) = manager.run(slowly(talk, 20.0), role="slow", limits_ms=[talk.ms(1.0)])
    within = 1.0 + _GRACE + talk.wire.grace
    text = manager.done_of(job, Outcome.OVERRUN, within=within, rule="WMP-6.21")
    talk.check(
        bool(text), "DONE overrun has no text; expected the limit in words", "WMP-6.21", "should"
    )


@case("WMP-6.21")
def within_its_limit(talk: WorkerConversation) -> None:
    """A job that ends before its limit has the outcome of its handler."""
    manager = talk.met()
    (job,) = manager.run(slowly(talk, 0.5), role="slow", limits_ms=[talk.ms(100.0)])
    manager.done_of(job, Outcome.OK, within=0.5 + talk.wire.grace, rule="WMP-6.21")


@case("WMP-6.25")
def no_wait_for_a_job_with_settings(talk: WorkerConversation) -> None:
    """The worker does not ask for another attempt of a job that has settings of its own."""
    manager = talk.met()
    for failed in (None, 1_000_000):
        (job,) = manager.run(b"please fail", role="fail", failed=[failed])
        received = manager.expect(
            Command.DONE,
            within=1.0 + talk.wire.grace,
            where=lambda received, job=job: job in [id for id, _ in received.jobs],  # type: ignore[misc]
            rule="WMP-6.6",
        )
        columns = received.message.columns
        waits = None if columns is None else columns.waits_ms
        talk.check(
            not any(waits or ()),
            f"'waits' is {waits} in answer to 'failed' {failed}; expected none",
            "WMP-6.25",
        )
