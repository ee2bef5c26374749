"""What a device's own work costs: CPU a message with 1, 16 and 256 jobs in it.

``python -m benchmarks --only device``. A bare ROUTER plays the manager and a bare DEALER the
worker, so that the device's process is all that is measured.
"""

from __future__ import annotations

import zmq

from benchmarks.figure import Bench, summary
from benchmarks.process import python
from benchmarks.work import Failure, make
from wmp import codec
from wmp.message import Columns, Command, Field, Message

__all__ = ["measure"]

BUNDLES = (1, 16, 256)
_BURST = 32
_WORKER, _MANAGER = b"the worker", b"the manager"


def measure(bench: Bench) -> None:
    """Add the cost of a TAKE passed on, by the number of jobs in it."""
    count = max(_BURST, bench.scale.jobs["100"] // 8)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    router.rcvtimeo = dealer.rcvtimeo = 30_000
    try:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        with python("benchmarks.node", "device", f"tcp://127.0.0.1:{port}") as device:
            dealer.connect(device.hear())
            # Its own connection upwards takes a moment, and until then it has nobody to tell.
            number = 0
            while not router.poll(100):
                number += 1
                dealer.send_multipart(codec.encode(_ready(number)))
            link, *frames = router.recv_multipart()
            route = codec.decode(frames).answer_to
            samples: dict[int, list[float]] = {jobs: [] for jobs in BUNDLES}
            for _ in range(bench.scale.repeats):
                for jobs, costs in samples.items():
                    take = [link, *codec.encode(_take(jobs, route))]
                    before = device.cpu()
                    for _ in range(count // _BURST):
                        for _ in range(_BURST):
                            router.send_multipart(take)
                        for _ in range(_BURST):
                            if dealer.recv_multipart()[1] != take[2]:
                                raise Failure("a device changed the columns")
                    costs.append((device.cpu() - before) / (count // _BURST * _BURST) * 1e6)
    finally:
        router.close(0)
        dealer.close(0)
        context.term()
    for jobs, costs in samples.items():
        bench.figures[f"device_cost_{jobs}"] = summary(costs, "µs CPU", jobs=count, verified=True)
    bench.say("device_cost")


def _ready(number: int) -> Message:
    fields: dict[int | str, object] = {
        Field.READY: number,
        Field.CREDIT: 1,
        Field.ROLES: ["r"],
        Field.RESOURCES: {},
    }
    return Message(Command.READY, (), (_WORKER, 1), fields, None)


def _take(jobs: int, route: tuple[bytes | int, ...]) -> Message:
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
