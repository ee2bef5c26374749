"""The workers of the Pirate patterns and of ping-pong, message by message."""

from __future__ import annotations

import pytest

from tests.unit.gateways.foreign import Driven
from wmp.codec import pack_frames
from wmp.events import Closed, Drained
from wmp.foreign import Unsent
from wmp.gateways.common import worker_lifecycle
from wmp.gateways.common.body import MAX_FRAMES
from wmp.gateways.common.ping_pong_wire import PingPongWire
from wmp.gateways.common.pirate_wire import ParanoidWire, SimpleWire
from wmp.gateways.common.worker_machine import ForeignWorkerMachine, SignTimes

READY, HEARTBEAT = b"\x01", b"\x02"


def simple(**settings) -> Driven:
    return Driven(ForeignWorkerMachine(SimpleWire(), **settings))


def paranoid(**settings) -> Driven:
    return Driven(ForeignWorkerMachine(ParanoidWire(), SignTimes(1.0, 3.0, 1.0, 32.0), **settings))


def ping_pong(**settings) -> Driven:
    return Driven(
        ForeignWorkerMachine(PingPongWire(disconnect=True), SignTimes(1.0, 3.0), **settings)
    )


REQUESTS = {
    "simple": (simple, (b"", b"client", b"", b"body"), (b"", b"client", b"")),
    "paranoid": (paranoid, (b"client", b"", b"body"), (b"client", b"")),
    "ping-pong": (ping_pong, (b"", b"body"), (b"",)),
}
READYS = {
    "simple": (b"", READY),
    "paranoid": (READY,),
    "ping-pong": (b"", b"READY"),
}


@pytest.fixture(params=REQUESTS)
def name(request):
    return request.param


@pytest.fixture
def worker(name):
    """Return a connected worker."""
    driven = REQUESTS[name][0]()
    driven.connect()
    return driven


@pytest.fixture
def request_(name):
    return REQUESTS[name][1]


@pytest.fixture
def envelope(name):
    return REQUESTS[name][2]


@pytest.fixture
def ready(name):
    return READYS[name]


# Every worker ---------------------------------------------------------------------------


@pytest.mark.rule("PIRATE-4.1", "PIRATE-5.1", "PIRATE-6.1", "PING-1.1", "PING-1.3", "PING-2.1")
def test_the_first_message_of_every_connection_is_ready(name, ready):
    worker = REQUESTS[name][0]()

    worker.connect()
    assert worker.sent == [ready]
    worker.connect()
    assert worker.sent == [ready]


@pytest.mark.rule("PIRATE-1.2", "PIRATE-4.3", "PIRATE-5.2", "PIRATE-6.2", "PING-1.1")
def test_a_request_is_done_and_answered_once_with_its_envelope(worker, request_, envelope):
    worker.get(*request_)
    assert (worker.runs, worker.sent) == ([("", b"body")], [])

    worker.finish(b"result")
    assert worker.sent == [(*envelope, b"result")]

    worker.finish(b"result")
    assert (worker.sent, worker.drops) == ([], ["no such request"])


@pytest.mark.rule("PIRATE-1.1", "PING-1.2")
def test_bodies_of_several_frames_are_lists(worker, request_, envelope):
    worker.get(*request_, b"", b"more")
    assert worker.runs == [("frames", pack_frames([b"body", b"", b"more"]))]

    worker.finish([b"one", b""])
    assert worker.sent == [(*envelope, b"one", b"")]


def test_a_handler_may_ask_for_lists_always(name, request_, envelope):
    worker = REQUESTS[name][0](as_list=True)
    worker.connect()

    worker.get(*request_)
    assert worker.runs == [("frames", pack_frames([b"body"]))]
    worker.finish([b"one", b"two"])
    assert worker.sent == [(*envelope, b"one", b"two")]


