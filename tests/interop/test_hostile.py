"""Invalid peers on every socket: a node counts and answers their messages, and continues."""

from __future__ import annotations

import contextlib
import socket
import sys

import pytest
import zmq

import wmp
from benchmarks.attacks.attacker import Attacker, handshake
from tests.interop.peers import EPOCH, SocketWorker, garbage
from wmp.message import Command, ErrorCode, Field, Limits

pytestmark = pytest.mark.timeout(60)
linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux counts the bytes of a connection"
)


@pytest.mark.rule("WMP-1.2")
def test_a_hand_written_worker_does_a_job() -> None:
    with wmp.Manager() as manager, SocketWorker(manager.endpoints[0]) as peer:
        job = manager.submit(b"question")
        take = peer.work_once(b"answer")

        assert take.columns is not None
        assert list(take.columns.payloads or ()) == [b"question"]
        assert job.result(10) == b"answer"


@pytest.mark.rule("WMP-10.1", "WMP-10.2")
def test_garbage_is_answered_counted_and_survived() -> None:
    messages = garbage()
    with wmp.Manager() as manager, SocketWorker(manager.endpoints[0]) as peer:
        answered = 0
        for frames in messages:
            peer.raw(*frames)
            answered += peer.receive().command is Command.ERROR
        job = manager.submit(b"question")
        peer.work_once(b"answer")

        assert answered == len(messages)
        assert job.result(10) == b"answer"
        assert sum(manager.statistics().dropped.values()) >= len(messages)


def test_a_connection_that_sends_only_garbage_is_ignored_and_no_other() -> None:
    transport = wmp.Transport(max_refused=10)
    with (
        wmp.Manager(transport=transport) as manager,
        SocketWorker(manager.endpoints[0]) as honest,
        SocketWorker(manager.endpoints[0], b"loud") as loud,
    ):
        honest.ready()
        while not manager.statistics().dropped.get("ignored"):
            loud.raw(b"garbage")
        job = manager.submit(b"question")
        honest.work_once(b"answer")
        assert job.result(10) == b"answer"


@pytest.mark.rule("WMP-10.3")
def test_an_error_is_not_answered() -> None:
    with wmp.Manager() as manager, SocketWorker(manager.endpoints[0]) as peer:
        peer.send(peer.compose_error(ErrorCode.MALFORMED, text="no, you"))
        peer.send(peer.compose_error("unknown to everybody"))
        peer.ping()

        assert peer.receive().command is Command.PONG


@pytest.mark.rule("WMP-10.4")
def test_wrong_direction_command_and_version_have_their_codes() -> None:
    with wmp.Manager() as manager, SocketWorker(manager.endpoints[0]) as peer:
        to = (1, manager.identity)
        peer.send(peer.compose(Command.NO, to=to, number=1, session=1, lock=1))
        assert peer.receive().fields[Field.CODE] == ErrorCode.DIRECTION

        peer.raw(b"\x85\x01\x18\x63\x80\x82\x41x\x01\xa0")
        assert peer.receive().fields[Field.CODE] == ErrorCode.COMMAND
        peer.raw(b"\x85\x02\x09\x80\x82\x41x\x01\xa0")
        assert peer.receive().fields[Field.CODE] == ErrorCode.VERSION


def test_a_device_survives_garbage_from_both_sides() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    above = context.socket(zmq.ROUTER)
    above.linger = 0
    port = above.bind_to_random_port("tcp://127.0.0.1")
    try:
        with wmp.Device(bind="tcp://127.0.0.1:*", connect=f"tcp://127.0.0.1:{port}") as device:
            with SocketWorker(device.endpoints[0]) as peer:
                for frames in garbage():
                    peer.raw(*frames)
                    assert peer.receive().command is Command.ERROR
                # Discovery shows the id that the device gives to the connection.
                peer.ping()
                link = above.recv_multipart()[0]
                for frames in garbage():
                    above.send_multipart([link, *frames])
                peer.ping(label="after all that")
                while True:
                    assert above.poll(10_000)
                    frames = above.recv_multipart()
                    if b"after all that" in frames[1]:
                        break
            assert sum(device.statistics().dropped.values()) >= 2 * len(garbage())
    finally:
        above.close()
        context.term()


