"""Workers of other protocols with the habits of programs that people really have.

Each habit is stated at its class. The peers use plain pyzmq, and know nothing of ``wmp``.
"""

from __future__ import annotations

import functools
import sys

import zmq

from tests.interop.gateways.foreign_workers import (
    ParanoidPirate,
    PingPong,
    PlainWorker,
    SimplePirate,
)
from tests.peers.old_zmtp import OldWorker

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


class SilentOnceSimplePirate(SimplePirate):
    """Sends READY in place of its first reply, as a program that caught an error."""

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if self.extra:
            super()._take(socket, frames)
        else:
            self.extra.append(frames)
            socket.send_multipart(self.ready)


class SilentOnceParanoidPirate(ParanoidPirate):
    """Does not answer its first request, and beats on."""

    dropped = False

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if self.dropped or len(frames) == 1:
            super()._take(socket, frames)
        else:
            self.dropped = True


class SilentOncePingPong(PingPong):
    """Does not answer its first request, and pings on."""

    dropped = False

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if self.dropped or frames[1:] == [b"PONG"]:
            super()._take(socket, frames)
        else:
            self.dropped = True


class SilentOnceMajordomo(CStringMajordomo):
    """Does not answer its first request, and beats on."""

    dropped = False

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if self.dropped or frames[2] != b"\x02":
            super()._take(socket, frames)
        else:
            self.dropped = True


class PlainRoundRobin(PlainWorker):
    """A worker of round robin with one slot, which does not greet its server first."""

    ready = (b"", b"LMQv100", b"\x04", b"0001", b"\x08", b"1", b"")

    def _take(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        if frames[2] == b"\x01":
            socket.send_multipart([b"", b"LMQv100", b"\x02", frames[3], b""])
        elif frames[2] == b"\x04":
            self._answer(socket, frames[3], frames[5:-2], frames[-1])
            socket.send_multipart([b"", b"LMQv100", b"\x03", frames[3], b"\x07", b""])

    def _answer(
        self, socket: zmq.Socket[bytes], id: bytes, body: list[bytes], token: bytes
    ) -> None:
        socket.send_multipart([token, b"", b"LMQv100", b"\x06", id, *self._do(body), b""])


class SilentOnceRoundRobin(PlainRoundRobin):
    """Sends INCREMENT for its first message, and no RESPONSE."""

    dropped = False

    def _answer(
        self, socket: zmq.Socket[bytes], id: bytes, body: list[bytes], token: bytes
    ) -> None:
        if self.dropped:
            super()._answer(socket, id, body, token)
        self.dropped = True


_OLD_READY = {
    "simple-pirate": [b"", b"\x01"],
    "paranoid-pirate": [b"\x01"],
    "ping-pong": [b"", b"READY"],
    "majordomo": [b"", b"MDPW01", b"\x01", b"echo"],
}
_OLD_SIGN = {
    "paranoid-pirate": [b"\x02"],
    "ping-pong": [b"", b"PING"],
    "majordomo": [b"", b"MDPW01", b"\x04"],
}


def old_answer(protocol: str, frames: list[bytes]) -> list[bytes] | None:
    """Return the reply of a worker of ZMTP 1 or 2 to a message; None for no reply."""
    if protocol == "majordomo":
        if frames[2] != b"\x02":
            return None
        body = [frame.upper() for frame in frames[5:]]
        return [b"", b"MDPW01", b"\x03", frames[3], b"", *body]
    if protocol == "ping-pong":
        if frames == [b"", b"PONG"]:
            return None
        return [b"", *(frame.upper() for frame in frames[1:])]
    if len(frames) == 1:
        return None
    position = frames.index(b"", 1)
    return [*frames[: position + 1], *(frame.upper() for frame in frames[position + 1 :])]


def old_worker(protocol: str, endpoint: str, version: int, identity: bytes = b"") -> OldWorker:
    """Return a worker of a protocol over ZMTP 1 or 2, which answers in upper case."""
    return OldWorker(
        endpoint,
        version,
        _OLD_READY[protocol],
        functools.partial(old_answer, protocol),
        identity,
        sign=_OLD_SIGN.get(protocol),
    )


def main(kind: str, endpoint: str, protocol: str) -> None:
    """Work until the process is ended.

    Args:
        kind: Name of a class of this module, or ``old-1`` or ``old-2``.
        endpoint: Address of the queue or broker.
        protocol: Name of the protocol, for old workers.
    """
    if kind.startswith("old-"):
        old_worker(protocol, endpoint, int(kind[-1])).wait()
    else:
        worker: PlainWorker = globals()[kind](endpoint, interval=0.1)
        worker._run()


if __name__ == "__main__":
    main(*sys.argv[1:])
