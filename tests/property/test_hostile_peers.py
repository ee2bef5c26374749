"""Many hostile peers send any messages: honest jobs still end with their results.

The hostile peers offer the role ``shared``, and other roles than the role ``honest``. A worker may
answer a job with anything. The tests therefore require only an end of each job of ``shared``.

Hostile managers attack workers that serve an honest manager, too.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.property.hostile_manager import HostileManager
from tests.property.hostile_peer import HostilePeer
from tests.property.mutations import vectors
from wmp import codec
from wmp.actions import End
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import DecodeError
from wmp.events import Garbled, Received
from wmp.message import Kind, Message
from wmp.testing.simulator.network import Network, Pipe

KNOWN = vectors()
HONEST, SHARED = Kind("honest"), Kind("shared")
PATIENCE = 240.0
"""Virtual seconds in which honest jobs end after an attack on their workers."""


class Siege(Network):
    """A manager with two honest workers, and hostile peers on connections of their own.

    The messages that the hostile peers mutate have the identities of the honest workers, too.
    """

    def __init__(self, count: int, seed: int) -> None:
        super().__init__()
        chosen = ManagerSettings(identity=b"m", epoch=1000)
        self.add("m", ManagerMachine(chosen, least_recently_used))
        for name in ("w1", "w2"):
            own = WorkerSettings(identity=name.encode(), epoch=1, roles=("honest", "shared"))
            self.add(name, WorkerMachine(own, 1), ["m"])
            self.connect(name)
        self.hostile = {
            b"hostile/%d" % number: HostilePeer(number, seed, KNOWN) for number in range(count)
        }

    def _send(self, pipe: Pipe, message: Message) -> None:
        peer = self.hostile.get(pipe[1]) if isinstance(pipe[1], bytes) else None
        if peer is None:
            super()._send(pipe, message)
        else:
            peer.receive(list(codec.encode(message)))

    def attack(self) -> None:
        """Let each hostile peer send one message."""
        self.drops.clear()  # millions of refused messages would fill the memory
        for link, peer in self.hostile.items():
            frames: Any = peer.next()
            try:
                event: Received | Garbled = Received(link, codec.decode(frames))
            except DecodeError as error:
                event = Garbled(link, error)
            self.happen("m", event)


def besiege(peers: int, messages: int, seed: int) -> None:
    """Attack while honest jobs are done, then let the hostile peers be silent."""
    siege = Siege(peers, seed)
    submitted: dict[int, bytes | None] = {}
    every = max(1, messages // 20)
    for round in range(messages):
        if round % every == 0:
            payload = b"honest %d" % round
            for kind, expected in ((HONEST, b"did " + payload), (SHARED, None)):
                ids = siege.submit("m", [payload], kind, max_worker_losses=1_000_000)
                submitted[ids[0]] = expected
        siege.attack()
        siege.settle()
        siege.advance(siege.now + 0.01)
    siege.run(siege.now + 30.0, step=0.5)

    assert siege.halted == {}
    assert siege.twice == []
    assert {id for _, id in siege.results} == set(submitted)
    for id, expected in submitted.items():
        if expected is not None:
            assert siege.results["m", id] == (End.OK, expected)
    siege.nodes["m"].check_invariants()  # type: ignore[union-attr]


@pytest.mark.rule("WMP-10.1", "WMP-6.1", "WMP-6.3")
@given(seed=st.integers(0, 2**32), peers=st.integers(1, 8), messages=st.integers(1, 60))
@example(seed=14, peers=8, messages=120)
@settings(max_examples=8)
def test_honest_jobs_end_among_hostile_peers(seed: int, peers: int, messages: int) -> None:
    besiege(peers, messages, seed)


@pytest.mark.deep
@pytest.mark.timeout(2700)
@settings(max_examples=1, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_honest_jobs_end_among_two_hundred_hostile_peers(seed: int) -> None:
    besiege(200, 10_000, seed)


class SiegeOfWorkers(Network):
    """A manager with two honest workers, each of which is connected to hostile managers too."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__()
        chosen = ManagerSettings(identity=b"m", epoch=1000)
        self.add("m", ManagerMachine(chosen, least_recently_used))
        self.hostile: dict[Pipe, HostileManager] = {}
        for name in ("w1", "w2"):
            own = WorkerSettings(identity=name.encode(), epoch=1, roles=("honest", "shared"))
            names = [f"hostile {number}" for number in range(count)]
            self.add(name, WorkerMachine(own, count + 1), ["m", *names])
            for link in range(1, count + 1):
                number = len(self.hostile)
                self.hostile[name, link] = HostileManager(number, seed, KNOWN, (b"m", 1000))
            self.connect(name)

    def _send(self, pipe: Pipe, message: Message) -> None:
        manager = self.hostile.get(pipe)
        if manager is None:
            super()._send(pipe, message)
        else:
            manager.receive(list(codec.encode(message)))

    def attack(self) -> None:
        """Let each hostile manager send one message to its worker."""
        self.drops.clear()
        for (name, link), manager in self.hostile.items():
            try:
                event: Received | Garbled = Received(link, codec.decode(manager.next()))
            except DecodeError as error:
                event = Garbled(link, error)
            self.happen(name, event)


def besiege_workers(managers: int, messages: int, seed: int) -> None:
    """Attack two workers while they do honest jobs, then let the hostile managers be silent."""
    siege = SiegeOfWorkers(managers, seed)
    expected: dict[int, bytes] = {}
    for round in range(messages):
        if round % max(1, messages // 20) == 0:
            payload = b"honest %d" % round
            ids = siege.submit("m", [payload], HONEST, max_worker_losses=1_000_000)
            expected[ids[0]] = b"did " + payload
        siege.attack()
        siege.settle()
        siege.advance(siege.now + 0.01)
    # A manager that pretended to be `m` before `m` was known leaves a session whose messages `m`
    # does not acknowledge. The worker begins a new session after some resends.
    end = siege.now + PATIENCE
    while siege.now < end and len(siege.results) < len(expected):
        siege.run(siege.now + 5.0, step=0.5)

    assert siege.halted == {}
    assert siege.twice == []
    assert siege.results == {("m", id): (End.OK, result) for id, result in expected.items()}
    for name in ("w1", "w2"):
        siege.nodes[name].check_invariants()  # type: ignore[union-attr]


@pytest.mark.rule("WMP-10.1", "WMP-15.1", "WMP-15.9", "WMP-15.11")
@given(seed=st.integers(0, 2**32), managers=st.integers(1, 4), messages=st.integers(1, 60))
@example(seed=15, managers=4, messages=120)
@example(seed=77395, managers=3, messages=6)
@example(seed=3271704578, managers=4, messages=40)  # a stranger's session (WMP-15.11)
@settings(max_examples=6)
def test_workers_do_honest_jobs_among_hostile_managers(
    seed: int, managers: int, messages: int
) -> None:
    besiege_workers(managers, messages, seed)


@pytest.mark.deep
@pytest.mark.timeout(900)
@settings(max_examples=1, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_workers_do_honest_jobs_among_a_hundred_hostile_managers(seed: int) -> None:
    besiege_workers(50, 2000, seed)
