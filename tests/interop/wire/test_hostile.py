"""Invalid peers on every socket: a node counts and answers their messages, and continues."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading

import pytest
import zmq

import wmp
from benchmarks.attacks.attacker import Attacker, handshake
from tests.interop.wire.peers import EPOCH, SocketWorker, garbage
from tests.waiting import WAIT, WAIT_MS, wait_until
from wmp import codec
from wmp.message import Command, ErrorCode, Field, Limits, Message, Outcome
from wmp.runtime.driver import throttle

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
        assert job.result(WAIT) == b"answer"


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
        assert job.result(WAIT) == b"answer"
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
        assert job.result(WAIT) == b"answer"


def test_what_a_connection_with_garbage_leaves_behind_is_dropped_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(throttle, "_ANSWERS", 0)
    monkeypatch.setattr(throttle, "_ROUND", 2)
    monkeypatch.setattr(throttle, "_IDLE", 1e9)
    monkeypatch.setattr(throttle, "_REST", 3600.0)
    with wmp.Manager() as manager:
        driver = manager._inner._node.driver
        assert driver is not None
        with SocketWorker(manager.endpoints[0], b"loud") as loud:
            for _ in range(10):
                loud.raw(b"garbage")
            wait_until(lambda: driver._resting, "the manager rests")
            assert not driver._throttle.ignored(0.0)
        wait_until(lambda: bool(driver._throttle.ignored(0.0)), "the connection ends")


@pytest.mark.parametrize("rest", [0.001, 3600.0])
def test_a_node_rests_from_reading_when_it_drops_many_messages(
    monkeypatch: pytest.MonkeyPatch, rest: float
) -> None:
    monkeypatch.setattr(throttle, "_ROUND", 10)
    monkeypatch.setattr(throttle, "_IDLE", 1e9)
    monkeypatch.setattr(throttle, "_REST", rest)
    with (
        wmp.Manager(transport=wmp.Transport(max_refused=1)) as manager,
        SocketWorker(manager.endpoints[0]) as honest,
        SocketWorker(manager.endpoints[0], b"loud") as loud,
    ):
        driver = manager._inner._node.driver
        assert driver is not None
        for _ in range(100):
            loud.raw(b"garbage")
        if rest > 1:
            wait_until(lambda: driver._resting, "the manager rests")
            honest.ready()
            assert not manager.statistics().workers
        else:
            job = manager.submit(b"question")
            honest.work_once(b"answer")
            assert job.result(WAIT) == b"answer"


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


def discover(above: zmq.Socket[bytes], peer: SocketWorker) -> list[bytes]:
    """Return the first PING of a worker that a device passes on, and the device's link.

    A device drops a PING that arrives before its own connection to the manager is complete.
    """
    peer.ping()
    while not above.poll(200):
        peer.ping()
    return above.recv_multipart()


def test_a_device_survives_garbage_from_both_sides() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    above = context.socket(zmq.ROUTER)
    above.linger = 0
    port = above.bind_to_random_port("tcp://127.0.0.1")
    try:
        with (
            wmp.Device(bind="tcp://127.0.0.1:*", connect=f"tcp://127.0.0.1:{port}") as device,
            SocketWorker(device.endpoints[0]) as peer,
        ):
            for frames in garbage():
                peer.raw(*frames)
                assert peer.receive().command is Command.ERROR
            # Discovery shows the id that the device gives to the connection.
            link, *_ = discover(above, peer)
            for frames in garbage():
                above.send_multipart([link, *frames])

            def refused() -> int:
                dropped = device.statistics().dropped
                # A slow machine may count late timers, too.
                others = ("undelivered", "late")
                return sum(count for reason, count in dropped.items() if reason not in others)

            wait_until(lambda: refused() == 2 * len(garbage()), "garbage of both sides counted")
            peer.ping(label="after all that")
            while True:
                assert above.poll(WAIT_MS)
                frames = above.recv_multipart()
                if b"after all that" in frames[1]:
                    break
    finally:
        above.close()
        context.term()


@pytest.mark.rule("WMP-8.10")
def test_a_flood_below_a_device_does_not_reach_the_manager() -> None:
    transport = wmp.Transport(max_chatter=10, max_refused=10_000)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    above = context.socket(zmq.ROUTER)
    above.linger = 0
    endpoint = f"tcp://127.0.0.1:{above.bind_to_random_port('tcp://127.0.0.1')}"
    try:
        with (
            wmp.Device(bind="tcp://127.0.0.1:*", connect=endpoint, transport=transport) as device,
            SocketWorker(device.endpoints[0], b"loud") as loud,
            SocketWorker(device.endpoints[0], b"calm") as calm,
        ):
            *_, name, epoch, _ = codec.decode(discover(above, loud)[1:]).source
            loud.manager = (0, epoch, name, 1, b"manager")
            loud.session = 1

            def seen() -> int:
                statistics = device.statistics()
                return sum(statistics.forwarded.values()) + statistics.dropped.get("flood", 0)

            before = seen()
            for _ in range(500):
                loud.send(loud.compose_done([(1, 1)], [b""], [Outcome.OK], manager=(b"m", 1)))
                loud.ping()
            wait_until(lambda: seen() >= before + 1000, "a thousand messages arrive")
            # A worker may send at most 50 PINGs at once, and 10 a second.
            assert device.statistics().forwarded["PING"] < 250
            calm.ping(label="calm")
            while b"calm" not in above.recv_multipart()[1]:
                assert above.poll(WAIT_MS)
    finally:
        above.close()
        context.term()


def test_a_connection_without_zeromq_does_no_harm() -> None:
    with wmp.Manager() as manager:
        host, _, port = manager.endpoints[0].removeprefix("tcp://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=WAIT) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(2000))
            stranger.settimeout(WAIT)
            try:
                while stranger.recv(4096):
                    pass
            except ConnectionError:
                pass
        with SocketWorker(manager.endpoints[0]) as peer:
            job = manager.submit(b"question")
            peer.work_once(b"answer")
            assert job.result(WAIT) == b"answer"


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
        assert job.result(WAIT) == b"answer"


def send_until_closed(stream: socket.socket, node: wmp.Manager | wmp.Worker) -> None:
    """Send frames of one message until the node counts its connection as closed."""
    frame = b"\x03" + (65_536).to_bytes(8, "big") + bytes(65_536)
    # TCP does not report the end of a connection to a sender that may send no more bytes.
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

        assert job.result(WAIT) == b"answer"
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
            streams[0].settimeout(WAIT)
            while streams[0].recv(4096):
                pass
            with SocketWorker(manager.endpoints[0]) as peer:
                job = manager.submit(b"question")
                peer.work_once(b"answer")
                assert job.result(WAIT) == b"answer"
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


# -- claims to an identity (spec §15)


def meet(peer: SocketWorker) -> Message:
    """Let a manager know a peer: READY, and the PONG that answers PING."""
    peer.ready()
    peer.ping()
    return peer.receive(Command.PONG)


@pytest.mark.rule("WMP-15.10", "WMP-15.8")
def test_ready_ping_and_superseded_do_not_stop_a_manager() -> None:
    with wmp.Manager() as manager:
        with SocketWorker(manager.endpoints[0]) as thief:
            pong = meet(thief)
            about = (manager.identity, pong.source[1])
            fields = {Field.CODE: ErrorCode.SUPERSEDED, Field.ABOUT_PEER: about}
            thief.send(thief.message(Command.ERROR, fields, to=pong.answer_to))
        with SocketWorker(manager.endpoints[0], b"honest") as peer:
            job = manager.submit(b"question")
            peer.work_once(b"answer")
            assert job.result(WAIT) == b"answer"


@pytest.mark.rule("WMP-15.1", "WMP-15.3", "WMP-15.5")
def test_a_stranger_with_the_greatest_epoch_does_not_get_a_workers_place() -> None:
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=bytes.upper, identity="w"),
    ):
        manager.wait_for_workers(timeout=WAIT)
        with SocketWorker(manager.endpoints[0], b"w") as thief:
            thief.epoch = Limits.UINT
            thief.ready(credit=100)
            error = thief.receive(Command.ERROR)
            assert error.fields[Field.CODE] == ErrorCode.SUPERSEDED
            assert manager.submit(b"secret").result(WAIT) == b"SECRET"
            assert not thief.socket.poll(100)


@pytest.mark.rule("WMP-15.6")
def test_a_worker_works_once_the_thief_of_its_identity_is_gone() -> None:
    with wmp.Manager() as manager:
        with SocketWorker(manager.endpoints[0], b"w") as thief:
            thief.epoch = Limits.UINT
            meet(thief)
        with wmp.Worker(*manager.endpoints, handlers=bytes.upper, identity="w"):
            assert manager.submit(b"a").result(WAIT) == b"A"


@pytest.mark.rule("WMP-15.9", "WMP-9.8")
def test_a_second_process_of_a_workers_identity_stops_with_a_clear_error() -> None:
    caught: list[BaseException] = []

    def run(second: wmp.Worker) -> None:
        try:
            second.run()
        except wmp.Superseded as error:
            caught.append(error)

    with wmp.Manager() as manager, SocketWorker(manager.endpoints[0], b"w") as first:
        meet(first)
        second = wmp.Worker(*manager.endpoints, handlers=bytes.upper, identity="w", ping=0.05)
        thread = threading.Thread(target=run, args=(second,))
        thread.start()
        while thread.is_alive():
            if first.socket.poll(20):
                pong = codec.decode(first.socket.recv_multipart())
                if (challenge := pong.fields.get(Field.CHALLENGE)) is not None:
                    answer = {Field.ACK: 0, Field.SESSION: 1, Field.ANSWER: challenge}
                    first.send(first.message(Command.PING, answer, to=pong.answer_to))
    (error,) = caught
    assert "give each worker an identity of its own" in str(error)


@pytest.mark.rule("WMP-15.1", "WMP-15.3")
def test_a_hostile_manager_cannot_make_a_worker_report_an_honest_one() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    hostile = context.socket(zmq.ROUTER)
    hostile.linger = 0
    port = hostile.bind_to_random_port("tcp://127.0.0.1")
    try:
        with wmp.Manager() as manager:
            endpoints = (*manager.endpoints, f"tcp://127.0.0.1:{port}")
            with wmp.Worker(*endpoints, handlers=bytes.upper, identity="w") as worker:
                manager.wait_for_workers(timeout=WAIT)
                wait_until(lambda: worker.statistics().managers)
                assert hostile.poll(WAIT_MS)
                link, *frames = hostile.recv_multipart()
                message = codec.decode(frames)
                forged = Message(
                    Command.PONG,
                    message.answer_to,
                    (manager.identity, Limits.UINT),
                    {Field.MAX_SILENCE: 6000, Field.SESSION: 1},
                )
                hostile.send_multipart([link, *codec.encode(forged)])
                while True:
                    assert hostile.poll(WAIT_MS)
                    _, *frames = hostile.recv_multipart()
                    answer = codec.decode(frames)
                    if answer.command is Command.ERROR:
                        break
                assert answer.fields[Field.ABOUT_PEER] == (manager.identity, Limits.UINT)
                assert manager.submit(b"a").result(WAIT) == b"A"
                assert "ERROR superseded" not in manager.statistics().dropped
                assert worker.statistics().managers
    finally:
        hostile.close()
        context.term()


@pytest.mark.rule("WMP-15.6", "WMP-9.7")
@pytest.mark.parametrize("role", ["manager", "worker"])
def test_a_node_whose_clock_went_back_is_served_by_its_living_peers(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as nodes:
        monkeypatch.setattr("wmp.runtime.node.node._last_epoch", Limits.UINT - 100)
        manager = wmp.Manager(identity="m")
        manager.start()
        port = manager.endpoints[0]
        worker = wmp.Worker(port, handlers=bytes.upper, identity="w")
        worker.start()
        nodes.callback(lambda: (worker.close(), manager.close()))
        assert manager.submit(b"a").result(WAIT) == b"A"
        monkeypatch.setattr("wmp.runtime.node.node._last_epoch", 0)
        if role == "manager":
            manager.close()
            manager = wmp.Manager(port, identity="m")
            manager.start()
        else:
            worker.close()
            worker = wmp.Worker(port, handlers=bytes.upper, identity="w")
            worker.start()
        assert manager.submit(b"b").result(WAIT) == b"B"
