"""Each safeguard of Freelance is switched off: a world fails."""

from __future__ import annotations

import pytest

from tests.simulation.test_freelance_worlds import play
from wmp.actions import Reconnect
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.freelance.agent_machine import AgentClientMachine
from wmp.gateways.freelance.shotgun_machine import ShotgunClientMachine
from wmp.gateways.freelance.wire import AgentWire
from wmp.testing.gateway_worlds.foreign_world import BrokenPromise
from wmp.testing.gateway_worlds.freelance_world import FreelanceFault, FreelanceWorld


def some_world_fails(model, seeds=range(30)):
    """Play worlds until one breaks a promise; return its name."""
    for seed in seeds:
        try:
            play(seed, model)
        except BrokenPromise as broken:
            return broken.name
    return None


def test_a_failover_client_that_takes_any_reply(monkeypatch):
    # The socket stays, and with it the replies to earlier tries.
    monkeypatch.setattr(LazyClientMachine, "_replace", lambda self, actions: None)
    world = FreelanceWorld(seed=1, model="failover", servers=1, clients=4)
    world.strike([FreelanceFault.SLOW], 3, 5.0)
    with pytest.raises(BrokenPromise, match="its own reply"):
        world.run(60.0)


def test_a_failover_client_that_stays_with_its_server(monkeypatch):
    ticked = LazyClientMachine._ticked

    def faithful(self, now, actions):
        server = self._server
        ticked(self, now, actions)
        self._server = server

    monkeypatch.setattr(LazyClientMachine, "_ticked", faithful)
    world = FreelanceWorld(seed=1, model="failover")
    world.kill(0, 1000.0)
    with pytest.raises(BrokenPromise, match="served again"):
        world.finish(10.0)


def test_a_shotgun_client_that_ignores_the_sequence(monkeypatch):
    arrived = ShotgunClientMachine._arrived

    def trusting(self, frames, actions):
        if self._shots and len(frames) > 2:
            frames = (frames[0], next(iter(self._shots)), *frames[2:])
        arrived(self, frames, actions)

    monkeypatch.setattr(ShotgunClientMachine, "_arrived", trusting)
    assert some_world_fails("shotgun") == "its own reply"


def test_an_agent_that_does_not_move_the_requests_of_a_dead_server(monkeypatch):
    monkeypatch.setattr(AgentClientMachine, "_move", lambda *_: None)
    world = FreelanceWorld(seed=1, model="agent", clients=4)
    world.run(5.0)
    for number in (0, 1) * 20:
        world.kill(number, 0.5)
        world.run(1.0)
    assert world.abandoned > 0


def test_an_agent_that_keeps_silent_connections(monkeypatch):
    handle = AgentClientMachine.handle

    def patient(self, event, now):
        return [a for a in handle(self, event, now) if not isinstance(a, Reconnect)]

    monkeypatch.setattr(AgentClientMachine, "handle", patient)
    world = FreelanceWorld(seed=1, model="agent", servers=1)
    world.run(2.0)
    world.strike([FreelanceFault.HALF_OPEN], 6, 2.0)
    with pytest.raises(BrokenPromise, match="served again"):
        world.finish(10.0)


def test_an_agent_that_sends_to_servers_that_never_answered(monkeypatch):
    send = AgentClientMachine._send

    def hasty(self, call, actions):
        for server in self._servers.values():
            server.alive = True
        send(self, call, actions)

    monkeypatch.setattr(AgentClientMachine, "_send", hasty)
    world = FreelanceWorld(seed=1, model="agent", clients=4)
    world.run(5.0)
    world.strike([FreelanceFault.HALF_OPEN], 12, 10.0)
    world.run(30.0)
    assert world.abandoned > 3


def test_a_server_of_agents_without_a_memory(monkeypatch):
    monkeypatch.setattr(AgentWire, "repeats", False)
    world = FreelanceWorld(seed=2, model="agent", servers=1, depth=4)
    world.strike([FreelanceFault.FULL_PIPE, FreelanceFault.SLOW], 80, 20.0)
    world.run(30.0)
    assert max(world.begun.values()) > 1
