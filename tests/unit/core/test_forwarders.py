"""Whole forwarding managers between a manager and workers, in a network (WMP section 19)."""

from __future__ import annotations

import pytest

from wmp.actions import End
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Cancelled, Closed, Drained, Reported
from wmp.message import Command, Field, Outcome
from wmp.testing.simulator.network import Network


class ForwardingStory(Network):
    """A network that keeps all messages."""

    def carry(self, pipe, message):
        self.messages = [*getattr(self, "messages", ()), (pipe[0], message)]
        super().carry(pipe, message)

    def of(self, name, command):
        return [m for sender, m in self.messages if sender == name and m.command is command]

    def manager(self, name, **settings):
        settings = ManagerSettings(identity=name.encode(), epoch=1, **settings)
        self.add(name, ManagerMachine(settings, least_recently_used))

    def worker(self, name, *managers, **settings):
        settings = {"window": 0, "label": name, **settings}
        settings = WorkerSettings(identity=name.encode(), epoch=1, **settings)
        self.add(name, WorkerMachine(settings, len(managers)), managers)
        self.connect(name)

    def forwarder(self, name, *managers):
        """Add a forwarding manager; its worker side is called name^."""
        self.manager(name)
        self.forward(name, f"{name}^")
        self.worker(f"{name}^", *managers, resources={"slots": 0}, roles=())


@pytest.fixture
def network():
    """A manager a, a forwarding manager f, and its workers v and w."""
    network = ForwardingStory()
    network.manager("a")
    network.forwarder("f", "a")
    for name in ("v", "w"):
        network.worker(name, "f")
    network.run(2.0)
    return network


def started(network, *names):
    """Return the payloads of the jobs that run at these workers."""
    return [lane.payload(lane.left[0]) for name, lane in network.running() if name in names]


def deliver(network):
    """Deliver all messages; handlers go on."""
    while pipes := network.busy():
        for pipe in pipes:
            if network.pipes.get(pipe):
                network.deliver(pipe)


@pytest.mark.rule("WMP-19.1", "WMP-19.2")
def test_the_upper_side_offers_what_the_workers_offer_together(network):
    ready = network.of("f^", Command.READY)[-1].fields

    assert ready[Field.FORWARDS] == (b"f",)
    assert ready[Field.RESOURCES] == {"slots": 2}
    assert ready[Field.ROLES] == ("default",)
    assert all(Field.FORWARDS not in m.fields for m in network.of("w", Command.READY))

    network.happen("w", Closed())
    network.run(3.0)
    assert network.of("f^", Command.READY)[-1].fields[Field.RESOURCES] == {"slots": 1}


@pytest.mark.rule("WMP-19.3", "WMP-19.4")
def test_jobs_of_a_manager_are_done_by_workers_of_a_forwarding_manager(network):
    ids = network.submit("a", [b"%d" % n for n in range(50)])
    network.run(20.0)

    assert [network.results["a", id] for id in ids] == [(End.OK, b"did %d" % n) for n in range(50)]
    takes = network.of("f", Command.TAKE)
    assert {m.fields[Field.MANAGER] for m in takes} == {(b"a", 1)}
    assert {m.fields[Field.PASSED] for m in takes} == {(b"f",)}
    assert sorted(id for m in takes for id in m.columns.ids) == list(ids)
    assert not network.twice
    assert not network.of("f", Command.ERROR)
    for name in ("a", "f", "f^", "v", "w"):
        network.nodes[name].check_invariants()
    network.forwarders["f"].relay.check_invariants()
    assert len(network.forwarders["f"].relay) == 0


@pytest.mark.rule("WMP-19.4")
def test_the_owner_counts_a_worker_that_is_lost_behind_a_forwarding_manager(network):
    (id,) = network.submit("a", [b"poison"], max_worker_losses=1)
    for _ in range(2):
        deliver(network)
        ((name, _),) = [(n, lane) for n, lane in network.running() if n in ("v", "w")]
        network.down.add(name)
        network.lanes[name].clear()
        for _ in range(200):
            network.advance(network.now + 0.05)
            deliver(network)

    end, text = network.results["a", id]
    assert end is End.LOST
    assert b"of a forwarding manager" in text
    takes = {tuple(message.columns.attempts) for message in network.of("f", Command.TAKE)}
    assert takes == {(1,), (2,)}, "each attempt of the owner is one lease below"


