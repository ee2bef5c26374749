"""The parts of a simulated world, each by itself."""

from __future__ import annotations

from collections import Counter
from math import inf
from random import Random

import pytest

from wmp.core.device import DeviceMachine
from wmp.core.protocol.settings import DeviceSettings
from wmp.message import Command, Message
from wmp.testing.simulator.agenda import Agenda, NodeClocks
from wmp.testing.simulator.faults import Fault
from wmp.testing.simulator.faulty_connections import FaultyConnections
from wmp.testing.simulator.network import Network
from wmp.testing.simulator.trace import Trace

PING = Message(Command.PING, (), (b"w", 1), {})
PIPE = ("w", 0)


def test_an_agenda_calls_in_the_order_of_time_and_then_of_asking():
    agenda, called = Agenda(Network()), []
    for when, what in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        agenda.at(when, called.append, what)
    assert (agenda.first, agenda.latest(called.append)) == (1.0, 2.0)
    for _ in range(3):
        agenda.call_first()
    assert called == ["a", "b", "c"]
    assert agenda.first == inf


def test_an_alarm_in_the_past_is_due_now():
    network, called = Network(now=5.0), []
    agenda = Agenda(network)
    agenda.at(5.0, called.append, "first")
    agenda.at(1.0, called.append, "second")
    agenda.call_first()
    assert (called, agenda.first) == (["first"], 5.0)


def test_a_deadline_on_a_wrong_clock_is_kept_in_the_time_of_the_world():
    network = Network(now=1.0)
    clocks = NodeClocks(network, {"fast": (100.0, 2.0)})
    clocks.plan("right", 3.0)
    clocks.plan("fast", 104.0)
    assert clocks.local("fast") == 102.0
    assert clocks.earliest() == (2.0, "fast")
    clocks.plan("fast", None)
    assert clocks.earliest() == (3.0, "right")


def test_a_clock_never_goes_back():
    network = Network(now=2.0)
    clocks = NodeClocks(network)
    assert clocks.local("node") == 2.0
    clocks.skew = {"node": (-1.0, 1.0)}
    assert clocks.local("node") == 2.0


@pytest.fixture
def connections():
    """Return the connections of two devices; one device is below the other."""
    network = Network()
    for name, upstreams in (("above", ()), ("w", ("above",))):
        settings = DeviceSettings(identity=name.encode(), epoch=1, upstreams=max(1, len(upstreams)))
        network.add(name, DeviceMachine(settings), upstreams)
    agenda = Agenda(network)
    connections = FaultyConnections(network, agenda, Trace(), Random(1), Random(2), Counter())
    connections.latency.update(above=0.1, w=0.1)
    return connections


def on_its_way(connections: FaultyConnections) -> int:
    connections.carry(PIPE, PING)
    return len(connections.network.pipes[PIPE])


def test_a_message_takes_no_longer_than_its_latency(connections):
    assert on_its_way(connections) == 1
    assert 0.05 <= connections.agenda.first <= 0.1
    assert connections.held_up == connections.agenda.first


@pytest.mark.parametrize("wrong", ["cut", "stale", "full", "dropped"])
def test_nothing_passes_a_connection_with_a_fault(connections, wrong):
    match wrong:
        case "cut":
            connections.cut["w", "above"] = 1.0
        case "stale":
            connections.deaden(*PIPE)
        case "full":
            connections.full[PIPE] = []
        case "dropped":
            connections.rates = {Fault.DROP: 1.0}
    assert on_its_way(connections) == 0

    connections.mend()
    # Only a new connection ends this fault.
    assert on_its_way(connections) == (0 if wrong == "stale" else 1)


def test_a_message_that_is_dropped_is_counted(connections):
    connections.rates = {Fault.DROP: 1.0}
    on_its_way(connections)
    assert connections.counts == {Fault.DROP: 1}


def test_a_stale_connection_that_is_made_again_is_as_new(connections):
    connections.deaden(*PIPE)
    connections.rejoin(*PIPE)
    assert not connections.stale
    assert on_its_way(connections) == 1
