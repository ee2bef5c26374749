"""A socket's port: the frames that it copies, and the frames that it passes on uncopied."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from tests.waiting import WAIT, WAIT_MS
from wmp.runtime.sockets import ports
from wmp.runtime.sockets.connections import Connections
from wmp.runtime.sockets.node_sockets import NodeSockets
from wmp.runtime.sockets.ports import Port, Sent
from wmp.runtime.sockets.socket_settings import SocketSettings
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.sockets.zmq_context import router

COLUMNS, PAYLOAD = b"c" * 9000, b"p" * 50_000


class World:
    """The port of a ROUTER, and two peers."""

    def __init__(self, context: Any) -> None:
        self.port: Port = router(SocketSettings(context=context), ["tcp://127.0.0.1:*"])
        self.peers: list[Any] = []
        self.links: list[bytes] = []
        for _ in range(2):
            peer = context.socket(zmq.DEALER)
            peer.linger, peer.rcvtimeo = 0, WAIT_MS
            peer.connect(self.port.endpoints[0])
            peer.send(b"hello")
            self.links.append(self.wait().recv_multipart()[0])
            self.peers.append(peer)

    def wait(self) -> Any:
        assert self.port.socket.poll(WAIT_MS)
        return self.port.socket

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        self.port.close(0)


@pytest.fixture
def world(context: Any) -> Iterator[World]:
    world = World(context)
    yield world
    world.close()


def test_an_end_node_copies_head_and_columns_but_no_payload(world: World) -> None:
    world.peers[0].send_multipart([b"head", COLUMNS, PAYLOAD])
    world.wait()

    frames = world.port.receive()

    assert frames == [world.links[0], b"head", COLUMNS, PAYLOAD]
    assert [type(frame) for frame in frames] == [bytes, bytes, bytes, memoryview]


@pytest.mark.rule("WMP-8.4")
def test_a_device_copies_the_head_alone(world: World) -> None:
    world.peers[0].send_multipart([b"head", COLUMNS, PAYLOAD])
    world.wait()

    frames = world.port.receive(heads=True)

    assert frames == [world.links[0], b"head", COLUMNS, PAYLOAD]
    assert [type(frame) for frame in frames] == [bytes, bytes, memoryview, memoryview]


def test_small_columns_are_copied_by_a_device_too(world: World) -> None:
    """Without the copy a reference would keep the whole receive buffer of libzmq in memory."""
    world.peers[0].send_multipart([b"head", b"c" * 200])
    world.wait()

    assert [type(frame) for frame in world.port.receive(heads=True)] == [bytes, bytes, bytes]


def test_a_received_frame_can_be_sent_to_all_peers_unchanged(world: World) -> None:
    world.peers[0].send_multipart([b"head", COLUMNS])
    world.wait()
    columns = world.port.receive(heads=True)[2]

    for link in world.links * 2:
        assert world.port.send([b"other head", columns], link) is Sent.OK

    for peer in world.peers * 2:
        assert peer.recv_multipart() == [b"other head", COLUMNS]
    assert columns == COLUMNS, "it is still there"


def test_a_slice_of_a_received_frame_is_sent_as_that_slice(world: World) -> None:
    world.peers[0].send_multipart([b"head", b"whole" * 1000])
    world.wait()
    whole = world.port.receive(heads=True)[2]
    assert isinstance(whole, memoryview)

    world.port.send([whole[1:3]], world.links[1])

    assert world.peers[1].recv_multipart() == [b"ho"]


async def _first_message_before_its_report(context: Any, lost: list[bytes]) -> None:
    port = router(SocketSettings(context=context), ["tcp://127.0.0.1:*"])
    sockets = NodeSockets(
        [port],
        name="test",
        others="workers",
        transport=Transport(),
        reopen=None,
        owed=None,
        on_readable=lambda port: None,
        schedule=lambda: None,
        connected=lambda index: None,
        disconnected=lambda key, garbled: lost.append(key),
        failed=lambda reason, detail: None,
        closed=lambda reason, detail: None,
    )
    sockets.start()
    try:
        with context.socket(zmq.DEALER) as peer:
            peer.linger = 0
            peer.connect(port.endpoints[0])
            peer.send(b"head")
            # The loop waits here. So it does not handle the report of the new connection.
            assert port.socket.poll(WAIT_MS)
            key, _ = port.receive()
            assert port.connections is not None
            assert list(port.connections.descriptors) == [key]
            assert not lost
        async with asyncio.timeout(WAIT):
            while not lost:
                await asyncio.sleep(0)
        assert lost == [key]
    finally:
        sockets.unwatch()
        sockets.close(0)


def test_a_connection_is_known_although_its_message_is_read_before_its_report(context: Any) -> None:
    asyncio.run(_first_message_before_its_report(context, []))


def test_messages_of_ignored_peers_are_dropped_and_counted(world: World) -> None:
    loud, calm = world.links
    world.port.connections = Connections(1, 1, 1, closed=print)
    for number in range(100):
        world.peers[0].send_multipart([b"%d" % number, *[b"frame"] * (number % 3)])
    world.peers[1].send_multipart([b"calm"])
    world.peers[1].send_multipart([b"again"])

    seen: list[list[Any]] = []
    skipped = 0
    while skipped < 100 or len(seen) < 2:
        world.wait()
        frames: list[Any] = []
        with contextlib.suppress(zmq.Again):
            frames = world.port.receive(ignored={loud})
        seen += [frames] if frames else []
        assert world.port.skipped <= ports._SKIP
        skipped += world.port.skipped
        world.port.skipped = 0

    assert seen == [[calm, b"calm"], [calm, b"again"]]
    assert world.port.connections.active == {loud, calm}
