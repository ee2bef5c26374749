"""A broker as in the ZeroMQ guide: least recently used, two ROUTERs, no safeguards.

It was written for the comparison ``python -m benchmarks --only peers``. The broker is ``python -m
benchmarks.peers.guide broker``, a worker ``… worker ENDPOINT``. A worker holds one job at a time.
The job of a killed worker is lost, and no message is sent again.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType

import zmq

from benchmarks.process import python
from benchmarks.raw import in_flight
from benchmarks.work import echo

__all__ = ["Guide", "broker", "worker"]


class Guide:
    """The client: a DEALER that keeps a thousand jobs at the broker."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def __enter__(self) -> Guide:
        with ExitStack() as stack:
            process = stack.enter_context(python("benchmarks.peers.guide", "broker"))
            front, back = process.receive()
            for _ in range(self._workers):
                stack.enter_context(python("benchmarks.peers.guide", "worker", back))
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            stack.callback(context.term)
            self._socket = context.socket(zmq.DEALER)
            stack.callback(self._socket.close, 0)
            self._socket.set_hwm(0)
            self._socket.connect(front)
            # Request the number of connected workers until all are connected.
            while int(self.do_job(b"?")) < self._workers:
                pass
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def map(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """Results come as workers finish; they are put in order by their numbers."""
        send, receive = self._socket.send_multipart, self._socket.recv_multipart
        count, room = len(payloads), in_flight(len(payloads[0]))
        early: dict[int, bytes] = {}
        for number in range(min(room, count)):
            send((number.to_bytes(4, "big"), payloads[number]))
        sent = min(room, count)
        for number in range(count):
            while number not in early:
                which, result = receive()
                early[int.from_bytes(which, "big")] = result
                if sent < count:
                    send((sent.to_bytes(4, "big"), payloads[sent]))
                    sent += 1
            yield early.pop(number)

    def do_job(self, payload: bytes) -> bytes:
        """Send and wait."""
        self._socket.send_multipart((b"", payload))
        return self._socket.recv_multipart()[1]


def broker() -> None:
    """Pass each job to the worker that has been idle longest."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    front, back = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER)
    for socket in (front, back):
        socket.set_hwm(0)
    ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (front, back)]
    print(json.dumps([f"tcp://127.0.0.1:{port}" for port in ports]), flush=True)
    idle: deque[bytes] = deque()
    known: set[bytes] = set()
    poller = zmq.Poller()
    poller.register(back, zmq.POLLIN)
    watched = False
    while True:
        if bool(idle or not known) != watched:
            watched = not watched
            if watched:
                poller.register(front, zmq.POLLIN)
            else:
                poller.unregister(front)
        for socket, _ in poller.poll():
            if socket is back:
                name, *reply = back.recv_multipart()
                idle.append(name)
                known.add(name)
                if len(reply) == 3:
                    front.send_multipart(reply)
                continue
            client, number, payload = front.recv_multipart()
            if payload == b"?":
                front.send_multipart((client, number, b"%d" % len(known)))
            elif idle:
                back.send_multipart((idle.popleft(), client, number, payload))


def worker(endpoint: str) -> None:
    """Send ready, then echo for ever."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(endpoint)
    socket.send(b"ready")
    while True:
        client, number, payload = socket.recv_multipart()
        socket.send_multipart((client, number, echo(payload)))


if __name__ == "__main__":
    if sys.argv[1] == "broker":
        broker()
    else:
        worker(sys.argv[2])
