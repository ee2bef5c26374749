"""Payloads that are damaged on the way: jobs with checksums still end with their results."""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve

from wmp import codec
from wmp.actions import End
from wmp.balance import least_recently_used
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol import checksums
from wmp.core.protocol.settings import ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.message import Command, Frame, Kind
from wmp.testing.simulator.network import Network, Pipe

JOBS = 60


class Cutter(Network):
    """Cuts the payloads of every third TAKE and DONE, as a program between two nodes might."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.draw = Random(seed)
        self.damaged = 0

    def arrive(self, pipe: Pipe, frames: list[Frame]) -> None:
        message = codec.decode(frames)
        columns = message.columns
        if message.command in (Command.TAKE, Command.DONE) and self.draw.random() < 0.3:
            assert columns is not None
            payloads = [bytes(payload) for payload in columns.payloads or ()]
            row = self.draw.randrange(len(payloads))
            payloads[row] = payloads[row][: len(payloads[row]) // 2]
            self.damaged += 1
            frames = list(codec.encode(evolve(message, columns=evolve(columns, payloads=payloads))))
        super().arrive(pipe, frames)


def play(kind: Kind) -> tuple[Cutter, list[bytes]]:
    """Do all jobs; return the network and the results."""
    network = Cutter(14)
    settings = ManagerSettings(identity=b"m", epoch=1)
    network.add("m", ManagerMachine(settings, least_recently_used))
    for name in ("w1", "w2"):
        chosen = WorkerSettings(identity=name.encode(), epoch=1, roles=("default",))
        network.add(name, WorkerMachine(chosen, 1), ["m"])
        network.connect(name)
    payloads = [b"%05d" % number * 20 for number in range(JOBS)]
    ids = network.submit("m", payloads, kind, max_worker_losses=1000)
    network.run(300.0, step=0.5)
    assert set(network.results) == {("m", id) for id in ids}
    ends = [network.results["m", id] for id in ids]
    assert {end for end, _ in ends} == {End.OK}
    rows = zip(ends, payloads, strict=True)
    return network, [result for (_, result), payload in rows if result != b"did " + payload]


@pytest.mark.rule("WMP-2.11", "WMP-2.12", "WMP-2.13")
def test_with_checksums_every_result_is_right():
    network, wrong = play(Kind(checksum=True))
    assert network.damaged > 10
    assert wrong == []
    assert network.nodes["m"].statistics().requeued.keys() == {"refused", "lost at the worker"}


def test_without_checksums_damaged_results_are_believed():
    network, wrong = play(Kind())
    assert network.damaged > 10
    assert wrong


def test_checksums_that_nobody_reads_are_of_no_use(monkeypatch):
    monkeypatch.setattr(checksums, "crc32", lambda payload: 0)
    _, wrong = play(Kind(checksum=True))
    assert wrong
