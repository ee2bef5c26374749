"""Managers on standby (section 17), as tests of a worker."""

from __future__ import annotations

from wmp.conformance.cases.worker.locks import held_by
from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.script.case import case
from wmp.message import Command


@case("WMP-17.3")
def beside_a_manager_on_standby(talk: WorkerConversation) -> None:
    """A manager on standby leaves held GIVEs at the other manager, and gets none itself."""
    active = talk.met()
    lock = held_by(talk, active)
    passive = talk.met(standby=True)
    talk.wait(0.5 + 2 * talk.wire.grace)
    talk.check(
        lock.open and not any(received["want"] == 0 for received in active.inbox),
        "the worker withdrew its held GIVE; expected none of that, because the second manager is "
        "on standby",
    )
    (job,) = active.take(lock.number, b"in one trip")
    active.done_of(job)
    held = [
        received
        for received in passive.inbox
        if received.command is Command.GIVE and received["hold"]
    ]
    talk.check(not held, "the worker sent GIVE with hold to a manager on standby; expected none")


@case("WMP-17.3")
def wake_on_standby(talk: WorkerConversation) -> None:
    """A WAKE of a manager on standby is a WAKE like any other."""
    passive = talk.met(standby=True)
    passive.echoes()


@case("WMP-17.4")
def the_end_of_a_standby(talk: WorkerConversation) -> None:
    """When a standby ends, the other manager's held places are free without an answer."""
    active = talk.met()
    lock = held_by(talk, active)
    passive = talk.met(standby=True)
    active.locks.pop(lock.number, None)  # the manager has ended, and answers nothing
    active.answers = False
    passive.standby = False
    passive.pong()
    passive.wake(1)
    passive.lock(2.0, "WMP-17.4", "the standby ended, and the other manager may have ended too")


@case("WMP-17.4")
def the_end_of_a_standby_without_hold(talk: WorkerConversation) -> None:
    """When a standby ends, places that other managers woke are free without an answer."""
    # With two managers that are not on standby the worker sends no held GIVE (WMP-5.2).
    active, _ = talk.met(), talk.met()
    passive = talk.met(standby=True)
    active.wake(1)
    lock = active.lock(1.0, "WMP-3.8", "the worker was woken")
    active.locks.pop(lock.number, None)  # the manager has ended, and answers nothing
    active.answers = False
    passive.standby = False
    passive.pong()
    passive.wake(1)
    passive.lock(1.0, "WMP-17.4", "the standby ended, and the other manager may have ended too")
