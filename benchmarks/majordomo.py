"""``python -m benchmarks.majordomo [--seconds N] [--rounds N] [--cycles N]``: a Majordomo broker.

Three comparisons, each with slices in turn:

- ``wmp gateway --majordomo`` beside a plain broker in pyzmq that does what the broker of the guide
  does, without any safeguard. Both have the same four workers and the same client with 100 requests
  under way.
- The CPU time of our broker for a request with 4 known workers, with 1,000 idle workers of another
  service, with 1,000 services that have a worker each, and with requests for all these services.
  The same 1,000 connections are open in each case.
- The program of the guide: N requests one after the other, and N requests at once on one socket,
  with one worker and with ten workers, as in the guide. One worker has one request at a time.

Every reply is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections import deque
from statistics import median

import zmq

from benchmarks.process import Process
from wmp.gateways import (
    Gateway,
    MajordomoClient,
    MajordomoDoor,
    MajordomoPipelinedClient,
    MajordomoWorker,
)

__all__ = ["main"]

_ANY = "tcp://127.0.0.1:*"
_C, _W = b"MDPC01", b"MDPW01"
_READY, _REQUEST, _REPLY, _HEARTBEAT = (bytes((n,)) for n in range(1, 5))
_UNDER_WAY = 100
_BODY = 100
"""Bytes of a body."""
_BEAT = 2.5
"""Seconds between two heartbeats of a worker."""


def plain_broker() -> None:
    """Run the plain broker, until it is killed."""
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.sndhwm = socket.rcvhwm = 0
    socket.bind(_ANY)
    _report(socket.get_string(zmq.LAST_ENDPOINT))
    service_of: dict[bytes, bytes] = {}
    requests: dict[bytes, deque[list[bytes]]] = {}
    idle: dict[bytes, deque[bytes]] = {}
    while True:
        sender, _, header, *frames = socket.recv_multipart()
        if header == _C:
            service = frames[0]
            requests.setdefault(service, deque()).append([sender, b"", *frames[1:]])
        elif frames[0] == _HEARTBEAT:
            continue
        else:
            if frames[0] == _READY:
                service_of[sender] = frames[1]
            service = service_of[sender]
            if frames[0] == _REPLY:
                socket.send_multipart([frames[1], b"", _C, service, *frames[3:]])
            idle.setdefault(service, deque()).append(sender)
        waiting, free = requests.get(service), idle.get(service)
        while waiting and free:
            socket.send_multipart([free.popleft(), b"", _W, _REQUEST, *waiting.popleft()])


def broker() -> None:
    """Run a broker of this library."""
    with Gateway(MajordomoDoor(_ANY)) as gateway:
        _report(gateway.doors[0][0])
        sys.stdin.read()


def echo_worker(endpoint: str) -> None:
    """Run a worker of this library."""
    worker = MajordomoWorker(endpoint, "echo", lambda body: body, pool="inline")
    with worker:
        _report("")
        sys.stdin.read()


def _report(endpoint: str) -> None:
    print(json.dumps({"endpoint": endpoint}), flush=True)


def crowd(endpoint: str, sockets: int, case: str) -> None:
    """Open connections, register some of them, answer requests and send heartbeats.

    Args:
        endpoint: Address of the broker.
        sockets: Number of connections.
        case: ``echo`` or ``idle``: workers of the service of this name; ``services``: each is the
            worker of a service of its own; ``silent``: no workers.
    """
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, sockets + 10)
    poller = zmq.Poller()
    connections = []
    for number in range(sockets):
        socket = context.socket(zmq.DEALER)
        socket.connect(endpoint)
        poller.register(socket, zmq.POLLIN)
        connections.append(socket)
        if case == "silent":
            continue
        service = b"service %d" % number if case == "services" else case.encode()
        socket.send_multipart([b"", _W, _READY, service])
    known = [] if case == "silent" else connections
    _report("")
    due = deque(enumerate(known))
    begun, round_ = time.monotonic(), 0
    while True:
        for socket, _ in poller.poll(20):
            while True:
                try:
                    _, _, command, *frames = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                if command == _REQUEST:
                    socket.send_multipart([b"", _W, _REPLY, *frames])
        now = time.monotonic()
        # Heartbeats are spread over their interval.
        while due and begun + _BEAT * (round_ + due[0][0] / len(known)) <= now:
            _, socket = due.popleft()
            socket.send_multipart([b"", _W, _HEARTBEAT])
        if known and not due:
            round_ += 1
            due = deque(enumerate(known))


class _Requester:
    """A DEALER that keeps requests under way, and compares every reply."""

    def __init__(self, endpoint: str, services: list[bytes]) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.rcvtimeo = 60_000
        self._socket.connect(endpoint)
        self._services = services
        self._number = 0

    def close(self) -> None:
        """Close the socket."""
        self._context.destroy(linger=0)

    def _send(self) -> bytes:
        self._number += 1
        body = (b"%d" % self._number).ljust(_BODY)
        service = self._services[self._number % len(self._services)]
        self._socket.send_multipart([b"", _C, service, body])
        return body

    def echo(self, seconds: float, under_way: int) -> float:
        """Return the requests a second."""
        waiting = {self._send() for _ in range(under_way)}
        count, begin = 0, time.perf_counter()
        until = begin + seconds
        while (now := time.perf_counter()) < until:
            waiting.remove(self._socket.recv_multipart()[3])
            waiting.add(self._send())
            count += 1
        while waiting:
            waiting.remove(self._socket.recv_multipart()[3])
        return count / (now - begin)


def _child(stack: contextlib.ExitStack, call: str) -> Process:
    code = f"from benchmarks import majordomo; majordomo.{call}"
    return stack.enter_context(Process(sys.executable, "-c", code))


def _measure(
    samples: dict[str, list[float]],
    sides: dict[str, tuple[Process, _Requester]],
    seconds: float,
    rounds: int,
) -> None:
    for _ in range(rounds):
        for name, (process, requester) in sides.items():
            before = process.cpu()
            rate = requester.echo(seconds, _UNDER_WAY)
            samples.setdefault(f"{name}_echo", []).append(rate)
            cpu = 1e6 * (process.cpu() - before) / (rate * seconds)
            samples.setdefault(f"{name}_cpu", []).append(cpu)


def measure_brokers(seconds: float, rounds: int, warm: float = 0.5) -> dict[str, float]:
    """Return requests a second and microseconds of CPU a request of both brokers."""
    samples: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        sides = {}
        for name in ("plain_broker", "broker"):
            process = _child(stack, f"{name}()")
            endpoint = process.receive()["endpoint"]
            for _ in range(4):
                _child(stack, f"crowd({endpoint!r}, 1, 'echo')").receive()
            requester = _Requester(endpoint, [b"echo"])
            stack.callback(requester.close)
            requester.echo(warm, 8)
            sides[name] = (process, requester)
        _measure(samples, sides, seconds, rounds)
    return {name: median(values) for name, values in samples.items()}


def measure_growth(
    seconds: float, rounds: int, sockets: int = 1000, warm: float = 1.0
) -> dict[str, float]:
    """Return microseconds of our broker's CPU a request, by what the broker knows."""
    samples: dict[str, list[float]] = {}
    spread = [b"service %d" % number for number in range(sockets)]
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, case, services in (
            ("alone", "silent", [b"echo"]),
            ("workers", "idle", [b"echo"]),
            ("services", "services", [b"echo"]),
            ("spread", "services", spread),
        ):
            process = _child(stack, "broker()")
            endpoint = process.receive()["endpoint"]
            for count, kind in ((sockets, case), *[(1, "echo")] * 4):
                _child(stack, f"crowd({endpoint!r}, {count}, {kind!r})").receive()
            requester = _Requester(endpoint, services)
            stack.callback(requester.close)
            requester.echo(warm, 8)
            sides[name] = (process, requester)
        _measure(samples, sides, seconds, rounds)
    return {name: median(values) for name, values in samples.items()}