@pytest.mark.rule("PIRATE-4.2", "PING-2.4")
def test_requests_that_arrive_meanwhile_wait_in_order_up_to_a_limit(name, request_, envelope):
    worker = REQUESTS[name][0](limit=2)
    worker.connect()
    for number in (b"1", b"2", b"3"):
        worker.get(*request_[:-1], number)
        assert worker.runs == ([("", b"1")] if number == b"1" else [])
    worker.get(*request_[:-1], b"4")
    assert worker.drops == ["limit"]

    worker.finish(b"first")
    assert (worker.sent, worker.runs) == ([(*envelope, b"first")], [("", b"2")])
    worker.finish(b"second")
    assert (worker.sent, worker.runs) == ([(*envelope, b"second")], [("", b"3")])
    worker.finish(b"third")
    assert (worker.sent, worker.runs) == ([(*envelope, b"third")], [])


@pytest.mark.rule("PIRATE-4.4", "PING-2.5")
def test_a_failed_request_gets_ready_in_place_of_a_reply(worker, request_, ready):
    worker.get(*request_)

    worker.fail()

    assert worker.sent == [ready]
    worker.get(*request_)
    assert worker.runs == [("", b"body")]
    assert worker.machine.statistics().failed == 1


@pytest.mark.rule("PIRATE-4.5")
def test_a_request_before_ready_is_dropped(name, request_):
    worker = REQUESTS[name][0]()

    worker.get(*request_)

    assert (worker.runs, worker.drops) == ([], ["no READY on this connection"])


@pytest.mark.rule("PIRATE-4.6", "PIRATE-4.7")
@pytest.mark.parametrize("name", ["simple", "paranoid"], indirect=False)
def test_a_worker_that_ends_first_sends_the_replies_of_its_requests(name):
    make, request, envelope = REQUESTS[name]
    worker = make()
    worker.connect()
    worker.get(*request)
    worker.get(*request)

    worker.feed(Drained())
    assert not worker.halted
    worker.finish(b"one")
    assert (worker.sent, worker.halted) == ([(*envelope, b"one")], False)
    worker.finish(b"two")
    assert (worker.sent, worker.halted) == ([(*envelope, b"two")], True)
    assert worker.get(*request) == []


def test_an_idle_worker_ends_at_once(worker):
    worker.feed(Drained())

    assert worker.halted


def test_a_reply_that_cannot_be_sent_is_counted(worker, request_):
    worker.get(*request_)
    worker.finish(b"result")

    worker.feed(Unsent(0, b""))

    assert worker.machine.statistics().dropped == {"not sent": 1}


@pytest.mark.rule("PIRATE-1.1", "PIRATE-1.3", "PING-1.2")
def test_invalid_messages_are_dropped_and_the_worker_goes_on(worker, name, request_):
    long = (*request_, *[b"x"] * MAX_FRAMES)
    bad = {
        "simple": [(b"x",), (b"",), (b"", b"c", b"b"), (b"", b"", b"b"), (b"", b"c", b""), long],
        "paranoid": [(b"",), (b"\x03",), (b"c", b"b"), (b"", b"b"), (b"c", b""), long],
        "ping-pong": [(b"",), (b"PONG",), (b"x", b"PONG"), long],
    }[name]
    for frames in bad:
        worker.get(*frames)
        assert (worker.runs, worker.sent, worker.drops) == ([], [], ["invalid"]), frames

    worker.get(*request_)
    assert worker.runs == [("", b"body")]


@pytest.mark.rule("PIRATE-1.2")
def test_an_address_may_have_eight_frames_and_no_more():
    worker = paranoid()
    worker.connect()
    hops = [b"%d" % number for number in range(8)]

    worker.get(*hops, b"", b"body")
    assert worker.runs
    worker.finish(b"")
    assert worker.sent == [(*hops, b"", b"")]
    worker.get(*hops, b"one more", b"", b"body")
    assert worker.drops == ["invalid"]


def test_the_code_consults_the_table(monkeypatch, request_, worker):
    """If a transition is removed from the table, it no longer happens."""
    smaller = dict(worker_lifecycle.TRANSITIONS)
    state = worker_lifecycle.ForeignWorkerState.IDLE
    del smaller[state, worker_lifecycle.ForeignWorkerInput.REQUEST]
    monkeypatch.setattr("wmp.gateways.common.serial_worker.TRANSITIONS", smaller)

    worker.get(*request_)

    assert (worker.runs, worker.machine.state) == ([], state)


