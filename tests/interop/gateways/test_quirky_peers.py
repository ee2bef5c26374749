"""Gateways beside programs with habits that no document has (tests/peers/quirky.py)."""

from __future__ import annotations

import logging

import pytest

from tests.interop.gateways.test_gateways import back, front, places, queue_of
from tests.peers.quirky import (
    DROPPED,
    BareReplyMajordomo,
    CStringMajordomo,
    ForgetfulPingPong,
    ForgetfulPirate,
)
from tests.waiting import WAIT, wait_until
from wmp.errors import NoReply
from wmp.gateways import Gateway, LazyClient, MajordomoClient, MajordomoDoor

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
