"""The unit: a bare pyzmq echo of three frames, DEALER to ROUTER, between two processes.

``python -m benchmarks`` measures it in turn with everything else. The other end is ``python -m
benchmarks.raw``; the argument ``large`` selects the echo that does not copy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import zmq

from benchmarks.process import Process, python

__all__ = ["Raw", "in_flight", "serve"]

_LARGE = 64 * 1024
"""Size in bytes from which an echo without copies is faster; for fewer bytes it is slower."""


def in_flight(size: int) -> int:
    """Return the number of payloads on the way at the same time: a thousand, or eight megabytes."""
    return max(2, min(1000, 8_000_000 // size))


class Raw:
    """The submitting end, as a context manager."""

    name = "raw"

    def __enter__(self) -> Raw:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._ends: dict[bool, tuple[Process, Any]] = {}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process, socket in self._ends.values():
            socket.close()
            process.end()
        self._context.term()

    def _socket(self, size: int) -> Any:
        large = size >= _LARGE
        if large not in self._ends:
            process = python("benchmarks.raw", *(("large",) if large else ()))
            socket = self._context.socket(zmq.DEALER)
            socket.linger = 0
            socket.set_hwm(0)
            socket.connect(process.receive())
            self._ends[large] = process, socket
        return self._ends[large][1]

    def map(self, payloads: Sequence[bytes]) -> Iterator[bytes]:
        """Echo payloads, a thousand on the way at the same time."""
        socket = self._socket(len(payloads[0]))
        send, receive = socket.send_multipart, socket.recv_multipart
        room = in_flight(len(payloads[0]))
        for payload in payloads[:room]:
            send((b"\x01", b"echo", payload))
        for payload in payloads[room:]:
            yield receive()[2]
            send((b"\x01", b"echo", payload))
        for _ in range(min(room, len(payloads))):
            yield receive()[2]

    def do_job(self, payload: bytes) -> bytes:
        """Echo one payload and wait for the echo."""
        socket = self._socket(len(payload))
        socket.send_multipart((b"\x01", b"echo", payload))
        result: bytes = socket.recv_multipart()[2]
        return result


def serve(copy: bool) -> None:
    """Echo for ever; first print the address."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router: Any = context.socket(zmq.ROUTER)
    router.linger = 0
    # A ROUTER drops messages for a full pipe, so the client bounds the number of messages on the
    # way.
    router.set_hwm(0)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    print(json.dumps(f"tcp://127.0.0.1:{port}"), flush=True)
    while True:
        router.send_multipart(router.recv_multipart(copy=copy), copy=copy)


if __name__ == "__main__":
    serve(copy=sys.argv[1:] != ["large"])
