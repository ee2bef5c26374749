"""Peers that speak ZMTP 1.0 (libzmq 2) and ZMTP 2.0 (libzmq 3, jeromq 0.3), over bare TCP."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq

from tests.interop.gateways.test_gateways import back, front, places, queue_of
from tests.peers.old_zmtp import REQ, OldBroker, connect
from tests.peers.quirky import old_worker
from tests.waiting import WAIT, wait_until
from wmp.gateways import (
    ClientDoor,
    Gateway,
    LazyClient,
    MajordomoClient,
    MajordomoDoor,
    MajordomoWorker,
    ParanoidWorker,
    PingPongWorker,
    WorkerDoor,
)

ANY = "tcp://127.0.0.1:*"

pytestmark = pytest.mark.interop


@pytest.fixture(autouse=True)
def _no_word_of_keys(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no log line blames keys."""
    with caplog.at_level(logging.INFO, logger="wmp"):
        yield
    assert "keys" not in caplog.text


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> int:
    return request.param


QUEUES = ("simple-pirate", "paranoid-pirate", "ping-pong")


@pytest.mark.parametrize("protocol", QUEUES)
def test_a_worker_and_a_client_are_served(protocol, version):
    with (
        # On a busy machine two PINGs may cross with a job: a short heartbeat would repeat the job.
        queue_of(protocol, heartbeat=30.0, liveness=1000) as gateway,
        old_worker(protocol, back(gateway), version) as worker,
    ):
        wait_until(lambda: places(gateway) == 1)
        client = connect(front(gateway), version, REQ)
        for number in range(5):
            client.send([b"", b"r%d" % number])
            assert client.receive() == [b"", b"R%d" % number]
        client.send([b"", b"x" * 300])
        assert client.receive() == [b"", b"X" * 300]
        client.close()
        assert worker.done == 6


@pytest.mark.parametrize("identity", [b"", b"A name"])
@pytest.mark.parametrize("protocol", QUEUES)
def test_the_end_of_the_connection_of_a_worker_is_noticed(protocol, version, identity):
    with queue_of(protocol, heartbeat=30.0, liveness=1000) as gateway:
        worker = old_worker(protocol, back(gateway), version, identity)
        wait_until(lambda: places(gateway) == 1)
        worker.close()
        # No sign of life is due for a long time: only the connection can show the end.
        wait_until(lambda: places(gateway) == 0, "the end of the worker")


def test_the_end_of_a_busy_worker_gives_its_request_to_another_one(version):
    with (
        queue_of("ping-pong", heartbeat=30.0, liveness=1000) as gateway,
        LazyClient(front(gateway), timeout=WAIT) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        bare = connect(back(gateway), version, 5)
        bare.send([b"", b"READY"])
        wait_until(lambda: places(gateway) == 1)
        reply = thread.submit(client.request, b"request")
        while bare.receive() != [b"", b"request"]:
            pass
        bare.close()
        with old_worker("ping-pong", back(gateway), version):
            assert reply.result(WAIT) == b"REQUEST"


def test_of_several_workers_the_one_that_ended_is_forgotten(version):
    with (
        queue_of("ping-pong", heartbeat=0.2, liveness=100_000) as gateway,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as silent,
        LazyClient(front(gateway), timeout=WAIT) as client,
    ):
        silent.linger = 0
        silent.connect(back(gateway))  # a connection of ZMTP 3 that sends nothing
        workers = [
            old_worker("ping-pong", back(gateway), version, b"worker %d" % number)
            for number in range(4)
        ]
        wait_until(lambda: places(gateway) == 4)
        (group,) = gateway.workers()
        while workers:
            workers.pop().close()
            left = {b"worker %d" % number for number in range(len(workers))}
            wait_until(lambda left=left: set(gateway.workers().get(group, ())) == left)
            if workers:
                assert client.request(b"x") == b"X"


def test_a_majordomo_worker_and_client_are_served_and_their_end_is_noticed(version):
    with Gateway(MajordomoDoor(ANY, heartbeat=60.0)) as gateway:
        worker = old_worker("majordomo", front(gateway), version)
        client = connect(front(gateway), version, REQ)
        client.send([b"", b"MDPC01", b"echo", b"body"])
        assert client.receive() == [b"", b"MDPC01", b"echo", b"BODY"]
        worker.close()
        client.close()
        wait_until(lambda: not gateway.statistics().doors[0].workers, "the end of the worker")


def test_our_client_asks_a_queue(version):
    def answer(message: list[bytes]) -> list[list[bytes]]:
        return [[b"", *(frame.upper() for frame in message[1:])]]

    with OldBroker(version, answer) as broker, LazyClient(broker.endpoint, timeout=WAIT) as client:
        for number in range(3):
            assert client.request(b"r%d" % number) == b"R%d" % number


def test_our_client_asks_a_queue_that_was_started_again(version):
    def answer(message: list[bytes]) -> list[list[bytes]]:
        return [[b"", *(frame.upper() for frame in message[1:])]]

    with (
        OldBroker(version, answer) as broker,
        LazyClient(broker.endpoint, timeout=1.0, tries=100) as client,
    ):
        assert client.request(b"one") == b"ONE"
        for connection in broker.connections:
            connection.close()
        assert client.request(b"two") == b"TWO"


def test_our_majordomo_client_and_worker_use_a_broker(version):
    def answer(message: list[bytes]) -> list[list[bytes]]:
        if message[1] == b"MDPC01":
            return [[b"", b"MDPC01", message[2], *(frame.upper() for frame in message[3:])]]
        if message[2] == b"\x01":
            return [[b"", b"MDPW01", b"\x02", b"someone", b"", b"request"]]
        return []

    with OldBroker(version, answer) as broker:
        with MajordomoClient(broker.endpoint, timeout=WAIT) as client:
            assert client.request("echo", b"body") == b"BODY"
        with MajordomoWorker(broker.endpoint, "echo", bytes.upper):
            reply = [b"", b"MDPW01", b"\x03", b"someone", b"", b"REQUEST"]
            wait_until(lambda: reply in broker.received, "the reply of the worker")


def test_our_workers_work_for_a_queue(version):
    def answer(message: list[bytes]) -> list[list[bytes]]:
        if message == [b"", b"READY"]:
            return [[b"", b"PONG"], [b"", b"request"]]
        if message == [b"\x01"]:
            return [[b"someone", b"", b"request"]]
        return []

    with OldBroker(version, answer) as broker:
        with PingPongWorker(broker.endpoint, bytes.upper):
            wait_until(lambda: [b"", b"REQUEST"] in broker.received, "the result of the worker")
        with ParanoidWorker(broker.endpoint, bytes.upper):
            reply = [b"someone", b"", b"REQUEST"]
            wait_until(lambda: reply in broker.received, "the reply of the worker")


@pytest.mark.parametrize("protocol", QUEUES)
def test_a_worker_and_a_client_over_ipc_are_served_and_the_end_is_noticed(
    protocol, version, tmp_path
):
    doors = (
        ClientDoor(f"ipc://{tmp_path}/front"),
        WorkerDoor(f"ipc://{tmp_path}/back", protocol=protocol),
    )
    with Gateway(*doors) as gateway:
        worker = old_worker(protocol, back(gateway), version)
        wait_until(lambda: places(gateway) == 1)
        client = connect(front(gateway), version, REQ)
        for number in range(5):
            client.send([b"", b"r%d" % number])
            assert client.receive() == [b"", b"R%d" % number]
        client.close()
        worker.close()
        wait_until(lambda: places(gateway) == 0, "the end of the worker")
