"""Nodes with lower limits than their peers: their streams go on, and every job ends."""

from __future__ import annotations

import pytest

from tests.ablation import worker_side
from wmp import codec
from wmp.actions import End
from wmp.balance import least_recently_used
from wmp.codec import CodecLimits
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import DecodeError
from wmp.events import Garbled, Received
from wmp.message import Frame
from wmp.testing.simulator.network import Network, Pipe

LOW = CodecLimits(payload=5000, columns=20_000)
LONG = bytes(9000)
"""A payload above the limits, which is sent in a frame of its own."""


class Limited(Network):
    """One node accepts smaller messages than the others."""

    def __init__(self, limited: str) -> None:
        super().__init__()
        self.limited = limited
        self.refused = 0

    def arrive(self, pipe: Pipe, frames: list[Frame]) -> None:
        name, link = self._far[pipe]
        if name != self.limited:
            super().arrive(pipe, frames)
            return
        read = codec.peek if isinstance(self.nodes[name], DeviceMachine) else codec.decode
        try:
            event: object = Received(link, read(frames, LOW))
        except DecodeError as error:
            self.refused += 1
            event = Garbled(link, error)
        self.happen(name, event)


def play(limited: str) -> tuple[Limited, dict[str, set[End]]]:
    """Do short jobs, jobs with long payloads and jobs with long results. Return their ends."""
    network = Limited(limited)
    settings = ManagerSettings(identity=b"m", epoch=1)
    network.add("m", ManagerMachine(settings, least_recently_used))
    network.add("d", DeviceMachine(DeviceSettings(identity=b"d", epoch=1, upstreams=1)), ["m"])
    for name in ("w1", "w2"):
        chosen = WorkerSettings(identity=name.encode(), epoch=1, hold=5.0)
        network.add(name, WorkerMachine(chosen, 1), ["d"])
        network.connect(name)
    before = network.submit("m", [b"short"] * 10, max_worker_losses=3)
    long = network.submit("m", [LONG] * 4, max_worker_losses=3)
    after = network.submit("m", [b"short"] * 10, max_worker_losses=3)
    network.run(400.0, step=0.5)
    ends = {
        kind: {network.results["m", id][0] for id in ids if ("m", id) in network.results}
        for kind, ids in (("short", [*before, *after]), ("long", long))
    }
    assert len(network.results) == 24 or not network.refused, "every job ends"
    return network, ends


@pytest.mark.rule("WMP-7.11", "WMP-10.7")
@pytest.mark.parametrize("limited", ["m", "d"])
def test_every_job_ends_though_a_node_refuses_long_payloads(limited):
    network, ends = play(limited)

    assert network.refused
    assert ends == {"short": {End.OK}, "long": {End.LOST}}
    for node in network.nodes.values():
        if not isinstance(node, DeviceMachine):
            node.check_invariants()


@pytest.mark.rule("WMP-7.11")
def test_another_worker_does_the_jobs_that_one_worker_refuses():
    network, ends = play("w1")

    assert network.refused
    assert ends["short"] == {End.OK}
    assert ends["long"] <= {End.OK, End.LOST}


def test_without_the_rule_a_stream_is_blocked(monkeypatch):
    worker_side.refused_messages(monkeypatch)
    worker_side.endless_resends(monkeypatch)
    with pytest.raises(AssertionError, match="every job ends"):
        play("d")


@pytest.mark.rule("WMP-7.12")
def test_a_stream_goes_on_though_no_error_reports_the_refused_message(monkeypatch):
    worker_side.refused_messages(monkeypatch)
    _, ends = play("d")

    assert ends == {"short": {End.OK}, "long": {End.LOST}}
