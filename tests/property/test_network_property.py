"""Two managers, two workers and a device in a hostile network.

With every schedule no resource is booked twice, no job ends twice and no result is wrong. After the
last fault every submitted job ends.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from wmp.actions import End
from wmp.balance import least_recently_used
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.message import Kind, Outcome
from wmp.testing.simulator.network import Network

KINDS = (Kind(), Kind("default", (("gpu", 1), ("slots", 1))), Kind("cook"))
RESOURCES = {"w1": {"slots": 1}, "w2": {"slots": 2, "gpu": 1}}
ROLES = ("cook", "default")


def manager(name: str, epoch: int = 1) -> ManagerMachine:
    return ManagerMachine(ManagerSettings(identity=name.encode(), epoch=epoch), least_recently_used)


def worker(name: str, links: int, epoch: int = 1, **options: object) -> WorkerMachine:
    options.setdefault("resources", RESOURCES.get(name, {"slots": 1}))
    return WorkerMachine(
        WorkerSettings(identity=name.encode(), epoch=epoch, roles=ROLES, **options), links
    )


def booked(network: Network) -> dict[str, Counter[str]]:
    """Return the resources of the running jobs of each worker, by the network's own record."""
    taken: dict[str, Counter[str]] = {}
    for name, lane in network.running():
        taken.setdefault(name, Counter()).update(dict(lane.run.kind.needs))
    return taken


class Adversary(RuleBasedStateMachine):
    """Random faults: w1 is connected to m1 and m2, and w2 to a device that is connected to both."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network = Network()
        self.epochs = Counter({"w1": 1, "w2": 1, "d": 1})
        self.submitted: dict[tuple[str, int], bytes] = {}
        network.add("m1", manager("m1"))
        network.add("m2", manager("m2"))
        network.add("d", self.make("d"), ["m1", "m2"])
        network.add("w1", self.make("w1"), ["m1", "m2"])
        network.add("w2", self.make("w2"), ["d"])
        network.connect("w1")
        network.connect("w2")

    def make(self, name: str) -> WorkerMachine | DeviceMachine:
        epoch = self.epochs[name]
        if name == "d":
            return DeviceMachine(DeviceSettings(identity=b"d", epoch=epoch, upstreams=2))
        return worker(name, 2 if name == "w1" else 1, epoch)

    @rule(
        name=st.sampled_from(["m1", "m2"]),
        count=st.integers(1, 5),
        kind=st.sampled_from(KINDS),
        timeout=st.sampled_from([None, None, 0.5]),
    )
    def submit(self, name, count, kind, timeout):
        payloads = [b"%s %d" % (name.encode(), len(self.submitted) + i) for i in range(count)]
        ids = self.network.submit(name, payloads, kind, timeout=timeout, max_worker_losses=100)
        self.submitted.update({(name, i): p for i, p in zip(ids, payloads, strict=True)})

    @precondition(lambda self: self.network.busy())
    @rule(
        data=st.data(),
        what=st.sampled_from(["deliver"] * 6 + ["drop", "repeat", "refuse"]),
    )
    def move(self, data, what):
        pipe = data.draw(st.sampled_from(self.network.busy()))
        getattr(self.network, what)(pipe)

    @precondition(lambda self: any(self.network.running()))
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.OK, Outcome.OK, Outcome.ERROR]))
    def finish(self, data, outcome):
        lanes = list(self.network.running())
        name, lane = lanes[data.draw(st.integers(0, len(lanes) - 1))]
        self.network.finish(name, lane, outcome)

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def cancel(self, data):
        name, id = data.draw(st.sampled_from(sorted(self.submitted)))
        self.network.cancel(name, [id])

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 3.0, 7.0]))
    def wait(self, seconds):
        self.network.advance(self.network.now + seconds)

    @rule(name=st.sampled_from(["w1", "w2", "d"]))
    def restart(self, name):
        self.epochs[name] += 1
        self.network.replace(name, self.make(name))
        if name != "d":
            self.network.connect(name)

    @invariant()
    def nothing_is_double_booked(self):
        for name, taken in booked(self.network).items():
            for resource, amount in taken.items():
                assert amount <= RESOURCES[name].get(resource, 0), (name, resource)

    @invariant()
    def nothing_ends_twice(self):
        assert self.network.twice == []

    def teardown(self):
        """After the last fault every job ends in bounded time with the right result."""
        network = self.network
        network.run(network.now + 60.0)
        assert sorted(self.submitted) == sorted(network.results)
        for job, (end, payload) in network.results.items():
            if end is End.OK:
                assert payload == b"did " + self.submitted[job]
        assert network.halted == {}


TestAdversary = Adversary.TestCase
TestAdversary.settings = settings(
    stateful_step_count=40, max_examples=settings.default.max_examples * 5 // 8
)
TestAdversary.pytestmark = [
    pytest.mark.rule("WMP-4.1", "WMP-4.2", "WMP-6.1", "WMP-6.3", "WMP-6.6"),
]


@pytest.mark.rule("WMP-3.10")
@pytest.mark.parametrize("seconds", [0.001, 1.0, 10.0])
@pytest.mark.parametrize("hold", [0.0, 5.0])
@pytest.mark.parametrize("managers", [2, 3, pytest.param(5, marks=pytest.mark.deep)])
@pytest.mark.parametrize("window", [0, 8])
def test_no_manager_starves(managers, hold, seconds, window):
    """With M managers that always have work, each is served in any ``2 * M`` freed places.

    A quarter of a window counts as one place.
    """
    network = Network()
    names = [f"m{index}" for index in range(managers)]
    for name in names:
        network.add(name, manager(name))
    network.add("w1", worker("w1", managers, hold=hold, window=window, lane_max=1), names)
    network.connect("w1")
    network.settle()
    for name in names:
        network.submit(name, [b"job"] * 60)

    served = []
    bound = 2 * managers * max(window // 4, 1)
    for _ in range(window + bound + 2 * managers):
        until = network.now + seconds
        while True:
            while pipes := network.busy():
                for pipe in pipes:
                    network.deliver(pipe)
            if network.now >= until:
                break
            due = network.deadline()
            network.advance(until if due is None else min(until, due))
        ((name, lane),) = list(network.running())
        served.append(lane.run.manager[0].decode())
        network.finish(name, lane)

    # The first manager may fill the whole window, because all places of the window were free at the
    # start.
    for start in range(window, len(served) - bound):
        assert set(served[start : start + bound]) == set(names), (start, served)
