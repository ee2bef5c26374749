"""Queues and brokers of other protocols in plain pyzmq, as their documents describe them.

They have no safeguard that the documents do not have, and know nothing of ``wmp``.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from typing import Self

import zmq

from tests.waiting import WAIT

_POLL = 10
"""Milliseconds after which a loop looks at its flag and at its clock."""


class PlainBroker:
    """Two ROUTERs and a loop on a thread.

    Args:
        front: Address for clients; by default the system chooses it.
        back: Address for workers.
    """

    def __init__(self, front: str = "tcp://127.0.0.1:*", back: str = "tcp://127.0.0.1:*") -> None:
        self._context = zmq.Context()
        self._ended = threading.Event()
        self.frontend = self._bind(front)
        self.backend = self._bind(back)
        self.front = self.frontend.get_string(zmq.LAST_ENDPOINT)
        self.back = self.backend.get_string(zmq.LAST_ENDPOINT)
        self.workers_seen: set[bytes] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _bind(self, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 0
        socket.bind(endpoint)
        return socket

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(WAIT)
        self.frontend.close()
        self.backend.close()
        self._context.term()

    def _run(self) -> None:
        while not self._ended.is_set():
            poller = zmq.Poller()
            poller.register(self.backend, zmq.POLLIN)
            if self.idle:
                poller.register(self.frontend, zmq.POLLIN)
            ready = dict(poller.poll(_POLL))
            if self.backend in ready:
                worker, *frames = self.backend.recv_multipart()
                self.workers_seen.add(worker)
                self.on_worker(worker, frames)
            if self.frontend in ready and self.idle:
                self.on_client(*self.frontend.recv_multipart())
            self.on_time(time.monotonic())

    @property
    def idle(self) -> int:
        """Number of workers that can take a request."""
        raise NotImplementedError

    def on_worker(self, worker: bytes, frames: list[bytes]) -> None:
        raise NotImplementedError

    def on_client(self, client: bytes, *frames: bytes) -> None:
        raise NotImplementedError

    def on_time(self, now: float) -> None:
        """Called once in each turn."""


class SimpleQueue(PlainBroker):
    """The queue of the Simple Pirate pattern: every message of a worker means that it is ready."""

    def __init__(self, **addresses: str) -> None:
        super().__init__(**addresses)
        self.workers: deque[bytes] = deque()
        self.readys = 0

    @property
    def idle(self) -> int:
        return len(self.workers)

    def on_worker(self, worker: bytes, frames: list[bytes]) -> None:
        self.workers.append(worker)
        if frames[1][:1] == b"\x01":
            self.readys += 1
        else:
            self.frontend.send_multipart(frames[1:])

    def on_client(self, client: bytes, *frames: bytes) -> None:
        self.backend.send_multipart([self.workers.popleft(), b"", client, *frames])


class ParanoidQueue(PlainBroker):
    """The queue of the Paranoid Pirate pattern: heartbeats to idle workers, which expire."""

    def __init__(self, interval: float = 1.0, **addresses: str) -> None:
        super().__init__(**addresses)
        self.interval = interval
        self.expiries: OrderedDict[bytes, float] = OrderedDict()
        self.heartbeat_at = 0.0
        self.mute = False
        """Whether the queue sends no heartbeats."""

    @property
    def idle(self) -> int:
        return len(self.expiries)

    def on_worker(self, worker: bytes, frames: list[bytes]) -> None:
        self.expiries.pop(worker, None)
        self.expiries[worker] = time.monotonic() + 3 * self.interval
        if len(frames) > 1:
            self.frontend.send_multipart(frames)
        else:
            assert frames[0] in (b"\x01", b"\x02"), frames

    def on_client(self, client: bytes, *frames: bytes) -> None:
        worker, _ = self.expiries.popitem(last=False)
        self.backend.send_multipart([worker, client, *frames])

    def on_time(self, now: float) -> None:
        while self.expiries and next(iter(self.expiries.values())) < now:
            self.expiries.popitem(last=False)
        if now >= self.heartbeat_at and not self.mute:
            self.heartbeat_at = now + self.interval
            for worker in self.expiries:
                self.backend.send_multipart([worker, b"\x02"])


class PingPongBroker(PlainBroker):
    """The broker of the ping-pong protocol: it answers PING, and gives each ready worker a job."""

    def __init__(self, max_silence: float = 3.0, **addresses: str) -> None:
        super().__init__(**addresses)
        self.max_silence = max_silence
        self.ready: deque[bytes] = deque()
        self.expiries: dict[bytes, float] = {}
        self.clients: dict[bytes, bytes] = {}
        """The client of each busy worker."""
        self.words: list[bytes] = []
        """The control words that arrived."""
        self.exit_to: bytes | None = None
        """A worker that must get EXIT in the next turn."""

    @property
    def idle(self) -> int:
        return len(self.ready)

    def on_worker(self, worker: bytes, frames: list[bytes]) -> None:
        assert frames[0] == b""
        self.expiries[worker] = time.monotonic() + self.max_silence
        word = frames[1]
        if word in (b"READY", b"PING", b"DISCONNECT"):
            self.words.append(word)
        if word == b"READY":
            self.clients.pop(worker, None)
        if word == b"DISCONNECT":
            self._forget(worker)
            return
        if word not in (b"READY", b"PING"):
            client = self.clients.pop(worker, None)
            if client is not None:
                self.frontend.send_multipart([client, *frames])
        if worker not in self.ready and worker not in self.clients:
            self.ready.append(worker)
        self.backend.send_multipart([worker, b"", b"PONG"])

    def on_client(self, client: bytes, *frames: bytes) -> None:
        worker = self.ready.popleft()
        self.clients[worker] = client
        self.backend.send_multipart([worker, *frames])

    def on_time(self, now: float) -> None:
        if self.exit_to is not None:
            self.backend.send_multipart([self.exit_to, b"", b"EXIT"])
            self.exit_to = None
        for worker in [ready for ready in self.ready if self.expiries[ready] < now]:
            self._forget(worker)

    def _forget(self, worker: bytes) -> None:
        del self.expiries[worker]
        if worker in self.ready:
            self.ready.remove(worker)
