"""Jobs that outlive their manager (section 14), as tests of a manager with a store."""

from __future__ import annotations

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.peers.played_worker import HeldJob, PlayedWorker
from wmp.conformance.script.case import case
from wmp.message import Columns, Command, Outcome, Peer

_LAPSE = 14.0
"""Units after a restart in which the jobs of the process before are given to others."""


def _met(talk: ManagerConversation) -> tuple[PlayedWorker, Peer]:
    """Return a worker, and the store that its manager serves."""
    worker = talk.met()
    if not worker.stores:
        talk.unimplemented("the manager names no store in PONG")
    return worker, worker.stores[0]


def _stored_job(worker: PlayedWorker, rule: str = "WMP-4.3") -> HeldJob:
    """Wait for a job: a manager may have to read it from its store first."""
    jobs = worker.take(1, hold=2.0, within=3.0)
    text = f"{worker.name} received no job under a held GIVE, although a job waits"
    worker.talk.check(len(jobs) == 1, text, rule)
    return jobs[0]


def _list_jobs(worker: PlayedWorker, store: Peer, *jobs: tuple[int, int]) -> None:
    """List jobs of the store."""
    columns = Columns([id for id, _ in jobs], [attempt for _, attempt in jobs]) if jobs else None
    idle = None if jobs else True
    worker.send(Command.PING, columns, manager=store, sent=worker.number, idle=idle)


def _cancelled(worker: PlayedWorker, jobs: set[tuple[int, int]]) -> None:
    """Wait until these attempts are cancelled."""
    left = set(jobs)
    while left:
        cancel = worker.expect(
            Command.CANCEL,
            within=2.0 + worker.talk.wire.grace,
            what=f"{sorted(left)} were listed, (id, attempt), and are not current",
            rule="WMP-14.7",
        )
        left.difference_update(cancel.jobs)
        text = f"CANCEL names the owner {cancel['manager']!r}; expected the store"
        worker.talk.check(tuple(cancel["manager"]) in worker.stores, text, "WMP-14.1")


@case("WMP-14.1")
def jobs_of_a_store(talk: ManagerConversation) -> None:
    """A TAKE of stored jobs names the store and how long they are kept; each PONG names it too."""
    worker, store = _met(talk)
    name = talk.submit()
    job = _stored_job(worker)
    talk.check(job.owner == store, f"TAKE names the owner {job.owner!r}; expected {store!r}")
    pong = worker.ask()
    text = "a later PONG does not name the store"
    talk.check(store in [tuple(owner) for owner in pong["serves"] or ()], text)
    worker.done(job)
    talk.end_of(name, within=1.0 + talk.wire.grace)


@case("WMP-14.3")
def ends_are_stored(talk: ManagerConversation) -> None:
    """A DONE that is acknowledged without `kept` has ended its job."""
    worker, _ = _met(talk)
    name = talk.submit()
    job = _stored_job(worker)
    worker.done(job)
    number = worker.number
    for _ in range(20):
        pong = worker.ask()
        if pong["ack"] >= number and pong["kept"] is None:
            break
        talk.wait(0.1)
    talk.end_of(name, within=0.0, rule="WMP-14.3")


@case("WMP-14.7")
def a_list_with_an_old_attempt(talk: ManagerConversation) -> None:
    """A listed job that is not the current attempt, or not in the store, is cancelled."""
    worker, store = _met(talk)
    name = talk.submit()
    job = _stored_job(worker)
    other, _ = _met(talk)
    wrong = (job.id, job.attempt + 5), (job.id + 100_000, 1)
    _list_jobs(other, store, *wrong)
    _cancelled(other, set(wrong))
    worker.done(job)
    talk.end_of(name, within=1.0 + talk.wire.grace)


@case("WMP-14.8")
def a_result_from_another_worker(talk: ManagerConversation) -> None:
    """A result of the current attempt counts in any session."""
    worker, _ = _met(talk)
    name = talk.submit()
    job = _stored_job(worker)
    talk.restart()
    other = talk.met()
    other.done(job)
    end = talk.end_of(name, within=2.0 + talk.wire.grace)
    talk.check(end.payload == job.payload, f"the result is {end.payload!r}")


@case("WMP-14.8", "WMP-6.2")
def a_result_of_an_old_attempt(talk: ManagerConversation) -> None:
    """A result of an attempt that is not the current one does not count."""
    worker, _ = _met(talk)
    name = talk.submit(max_worker_losses=3)
    old = _stored_job(worker)
    worker.bye()
    second = talk.met()
    talk.wait(1.0)
    job = _stored_job(second)
    third = talk.met()
    stale = HeldJob(old.id, old.attempt, b"old work", old.role, 0, third, old.owner, free=True)
    third.done(stale)
    talk.wait(1.0)
    talk.not_ended(name, "WMP-14.8")
    second.done(job)
    end = talk.end_of(name, within=1.0 + talk.wire.grace)
    talk.check(end.payload == job.payload, f"the result is {end.payload!r}", "WMP-14.8")


@case("WMP-14.7", "WMP-14.2")
def a_successor_takes_over(talk: ManagerConversation) -> None:
    """A successor takes a listed job over, gives it to nobody else, and accepts its result."""
    worker, store = _met(talk)
    name = talk.submit()
    job = _stored_job(worker)
    talk.restart()
    worker, _ = _met(talk)
    other = talk.met()
    talk.means = {"WMP-6.1": "WMP-14.2", "WMP-6.4": "WMP-14.7"}
    until = talk.now + _LAPSE
    while talk.now < until:
        _list_jobs(worker, store, (job.id, job.attempt))
        text = "the job of the list was given to another worker"
        talk.check(not other.take(1, hold=0.8, within=2.0), text, "WMP-14.7")
        talk.wait(0.2)
    cancels = [received for received in worker.received_all if received.command is Command.CANCEL]
    talk.check(not cancels, "a job in its current attempt was cancelled", "WMP-14.7")
    worker.done(job)
    talk.end_of(name, within=1.0 + talk.wire.grace)


@case("WMP-14.8")
def a_job_that_came_back(talk: ManagerConversation) -> None:
    """A job that a worker hands back to the successor is given again at once."""
    worker, _ = _met(talk)
    talk.submit()
    job = _stored_job(worker)
    talk.restart()
    worker, _ = _met(talk)
    worker.done(job, outcome=Outcome.CANCELLED)
    talk.wait(1.0)
    again = _stored_job(worker, "WMP-14.8")
    text = f"the job is given as attempt {again.attempt}; expected {job.attempt + 1}"
    talk.check(again.attempt == job.attempt + 1, text)
    worker.done(again)


@case("WMP-14.2", "WMP-14.7")
def results_for_a_successor(talk: ManagerConversation) -> None:
    """A job that nobody lists is given again, in a greater attempt."""
    worker, _ = _met(talk)
    name = talk.submit()
    old = _stored_job(worker)
    talk.restart()
    talk.means = {"WMP-6.1": "WMP-14.2"}
    worker.lose(old)
    worker, _ = _met(talk)
    until = talk.now + _LAPSE
    jobs: list[HeldJob] = []
    while not jobs and talk.now < until:
        talk.wait(1.0)
        jobs = worker.take(1, hold=0.8, within=2.0)
    talk.check(bool(jobs), "the job was not given again")
    text = f"attempt {jobs[0].attempt} was granted twice"
    talk.check(jobs[0].attempt > old.attempt, text)
    worker.done(jobs[0])
    talk.end_of(name, within=1.0 + talk.wire.grace)
