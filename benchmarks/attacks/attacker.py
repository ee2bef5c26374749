"""An attacker's connections: DEALERs, and TCP connections with handwritten ZMTP."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import zmq

from wmp import codec
from wmp.message import Command, Message, Path

__all__ = ["Attacker", "Frames", "encode", "handshake"]

Frames = list[Any]

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY" + b"\x0bSocket-Type"


class Attacker:
    """Connections to the attacked node.

    Args:
        endpoint: The endpoint of the node.
        connections: Number of connections of a flood.
    """

    def __init__(self, endpoint: str, connections: int = 1) -> None:
        self.endpoint = endpoint
        self.connections = connections
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.address = host, int(port)
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None

    def begin(self) -> None:
        """Report that the attack begins."""
        print(json.dumps(True), flush=True)

    def connect(self) -> zmq.Socket[bytes]:
        """Open a DEALER."""
        if self._context is None:
            self._context = zmq.Context()
            self._context.max_sockets = 20_000
        dealer = self._context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.connect(self.endpoint)
        return dealer

    def tcp(self, timeout: float = 10.0) -> socket.socket:
        """Open a connection that speaks no ZeroMQ yet."""
        return socket.create_connection(self.address, timeout)

    def flood(self, messages: Iterator[Frames], *, reads: bool = True) -> None:
        """Send without a pause over all connections.

        Args:
            messages: The messages to send.
            reads: Whether the answers are read.
        """
        dealers = [self.connect() for _ in range(self.connections)]
        self.begin()
        while True:
            sent = 0
            for dealer in dealers:
                try:
                    for _ in range(20):
                        dealer.send_multipart(next(messages), zmq.NOBLOCK)
                        sent += 1
                except zmq.Again:
                    pass
                try:
                    while reads:
                        dealer.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    pass
            if not sent:
                time.sleep(0.001)


def handshake(stream: socket.socket, kind: bytes = b"DEALER") -> None:
    """Do the ZMTP handshake of a socket without keys.

    Raises:
        OSError: The other end closed the connection.
    """
    ready = _READY + len(kind).to_bytes(4, "big") + kind + b"\x08Identity" + bytes(4)
    stream.sendall(_GREETING + bytes((4, len(ready))) + ready)
    seen = b""
    # Bytes before the other end's READY would break off the handshake.
    while b"READY" not in seen:
        if not (part := stream.recv(4096)):
            raise OSError("the other end closed the connection during the handshake")
        seen += part


def encode(
    command: Command, identity: bytes, fields: dict[int | str, Any], to: Path = (), epoch: int = 1
) -> Frames:
    """Return the frames of a message without columns."""
    return list(codec.encode(Message(command, to, (identity, epoch), fields)))