# The Simple Pirate ----------------------------------------------------------------------


@pytest.mark.rule("PIRATE-5.3")
def test_a_simple_worker_that_was_connected_anew_meanwhile_sends_its_reply_alone():
    worker = simple()
    worker.connect()
    worker.get(b"", b"client", b"", b"body")

    assert worker.connect() == []
    worker.finish(b"result")

    assert worker.sent == [(b"", b"client", b"", b"result")]


@pytest.mark.rule("PIRATE-5.4")
def test_a_simple_worker_has_no_timers():
    worker = simple()
    worker.connect()

    assert worker.machine.deadline() is None


# The Paranoid Pirate --------------------------------------------------------------------


@pytest.mark.rule("PIRATE-6.3")
def test_an_idle_worker_sends_a_heartbeat_for_each_second_without_other_messages():
    worker = paranoid()
    worker.connect()

    worker.wait(2.5)
    assert worker.sent == [(HEARTBEAT,)] * 2
    worker.get(HEARTBEAT)
    worker.get(b"client", b"", b"body")
    worker.finish(b"result")  # half a second after the last heartbeat
    worker.wait(0.9)
    assert worker.sent == []
    worker.wait(0.1)
    assert worker.sent == [(HEARTBEAT,)]


@pytest.mark.rule("PIRATE-6.4", "PIRATE-6.7")
def test_a_busy_worker_is_silent_and_does_not_count_silence():
    worker = paranoid()
    worker.connect()
    worker.get(b"client", b"", b"body")

    worker.wait(100.0)
    assert worker.actions == []
    worker.finish(b"result")
    worker.wait(2.9)
    assert not worker.reopened
    worker.wait(0.1)
    assert worker.machine.state is worker_lifecycle.ForeignWorkerState.WAITING


@pytest.mark.rule("PIRATE-6.5")
def test_the_wait_before_a_new_socket_doubles_and_any_message_sets_it_back():
    worker = paranoid()
    waits = []
    for _ in range(7):
        worker.connect()
        assert worker.sent == [(READY,)]
        worker.wait(3.0)
        assert not worker.reopened
        began = worker.now
        while not worker.reopened:
            worker.wait(0.5)
            assert worker.sent == []
        waits.append(worker.now - began)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0]
    assert worker.machine.statistics().reopened == 7

    worker.connect()
    worker.get(b"not", b"valid")
    worker.wait(3.0)
    worker.wait(0.9)
    assert not worker.reopened
    worker.wait(0.1)
    assert worker.reopened


@pytest.mark.rule("PIRATE-6.6")
def test_a_message_during_the_wait_ends_the_wait():
    worker = paranoid()
    worker.connect()
    worker.wait(3.5)

    worker.get(HEARTBEAT)

    assert worker.sent == [(READY,)]
    worker.wait(2.9)
    assert not worker.reopened
    worker.wait(0.6)
    worker.get(b"client", b"", b"body")
    assert (worker.sent, worker.runs) == ([], [("", b"body")])


@pytest.mark.rule("PIRATE-6.8")
def test_a_worker_that_was_connected_anew_meanwhile_sends_ready_behind_its_reply():
    worker = paranoid()
    worker.connect()
    worker.get(b"client", b"", b"body")

    assert worker.connect() == []
    worker.finish(b"result")
    assert worker.sent == [(b"client", b"", b"result"), (READY,)]

    worker.get(b"client", b"", b"body")
    worker.finish(b"result")
    assert worker.sent == [(b"client", b"", b"result")]


@pytest.mark.rule("PIRATE-6.2")
def test_a_body_of_the_byte_of_ready_is_a_request():
    worker = paranoid()
    worker.connect()

    worker.get(b"client", b"", READY)

    assert worker.runs == [("", READY)]


# Ping-pong ------------------------------------------------------------------------------


