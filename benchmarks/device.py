"""The cost of a device's own work: CPU time for a message with 1, 16 and 256 jobs.

``python -m benchmarks --only device``. A bare ROUTER plays the manager and a bare DEALER the
worker, so that only the process in between is measured. libzmq's own proxy is measured for
comparison: it passes on the same messages and reads nothing. Its cost is the price of the bytes.
The difference is the cost of the device's own work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import zmq
from attrs import frozen

from benchmarks.figure import Bench, summary
from benchmarks.process import Process, python
from benchmarks.work import Failure, make
from wmp import codec
from wmp.message import Columns, Command, Field, Message, Path

__all__ = ["measure"]

BUNDLES = (1, 16, 256)
_BURST = 32
_WORKER, _MANAGER = b"the worker", b"the manager"


@frozen
class _Between:
    """A device or a proxy with a bare socket at each end."""

    process: Process
    router: zmq.Socket[bytes]
    dealer: zmq.Socket[bytes]
    way: list[bytes]
    """Frames that precede a message on the way to the DEALER."""
    route: Path
    """``to`` of a message on the way to the DEALER."""

    def cost(self, jobs: int, bursts: int) -> float:
        """Pass on TAKEs with this number of jobs, in bursts; return µs of CPU for each TAKE.

        Raises:
            Failure: The columns of a TAKE were changed.
        """
        take = [*self.way, *codec.encode(_take(jobs, self.route))]
        before = self.process.cpu()
        for _ in range(bursts):
            for _ in range(_BURST):
                self.router.send_multipart(take)
            for _ in range(_BURST):
                if self.dealer.recv_multipart()[1] != take[-1]:
                    raise Failure("the device changed the columns; expected them unchanged")
        return (self.process.cpu() - before) / (bursts * _BURST) * 1e6


@contextlib.contextmanager
def _between(kind: str) -> Iterator[_Between]:
    """Start a device or a proxy with ``benchmarks.node``."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.rcvtimeo = dealer.rcvtimeo = 30_000
    try:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        with python("benchmarks.node", kind, f"tcp://127.0.0.1:{port}") as process:
            dealer.connect(process.receive())
            # The upper connection is not open at once. Until then messages from below are lost.
            number = 0
            while not router.poll(100):
                number += 1
                dealer.send_multipart(codec.encode(_ready(number)))
            *way, head = router.recv_multipart()
            yield _Between(process, router, dealer, way, codec.decode([head]).answer_to)
    finally:
        router.close(0)
        dealer.close(0)
        context.term()


def measure(bench: Bench) -> None:
    """Add the figures of the cost of a TAKE that a device passes on, by the number of its jobs."""
    bursts = max(1, bench.scale.jobs["100"] // 8 // _BURST)
    costs: dict[str, list[float]] = {}
    with _between("device") as device, _between("proxy") as proxy:
        for _ in range(bench.scale.repeats):
            for jobs in BUNDLES:
                ours, bytes_alone = device.cost(jobs, bursts), proxy.cost(jobs, bursts)
                costs.setdefault(f"device_cost_{jobs}", []).append(ours)
                costs.setdefault(f"device_proxy_{jobs}", []).append(bytes_alone)
                costs.setdefault(f"device_own_{jobs}", []).append(ours - bytes_alone)
    more: dict[str, Any] = {"jobs": bursts * _BURST, "verified": True}
    for name, samples in costs.items():
        bench.figures[name] = summary(samples, "µs CPU", **more)
    bench.say("device_own")


def _ready(number: int) -> Message:
    fields: dict[int | str, object] = {
        Field.READY: number,
        Field.CREDIT: 1,
        Field.ROLES: ["r"],
        Field.RESOURCES: {},
    }
    return Message(Command.READY, (), (_WORKER, 1), fields, None)


def _take(jobs: int, route: Path) -> Message:
    fields: dict[int | str, object] = {
        Field.NUMBER: 1,
        Field.SESSION: 1,
        Field.LOCK: 1,
        Field.ROLE: "r",
        Field.NEEDS: {},
        Field.MANAGER: [_MANAGER, 1],
    }
    columns = Columns(range(1, jobs + 1), [1] * jobs, payloads=make(jobs, 100))
    return Message(Command.TAKE, route, (_MANAGER, 1), fields, columns)
