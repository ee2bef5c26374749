"""An observer beside a manager machine: the READY that the manager remembers bounds its leases."""

from __future__ import annotations

import pytest
from attrs import define, field

from tests.ablation import manager_side
from tests.unit.core.manager.managers import submit
from wmp.actions import End
from wmp.balance import least_recently_used
from wmp.checks.job_history import History, Violation
from wmp.checks.observer import Observer
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.events import Ticked
from wmp.message import Command, Field
from wmp.testing.peers.scripted_worker import ScriptedWorker, sent

SETTINGS = ManagerSettings(identity=b"m", epoch=7, max_silence=10.0)
JOBS = 40


class WatchedManager(ManagerMachine):
    """A manager whose steps an observer sees."""

    def handle(self, event, now):
        actions = super().handle(event, now)
        self.observer.manager_did(self.settings, event, actions, now)
        return actions


@define
class Watched:
    """A manager with jobs, its worker of 8 slots, and their observer."""

    manager: WatchedManager = field(init=False)
    worker: ScriptedWorker = field(init=False)

    def __attrs_post_init__(self) -> None:
        history = History()
        self.manager = WatchedManager(SETTINGS, least_recently_used)
        self.manager.observer = Observer(history)
        for id in range(1, JOBS + 1):
            history.accepted((b"m", 7), id, {End.OK: b""}, 3)
        submit(self.manager, *[b"x"] * JOBS)
        self.worker = ScriptedWorker(self.manager)
        self.worker.ready(0)

    def forget_session(self) -> None:
        self.worker.give(1)  # a manager opens another session only when this one was used
        (pong,) = sent(self.worker.ping(session=None, ack=None), Command.PONG)
        assert Field.READY not in pong.fields

    def expire(self) -> None:
        self.worker.now = SETTINGS.max_silence
        self.manager.handle(Ticked(), self.worker.now)

    def leases_of_a_give(self) -> int:
        (take,) = sent(self.worker.give(JOBS), Command.TAKE)
        return len(take.columns.ids)


def test_a_new_session_has_no_bound_before_its_first_ready():
    watched = Watched()
    watched.forget_session()

    assert watched.leases_of_a_give() == JOBS


def test_a_late_ready_bounds_the_leases_of_a_worker_that_was_given_up():
    watched = Watched()
    watched.worker.resources = {"slots": 4}
    watched.worker.ready(0, ready=2)
    watched.expire()
    watched.worker.resources = {"slots": 8}
    watched.worker.ready(0, ready=1)

    assert watched.leases_of_a_give() == 8


@pytest.mark.parametrize("forget", [Watched.forget_session, Watched.expire])
def test_leases_above_the_capacity_of_the_next_ready_are_a_violation(forget, monkeypatch):
    watched = Watched()
    forget(watched)
    watched.worker.ready(0)
    watched.worker.ping()
    manager_side.lease_bound(monkeypatch)
    with pytest.raises(Violation, match="need 40 slots; it reported 8") as caught:
        watched.leases_of_a_give()
    assert caught.value.name == "leases fit"
