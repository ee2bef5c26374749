"""Jobs that outlive their manager (section 14), as tests of a worker."""

from __future__ import annotations

from typing import Any

from wmp.conformance.cases.worker.handshake import slowly
from wmp.conformance.peers.conversation import ReceivedMessage
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.peers.played_manager import PlayedManager
from wmp.conformance.script.case import case
from wmp.message import Command

STORE = (b"the store of the kit", 7)
_LONG = 60.0
"""Units for which a worker keeps jobs, in most cases."""


def _serving(talk: WorkerConversation, **changes: Any) -> PlayedManager:
    """Return a manager that serves the store, and to which the worker lists jobs of the store."""
    manager = talk.met(owner=STORE, serves=(STORE,), keep=_LONG, **changes)
    _has_lists(talk, manager)
    return manager


def _has_lists(talk: WorkerConversation, manager: PlayedManager) -> None:
    """Check that the worker speaks the profile."""
    manager.pong()
    if _list_for(talk, manager, 2.0) is None:
        talk.unimplemented("the worker lists no jobs of a store that its manager serves")


def _list_for(
    talk: WorkerConversation, manager: PlayedManager, within: float
) -> ReceivedMessage | None:
    """Wait for a list of the jobs of the store."""
    return manager.wait_for(
        Command.PING,
        within=within + talk.wire.grace,
        where=lambda received: _owner(received) == STORE,
    )


def _owner(received: ReceivedMessage) -> Any:
    owner = received["manager"]
    return None if owner is None else tuple(owner)


def _listed(
    talk: WorkerConversation, manager: PlayedManager, *jobs: int, rule: str = "WMP-14.9"
) -> None:
    """Check that the worker lists these jobs of the store to a manager."""
    talk.settle()
    manager.inbox = [received for received in manager.inbox if received.command is not Command.PING]
    ping = _list_for(talk, manager, 4.0)
    text = f"{manager.name} serves the store, and received no list of its jobs"
    talk.check(ping is not None, text, "WMP-14.9")
    assert ping is not None
    seen, expected = ping.jobs, [(id, 1) for id in jobs]
    talk.check(seen == expected, f"PING lists {seen}; expected {expected}", rule)
    good = bool(ping["idle"]) is (not jobs)
    talk.check(good, f"PING has idle {ping['idle']} and lists {seen}", "WMP-14.9")
    sent = ping["sent"]
    good = sent == manager.received
    talk.check(good, f"PING has sent {sent}; expected {manager.received}", "WMP-14.9")


def _restarted(talk: WorkerConversation, manager: PlayedManager) -> None:
    """Let a manager start again, and let the worker receive its first messages."""
    manager.clear()
    manager.restart()
    manager.pong()
    talk.settle()
    manager.pong()
    talk.settle()


@case("WMP-14.5")
def jobs_go_on(talk: WorkerConversation) -> None:
    """A job of a store goes on under another epoch of its manager, which gets the result."""
    manager = _serving(talk)
    lasts = slowly(talk, 6.0 + 4 * talk.wire.grace)
    (job,) = manager.run(lasts, role="slow")
    _restarted(talk, manager)
    within = 8.0 + 6 * talk.wire.grace
    answer = manager.done_of(job, within=within, rule="WMP-14.5")
    talk.check(answer == lasts, f"the result is {answer!r}; expected {lasts!r}", "WMP-14.5")


@case("WMP-14.9", "WMP-9.9")
def a_list_of_a_store(talk: WorkerConversation) -> None:
    """A worker lists the jobs of a store, and reports when it holds none."""
    manager = _serving(talk)
    _listed(talk, manager)
    (job,) = manager.run(slowly(talk, 8.0 + 4 * talk.wire.grace), role="slow")
    _listed(talk, manager, job)
    manager.done_of(job, within=10.0 + 6 * talk.wire.grace)
    _listed(talk, manager)


@case("WMP-14.4")
def results_that_are_not_stored(talk: WorkerConversation) -> None:
    """A result that was acknowledged and not stored is sent to the successor."""
    manager = _serving(talk)
    manager.kept = 0
    (job,) = manager.run(b"question")
    manager.done_of(job)
    manager.pong()
    talk.settle()
    manager.clear()
    manager.restart()
    manager.expected[STORE, job, 1] += 1
    manager.kept = None
    manager.pong()
    talk.settle()
    manager.pong()
    answer = manager.done_of(job, within=4.0 + talk.wire.grace, rule="WMP-14.4")
    talk.check(answer == b"question", f"the result is {answer!r}; expected the payload")


@case("WMP-14.4")
def results_that_are_stored(talk: WorkerConversation) -> None:
    """A result that was acknowledged without `kept` is not sent to the successor."""
    manager = _serving(talk)
    (job,) = manager.run(b"question")
    manager.done_of(job)
    manager.pong()
    talk.settle()
    _restarted(talk, manager)
    manager.lose("WMP-14.4", job)
    manager.never(Command.DONE, during=3.0, what=f"the result of job {job} is stored")


@case("WMP-14.6", links=2)
def another_manager_of_the_store(talk: WorkerConversation) -> None:
    """When a manager is silent, another manager of the store gets list and result."""
    first = talk.manager(owner=STORE, serves=(STORE,), keep=_LONG)
    second = talk.manager(endpoint=1, owner=STORE)
    first.meet()
    second.meet()
    _has_lists(talk, first)
    (job,) = first.run(slowly(talk, 14.0 + 6 * talk.wire.grace), role="slow")
    first.answers = False
    talk.wait(7.0 + talk.wire.grace)
    second.serves, second.keep = (STORE,), _LONG
    second.given, first.given = first.given, {}
    second.pong()
    _listed(talk, second, job)
    second.done_of(job, within=12.0 + 8 * talk.wire.grace, rule="WMP-14.6")


@case("WMP-14.6")
def managers_of_other_stores(talk: WorkerConversation) -> None:
    """A manager that does not serve the store gets neither list nor result."""
    manager = _serving(talk)
    (job,) = manager.run(slowly(talk, 2.0 + 2 * talk.wire.grace), role="slow")
    manager.serves = ((STORE[0], STORE[1] + 1),)
    _restarted(talk, manager)
    manager.lose("WMP-14.6", job)
    during = 4.0 + 3 * talk.wire.grace
    manager.never(Command.DONE, during=during, what="the manager does not serve the store")


@case("WMP-14.6", "WMP-6.10")
def cancelled_by_the_successor(talk: WorkerConversation) -> None:
    """A CANCEL of the successor is answered to the successor."""
    manager = _serving(talk)
    (job,) = manager.run(slowly(talk, 6.0 + 4 * talk.wire.grace), role="slow")
    _restarted(talk, manager)
    _listed(talk, manager, job)
    manager.cancel(job)
    manager.done_of(job, None, within=8.0 + 6 * talk.wire.grace, rule="WMP-14.6")


@case("WMP-14.5")
def kept_for_a_time(talk: WorkerConversation) -> None:
    """After `keep` without a manager of the store, a worker drops the jobs of the store."""
    manager = _serving(talk)
    manager.keep = 2.0
    (job,) = manager.run(slowly(talk, 12.0 + 6 * talk.wire.grace), role="slow")
    manager.serves = ()
    _restarted(talk, manager)
    talk.wait(3.0 + talk.wire.grace)
    manager.lose("WMP-14.5", job)
    manager.serves = (STORE,)
    manager.pong()
    _listed(talk, manager, rule="WMP-14.5")
