"""Workers of other protocols with the habits of programs that people really have.

Each habit is stated at its class. The peers use plain pyzmq, and know nothing of ``wmp``.
"""

from __future__ import annotations

import zmq

from tests.interop.gateways.foreign_workers import ParanoidPirate, PingPong

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
