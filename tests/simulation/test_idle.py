"""An idle node wakes only for its declared timers, and costs next to nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.message import Command, Kind
from wmp.testing.simulator.network import Network


def idle(hold: float, managers: int = 1) -> tuple[Counter[str], Counter[Command]]:
    """Return the wake-ups of each node and the messages of each command in an idle minute."""
    network = Network()
    names = [f"m{index}" for index in range(managers)]
    for name in names:
        settings = ManagerSettings(identity=name.encode(), epoch=1)
        network.add(name, ManagerMachine(settings, least_recently_used))
    settings = WorkerSettings(identity=b"w", epoch=1, hold=hold)
    network.add("w", WorkerMachine(settings, managers), names)
    network.connect("w")
    network.settle()
    # The peers find each other at the start, which is not counted.
    network.run(until=30.0)
    network.ticks.clear()
    network.sent.clear()
    network.run(until=90.0)
    return network.ticks, network.sent


@pytest.mark.parametrize("managers", [1, 3])
def test_an_idle_worker_wakes_for_its_pings_and_its_backoff_only(managers):
    ticks, sent = idle(hold=0.0, managers=managers)

    # One PING a second for each manager; READY is repeated every 24 to 32 s on each link.
    assert sent[Command.PING] == sent[Command.PONG] == pytest.approx(60 * managers, abs=managers)
    assert sent[Command.READY] <= 3 * managers
    assert set(sent) <= {Command.PING, Command.PONG, Command.READY}
    # Each link has a timer of three intervals, which checks whether all managers behind the link
    # are silent.
    assert ticks["w"] <= 60 * managers + 60 / 3 * managers + 3
    # A manager checks once per `max_silence` whether a message of its worker arrived.
    assert all(ticks[f"m{index}"] <= 60 / 5 + 1 for index in range(managers))


def test_a_held_give_costs_two_messages_a_hold():
    ticks, sent = idle(hold=5.0)

    # The manager answers NO half a second before the hold ends, and the worker sends GIVE again.
    assert sent[Command.GIVE] == sent[Command.NO] == pytest.approx(60 / 4.5, abs=2)
    assert set(sent) <= {Command.PING, Command.PONG, Command.READY, Command.GIVE, Command.NO}
    assert ticks["w"] <= 60 + 60 / 3 + 60 / 4.5 + 3
    # The timers of the hold, of the ack of each NO, and of the expiry.
    assert ticks["m0"] <= 2 * 60 / 4.5 + 60 / 5 + 3


def test_jobs_without_a_suitable_worker_cause_no_wake():
    network = Network()
    network.add("m", ManagerMachine(ManagerSettings(identity=b"m", epoch=1), least_recently_used))
    network.add("w", WorkerMachine(WorkerSettings(identity=b"w", epoch=1, hold=0.0), 1), ["m"])
    network.connect("w")
    network.submit("m", [b"x"] * 100, Kind("a role that nobody has"))
    network.run(until=30.0)
    network.sent.clear()
    network.run(until=60.0)
    assert Command.WAKE not in network.sent
