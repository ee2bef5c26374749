"""Workers of other protocols in plain pyzmq, as their documents describe them.

They have no safeguard that the documents do not have, and know nothing of ``wmp``. As a program:
``python -m tests.interop.gateways.foreign_workers PROTOCOL ENDPOINT [SECONDS]``.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Self

import zmq

from tests.waiting import WAIT

_POLL = 10
"""Milliseconds after which a loop looks at its flag and at its clock."""


class PlainWorker:
    """A socket and a loop on a thread.

    Args:
        endpoint: Address of the queue or broker.
        work: Does a request: its body frames.
        interval: Seconds between two signs of life.
    """

    kind = zmq.DEALER
    ready: tuple[bytes, ...] = ()

    def __init__(
        self,
        endpoint: str,
        work: Callable[[list[bytes]], list[bytes]] | None = None,
        interval: float = 1.0,
    ) -> None:
        self._context = zmq.Context()
        self._endpoint = endpoint
        self._work = work or (lambda body: [frame.upper() for frame in body])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.interval = interval
        self.done = 0
        self.extra: list[list[bytes]] = []
        """Messages that are no request."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(WAIT)
        self._context.term()

    def _run(self) -> None:
        with contextlib.closing(self._context.socket(self.kind)) as socket:
            socket.linger = 0
            socket.connect(self._endpoint)
            socket.send_multipart(self.ready)
            sign_at = time.monotonic() + self.interval
            while not self._ended.is_set():
                if socket.poll(_POLL):
                    self._take(socket, socket.recv_multipart())
                    sign_at = time.monotonic() + self.interval
                elif time.monotonic() >= sign_at:
                    sign_at = time.monotonic() + self.interval
                    self.on_time(socket)

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        raise NotImplementedError

    def _do(self, body: list[bytes]) -> list[bytes]:
        self.done += 1
        return self._work(body)

    def on_time(self, socket: zmq.Socket[bytes]) -> None:
        """Send a sign of life."""


class SimplePirate(PlainWorker):
    """The worker of the Simple Pirate pattern: a REQ socket."""

    kind = zmq.REQ
    ready = (b"\x01",)

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        position = frames.index(b"")
        socket.send_multipart([*frames[: position + 1], *self._do(frames[position + 1 :])])


class ParanoidPirate(PlainWorker):
    """The worker of the Paranoid Pirate pattern."""

    ready = (b"\x01",)

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if len(frames) == 1:
            self.extra.append(frames)
        else:
            position = frames.index(b"")
            socket.send_multipart([*frames[: position + 1], *self._do(frames[position + 1 :])])

    def on_time(self, socket: zmq.Socket[bytes]) -> None:
        socket.send(b"\x02")


class PingPong(PlainWorker):
    """The worker of the ping-pong dialogue."""

    ready = (b"", b"READY")

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if frames[1:] == [b"PONG"]:
            self.extra.append(frames)
        elif frames[1:] == [b"EXIT"]:
            self.extra.append(frames)
            socket.send_multipart([b"", b"DISCONNECT"])
            self._ended.set()
        else:
            socket.send_multipart([b"", *self._do(frames[1:])])

    def on_time(self, socket: zmq.Socket[bytes]) -> None:
        socket.send_multipart([b"", b"PING"])


WORKERS = {
    "simple-pirate": SimplePirate,
    "paranoid-pirate": ParanoidPirate,
    "ping-pong": PingPong,
}


def main(protocol: str, endpoint: str, seconds: str = "0") -> None:
    """Work until the process is ended; a request takes some seconds."""

    def work(body: list[bytes]) -> list[bytes]:
        time.sleep(float(seconds))
        return [frame.upper() for frame in body]

    worker = WORKERS[protocol](endpoint, work, 0.2)
    print("ready", os.getpid(), flush=True)
    worker._run()


if __name__ == "__main__":
    main(*sys.argv[1:])
