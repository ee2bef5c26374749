"""A manager that dials in to devices (section 8)."""

from __future__ import annotations

from wmp.conformance.peers.conversation import ReceivedMessage
from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.peers.neighbor import Neighbor
from wmp.conformance.script.case import case
from wmp.message import Command

_INTERVAL = 1.0
"""Units between two announcements (section 11)."""
_INTERVALS = 4


def _announced(talk: ManagerConversation, device: Neighbor) -> ReceivedMessage:
    """Wait for the first announcement of the manager."""
    patience = max(talk.wire.grace, talk.wire.patience)
    pong = device.expect(
        Command.PONG,
        within=patience,
        where=lambda received: not received.message.to,
        what="the manager dials in, and its DEALER is connected",
    )
    talk.check(
        isinstance(pong["max_silence"], int),
        f"'max_silence' of the announcement is {pong['max_silence']!r}; expected milliseconds",
    )
    return pong


@case("WMP-8.11", "WMP-2.4")
def announcements_go_on(talk: ManagerConversation) -> None:
    """PONG without ``to`` comes when the DEALER connects, and in every interval."""
    device = talk.device()
    first = _announced(talk, device)
    name = first.connection.name
    talk.check(
        name[:1] == b"\x00",
        f"the routing id of the manager is {name!r}; expected one that ZeroMQ chose",
    )
    before = first.at
    for _ in range(_INTERVALS):
        pong = device.expect(
            Command.PONG,
            within=_INTERVAL + 2 * talk.wire.grace,
            where=lambda received: not received.message.to,
            what="the manager announces itself in every interval",
        )
        before = pong.at
    talk.check(
        before - first.at > (_INTERVALS - 1) * _INTERVAL * 0.5,
        f"{_INTERVALS} further announcements came within {before - first.at:.2f} units; "
        "expected one in every interval",
    )


@case("WMP-8.11", links=2)
def announcements_go_to_each_device(talk: ManagerConversation) -> None:
    """The manager opens a DEALER for each device, and announces itself over each."""
    devices = [talk.device(endpoint) for endpoint in range(2)]
    for device in devices:
        _announced(talk, device)


@case("WMP-8.11")
def the_end_is_announced(talk: ManagerConversation) -> None:
    """A manager that ends sends BYE without ``to`` to the device."""
    device = talk.device()
    _announced(talk, device)
    talk.over = True
    talk.wire.drain()
    device.expect(
        Command.BYE,
        within=5.0 + talk.wire.grace,
        where=lambda received: not received.message.to,
        what="the manager ends",
    )


@case("WMP-8.11", "WMP-1.2")
def a_job_over_a_device(talk: ManagerConversation) -> None:
    """A worker behind the device gets a job, and the manager gets the result."""
    device = talk.device()
    pong = _announced(talk, device)
    talk.players.remove(device)
    hops = (b"device", 7, b"\x00worker")
    worker = talk.worker("behind", connection=pong.connection, hops=hops)
    worker.meet()
    worker.ready(1)
    name = talk.submit(b"over a device")
    worker.serve(name)
