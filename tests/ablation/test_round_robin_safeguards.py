"""Worlds of round robin notice when a safeguard of the server is switched off."""

from __future__ import annotations

import pytest

from tests.unit.gateways.round_robin import RESPONSE, Server, V
from wmp.gateways.round_robin.client_machine import RoundRobinClientMachine
from wmp.gateways.round_robin.given_messages import GivenMessages
from wmp.gateways.round_robin.server_machine import RoundRobinDoorMachine
from wmp.gateways.round_robin.slot_table import SlotTable, SlotWorker
from wmp.gateways.round_robin.worker_machine import RoundRobinWorkerMachine
from wmp.message import Outcome
from wmp.testing.gateway_worlds.foreign_world import BrokenPromise, ForeignFault
from wmp.testing.gateway_worlds.round_robin_world import RoundRobinWorld


def broken(fault: ForeignFault, seeds=(0, 7, 14), **settings) -> str:
    """Play worlds with one kind of fault; return the name of the promise that is broken."""
    for seed in seeds:
        world = RoundRobinWorld(seed=seed, clients=3, workers=2, **settings)
        world.strike([fault], 10, 8.0)
        try:
            world.run(8.0)
            world.finish(8.0, 3.0)
        except BrokenPromise as error:
            return error.name
    return ""


def test_the_slots_of_a_worker_that_was_away(monkeypatch):
    assert broken(ForeignFault.PAUSE_WORKER) == ""
    set_aside = RoundRobinDoorMachine._set_aside

    def forget(self, worker, cause):
        set_aside(self, worker, cause)
        self._forget(worker)

    monkeypatch.setattr(RoundRobinDoorMachine, "_set_aside", forget)
    assert broken(ForeignFault.PAUSE_WORKER) in ("no slot is lost", "served again")


def test_the_slots_of_messages_that_were_not_sent(monkeypatch):
    assert broken(ForeignFault.FULL_PIPE) == ""

    # INCREMENT also gives back by this method.
    def give_back(self, worker):
        if not worker.debt:
            return False
        worker.debt -= 1
        if worker.registered:
            self.remove(worker)
            worker.free = min(worker.slots, worker.free + 1)
            worker.registered = True
            self._insert(worker)
        return True

    monkeypatch.setattr(SlotTable, "give_back", give_back)
    monkeypatch.setattr(SlotTable, "forgive", lambda self, worker: None)
    assert broken(ForeignFault.FULL_PIPE) in ("no slot is lost", "served again")


@pytest.mark.parametrize("ablated", [False, True])
def test_the_messages_of_a_worker_that_died(monkeypatch, ablated):
    finish = GivenMessages.finish

    def end(self, given, outcome, *others, **more):
        if ablated and outcome is Outcome.LOST:
            outcome = Outcome.ERROR
        finish(self, given, outcome, *others, **more)

    monkeypatch.setattr(GivenMessages, "finish", end)
    world = RoundRobinWorld(seed=1, workers=3, max_worker_losses=10)
    world.strike([ForeignFault.KILL_WORKER], 8, 15.0)
    world.run(30.0)
    assert (world.abandoned > 0) is ablated


def leaving(seeds=(0, 1, 2), **settings) -> str:
    """Play worlds in which workers leave and register again; return the broken promise."""
    for seed in seeds:
        world = RoundRobinWorld(seed=seed, **settings)
        world.strike_table(10, 8.0)
        try:
            world.run(10.0)
            world.finish(10.0, 4.0)
        except BrokenPromise as error:
            return error.name
    return ""


def test_increment_gives_no_more_slots_than_were_registered(monkeypatch):
    assert leaving() == ""

    def give_back(self, worker):
        if not worker.debt:
            return False
        self.forgive(worker)
        if worker.registered:
            self.remove(worker)
            worker.free += 1
            worker.registered = True
            self._insert(worker)
        return True

    monkeypatch.setattr(SlotTable, "give_back", give_back)
    assert leaving() == "no slot is lost"


