"""A broker and a worker of Majordomo in plain pyzmq, which do what the guide's programs do.

They have no safeguard that those programs do not have, and know nothing of ``wmp``. The module is a
program, too: ``python -m tests.interop.gateways.majordomo_peers worker ENDPOINT SERVICE SECONDS``.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import Self

import zmq

from tests.waiting import WAIT, WAIT_MS

CLIENT, WORKER = b"MDPC01", b"MDPW01"
READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = (bytes((n,)) for n in range(1, 6))

_POLL = 10
"""Milliseconds after which a loop looks at its flag and at its clock."""


class GuideBroker:
    """One ROUTER, a queue for each service, and a loop on a thread.

    Args:
        heartbeat: Seconds between two heartbeats to idle workers.
        endpoint: Address; by default the system chooses it.
    """

    def __init__(self, heartbeat: float = 2.5, endpoint: str = "tcp://127.0.0.1:*") -> None:
        self._heartbeat = heartbeat
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(endpoint)
        self.endpoint = self._socket.get_string(zmq.LAST_ENDPOINT)
        self._requests: dict[bytes, deque[list[bytes]]] = {}
        self._waiting: dict[bytes, deque[bytes]] = {}
        self.workers: dict[bytes, bytes] = {}
        """The service of each worker."""
        self._expiry: dict[bytes, float] = {}
        self.disconnected = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(WAIT)
        self._socket.close()
        self._context.term()

    def _run(self) -> None:
        next_beat = time.monotonic() + self._heartbeat
        while not self._ended.is_set():
            if self._socket.poll(_POLL):
                sender, empty, header, *frames = self._socket.recv_multipart()
                assert empty == b""
                if header == CLIENT:
                    self._on_client(sender, frames)
                else:
                    assert header == WORKER
                    self._on_worker(sender, frames)
            now = time.monotonic()
            if now >= next_beat:
                next_beat = now + self._heartbeat
                for service, idle in self._waiting.items():
                    self._purge(service, now)
                    for worker in idle:
                        self._send(worker, HEARTBEAT)

    def _send(self, worker: bytes, command: bytes, *frames: bytes) -> None:
        self._socket.send_multipart([worker, b"", WORKER, command, *frames])

    def _on_client(self, client: bytes, frames: list[bytes]) -> None:
        service, *body = frames
        if service.startswith(b"mmi."):
            known = service == b"mmi.service" and body[0] in self.workers.values()
            code = b"501" if service != b"mmi.service" else b"200" if known else b"404"
            self._socket.send_multipart([client, b"", CLIENT, service, code])
            return
        self._requests.setdefault(service, deque()).append([client, b"", *body])
        self._dispatch(service)

    def _on_worker(self, worker: bytes, frames: list[bytes]) -> None:
        command, *rest = frames
        service = self.workers.get(worker)
        if command == READY:
            if service is not None:
                self._forget(worker, disconnect=True)
            else:
                self.workers[worker] = rest[0]
                self._wait(worker)
        elif command == DISCONNECT:
            self._forget(worker, disconnect=False)
        elif service is None:
            self._forget(worker, disconnect=True)
        elif command == REPLY:
            client, _, *body = rest
            self._socket.send_multipart([client, b"", CLIENT, service, *body])
            self._wait(worker)
        else:
            assert command == HEARTBEAT
            self._expiry[worker] = time.monotonic() + 3 * self._heartbeat

    def _wait(self, worker: bytes) -> None:
        service = self.workers[worker]
        self._waiting.setdefault(service, deque()).append(worker)
        self._expiry[worker] = time.monotonic() + 3 * self._heartbeat
        self._dispatch(service)

    def _forget(self, worker: bytes, *, disconnect: bool) -> None:
        if disconnect:
            self.disconnected += 1
            self._send(worker, DISCONNECT)
        service = self.workers.pop(worker, None)
        if service is not None and worker in self._waiting.get(service, ()):
            self._waiting[service].remove(worker)

    def _purge(self, service: bytes, now: float) -> None:
        idle = self._waiting.get(service, deque())
        while idle and self._expiry[idle[0]] < now:
            self._forget(idle[0], disconnect=False)

    def _dispatch(self, service: bytes) -> None:
        self._purge(service, time.monotonic())
        requests, idle = self._requests.get(service), self._waiting.get(service)
        while requests and idle:
            self._send(idle.popleft(), REQUEST, *requests.popleft())


def serve(endpoint: str, service: bytes, heartbeat: float, ended: threading.Event) -> None:
    """Answer requests by their bodies in capitals, as the worker API of the guide does.

    A worker is in one thread, so a request stops its heartbeats.
    """
    context = zmq.Context.instance()
    poller = zmq.Poller()
    socket = None
    liveness, beat_at = 0, 0.0
    while not ended.is_set():
        if liveness == 0:
            if socket is not None:
                poller.unregister(socket)
                socket.close(0)
            socket = context.socket(zmq.DEALER)
            socket.linger = 0
            socket.connect(endpoint)
            poller.register(socket, zmq.POLLIN)
            socket.send_multipart([b"", WORKER, READY, service])
            liveness, beat_at = 3, time.monotonic() + heartbeat
        if poller.poll(heartbeat * 1000):
            assert socket is not None
            empty, header, command, *frames = socket.recv_multipart()
            assert (empty, header) == (b"", WORKER)
            liveness = 3
            if command == REQUEST:
                assert len(frames) >= 3
                assert frames[1] == b""
                body = [frame.upper() for frame in frames[2:]]
                socket.send_multipart([b"", WORKER, REPLY, frames[0], b"", *body])
            elif command == DISCONNECT:
                liveness = 0
                continue
        else:
            liveness -= 1
            if not liveness:
                ended.wait(heartbeat)
        if time.monotonic() > beat_at and liveness:
            assert socket is not None
            socket.send_multipart([b"", WORKER, HEARTBEAT])
            beat_at = time.monotonic() + heartbeat
    if socket is not None:
        socket.close(0)


class GuideWorker:
    """A worker on a thread."""

    def __init__(self, endpoint: str, service: bytes, heartbeat: float = 2.5) -> None:
        self._ended = threading.Event()
        arguments = (endpoint, service, heartbeat, self._ended)
        self._thread = threading.Thread(target=serve, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(WAIT)


def ask(endpoint: str, service: bytes, *body: bytes, timeout: int = WAIT_MS) -> list[bytes]:
    """Send one request over a REQ socket, as the client API of the guide does; return the reply."""
    socket = zmq.Context.instance().socket(zmq.REQ)
    try:
        socket.linger, socket.rcvtimeo = 0, timeout
        socket.connect(endpoint)
        socket.send_multipart([CLIENT, service, *body])
        header, named, *reply = socket.recv_multipart()
        assert (header, named) == (CLIENT, service)
        return reply
    finally:
        socket.close()


if __name__ == "__main__":
    _, _role, _endpoint, _service, _beat = sys.argv
    serve(_endpoint, _service.encode(), float(_beat), threading.Event())