def test_a_connection_without_zeromq_does_no_harm() -> None:
    with wmp.Manager() as manager:
        host, _, port = manager.endpoints[0].removeprefix("tcp://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(2000))
            stranger.settimeout(10)
            try:
                while stranger.recv(4096):
                    pass
            except ConnectionError:
                pass
        with SocketWorker(manager.endpoints[0]) as peer:
            job = manager.submit(b"question")
            peer.work_once(b"answer")
            assert job.result(10) == b"answer"


def test_a_frame_above_the_limit_ends_only_that_connection() -> None:
    transport = wmp.Transport(max_frame=Limits.COLUMNS)
    with (
        wmp.Manager(transport=transport) as manager,
        SocketWorker(manager.endpoints[0], b"greedy") as greedy,
        SocketWorker(manager.endpoints[0]) as peer,
    ):
        greedy.raw(bytes(Limits.COLUMNS + 1))
        job = manager.submit(b"question")
        peer.work_once(b"answer")
        assert job.result(10) == b"answer"


def send_until_closed(stream: socket.socket, node: wmp.Manager | wmp.Worker) -> None:
    """Send frames of one message until the node counts its connection as closed."""
    frame = b"\x03" + (65_536).to_bytes(8, "big") + bytes(65_536)
    # TCP does not report the end of a connection to a sender whose window is closed.
    stream.settimeout(0.1)
    sent = 0
    while not node.statistics().dropped.get("unfinished message"):
        with contextlib.suppress(ConnectionError, TimeoutError):
            sent = (sent + stream.send(frame[sent:])) % len(frame)


@linux
def test_a_message_without_end_ends_only_that_connection() -> None:
    transport = wmp.Transport(max_frame=Limits.COLUMNS, max_message=Limits.COLUMNS)
    with wmp.Manager(transport=transport) as manager, SocketWorker(manager.endpoints[0]) as peer:
        with Attacker(manager.endpoints[0]).tcp() as stream:
            handshake(stream)
            send_until_closed(stream, manager)
        job = manager.submit(b"question")
        peer.work_once(b"answer")

        assert job.result(10) == b"answer"
        assert manager.statistics().dropped["unfinished message"] == 1


@linux
def test_a_worker_closes_the_connection_of_a_manager_whose_message_has_no_end() -> None:
    transport = wmp.Transport(max_frame=Limits.COLUMNS, max_message=Limits.COLUMNS)
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with wmp.Worker(endpoint, handlers=bytes.upper, transport=transport) as worker:
            stream, _ = server.accept()
            with stream:
                handshake(stream, kind=b"ROUTER")
                send_until_closed(stream, worker)


def test_the_oldest_of_too_many_connections_without_a_message_is_closed() -> None:
    with wmp.Manager(transport=wmp.Transport(max_silent=3)) as manager:
        attacker = Attacker(manager.endpoints[0])
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(attacker.tcp()) for _ in range(4)]
            streams[0].settimeout(20)
            while streams[0].recv(4096):
                pass
            with SocketWorker(manager.endpoints[0]) as peer:
                job = manager.submit(b"question")
                peer.work_once(b"answer")
                assert job.result(10) == b"answer"
        assert manager.statistics().dropped["silent"] >= 1


@pytest.mark.rule("WMP-1.5", "WMP-1.8")
def test_a_peer_is_its_identity_and_not_its_connection() -> None:
    with wmp.Manager() as manager, SocketWorker(manager.endpoints[0]) as first:
        first.ready()
        first.ping()
        first.receive(Command.PONG)
        with SocketWorker(manager.endpoints[0]) as second:
            second.ping()
            pong = second.receive(Command.PONG)

        (row,) = manager.statistics().workers
        assert row.identity == b"stranger"
        assert pong.fields[Field.READY] == 1
        assert pong.to == (EPOCH, b"stranger")