def measure_cycles(cycles: int) -> dict[str, float]:
    """Return the requests a second of the guide's program, one by one and all at once.

    The requests at once are done by one worker, and then by ten workers.
    """
    rates = {}
    with contextlib.ExitStack() as stack:
        endpoint = _child(stack, "broker()").receive()["endpoint"]
        _child(stack, f"echo_worker({endpoint!r})").receive()
        client = stack.enter_context(MajordomoClient(endpoint))
        pipelined = stack.enter_context(MajordomoPipelinedClient(endpoint))
        begin = time.perf_counter()
        for _ in range(cycles):
            assert client.request("echo", b"Hello world") == b"Hello world"
        rates["one_by_one"] = cycles / (time.perf_counter() - begin)
        for name, further in (("at_once", 0), ("at_once_of_ten", 9)):
            for _ in range(further):
                _child(stack, f"echo_worker({endpoint!r})").receive()
            begin = time.perf_counter()
            for _ in range(cycles):
                pipelined.send("echo", b"Hello world")
            for _ in range(cycles):
                assert pipelined.recv(20) == ("echo", b"Hello world")
            rates[name] = cycles / (time.perf_counter() - begin)
    return rates


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print the figures and their ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.majordomo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of a slice")
    parser.add_argument("--rounds", type=int, default=5, help="slices of each case")
    parser.add_argument("--cycles", type=int, default=100_000, help="requests of the program")
    parser.add_argument("--only", choices=("brokers", "growth", "cycles"), help="one comparison")
    parser.add_argument("--tiny", action="store_true", help="show that the benchmark runs")
    options = parser.parse_args(arguments)
    tiny = options.tiny
    seconds, rounds = (0.05, 1) if tiny else (options.seconds, options.rounds)
    if options.only in (None, "brokers"):
        figures = measure_brokers(seconds, rounds, 0.01 if tiny else 0.5)
        for name in ("plain_broker", "broker"):
            cpu = figures[f"{name}_cpu"]
            print(
                f"{name:14} {figures[f'{name}_echo']:9,.0f} requests/s  {cpu:6.1f} us of CPU each"
            )
        print(f"{'ratio':14} {figures['broker_echo'] / figures['plain_broker_echo']:9.2f}")
    if options.only in (None, "growth"):
        figures = measure_growth(seconds, rounds, 8 if tiny else 1000, 0.01 if tiny else 1.0)
        for name in ("alone", "workers", "services", "spread"):
            cpu, rate = figures[f"{name}_cpu"], figures[f"{name}_echo"]
            times = cpu / figures["alone_cpu"]
            print(f"{name:14} {rate:9,.0f} requests/s  {cpu:6.1f} us of CPU each  {times:.2f} x")
    if options.only in (None, "cycles"):
        figures = measure_cycles(100 if tiny else options.cycles)
        for name, rate in figures.items():
            print(f"{name:14} {rate:9,.0f} requests/s  {rate / figures['one_by_one']:.2f} x")


if __name__ == "__main__":
    main()
