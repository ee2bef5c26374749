"""Server, worker and client of round robin over real sockets, beside plain programs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

import wmp
from tests.waiting import WAIT, WAIT_MS, wait_until
from wmp.errors import ClosedError, ConfigError, NoReply
from wmp.gateways import (
    Gateway,
    RoundRobinClient,
    RoundRobinDoor,
    RoundRobinServer,
    RoundRobinWorker,
)
from wmp.gateways.round_robin import aio
from wmp.gateways.round_robin.stream_data import pack_stream, unpack_stream

pytestmark = pytest.mark.interop

ANY = "tcp://127.0.0.1:*"
V = b"LMQv100"
HANDLERS = {
    0x01: lambda frames: b"",
    0x0A: lambda frames: pack_stream(int(frames[2])),
    0x20: lambda frames: [frame.upper() for frame in frames[1:]],
}


class Plain:
    """A ROUTER as the original programs have it: the next hop is the first frame of a message."""

    def __init__(self, context, server: str, name: str) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.routing_id = name.encode()
        self.socket.router_mandatory = True
        self.socket.rcvtimeo = self.socket.sndtimeo = WAIT_MS
        self.socket.probe_router = False
        self.server = server.encode()
        self.socket.connect(server)
        wait_until(self._greet)
        assert self.receive() == [b"", V, b"\x02", b"12345678", b""]

    def _greet(self) -> bool:
        try:
            self.send(b"", V, b"\x01", b"12345678", b"")
        except zmq.ZMQError:
            return False  # not connected yet
        return True

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart([self.server, *frames])

    def receive(self) -> list[bytes]:
        sender, *frames = self.socket.recv_multipart()
        assert sender == self.server
        return frames


@pytest.mark.rule("RR-1.1", "RR-1.2", "RR-2.3")
def test_plain_clients_and_workers_address_the_server_by_its_name(context):
    with RoundRobinServer(ANY) as server:
        (address,) = server.addresses
        worker = Plain(context, address, f"{address}:17")
        worker.send(b"", V, b"\x04", b"\1\0\0\0", b"\x08", b"2", b"")
        assert worker.receive() == [b"", V, b"\x06", b"\1\0\0\0", b""]
        assert server.table() == [(f"{address}:17", 2, 2)]

        client = Plain(context, address, f"{address}:18")
        client.send(b"", V, b"\x04", b"87654321", b"\x01", b"")
        *frames, token = worker.receive()
        assert frames == [b"", V, b"\x04", b"87654321", b"\x01", b""]
        worker.send(token, b"", V, b"\x06", b"87654321", b"")
        worker.send(b"", V, b"\x03", b"\2\0\0\0", b"\x07", b"")
        named = f"{address}:17".encode()
        assert client.receive() == [b"", V, b"\x06", b"87654321", b"", named]
        wait_until(lambda: server.table() == [(f"{address}:17", 2, 2)])

        with (
            RoundRobinWorker(address, HANDLERS, slots=1),
            RoundRobinClient(address) as ours,
        ):
            names = [row.address for row in server.table()]
            assert all(name.startswith(f"{address}:") for name in names)
            assert len(set(names)) == 2
            # The plain worker is first, and ours is the second.
            client.send(b"", V, b"\x03", b"\3\0\0\0", b"\x01", b"")
            assert worker.receive()[2] == b"\x03"
            assert ours.call(0x20, "abc") == [b"ABC"]
            worker.send(b"", V, b"\x03", b"WORKER", b"\x09", b"")
            wait_until(lambda: len(server.table()) == 1)
        for node in (worker, client):
            node.socket.close(linger=0)


@pytest.mark.rule("RR-1.1", "RR-1.2", "RR-2.1", "RR-6.1", "RR-7.1")
def test_our_client_and_worker_beside_a_plain_server(context):
    socket = context.socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    socket.rcvtimeo = WAIT_MS
    address = f"tcp://127.0.0.1:{port}"
    seen = []

    def serve():
        worker = None
        while len(seen) < 7:
            sender, *frames = socket.recv_multipart()
            seen.append((sender, frames))
            if frames[0]:
                socket.send_multipart([*frames, sender])
            elif frames[2] == b"\x01":
                socket.send_multipart([sender, b"", V, b"\x02", frames[3], b""])
            elif frames[4] == b"\x08":
                worker = sender
                socket.send_multipart([sender, b"", V, b"\x06", frames[3], b""])
            elif frames[4] not in (b"\x07", b"\x09"):
                socket.send_multipart([worker, *frames, sender])
        socket.close(linger=1000)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with (
            RoundRobinWorker(address, HANDLERS),
            RoundRobinClient(address, timeout=WAIT) as client,
        ):
            assert client.call(0x20, "abc", b"") == [b"ABC", b""]
    finally:
        thread.join(WAIT)
    assert not thread.is_alive()
    commands = [frames[4] for _, frames in seen if not frames[0] and len(frames) > 5]
    assert commands[0] == b"\x08"
    assert sorted(commands) == [b"\x07", b"\x08", b"\x09", b"\x20"]
    assert all(sender.startswith(f"{address}:".encode()) for sender, _ in seen)


def test_many_messages_at_once_each_get_their_own_answer():
    with RoundRobinServer(ANY) as server:
        (address,) = server.addresses
        with (
            RoundRobinWorker(address, HANDLERS, slots=3),
            RoundRobinWorker(address, HANDLERS, slots=1),
            RoundRobinClient(address) as client,
            ThreadPoolExecutor(10) as executor,
        ):
            texts = [f"text {n}" for n in range(50)]
            results = executor.map(lambda text: client.call(0x20, text), texts)
            assert list(results) == [[text.upper().encode()] for text in texts]
            assert unpack_stream(client.call(0x0A, "STREAM_ID", "2000")[0]) == 2000
            assert client.call(0x01, tracked=False) == []
            wait_until(lambda: [row.free for row in server.table()] in ([3, 1], [1, 3]))
        wait_until(lambda: server.table() == [])


@pytest.mark.rule("RR-6.2", "RR-2.2")
def test_without_a_server_the_start_and_the_call_end_with_an_error(context):
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    endpoint = f"tcp://127.0.0.1:{port}"
    worker = RoundRobinWorker(endpoint, HANDLERS, timeout=0.05, tries=1, handshake=0.1)
    with pytest.raises(NoReply, match="a server of round robin runs at this address"):
        worker.start()
    with (
        RoundRobinClient(endpoint, timeout=0.1, handshake=0.05) as client,
        pytest.raises(NoReply, match="could be reached in"),
    ):
        client.call(0x01)
    router.close(linger=0)


def test_a_worker_and_a_client_return_when_the_server_was_started_again():
    with RoundRobinServer(ANY) as server:
        (address,) = server.addresses
    transport = wmp.Transport(reconnect=0.01, reconnect_max=0.05)
    server = RoundRobinServer(address)
    server.start()
    with (
        RoundRobinWorker(address, HANDLERS, transport=transport) as worker,
        RoundRobinClient(address, transport=transport) as client,
    ):
        assert client.call(0x20, "one") == [b"ONE"]
        server.close(0.0)
        with RoundRobinServer(address) as again:
            wait_until(lambda: len(again.table()) == 1)
            assert client.call(0x20, "two") == [b"TWO"]
            assert worker.statistics().reopened >= 1


def test_workers_of_wmp_do_messages_of_round_robin():
    with RoundRobinServer(ANY, workers_of_wmp=ANY, commands={0x20: "shout"}) as server:
        handlers = {"shout": HANDLERS[0x20], "round-robin": HANDLERS[0x01]}
        with (
            wmp.Worker(server.endpoints[0], handlers=handlers, pool="inline"),
            RoundRobinClient(server.addresses[0]) as client,
        ):
            assert client.call(0x20, "abc", "d") == [b"ABC", b"D"]
            assert client.call(0x01) == []


def test_workers_of_round_robin_do_jobs_of_managers_of_wmp():
    with wmp.Manager(ANY, codec="frames") as manager:
        door = RoundRobinDoor(ANY, roles="shout")
        with (
            Gateway(door, connect=manager.endpoints[0]) as gateway,
            RoundRobinWorker(gateway.doors[0][0], HANDLERS),
        ):
            job = manager.submit([b"\x20", b"abc"], role="shout")
            assert job.result(WAIT) == [b"ABC"]


def test_slots_above_the_limit_of_the_server_are_a_warning(caplog):
    with RoundRobinServer(ANY, max_slots=3) as server:
        with RoundRobinWorker(server.addresses[0], HANDLERS, slots=5):
            assert [row.slots for row in server.table()] == [3]
        wait_until(lambda: server.table() == [])
    text = "a worker registers 5 slots, and gets 3; raise max_slots for more"
    assert [logged.levelname for logged in caplog.records if text in logged.getMessage()] == [
        "WARNING"
    ]


def test_a_burst_of_messages_above_the_pipes_is_done():
    async def play():
        async with aio.RoundRobinServer(ANY) as server:
            (address,) = server.addresses
            transport = wmp.Transport(high_water_mark=3)
            worker = aio.RoundRobinWorker(
                address, HANDLERS, slots=50, pool="inline", transport=transport
            )
            async with worker, aio.RoundRobinClient(address, transport=transport) as client:
                calls = (client.call(0x20, str(n)) for n in range(60))
                assert await asyncio.gather(*calls) == [[b"%d" % n] for n in range(60)]
                assert client.statistics().dropped == {}
                assert worker.statistics().reopened == 0

    asyncio.run(play())


def test_the_classes_for_asyncio():
    async def play():
        async with aio.RoundRobinServer(ANY) as server:
            (address,) = server.addresses
            async with (
                aio.RoundRobinWorker(address, HANDLERS),
                aio.RoundRobinClient(address) as client,
            ):
                calls = (client.call(0x20, str(n)) for n in range(20))
                assert await asyncio.gather(*calls) == [[b"%d" % n] for n in range(20)]
                seen = client.statistics()
                assert (seen.requests, seen.replies) == (20, 20)
                assert await client.call(0x20, "untracked", tracked=False) == []
                async with asyncio.timeout(WAIT):
                    while server.table() != [(server.table()[0].address, 10, 10)]:
                        await asyncio.sleep(0)
            # The worker deregistered.
            async with asyncio.timeout(WAIT):
                while server.table():
                    await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            await client.call(0x20)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RoundRobinWorker(ANY[:-1] + "1", {}), "has no handler"),
        (lambda: RoundRobinWorker(ANY[:-1] + "1", {256: bytes}), "a command is 256"),
        (lambda: RoundRobinServer(), "no address"),
        (lambda: RoundRobinServer(ANY, max_queue=-1), "max_queue is -1"),
        (lambda: RoundRobinServer(ANY, commands={b"": "role"}), "a command is b''"),
        (lambda: RoundRobinServer("tcp://*:6714"), "without keys"),
    ],
)
def test_wrong_settings_are_named(make, text):
    with pytest.raises(ConfigError, match=text):
        make()


def test_a_watcher_gets_a_line_about_each_message_of_the_server(context):
    lines = []
    with RoundRobinServer(ANY, watch=lines.append) as server:
        (address,) = server.addresses
        peer = Plain(context, address, f"{address}:17")
        peer.send(b"", V, b"\x04", b"\1\0\0\0", b"\x08", b"2", b"")
        assert peer.receive() == [b"", V, b"\x06", b"\1\0\0\0", b""]
        name = f"{address}:17"
        peer.send(b"noise")
        wait_until(lambda: lines and lines[-1].startswith("dropped"))
        assert lines == [
            f"PING from {name}",
            f"PONG to {name}",
            f"TRACKEXEC REGISTER from {name}",
            f"RESPONSE to {name}",
            f"a message with another form from {name}",
            "dropped a message: invalid",
        ]
        peer.socket.close()