@pytest.mark.rule("PING-1.4")
def test_only_a_lone_frame_is_a_control_word():
    worker = ping_pong()
    worker.connect()

    worker.get(b"", b"PONG")
    assert worker.actions == []
    for body in ((b"",), (b"PONG", b"EXIT"), (b"pong",), (b"READY",)):
        worker.get(b"", *body)
        assert len(worker.runs) == 1
        worker.finish([b"done"] if len(body) > 1 else b"done")


@pytest.mark.rule("PING-1.5")
@pytest.mark.parametrize("word", [b"READY", b"PING", b"DISCONNECT"])
def test_a_result_that_equals_a_control_word_is_not_sent(word):
    worker = ping_pong(as_list=True)
    worker.connect()
    worker.get(b"", b"job")

    worker.finish([word])
    assert (worker.sent, worker.drops) == ([(b"", b"READY")], ["control word"])

    worker.get(b"", b"job")
    worker.finish([word, word])
    assert worker.sent == [(b"", word, word)]


@pytest.mark.rule("PING-2.2")
def test_a_ping_pong_worker_that_was_connected_anew_sends_ready_behind_its_result():
    worker = ping_pong()
    worker.connect()
    worker.get(b"", b"job")

    assert worker.connect() == []
    worker.finish(b"result")

    assert worker.sent == [(b"", b"result"), (b"", b"READY")]


@pytest.mark.rule("PING-2.3")
@pytest.mark.parametrize("pong", [True, False])
def test_ready_may_be_answered_or_not(pong):
    worker = ping_pong()
    worker.connect()
    if pong:
        worker.get(b"", b"PONG")

    worker.get(b"", b"job")

    assert worker.runs == [("", b"job")]


@pytest.mark.rule("PING-2.6", "PING-2.7")
def test_exit_ends_the_worker_behind_its_result():
    worker = ping_pong()
    worker.connect()
    worker.get(b"", b"job")

    worker.get(b"", b"EXIT")
    assert worker.actions == []
    worker.finish(b"result")

    assert worker.sent == [(b"", b"result"), (b"", b"DISCONNECT")]
    assert worker.halted


@pytest.mark.rule("PING-2.7")
@pytest.mark.parametrize("event", [Drained(), Closed()])
def test_a_worker_that_ends_sends_disconnect_on_its_connection(event):
    worker = ping_pong()
    worker.feed(event)
    assert (worker.sent, worker.halted) == ([], True)

    worker = ping_pong()
    worker.connect()
    worker.feed(event)
    assert (worker.sent, worker.halted) == ([(b"", b"DISCONNECT")], True)


@pytest.mark.rule("PING-2.7")
@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_sends_no_disconnect_unless_its_user_asks_for_it(busy):
    """A broker that does not know DISCONNECT would take it for the result of the job."""
    worker = Driven(ForeignWorkerMachine(PingPongWire(), SignTimes(1.0, 3.0)))
    worker.connect()
    if busy:
        worker.get(b"", b"job")
    worker.feed(Closed())
    assert (worker.sent, worker.halted) == ([], True)


@pytest.mark.rule("PING-3.1", "PING-3.2", "PING-3.4")
def test_an_idle_worker_pings_and_a_busy_one_does_not():
    worker = ping_pong()
    worker.connect()
    worker.wait(2.0)
    assert worker.sent == [(b"", b"PING")] * 2

    worker.get(b"", b"job")
    worker.wait(100.0)
    assert worker.actions == []

    worker.finish(b"result")
    worker.wait(1.0)
    assert worker.sent == [(b"", b"PING")]


@pytest.mark.rule("PING-3.3", "PING-3.5")
@pytest.mark.parametrize("sign", [(b"", b"PONG"), (b"", b"job"), (b"nonsense",)])
def test_a_worker_replaces_its_socket_after_each_silence_of_three_periods(sign):
    worker = ping_pong()
    worker.connect()
    worker.wait(2.9)
    worker.get(*sign)
    if worker.runs:
        worker.finish(b"result")
    worker.wait(2.9)
    assert not worker.reopened
    worker.wait(0.1)
    assert worker.reopened
    assert worker.wait(100.0) == []  # until the socket is connected

    worker.connect()
    assert worker.sent == [(b"", b"READY")]
    worker.wait(3.0)
    assert worker.reopened
