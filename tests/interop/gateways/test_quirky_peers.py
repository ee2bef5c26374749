"""Gateways beside programs with habits that no document has (tests/peers/quirky.py)."""

from __future__ import annotations

import logging

import pytest
import zmq

import wmp
from tests.interop.gateways.foreign_workers import ParanoidPirate, SimplePirate
from tests.interop.gateways.test_gateways import back, front, places, queue_of
from tests.peers.quirky import (
    DROPPED,
    BareReplyMajordomo,
    CStringMajordomo,
    ForgetfulPingPong,
    ForgetfulPirate,
    WordParanoidPirate,
    WordSimplePirate,
)
from tests.waiting import WAIT, wait_until
from wmp.errors import NoReply
from wmp.gateways import (
    Gateway,
    LazyClient,
    MajordomoClient,
    MajordomoDoor,
    MajordomoWorker,
    Titanic,
)

ANY = "tcp://127.0.0.1:*"

pytestmark = pytest.mark.interop


@pytest.mark.rule("PING-4.3", "PIRATE-7.4")
@pytest.mark.parametrize(
    ("protocol", "make_worker", "dropped", "settings"),
    [
        ("ping-pong", ForgetfulPingPong, DROPPED, {}),
        ("paranoid-pirate", ForgetfulPirate, [b"two", b"frames"], {"busy_timeout": 0.5}),
    ],
)
def test_a_worker_that_once_does_not_answer_gets_requests_again(
    protocol, make_worker, dropped, settings, caplog
):
    with (
        caplog.at_level(logging.WARNING, logger="wmp"),
        queue_of(protocol, heartbeat=0.2, liveness=1000, **settings) as gateway,
        make_worker(back(gateway), interval=0.1),
        LazyClient(front(gateway), timeout=WAIT) as client,
        LazyClient(front(gateway), timeout=0.1, tries=1) as other,
    ):
        wait_until(lambda: places(gateway) == 1)
        with pytest.raises(NoReply):
            other.request(dropped)
        assert client.request(b"next") == b"NEXT"
        assert gateway.statistics().doors[1].dropped["unanswered request"] >= 1
    assert "gets requests again" in caplog.text


@pytest.mark.rule("MDP-4.3")
def test_a_worker_may_keep_the_address_as_a_c_string():
    with (
        Gateway(MajordomoDoor("tcp://127.0.0.1:*")) as gateway,
        CStringMajordomo(front(gateway)) as worker,
        MajordomoClient(front(gateway), timeout=WAIT) as client,
    ):
        for number in range(300):
            assert client.request("echo", b"r%d" % number) == b"R%d" % number
        assert worker.done == 300


@pytest.mark.rule("MDP-1.6")
def test_a_reply_without_the_empty_frame_is_taken_and_counted():
    with (
        Gateway(MajordomoDoor("tcp://127.0.0.1:*")) as gateway,
        BareReplyMajordomo(front(gateway)),
        MajordomoClient(front(gateway), timeout=WAIT) as client,
    ):
        assert client.request("echo", b"one") == b"ONE"
        assert client.request("echo", [b"one", b"", b"two"]) == [b"ONE", b"", b"TWO"]
        door = gateway.statistics().doors[0]
    assert (door.tolerated, door.dropped) == ({"REPLY without empty frame": 2}, {})


@pytest.mark.rule("MDP-1.2")
def test_a_body_of_many_frames_is_served():
    body = [b"%d" % number for number in range(1000)]
    with (
        Gateway(MajordomoDoor("tcp://127.0.0.1:*")) as gateway,
        CStringMajordomo(front(gateway)),
        MajordomoClient(front(gateway), timeout=WAIT) as client,
    ):
        assert client.request("echo", body) == body


@pytest.mark.rule("MDP-1.4")
@pytest.mark.parametrize("service", [b"\xff\xfe", b"two\nlines", b"%0A"])
def test_a_service_is_a_byte_string(service, tmp_path):
    with (
        Gateway(MajordomoDoor(ANY), bind=ANY) as gateway,
        MajordomoWorker(front(gateway), service, bytes.upper) as worker,
        MajordomoClient(front(gateway), timeout=WAIT) as client,
    ):
        assert client.request(service, b"x") == b"X"
        assert client.has(service)
        with Titanic(front(gateway), store=tmp_path / "store", heartbeat=0.2):
            status, id = client.request("titanic.request", [service, b"stored"])
            assert status == b"200"

            def stored():
                return client.request("titanic.reply", id)

            wait_until(lambda: stored() == [b"200", b"STORED"], "the stored reply")
        assert worker.statistics().replies == 2
        role = "".join(f"%{byte:02X}" for byte in service) if service[0] > 127 else None
        if role is not None:
            with wmp.Worker(*gateway.endpoints, handlers={role: lambda body: b"by WMP"}):
                wait_until(lambda: client.request(service, b"x") == b"by WMP", "the WMP worker")


@pytest.mark.rule("MDP-1.2", "MDP-1.4")
def test_a_message_that_cannot_be_served_is_named_in_the_log(caplog):
    with (
        caplog.at_level(logging.WARNING, logger="wmp"),
        Gateway(MajordomoDoor(ANY)) as gateway,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as client,
    ):
        client.linger = 0
        client.connect(front(gateway))
        client.send_multipart([b"", b"MDPC01", b"x" * 300, b"body"])
        client.send_multipart([b"", b"MDPC01", b"echo", *[b""] * 1100])
        wait_until(lambda: len(gateway.statistics().doors[0].dropped) == 2, "two reasons")
    assert "of 300 bytes; expected a name whose role has 1 to 255 bytes" in caplog.text
    assert "a message of 1103 frames" in caplog.text
    assert "expected 1022 at most, for the service b'echo'" in caplog.text


@pytest.mark.rule("PIRATE-8.3", "PIRATE-9.5")
@pytest.mark.parametrize(
    ("protocol", "in_words", "in_bytes"),
    [
        ("simple-pirate", WordSimplePirate, SimplePirate),
        ("paranoid-pirate", WordParanoidPirate, ParanoidPirate),
    ],
)
def test_workers_that_send_words_are_served_beside_workers_that_send_bytes(
    protocol, in_words, in_bytes
):
    with (
        queue_of(protocol, heartbeat=0.1, liveness=1000) as gateway,
        in_words(back(gateway), interval=0.1) as first,
        in_bytes(back(gateway), interval=0.1) as second,
        LazyClient(front(gateway), timeout=WAIT) as client,
    ):
        wait_until(lambda: places(gateway) == 2)
        for number in range(20):
            assert client.request(b"r%d" % number) == b"R%d" % number
        assert min(first.done, second.done) > 5
        if protocol == "paranoid-pirate":
            wait_until(lambda: len(first.extra) > 2 and len(second.extra) > 2)
            assert (first.extra[0], second.extra[0]) == ([b"HEARTBEAT"], [b"\x02"])
        door = gateway.statistics().doors[1]
    assert (door.tolerated, door.dropped) == ({"words instead of bytes": 1}, {})
