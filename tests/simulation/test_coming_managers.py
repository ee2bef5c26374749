"""Managers that dial in by the thousand and go: their jobs end, and the device keeps nothing."""

from __future__ import annotations

import pickle
from collections import Counter
from random import Random

import pytest

from wmp.actions import End
from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Closed, Disconnected
from wmp.testing.simulator.network import Network

WAYS = ("goodbye", "end of the connection", "silence", "kill while jobs run")
AT_ONCE = 8
"""Managers that are there at the same time, besides those that became silent."""
ROOM = 64
"""Bytes by which the counters of a device may grow, as their numbers get more digits."""


class Visited(Network):
    """A device and two workers, and managers that come and go."""

    def __init__(self, draw: Random) -> None:
        super().__init__()
        self.draw = draw
        self.device = DeviceMachine(DeviceSettings(identity=b"d", epoch=1, upstreams=0))
        self.add("d", self.device)
        for name in ("w1", "w2"):
            settings = WorkerSettings(
                identity=name.encode(), epoch=1, resources={"slots": 2}, hold=0.0
            )
            self.add(name, WorkerMachine(settings, 1), ["d"])
            self.connect(name)
        self.came = 0
        self.gone: Counter[str] = Counter()
        self.done = 0

    def come(self) -> str:
        """Let a manager dial in; its jobs wait for workers."""
        self.came += 1
        name = f"m{self.came}"
        settings = ManagerSettings(identity=name.encode(), epoch=1)
        self.add(name, ManagerMachine(settings, least_recently_used), ["d"])
        self.connect(name)
        self.submit(name, [b"%d" % number for number in range(self.draw.randrange(1, 4))])
        return name

    def served(self, name: str) -> bool:
        """Return whether all jobs of a manager have ended."""
        return all((name, id) in self.results for id in range(1, self._last_id[name] + 1))

    def leave(self, name: str, way: str) -> None:
        """Let a manager go, and forget it in this network."""
        self.gone[way] += 1
        if way != "kill while jobs run":
            for id in range(1, self._last_id[name] + 1):
                assert self.results.pop((name, id)) == (End.OK, b"did %d" % (id - 1))
                self.done += 1
        if way == "goodbye":
            self.happen(name, Closed())
            self.settle()
            assert name in self.halted
        else:
            self.down.add(name)
        other = self.far((name, 0))
        if other is not None:
            self.part(name, 0)
            if way in ("end of the connection", "kill while jobs run"):
                self.happen(other[0], Disconnected(other[1]))
        for table in (self.nodes, self.lanes, self.uplinks, self.halted, self._last_id):
            table.pop(name, None)
        self.down.discard(name)
        for key in [key for key in self.results if key[0] == name]:
            del self.results[key]

    def visits(self, count: int) -> None:
        """Let so many managers come and go."""
        here: list[str] = []
        until = self.came + count
        while self.came < until or here:
            while self.came < until and len(here) < AT_ONCE:
                here.append(self.come())
                if self.draw.random() < 0.15:
                    self.leave(here.pop(), "kill while jobs run")
            self.run(self.now + 0.5)
            for name in [name for name in here if self.served(name)]:
                here.remove(name)
                self.leave(name, self.draw.choice(WAYS[:3]))
            assert self.now < 10.0 * self.came + 100.0, f"{here} wait for workers"

    def kept(self) -> int:
        """Return the bytes of the device's state."""
        return len(pickle.dumps(self.device))


@pytest.mark.rule("WMP-8.12", "WMP-8.13")
@pytest.mark.parametrize(
    ("seed", "count"),
    [(1, 200), (2, 200), pytest.param(3, 5000, marks=pytest.mark.deep)],
)
def test_a_device_keeps_nothing_of_managers_that_have_gone(seed: int, count: int) -> None:
    network = Visited(Random(seed))
    network.run(1.0)
    network.visits(100)
    network.run(network.now + 10.0)  # the silent managers are forgotten
    before = network.kept()

    network.visits(count)
    network.run(network.now + 10.0)

    assert network.came == count + 100
    assert set(network.gone) == set(WAYS)
    assert network.done > count
    assert network.twice == []
    assert network.device.statistics().managers == 0
    assert network.device.deadline() is None
    assert abs(network.kept() - before) <= ROOM


def test_a_device_that_forgot_no_silent_manager_would_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceMachine, "_forget_silent", lambda *_: [])
    monkeypatch.setattr(DeviceMachine, "deadline", lambda _: None)
    network = Visited(Random(3))
    network.run(1.0)
    before = network.kept()

    network.visits(100)
    network.run(network.now + 10.0)

    assert network.device.statistics().managers == network.gone["silence"] > 0
    assert network.kept() - before > ROOM