@pytest.mark.rule("WMP-19.5")
def test_a_cancelled_job_is_cancelled_at_the_worker(network):
    (id,) = network.submit("a", [b"x"])
    deliver(network)
    assert started(network, "v", "w") == [b"x"]

    network.happen("a", Cancelled([id]))
    network.run(4.0)

    assert network.results["a", id][0] is End.CANCELLED
    assert len(network.of("f", Command.CANCEL)) == 1


@pytest.mark.rule("WMP-19.5")
def test_the_jobs_of_a_manager_that_is_gone_are_cancelled_at_the_workers(network):
    network.submit("a", [b"x"])
    deliver(network)
    network.down.add("a")

    for _ in range(200):
        network.advance(network.now + 0.05)
        deliver(network)

    (cancel,) = network.of("f", Command.CANCEL)
    assert cancel.fields[Field.MANAGER] == (b"a", 1)
    assert all(id in lane.cancelled for _, lane in network.running() for id in lane.left)
    network.settle()
    assert len(network.forwarders["f"].relay) == 0


@pytest.mark.rule("WMP-19.7")
def test_progress_reaches_the_submitter(network):
    (id,) = network.submit("a", [b"x"])
    deliver(network)
    ((name, lane),) = list(network.running())

    network.happen(name, Reported(lane.run.lane, id, 0.25, "a quarter"))
    deliver(network)

    assert [(n, r.id, r.fraction, r.text) for n, r in network.reports] == [
        ("a", id, 0.25, "a quarter")
    ]


@pytest.mark.rule("WMP-19.8", "WMP-19.9")
def test_managers_that_forward_to_each_other_do_their_own_jobs():
    network = ForwardingStory()
    network.manager("a")
    network.manager("b")
    for name, other in (("a", "b"), ("b", "a")):
        network.forward(name, f"{name}^")
        network.worker(f"{name}^", other, resources={"slots": 0}, roles=())
        network.worker(f"w{name}", name)
    network.run(5.0)
    before = network.sent[Command.READY]
    network.run(25.0)
    assert network.sent[Command.READY] - before < 200, "no READY causes another one for ever"

    ids = {name: network.submit(name, [b"x"] * 5) for name in ("a", "b")}
    network.run(60.0)

    for name, numbers in ids.items():
        assert [network.results[name, id][0] for id in numbers] == [End.OK] * 5


@pytest.mark.rule("WMP-19.3", "WMP-19.8")
def test_a_job_may_pass_several_forwarding_managers():
    network = ForwardingStory()
    network.manager("a")
    network.forwarder("f", "a")
    network.forwarder("g", "f")
    network.worker("w", "g")
    network.run(4.0)

    (id,) = network.submit("a", [b"x"])
    network.run(8.0)

    assert network.results["a", id] == (End.OK, b"did x")
    (take,) = network.of("g", Command.TAKE)
    assert take.fields[Field.PASSED] == (b"f", b"g")
    assert network.of("f^", Command.READY)[-1].fields[Field.FORWARDS] == (b"f", b"g")


@pytest.mark.rule("WMP-19.10")
def test_a_job_that_waits_below_goes_back_and_another_worker_does_it(network):
    network.submit("f", [b"own"] * 2)
    network.submit("a", [b"x"])
    deliver(network)  # the own jobs run, and those of a wait
    network.worker("idle", "a")
    for _ in range(40):
        network.advance(network.now + 0.05)
        deliver(network)
        if started(network, "idle"):
            break

    assert started(network, "idle") == [b"x"]


@pytest.mark.rule("WMP-19.13")
def test_a_forwarding_manager_that_drains_hands_back_what_no_worker_has(network):
    network.submit("f", [b"own"] * 2)
    deliver(network)
    (id,) = network.submit("a", [b"x"])
    deliver(network)
    relay = network.forwarders["f"]

    relay.relayed(Drained(), network.now)
    network.happen("f^", Drained())
    deliver(network)

    assert network.halted["f^"] is None
    assert network.of("f^", Command.BYE)
    assert not network.of("f", Command.BYE)
    assert len(relay.relay) == 0
    network.worker("idle", "a")
    network.run(10.0)
    assert network.results["a", id] == (End.OK, b"did x")


def test_an_outcome_of_a_dead_handler_reaches_the_owner(network):
    (id,) = network.submit("a", [b"x"], max_worker_losses=0)
    deliver(network)
    ((name, lane),) = list(network.running())
    network.end(name, lane, Outcome.LOST, b"what ran it has died")
    deliver(network)

    assert network.results["a", id][0] is End.LOST
