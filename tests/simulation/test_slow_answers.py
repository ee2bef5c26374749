"""Messages that travel longer than the interval of PING: every job still ends soon."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest

from wmp.actions import End
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.message import Message
from wmp.testing.simulator.network import Network, Pipe


class SlowNetwork(Network):
    """A manager and a worker. Each message takes ``delay`` seconds, and jobs take no time."""

    def __init__(self, delay: float, window: int) -> None:
        super().__init__()
        self.delay = delay
        self.due: dict[Pipe, deque[float]] = defaultdict(deque)
        manager = ManagerSettings(identity=b"m", epoch=1000)
        worker = WorkerSettings(identity=b"w", epoch=1, window=window, resources={"slots": 1})
        self.add("m", ManagerMachine(manager, least_recently_used))
        self.add("w", WorkerMachine(worker, 1), ["m"])
        self.connect("w")

    def carry(self, pipe: Pipe, message: Message) -> None:
        super().carry(pipe, message)
        self.due[pipe].append(self.now + self.delay)

    def join(self, name: str, link: int) -> None:
        super().join(name, link)
        self.due.clear()  # the messages of the old connection are lost

    def pass_time(self) -> None:
        """Let time pass until the next message arrives, or the next deadline of a node."""
        first = min((due[0] for due in self.due.values() if due), default=float("inf"))
        self.advance(min(first, self.deadline() or first))
        for pipe, due in list(self.due.items()):
            while due and due[0] <= self.now:
                due.popleft()
                self.deliver(pipe)
        while lanes := list(self.running()):
            for name, lane in lanes:
                if lane.left:
                    self.finish(name, lane)


@pytest.mark.rule("WMP-4.12")
@pytest.mark.parametrize(("delay", "window"), [(0.4, 0), (0.6, 0), (0.9, 1), (1.4, 0)])
def test_jobs_end_although_answers_take_longer_than_the_interval_of_ping(
    delay: float, window: int
) -> None:
    network = SlowNetwork(delay, window)
    while network.now < 20.0:
        network.pass_time()
    for number in range(5):
        begun = network.now
        (job,) = network.submit("m", [b"%d" % number])
        while ("m", job) not in network.results and network.now < begun + 10 * delay:
            network.pass_time()
        assert network.results.get(("m", job)) == (End.OK, b"did %d" % number)
