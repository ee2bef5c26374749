"""``python -m benchmarks.gateways [--seconds N] [--rounds N] [--idle N]``: beside a plain queue.

The plain queue is the broker that the guide of ZeroMQ teaches for Simple Pirates: two ROUTERs, a
list of ready workers, and no safeguard. Both brokers have the same clients and the same workers,
which are plain pyzmq programs. Slices of both are measured in turn, so that other programs disturb
both alike. Every reply is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import zmq

from benchmarks.process import Process
from wmp.gateways import ClientDoor, Gateway, WorkerDoor

__all__ = ["main"]

_ANY = "tcp://127.0.0.1:*"
_UNDER_WAY = 100
_BODY = 100
"""Bytes of a request."""


# -- the brokers, each in a process of its own


def plain_queue() -> None:
    """Run the queue of the guide, until standard input ends."""
    context = zmq.Context()
    front, back = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER)
    for socket in (front, back):
        socket.sndhwm = socket.rcvhwm = 0
        socket.bind(_ANY)
    _report(front.get_string(zmq.LAST_ENDPOINT), back.get_string(zmq.LAST_ENDPOINT))
    workers: deque[bytes] = deque()
    both, back_only = zmq.Poller(), zmq.Poller()
    both.register(back, zmq.POLLIN)
    both.register(front, zmq.POLLIN)
    back_only.register(back, zmq.POLLIN)
    while True:
        ready = dict((both if workers else back_only).poll())
        if back in ready:
            worker, _, *reply = back.recv_multipart()
            workers.append(worker)
            if reply[0] != b"\x01":
                front.send_multipart(reply)
        if front in ready:
            back.send_multipart([workers.popleft(), b"", *front.recv_multipart()])


def gateway() -> None:
    """Run a gateway with the same doors."""
    with Gateway(ClientDoor(_ANY), WorkerDoor(_ANY, protocol="simple-pirate")) as node:
        _report(node.doors[0][0], node.doors[1][0])
        sys.stdin.read()


def native() -> None:
    """Run a gateway whose requests are done by workers of WMP."""
    with Gateway(ClientDoor(_ANY), bind=_ANY) as node:
        _report(node.doors[0][0], node.endpoints[0])
        sys.stdin.read()


def _report(front: str, back: str) -> None:
    print(json.dumps({"front": front, "back": back}), flush=True)


# -- the workers


def worker(back: str, seconds: float) -> None:
    """Answer requests as a worker of the guide; each takes some seconds."""
    context = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.connect(back)
    socket.send(b"\x01")
    while True:
        frames = socket.recv_multipart()
        if seconds:
            time.sleep(seconds)
        socket.send_multipart(frames)


def idle(back: str, count: int) -> None:
    """Hold the sockets of workers that get a request now and then, since all take turns."""
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, count + 10)
    sockets, poller = {}, select.epoll()
    for _ in range(count):
        socket = context.socket(zmq.REQ)
        socket.connect(back)
        socket.send(b"\x01")
        sockets[socket.fd] = socket
        poller.register(socket.fd, select.EPOLLIN)
    while True:
        # A poll of all sockets for each request would take more time than the broker.
        for descriptor, _ in poller.poll():
            socket = sockets[descriptor]
            while socket.get(zmq.EVENTS) & zmq.POLLIN:
                socket.send_multipart(socket.recv_multipart())


def native_worker(back: str) -> None:
    """Answer requests as a worker of WMP."""
    import wmp

    with wmp.Worker(back, handlers=bytes, pool="inline"):
        sys.stdin.read()


# -- the client


class Client:
    """A DEALER that keeps requests under way, and compares every reply."""

    def __init__(self, front: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.rcvtimeo = 60_000
        self._socket.connect(front)
        self._number = 0

    def close(self) -> None:
        """Close the socket."""
        self._context.destroy(linger=0)

    def _send(self) -> bytes:
        self._number += 1
        body = b"%d" % self._number
        self._socket.send_multipart([b"", body.ljust(_BODY)])
        return body

    def _receive(self) -> bytes:
        empty, body = self._socket.recv_multipart()
        assert not empty
        return body.rstrip()

    def echo(self, seconds: float, under_way: int) -> float:
        """Return the requests a second."""
        waiting = {self._send() for _ in range(under_way)}
        count, begin = 0, time.perf_counter()
        until = begin + seconds
        while (now := time.perf_counter()) < until:
            waiting.remove(self._receive())
            waiting.add(self._send())
            count += 1
        while waiting:
            waiting.remove(self._receive())
        return count / (now - begin)

    def alone(self, count: int) -> float:
        """Return the median time of a lone request in µs."""
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            sent = self._send()
            assert self._receive() == sent
            times.append(time.perf_counter() - begin)
        return 1e6 * median(times)


# -- the measurement


class Setup:
    """One broker with its workers and a client."""

    def __init__(self, stack: contextlib.ExitStack, broker: str, seconds: float = 0.0) -> None:
        def child(*call: Any) -> Process:
            name, *arguments = call
            text = ", ".join(map(repr, arguments))
            code = f"from benchmarks import gateways; gateways.{name}({text})"
            return stack.enter_context(Process(sys.executable, "-c", code))

        self.broker = child(broker)
        where = self.broker.receive()
        self.back = where["back"]
        self.child = child
        for _ in range(4):
            if broker == "native":
                child("native_worker", self.back)
            else:
                child("worker", self.back, seconds)
        self.client = Client(where["front"])
        stack.callback(self.client.close)
        self.client.echo(0.5, 8)

    def cpu(self, act: Callable[[], float], per: float) -> tuple[float, float]:
        """Return the rate, and the CPU time of the broker for a request in µs."""
        before = self.broker.cpu()
        rate = act()
        return rate, 1e6 * (self.broker.cpu() - before) / (rate * per)


def _turns(setups: dict[str, Setup], rounds: int) -> Iterator[tuple[str, Setup]]:
    for _ in range(rounds):
        yield from setups.items()


def measure(seconds: float, rounds: int, idle_workers: int) -> dict[str, float]:
    """Return all figures; each is a median of the rounds."""
    samples: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        samples.setdefault(name, []).append(value)

    with contextlib.ExitStack() as stack:
        setups = {name: Setup(stack, name) for name in ("plain_queue", "gateway", "native")}
        for name, setup in _turns(setups, rounds):
            rate, cpu = setup.cpu(partial(setup.client.echo, seconds, _UNDER_WAY), seconds)
            note(f"{name}_echo", rate)
            note(f"{name}_cpu", cpu)
            note(f"{name}_p50", setup.client.alone(int(300 * seconds)))
    with contextlib.ExitStack() as stack:
        setups = {name: Setup(stack, name, 0.001) for name in ("plain_queue", "gateway")}
        for name, setup in _turns(setups, rounds):
            note(f"{name}_1ms", setup.client.echo(seconds, _UNDER_WAY))
    if idle_workers:
        with contextlib.ExitStack() as stack:
            setups = {
                f"{broker}_{workers}": Setup(stack, broker)
                for broker in ("plain_queue", "gateway")
                for workers in ("few", "many")
            }
            for name, setup in setups.items():
                if name.endswith("many"):
                    setup.child("idle", setup.back, idle_workers)
            time.sleep(3.0)  # the workers connect
            # With a few requests under way, four processes would answer several at a time, and the
            # one process of the many workers one at a time: the broker would have other work.
            for under_way in (_UNDER_WAY, 1):
                for name, setup in _turns(setups, rounds):
                    act = partial(setup.client.echo, seconds, under_way)
                    note(f"{name}_{under_way}_cpu", setup.cpu(act, seconds)[1])
    return {name: median(values) for name, values in samples.items()}


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print the figures and their ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateways", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of a slice")
    parser.add_argument("--rounds", type=int, default=5, help="slices of each broker")
    parser.add_argument("--idle", type=int, default=1000, help="idle workers; 0 leaves this out")
    options = parser.parse_args(arguments)
    figures = measure(options.seconds, options.rounds, options.idle)
    for name, value in sorted(figures.items()):
        print(f"{name:24} {value:10.0f}")
    plain = {key: figures[f"plain_queue_{key}"] for key in ("echo", "p50", "1ms")}
    print(f"echo        {figures['gateway_echo'] / plain['echo']:.2f} x")
    print(f"native echo {figures['native_echo'] / plain['echo']:.2f} x")
    print(f"1 ms        {figures['gateway_1ms'] / plain['1ms']:.2f} x")
    print(f"p50 alone   {figures['gateway_p50'] / plain['p50']:.2f} x")
    for under_way in (_UNDER_WAY, 1) if options.idle else ():
        ours, others = (
            figures[f"{broker}_many_{under_way}_cpu"] / figures[f"{broker}_few_{under_way}_cpu"]
            for broker in ("gateway", "plain_queue")
        )
        text = f"CPU a request with {options.idle} more workers, {under_way} requests under way"
        print(f"{text}: {ours:.2f} x; plain queue: {others:.2f} x")


if __name__ == "__main__":
    main()
