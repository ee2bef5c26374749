"""Each safeguard of Majordomo is switched off: a world fails, or shows what is lost."""

from __future__ import annotations

import pytest

from tests.ablation.test_foreign_safeguards import ignoring
from tests.simulation.test_majordomo_worlds import GuideWorker
from wmp.foreign import Left
from wmp.gateways.common import attendance
from wmp.gateways.common.request_lifecycle import RequestInput
from wmp.gateways.majordomo.broker_clients import MajordomoRequests
from wmp.gateways.majordomo.broker_machine import MajordomoDoorMachine
from wmp.gateways.majordomo.broker_workers import MajordomoWorkers
from wmp.gateways.majordomo.client_machine import MajordomoClientMachine
from wmp.gateways.majordomo.worker_machine import MajordomoWorkerMachine
from wmp.testing.gateway_worlds.foreign_world import BrokenPromise, ForeignFault
from wmp.testing.gateway_worlds.majordomo_world import MajordomoWorld


def test_a_broker_that_does_not_notice_the_ends_of_connections(monkeypatch):
    deaf = ignoring(Left, MajordomoDoorMachine)
    monkeypatch.setattr(MajordomoDoorMachine, "handle", deaf)
    world = MajordomoWorld(seed=1, settings={"busy_timeout": None})
    for name in ("worker 1", "worker 2"):
        world.nodes[name].slow_until = 30.0
    world.run(6.0)
    for name in ("worker 1", "worker 2"):
        world.kill(name, 1.0)
    world.run(6.0)
    assert world.broker.statistics().workers.get("busy", 0) > 0  # of workers that are dead


def test_a_broker_that_never_forgets_silent_workers(monkeypatch):
    monkeypatch.setattr(MajordomoWorkers, "_look_after", lambda *_: None)
    world = MajordomoWorld(seed=1, clients=2)
    world.run(5.0)
    world.nodes["worker 1"].machine = None  # the machine lost its power
    world.nodes["worker 1"].connection.dead = True
    world.run(30.0)
    assert sum(world.broker.statistics().workers.values()) == 2  # with the safeguard: 1


def test_a_broker_that_takes_a_late_worker_for_an_idle_one(monkeypatch):
    table = dict(attendance.TRANSITIONS)
    late = (attendance.Attendance.BUSY, attendance.AttendanceInput.INTERRUPT)
    table[late] = attendance.Attendance.IDLE
    monkeypatch.setattr("wmp.gateways.majordomo.broker_workers.TRANSITIONS", table)
    world = MajordomoWorld(seed=1, settings={"busy_timeout": 1.0})
    world.nodes["worker 1"].slow_until = 20.0
    with pytest.raises(BrokenPromise, match="one request at a time"):
        world.run(20.0)


def test_a_broker_that_ignores_tokens(monkeypatch):
    reply = MajordomoWorkers._reply

    def trusting(self, port, peer, worker, notice, now, actions):
        if worker is not None and worker.lane is not None:
            worker.token = notice.address
        reply(self, port, peer, worker, notice, now, actions)

    monkeypatch.setattr(MajordomoWorkers, "_reply", trusting)
    # A worker that answers twice is not disconnected any more.
    monkeypatch.setattr(MajordomoWorkers, "_expel", lambda *_: None)
    world = MajordomoWorld(seed=1, clients=4, workers=2)
    for name in ("worker 1", "worker 2"):
        world.nodes[name].twice_until = 100.0
    with pytest.raises(BrokenPromise, match=r"is the reply to|a second request"):
        world.run(100.0)


@pytest.mark.parametrize("quiet", [False, True])
def test_a_broker_that_does_not_answer_unknown_workers(quiet, monkeypatch):
    def silent(self, port, peer, why, now, actions):
        assert self._workers.get(peer) is None

    if quiet:
        monkeypatch.setattr(MajordomoWorkers, "_expel", silent)
    world = MajordomoWorld(seed=1, clients=1, new_worker=GuideWorker)
    world.run(3.0)
    world.restart_gateway(0.1)
    world.run(2.5)
    workers = sum(world.broker.statistics().workers.values())
    assert workers == (0 if quiet else 2)  # they come after their own patience alone


def test_a_broker_without_the_bound_of_unanswered_heartbeats(monkeypatch):
    def queued():
        world = MajordomoWorld(seed=1, clients=1, workers=1, settings={"liveness": 30})
        world.asking = False
        world.run(3.0)
        world.pause("worker 1", 20.0)
        world.run(15.0)
        return world.nodes["worker 1"].connection.queued

    assert queued() <= 2
    look = MajordomoWorkers._look_after

    def flood(self, worker, now, actions):
        worker.answered = True
        look(self, worker, now, actions)

    monkeypatch.setattr(MajordomoWorkers, "_look_after", flood)
    assert queued() >= 10