def test_a_worker_begins_anew_after_a_message_that_was_not_sent(monkeypatch):
    assert broken(ForeignFault.FULL_PIPE, (5, 11)) == ""
    monkeypatch.setattr(RoundRobinWorkerMachine, "_unsent", lambda self, actions: None)
    assert broken(ForeignFault.FULL_PIPE, (5, 11)) == "no slot is lost"


@pytest.mark.parametrize("ablated", [False, True])
def test_a_client_sends_again_what_did_not_fit_into_the_pipe(monkeypatch, ablated):
    if ablated:
        monkeypatch.setattr(RoundRobinClientMachine, "_unsent", lambda *others: None)
    world = RoundRobinWorld(seed=4, clients=4, workers=4)
    for number in range(1, 5):
        world.after(3.0, lambda name: world.fill(name, 1.0), f"client {number}")
    world.run(20.0)
    assert (world.abandoned > 0) is ablated


@pytest.mark.parametrize("ablated", [False, True])
def test_messages_without_a_response_end_under_steady_load(monkeypatch, ablated):
    if ablated:
        monkeypatch.setattr(SlotWorker, "take_silent", lambda self: [])
    world = RoundRobinWorld(seed=1, clients=40, workers=1, slots=4)
    world.after(2.0, world.fail, "worker 1", 0.3)
    world.run(6.0)
    assert (world.server.statistics().unanswered == {}) is ablated


@pytest.mark.parametrize("ablated", [False, True])
def test_the_time_of_a_worker_after_deregister_is_limited(monkeypatch, ablated):
    if ablated:
        monkeypatch.setattr(RoundRobinDoorMachine, "_leave", lambda self, worker, cause: None)
    server = Server()
    server.register(b"w", 1)
    server.exec(b"c", b"1234", b"\x01")
    server.exec(b"w", b"WORKER", b"\x09", tracked=False)
    server.register(b"v", 1)
    server.wait(20.0)
    given = [peer for peer, frames in server.emitted if frames[3] == b"1234"]
    assert given == ([] if ablated else [b"v"])


@pytest.mark.parametrize("ablated", [False, True])
def test_only_the_worker_of_a_message_can_answer_the_message(monkeypatch, ablated):
    if ablated:
        monkeypatch.setattr(
            GivenMessages, "of_token", lambda self, token, peer: self._tokens.get(token)
        )
    server = Server()
    server.register(b"w", 1)
    server.exec(b"c", b"1234", b"\x01")
    ((_, frames),) = server.emitted
    server.get(frames[-1], b"", V, RESPONSE, b"1234", b"wrong", b"", peer=b"thief")
    assert bool(server.emitted) is ablated


@pytest.mark.parametrize("ablated", [False, True])
def test_a_message_at_a_worker_ends_at_last(monkeypatch, ablated):
    if ablated:
        monkeypatch.setattr(GivenMessages, "end_overdue", lambda self, now: None)
    server = Server(busy_timeout=50.0, max_worker_losses=0)
    server.register(b"w", 1)
    server.exec(b"c", b"1234", b"\x01")
    for _ in range(3):
        server.wait(20.0)
        server.register(b"w", 1)  # the worker lives
    assert server.door.statistics().waiting == int(ablated)


@pytest.mark.parametrize("ablated", [False, True])
def test_a_job_does_not_wait_for_an_increment_that_never_comes(monkeypatch, ablated):
    if ablated:
        monkeypatch.setattr(SlotTable, "expect_nothing", lambda self, worker: None)
    server = Server()
    server.register(b"w", 1)
    server.exec(b"c", b"0001", b"\x01")
    ((_, frames),) = server.emitted
    server.exec(b"c", b"0002", b"\x01")
    server.answer(b"w", frames)
    server.wait(2.0)
    # A WMP worker can have the job only in the manager.
    assert server.machine.manager.statistics().queued == int(not ablated)
