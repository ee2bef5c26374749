"""Workers of other protocols with the habits of programs that people really have.

Each habit is stated at its class. The peers use plain pyzmq, and know nothing of ``wmp``.
"""

from __future__ import annotations

import zmq

from tests.interop.gateways.foreign_workers import (
    ParanoidPirate,
    PingPong,
    PlainWorker,
    SimplePirate,
)

DROPPED = b"drop me"
"""The body of a request that a forgetful worker does not answer."""


class ForgetfulPingPong(PingPong):
    """Drops a request without an answer, and goes on with PING."""

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if frames[1:] != [DROPPED]:
            super()._take(socket, frames)


class ForgetfulPirate(ParanoidPirate):
    """Takes only requests of one frame, as the workers of the guide do, and beats on."""

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if len(frames) in (1, 3):
            super()._take(socket, frames)


class CStringMajordomo(PlainWorker):
    """Keeps the address of the client as a C string, which ends at the first zero byte."""

    ready = (b"", b"MDPW01", b"\x01", b"echo")
    separator: tuple[bytes, ...] = (b"",)

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if frames[2] == b"\x02":
            address = frames[3].partition(b"\0")[0]
            body = self._do(frames[5:])
            socket.send_multipart([b"", b"MDPW01", b"\x03", address, *self.separator, *body])

    def on_time(self, socket: zmq.Socket[bytes]) -> None:
        socket.send_multipart([b"", b"MDPW01", b"\x04"])


class BareReplyMajordomo(CStringMajordomo):
    """Sends REPLY without the empty frame behind the address, as the PHP worker of the guide."""

    separator = ()


class WordSimplePirate(SimplePirate):
    """Sends the word READY in place of one byte, as the C++ worker of the guide."""

    ready = (b"READY",)


class WordParanoidPirate(ParanoidPirate):
    """Sends and expects words, as the C++ worker of the guide: other signs are invalid to it."""

    ready = (b"READY",)

    def on_time(self, socket: zmq.Socket[bytes]) -> None:
        socket.send(b"HEARTBEAT")