def test_a_client_that_keeps_its_socket(monkeypatch):
    def keep(self, socket, actions):
        return None

    monkeypatch.setattr(MajordomoClientMachine, "_replace", keep)
    send = MajordomoClientMachine._timed_out

    def again(self, socket, now, actions):
        send(self, socket, now, actions)
        self._send(socket, actions)

    monkeypatch.setattr(MajordomoClientMachine, "_timed_out", again)
    world = MajordomoWorld(seed=1, clients=2, workers=2)
    for name in ("worker 1", "worker 2"):
        world.nodes[name].slow_until = 60.0
    with pytest.raises(BrokenPromise, match="is the reply to"):
        world.run(100.0)


def test_a_client_that_keeps_a_socket_that_was_connected_again(monkeypatch):
    def keep(self, port, actions):
        socket = self._sockets[port]
        self._step(socket, RequestInput.UNSENT)
        socket.up = True
        self._send(socket, actions)

    monkeypatch.setattr(MajordomoClientMachine, "_connected", keep)
    world = MajordomoWorld(seed=3, pauses=(0.001, 0.05))
    world.strike([ForeignFault.CUT], 60, 20.0)
    with pytest.raises(BrokenPromise, match="is the reply to"):
        world.run(22.0)


def test_a_worker_that_keeps_a_socket_that_was_connected_again(monkeypatch):
    def keep(self, now, actions):
        self._up = False
        connected(self, now, actions)

    connected = MajordomoWorkerMachine._connected
    refused = {}
    for patched in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if patched:
                patch.setattr(MajordomoWorkerMachine, "_connected", keep)
            world = MajordomoWorld(seed=1, pauses=(0.001, 0.05))
            world.strike([ForeignFault.CUT], 60, 20.0)
            world.run(22.0)
            refused[patched] = world.broker.statistics().dropped.get("disconnected", 0)
    assert refused[False] == 0
    assert refused[True] > 0  # READY came behind messages of the ended connection


def test_a_worker_that_answers_on_a_new_connection(monkeypatch):
    def stubborn(self, actions):
        return None

    monkeypatch.setattr(MajordomoWorkerMachine, "_drop_requests", stubborn)
    world = MajordomoWorld(seed=1, clients=2, workers=2)
    for name in ("worker 1", "worker 2"):
        world.nodes[name].slow_until = 20.0
    world.run(5.0)
    for name in ("worker 1", "worker 2"):
        world.cut(name)
    world.run(10.0)
    assert world.broker.statistics().disconnected > 0  # with the safeguard: 0


def test_a_worker_that_does_not_replace_the_socket_of_a_silent_broker(monkeypatch):
    monkeypatch.setattr(MajordomoWorkerMachine, "_replace_later", lambda self, now: None)
    monkeypatch.setattr(MajordomoWorkerMachine, "deadline", lambda self: None)
    world = MajordomoWorld(seed=1, workers=2, clients=1)
    world.run(3.0)
    for name in ("worker 1", "worker 2"):
        world.half_open(name)
    with pytest.raises(BrokenPromise):
        world.finish(3.0)


@pytest.mark.parametrize("notices", [True, False])
def test_a_broker_that_keeps_the_requests_of_clients_that_left(notices, monkeypatch):
    if not notices:
        monkeypatch.setattr(MajordomoRequests, "leave", lambda self, peer: None)
    world = MajordomoWorld(seed=1, clients=6, workers=2)
    for name in ("worker 1", "worker 2"):
        world.nodes[name].slow_until = 40.0
    world.run(30.0)
    # Each client has one request at a time, and sends it over a new connection after some time.
    assert (world.gateway.manager.statistics().queued <= 6) is notices


def test_a_broker_that_keeps_requests_of_services_without_workers(monkeypatch):
    waiting = {}
    for patched in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if patched:
                patch.setattr(MajordomoRequests, "ring", lambda self, timer, now: [])
            world = MajordomoWorld(seed=1, clients=3, workers=0)
            world.run(30.0)
            for name in ("client 1", "client 2", "client 3"):
                world.nodes[name].machine.timeout = 1000.0
            world.run(100.0)
            waiting[patched] = world.broker.statistics().waiting
    assert waiting == {False: 0, True: 3}
