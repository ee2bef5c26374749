"""Full pipes: no node blocks, order is kept, and other peers are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import zmq

from tests.waiting import WAIT, WAIT_MS
from wmp import codec
from wmp.actions import Send
from wmp.message import Command, Field, Link, Message
from wmp.runtime.sockets.connections import Connections
from wmp.runtime.sockets.ports import Port, SendQueue
from wmp.runtime.sockets.socket_settings import SocketSettings
from wmp.runtime.sockets.transport import Transport
from wmp.runtime.sockets.zmq_context import router


class World:
    """A ROUTER with tiny pipes over inproc, and peers that read when the test calls."""

    def __init__(self, context: Any, *, parks: bool, parked: int = 50, **limits: int) -> None:
        self.context = context
        transport = Transport(high_water_mark=2, parked=parked, **limits)
        self.port: Port = router(
            SocketSettings(context=context, transport=transport), ["inproc://r"]
        )
        self.undelivered: list[tuple[Link, Message]] = []
        self.reasons: list[str] = []
        self.outbox = SendQueue(
            self.port,
            {},
            transport,
            parks=parks,
            undelivered=lambda link, message: self.undelivered.append((link, message)),
            count=lambda reason, detail: self.reasons.append(reason),
            sent=lambda: None,
        )
        self.peers: list[Any] = []

    def peer(self) -> tuple[Any, bytes]:
        socket = self.context.socket(zmq.DEALER)
        socket.linger = 0
        socket.rcvhwm = 2
        socket.connect("inproc://r")
        socket.send(b"hello")
        assert self.port.socket.poll(WAIT_MS)
        link, _ = self.port.socket.recv_multipart()
        self.peers.append(socket)
        return socket, link

    def close(self) -> None:
        self.outbox.close()
        for peer in self.peers:
            peer.close()
        self.port.close(0)


def message(number: int) -> Message:
    return Message(Command.PING, (), (b"m", 1), {Field.LABEL: str(number)})


def labels(socket: Any) -> list[int]:
    sent_frames = []
    while True:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return sent_frames
        sent_frames.append(int(codec.decode(frames).fields[Field.LABEL]))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.mark.rule("WMP-1.6")
def test_a_full_pipe_keeps_a_bounded_number_in_order(context: Any) -> None:
    async def main() -> None:
        world = World(context, parks=True)
        try:
            (slow, slow_link), (quick, quick_link) = world.peer(), world.peer()
            for number in range(100):
                world.outbox.send(Send(slow_link, message(number)))
            refused = [int(m.fields[Field.LABEL]) for _, m in world.undelivered]
            kept = [number for number in range(100) if number not in refused]
            assert 50 <= len(kept) < 100
            assert refused == list(range(len(kept), 100))
            assert set(world.reasons) == {"pipe full"}

            world.outbox.send(Send(quick_link, message(7)))
            assert labels(quick) == [7]

            got: list[int] = []

            def all_came() -> bool:
                got.extend(labels(slow))
                return len(got) == len(kept)

            await until(all_came)
            assert got == kept
        finally:
            world.close()

    asyncio.run(main())


class Closing(Connections):
    """Closes any connection, and records which."""

    def __init__(self) -> None:
        super().__init__(1, 1, 1, lambda reason, detail: None)
        self.closed: list[bytes] = []

    def close(self, key: bytes, reason: str, detail: str) -> bool:
        assert reason == "unread"
        self.closed.append(key)
        return True


@pytest.mark.parametrize("limit", [{"parked": 30}, {"parked_bytes": 20_000}])
def test_the_connection_of_a_peer_that_reads_nothing_is_closed(
    context: Any, limit: dict[str, int]
) -> None:
    async def main() -> None:
        world = World(context, parks=True, **limit)
        closing = world.port.connections = Closing()
        try:
            (_, slow), (quick, other) = world.peer(), world.peer()
            while not closing.closed:
                world.outbox.send(Send(slow, message(1)))
            world.outbox.send(Send(other, message(2)))

            assert closing.closed == [slow]
            assert 20 < len(world.undelivered) <= 40
            assert labels(quick) == [2]
        finally:
            world.close()

    asyncio.run(main())


def test_above_the_bytes_for_all_peers_the_peer_with_the_most_is_closed(context: Any) -> None:
    async def main() -> None:
        world = World(context, parks=True, parked_total=15_000)
        closing = world.port.connections = Closing()
        try:
            (_, much), (_, little) = world.peer(), world.peer()
            for number in range(25):
                world.outbox.send(Send(much, message(number)))
            for number in range(20):
                world.outbox.send(Send(little, message(number)))

            assert closing.closed == [much]
            assert {link for link, _ in world.undelivered} <= {much, little}
            assert world.outbox.forget(much) == 0
            assert world.outbox.forget(little) > 0
        finally:
            world.close()

    asyncio.run(main())


@pytest.mark.rule("WMP-1.6")
def test_a_device_keeps_nothing(context: Any) -> None:
    async def main() -> None:
        world = World(context, parks=False)
        try:
            slow, link = world.peer()
            for number in range(20):
                world.outbox.send(Send(link, message(number)))
            refused = [int(m.fields[Field.LABEL]) for _, m in world.undelivered]
            got = labels(slow)
            assert refused
            assert sorted(got + refused) == list(range(20))
        finally:
            world.close()

    asyncio.run(main())


def test_a_peer_that_is_gone_is_undelivered_at_once(context: Any) -> None:
    async def main() -> None:
        world = World(context, parks=True)
        try:
            world.outbox.send(Send(b"nobody", message(1)))
            world.outbox.send(Send(3, message(2)))
            assert [link for link, _ in world.undelivered] == [b"nobody", 3]
            assert world.reasons == ["no such connection", "not connected"]
        finally:
            world.close()

    asyncio.run(main())


def test_messages_parked_for_a_leaving_peer_are_undelivered(context: Any) -> None:
    async def main() -> None:
        world = World(context, parks=True)
        try:
            slow, link = world.peer()
            for number in range(30):
                world.outbox.send(Send(link, message(number)))
            assert world.undelivered == []
            slow.close()
            # A ROUTER notices a lost peer only when it reads; the driver always reads.
            await until(lambda: not world.port.readable() and len(world.undelivered) > 0)
            numbers = [int(m.fields[Field.LABEL]) for _, m in world.undelivered]
            assert numbers == list(range(numbers[0], 30))
        finally:
            world.close()

    asyncio.run(main())
