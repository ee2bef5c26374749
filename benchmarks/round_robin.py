"""``python -m benchmarks.round_robin [--seconds N] [--rounds N] [--tiny]``: beside a plain proxy.

The plain proxy has two ROUTERs, the same table of workers, the same queue, and no safeguard. Both
servers have the same four workers with ten slots each and the same client, which are plain pyzmq
programs. Slices of both are measured in turn. Every answer is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections import deque
from statistics import median
from typing import Any

import zmq

from benchmarks.process import Process
from wmp.gateways import RoundRobinServer

__all__ = ["main"]

_ANY = "tcp://127.0.0.1:*"
_V = b"LMQv100"
_PING, _PONG, _EXEC, _TRACKEXEC, _RESPONSE = (bytes((n,)) for n in (1, 2, 3, 4, 6))
_INCREMENT, _REGISTER = b"\x07", b"\x08"
_ECHO = b"\x20"
_UNDER_WAY = 100
_BODY = 100
"""Bytes of an argument."""


def plain_proxy() -> None:
    """Run the plain proxy, until it is killed."""
    context = zmq.Context()
    front, back = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER)
    for socket in (front, back):
        socket.sndhwm = socket.rcvhwm = 0
        socket.bind(_ANY)
    _report(front.get_string(zmq.LAST_ENDPOINT), back.get_string(zmq.LAST_ENDPOINT))
    table: deque[list[Any]] = deque()
    queue: deque[list[bytes]] = deque()

    def drain() -> None:
        while queue:
            for _ in range(len(table)):
                row = table[0]
                table.rotate(-1)
                if row[1]:
                    row[1] -= 1
                    back.send_multipart([row[0], *queue.popleft()])
                    break
            else:
                return

    poller = zmq.Poller()
    poller.register(back, zmq.POLLIN)
    poller.register(front, zmq.POLLIN)
    while True:
        for socket, _ in poller.poll():
            sender, *frames = socket.recv_multipart()
            if frames[0]:
                front.send_multipart([*frames, sender])
            elif frames[2] == _PING:
                socket.send_multipart([sender, b"", _V, _PONG, frames[3], b""])
            elif frames[4] == _REGISTER:
                table.append([sender, int(frames[5])])
                socket.send_multipart([sender, b"", _V, _RESPONSE, frames[3], b""])
                drain()
            elif frames[4] == _INCREMENT:
                row = next(row for row in table if row[0] == sender)
                row[1] += 1
                table.remove(row)
                table.append(row)
                drain()
            else:
                queue.append([*frames, sender])
                drain()


def server() -> None:
    """Run a server of this library."""
    with RoundRobinServer(_ANY) as node:
        _report(node.addresses[0], node.addresses[0])
        sys.stdin.read()


def _report(front: str, back: str) -> None:
    print(json.dumps({"front": front, "back": back}), flush=True)


def worker(back: str, number: int) -> None:
    """Register, and answer each message by its argument."""
    socket = zmq.Context().socket(zmq.DEALER)
    socket.sndhwm = socket.rcvhwm = 0
    socket.routing_id = b"%s:%d" % (back.encode(), number)
    socket.connect(back)
    socket.send_multipart([b"", _V, _PING, b"12345678", b""])
    socket.recv_multipart()
    socket.send_multipart([b"", _V, _TRACKEXEC, b"1234", _REGISTER, b"10", b""])
    socket.recv_multipart()
    while True:
        frames = socket.recv_multipart()
        socket.send_multipart([frames[-1], b"", _V, _RESPONSE, frames[3], frames[5], b""])
        socket.send_multipart([b"", _V, _EXEC, b"1234", _INCREMENT, b""])


class _Caller:
    """A DEALER that keeps messages under way, and compares every answer."""

    def __init__(self, front: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.rcvtimeo = 20_000
        self._socket.routing_id = front.encode() + b":0"
        self._socket.connect(front)
        self._socket.send_multipart([b"", _V, _PING, b"12345678", b""])
        self._socket.recv_multipart()
        self._number = 0

    def close(self) -> None:
        """Close the socket."""
        self._context.destroy(linger=0)

    def _send(self) -> bytes:
        self._number += 1
        id = self._number.to_bytes(8, "little")
        body = id.ljust(_BODY)
        self._socket.send_multipart([b"", _V, _TRACKEXEC, id, _ECHO, body, b""])
        return id

    def _receive(self) -> bytes:
        frames = self._socket.recv_multipart()
        assert frames[2] == _RESPONSE
        assert frames[4] == frames[3].ljust(_BODY)
        return frames[3]

    def echo(self, seconds: float, under_way: int) -> float:
        """Return the messages a second."""
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


def measure(seconds: float, rounds: int, workers: int = 4, warm: float = 0.5) -> dict[str, float]:
    """Return all figures; each is a median of the rounds.

    Args:
        seconds: Seconds of a slice.
        rounds: Number of slices of each server.
        workers: Number of workers of each server.
        warm: Seconds before the first slice.
    """
    samples: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:

        def child(call: str) -> Process:
            code = f"from benchmarks import round_robin; round_robin.{call}"
            return stack.enter_context(Process(sys.executable, "-c", code))

        sides = {}
        for name in ("plain_proxy", "server"):
            process = child(f"{name}()")
            where = process.receive()
            for number in range(1, workers + 1):
                child(f"worker({where['back']!r}, {number})")
            caller = _Caller(where["front"])
            stack.callback(caller.close)
            caller.echo(warm, 8)
            sides[name] = (process, caller)
        for _ in range(rounds):
            for name, (process, caller) in sides.items():
                before = process.cpu()
                rate = caller.echo(seconds, _UNDER_WAY)
                cpu = 1e6 * (process.cpu() - before) / (rate * seconds)
                samples.setdefault(f"{name}_echo", []).append(rate)
                samples.setdefault(f"{name}_cpu", []).append(cpu)
    return {name: median(values) for name, values in samples.items()}


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print the figures and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.round_robin", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of a slice")
    parser.add_argument("--rounds", type=int, default=5, help="slices of each server")
    parser.add_argument("--tiny", action="store_true", help="show that the benchmark runs")
    options = parser.parse_args(arguments)
    if options.tiny:
        figures = measure(0.05, 1, workers=1, warm=0.01)
    else:
        figures = measure(options.seconds, options.rounds)
    for name, value in sorted(figures.items()):
        print(f"{name:24} {value:10.0f}")
    print(f"echo {figures['server_echo'] / figures['plain_proxy_echo']:.2f} x")


if __name__ == "__main__":
    main()
