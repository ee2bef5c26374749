"""Round robin, message by message: other frames, the worker and the client."""

from __future__ import annotations

import pytest

from tests.unit.gateways.foreign import Driven
from wmp.codec import pack_frames
from wmp.errors import DecodeError, NoReply
from wmp.events import Closed, Drained
from wmp.foreign import Requested, Unsent, Withdrawn
from wmp.gateways.common.body import MAX_FRAMES
from wmp.gateways.round_robin.client_machine import RoundRobinClientMachine
from wmp.gateways.round_robin.lmq_link import LinkTimes
from wmp.gateways.round_robin.stream_data import MAX_STREAM, pack_stream, unpack_stream
from wmp.gateways.round_robin.wire import read_lmq, slots_of
from wmp.gateways.round_robin.worker_machine import RoundRobinWorkerMachine

V = b"LMQv100"
ID8 = bytes(range(8))


@pytest.mark.rule("RR-1.6")
@pytest.mark.parametrize(
    "frames",
    [
        (),
        (b"",),
        (V,),
        (b"", V, b"\x01", ID8),
        (b"", b"LMQv200", b"\x01", ID8, b""),
        (b"", V, b"\x07", ID8, b""),
        (b"", V, b"\x01", b"", b""),
        (b"", V, b"\x01", bytes(256), b""),
        (b"", V, b"\x03", ID8, b""),
        (b"a",) * 6,
        (*(b"a",) * 9, b"", V, b"\x01", ID8, b""),
        (b"", V, b"\x01", ID8, b"", *(b"a",) * 9),
        (b"", V, b"\x03", ID8, *(b"a",) * (MAX_FRAMES - 4), b""),
    ],
)
def test_other_frames_are_no_message(frames):
    assert read_lmq(frames) is None
    worker, client = make_worker(), make_client()
    for peer in (worker, client):
        peer.get(*frames)
        assert peer.drops == ["invalid"]
        assert not peer.halted


@pytest.mark.rule("RR-4.1")
@pytest.mark.parametrize(
    ("text", "slots"),
    [
        (b"10", 10),
        (b" 7x", 7),
        (b"+5", 5),
        (b"-3", 0),
        (b"+-3", 0),
        (b"", 0),
        (b"x", 0),
        (b"9" * 20, 10**20 - 1),
        (b"9" * 1000, 10**32 - 1),
        (b"0", 0),
    ],
)
def test_slots_are_the_leading_digits(text, slots):
    assert slots_of(text) == slots


@pytest.mark.rule("RR-6.7")
def test_stream_data_has_head_and_blocks():
    data = pack_stream(3, b"handle--")
    assert data == b"2R\x08handle--" + b"\0\0\0\0" + b"\3\0\0\0" + b"\1\1\1"
    for size in (1, 255, 256, 257, 1024, MAX_STREAM):
        assert unpack_stream(pack_stream(size)) == size
    for size in (0, -1, MAX_STREAM + 1):
        with pytest.raises(ValueError, match="expected 1 to"):
            pack_stream(size)
    for wrong in (b"", b"2R\x08", b"1" + data[1:], data[:-1], data[:-1] + b"\2", data[:14]):
        with pytest.raises(DecodeError):
            unpack_stream(wrong)


# -- the worker

ROLES = {b"\x01": "ping", b"\x0a": "stream"}
TIMES = LinkTimes(10.0, 120.0)


def make_worker(**settings) -> Driven:
    return Driven(RoundRobinWorkerMachine(ROLES, times=TIMES, **settings))


def make_client(**settings) -> Driven:
    return Driven(RoundRobinClientMachine(times=TIMES, **settings))


def greet(peer) -> None:
    """Connect, and answer the greeting."""
    peer.connect()
    (ping,) = peer.sent
    assert ping[:3] == (b"", V, b"\x01")
    peer.get(b"", V, b"\x02", ping[3], b"")


def register(worker) -> None:
    greet(worker)
    ((_, _, kind, id, command, slots, _),) = worker.sent
    assert (kind, command, slots) == (b"\x04", b"\x08", b"%d" % worker.machine.slots)
    worker.get(b"", V, b"\x06", id, b"")
    assert worker.machine.registered
    assert worker.answers == [(0, (), 1)]


def message(n: int, *, tracked: bool = True, command: bytes = b"\x01") -> tuple[bytes, ...]:
    return (b"", V, b"\x04" if tracked else b"\x03", b"id%d" % n, command, b"", b"token%d" % n)


def is_increment(frames) -> bool:
    return (frames[2], frames[4]) == (b"\x03", b"\x07")


@pytest.mark.rule("RR-2.1", "RR-6.1", "RR-6.3", "RR-6.4", "RR-1.5")
def test_a_worker_greets_registers_answers_and_gives_back_the_slot():
    worker = make_worker()
    worker.get(*message(0))
    assert worker.drops == ["no REGISTER on this connection"]
    register(worker)

    worker.get(*message(1))
    assert worker.runs == [("frames", pack_frames((b"\x01",)))]
    worker.finish([b""])
    answer, increment = worker.sent
    assert answer == (b"token1", b"", V, b"\x06", b"id1", b"")
    assert is_increment(increment)

    worker.get(*message(2)[:-1], b"client", b"hop")
    worker.finish([b"data"])
    assert worker.sent[0] == (b"hop", b"client", b"", V, b"\x06", b"id2", b"data", b"")

    worker.get(*message(3, tracked=False))
    worker.finish([b"unwanted"])
    assert list(map(is_increment, worker.sent)) == [True]
    worker.get(*message(4))
    worker.fail()
    assert list(map(is_increment, worker.sent)) == [True]
    worker.get(*message(5, command=b"\x33"))
    assert list(map(is_increment, worker.sent)) == [True]
    assert worker.drops == ["unknown command"]
    seen = worker.machine.statistics()
    assert (seen.requests, seen.replies, seen.failed) == (4, 2, 1)
    assert seen.by_command == {b"\x01": (4, 3)}


@pytest.mark.rule("RR-6.5")
def test_messages_above_the_slots_wait():
    worker = make_worker(slots=2, limit=1)
    register(worker)
    for n in (1, 2):
        worker.get(*message(n))
        assert len(worker.runs) == 1
    worker.get(*message(3))
    assert worker.runs == []
    worker.get(*message(4))
    assert worker.drops == ["limit"]
    assert is_increment(*worker.sent)
    worker.finish([b""], lane=1)
    assert len(worker.runs) == 1


@pytest.mark.rule("RR-6.2")
def test_register_without_an_answer_is_sent_again_and_then_an_error():
    worker = make_worker()
    greet(worker)
    first = worker.sent[0]
    worker.wait(5.0)
    assert worker.sent[0][3] != first[3]
    worker.get(b"", V, b"\x06", first[3], b"")
    assert worker.drops == ["other reply"]
    worker.wait(5.0)
    assert len(worker.sent) == 1
    worker.wait(5.0)
    (halt,) = worker.actions
    assert isinstance(halt.error, NoReply)


@pytest.mark.rule("RR-2.2", "RR-2.5")
@pytest.mark.parametrize("make", [make_worker, make_client])
def test_a_socket_without_pong_or_connected_twice_is_replaced(make):
    peer = make()
    peer.connect()
    peer.get(b"", V, b"\x02", b"other id", b"")
    assert peer.sent == []
    peer.wait(10.0)
    assert peer.reopened
    greet(peer)
    peer.connect()
    assert peer.reopened
    greet(peer)


@pytest.mark.rule("RR-2.4", "RR-2.3")
@pytest.mark.parametrize("make", [make_worker, make_client])
def test_a_silent_server_gets_ping_and_then_a_new_socket(make):
    peer = make()
    register(peer) if make is make_worker else greet(peer)
    peer.wait(100.0)
    peer.get(b"", V, b"\x01", b"theirs", b"", b"far")
    assert peer.sent == [(b"far", b"", V, b"\x02", b"theirs", b"")]
    peer.wait(119.0)
    assert peer.sent == []
    peer.wait(1.0)
    ((_, _, kind, id, _),) = peer.sent
    assert kind == b"\x01"
    peer.get(b"", V, b"\x02", id, b"")
    peer.wait(120.0)
    assert not peer.reopened
    peer.wait(10.0)
    assert peer.reopened
    greet(peer)


@pytest.mark.rule("RR-6.1", "RR-6.3")
def test_messages_of_an_earlier_connection_are_not_answered_on_the_next_one():
    worker = make_worker(slots=1)
    register(worker)
    worker.get(*message(1))
    worker.get(*message(2))
    worker.connect()
    assert worker.reopened
    register(worker)
    worker.finish([b"old"], lane=1)
    assert worker.sent == []
    assert worker.runs == []


@pytest.mark.rule("RR-6.6")
def test_a_worker_that_ends_deregisters_and_finishes_what_it_has():
    worker = make_worker()
    register(worker)
    worker.get(*message(1))
    worker.feed(Drained())
    assert worker.sent == [(b"", V, b"\x03", b"WORKER", b"\x09", b"")]
    assert not worker.halted
    worker.finish([b""])
    assert len(worker.sent) == 2
    assert worker.halted

    worker = make_worker()
    register(worker)
    worker.feed(Closed())
    assert worker.sent == [(b"", V, b"\x03", b"WORKER", b"\x09", b"")]
    assert worker.halted


# -- the client


@pytest.mark.rule("RR-2.1", "RR-7.1", "RR-7.2", "RR-7.3")
def test_a_client_has_many_messages_in_progress_and_ends_each_once():
    client = make_client()
    client.feed(Requested(1, (b"\x04", b"\x01")))
    client.feed(Requested(2, (b"\x03", b"\x01")))
    assert client.actions == []
    client.connect()
    (ping,) = client.sent
    client.get(b"", V, b"\x02", ping[3], b"")
    first, second = client.sent
    assert (first[2], second[2]) == (b"\x04", b"\x03")
    assert client.answers == [(2, (), 1)]
    client.feed(Requested(3, (b"\x04", b"\x0a", b"STREAM_ID", b"1")))
    (third,) = client.sent
    assert third == (b"", V, b"\x04", third[3], b"\x0a", b"STREAM_ID", b"1", b"")
    assert len({first[3], second[3], third[3]}) == 3

    client.get(b"", V, b"\x06", third[3], b"data", b"", b"worker")
    assert client.answers == [(3, (b"data",), 1)]
    client.get(b"", V, b"\x06", third[3], b"again", b"")
    assert client.drops == ["other reply"]
    client.wait(15.0)
    assert client.answers == [(1, None, 1)]
    client.get(b"", V, b"\x06", first[3], b"")
    assert client.drops == ["other reply"]
    seen = client.machine.statistics()
    assert (seen.requests, seen.replies, seen.abandoned) == (3, 1, 1)


@pytest.mark.rule("RR-7.2", "RR-7.3")
def test_a_message_without_a_connection_waits_and_ends_in_its_time():
    client = make_client(timeout=3.0)
    client.feed(Requested(1, (b"\x04", b"\x01")))
    client.feed(Requested(2, (b"\x04", b"\x01")))
    client.feed(Withdrawn((2,)))
    client.wait(3.0)
    assert client.answers == [(1, None, 1)]
    greet(client)
    assert client.sent == []
    client.feed(Unsent(0, b"", (b"", V, b"\x02", b"12345678", b"")))
    assert client.drops == ["not sent"]
    client.feed(Requested(3, (b"\x04", b"\x01")))
    client.feed(Drained())
    assert not client.halted
    client.wait(3.0)
    assert client.machine.handle(Requested(4, (b"\x03", b"\x01")), client.now) == []


@pytest.mark.rule("RR-7.4")
def test_messages_that_did_not_fit_into_the_pipe_are_sent_again_in_their_order():
    client = make_client(timeout=3.0)
    greet(client)
    first = []
    for n, type in ((1, b"\x04"), (2, b"\x03"), (3, b"\x04")):
        client.feed(Requested(n, (type, b"\x01", b"%d" % n)))
        first += client.sent
    for frames in first:
        client.feed(Unsent(0, b"", frames))
        assert client.drops == []
    client.feed(Requested(4, (b"\x04", b"\x01", b"4")))
    assert client.sent == []
    client.wait(0.05)
    assert [frames[5] for frames in client.sent] == [b"1", b"2", b"3", b"4"]
    assert len({frames[3] for frames in client.sent}) == 4
    again = client.sent
    client.get(b"", V, b"\x06", again[0][3], b"")
    assert client.answers == [(1, (), 1)]
    # The others do not fit once more, and end in their time.
    for frames in again[1:]:
        client.feed(Unsent(0, b"", frames))
    answers, drops = [], []
    while client.now < 104.0:
        client.wait(0.03)
        answers, drops = answers + client.answers, drops + client.drops
        for frames in client.sent:
            client.feed(Unsent(0, b"", frames))
    # The EXEC had an answer at once.
    assert drops == ["not sent"]
    assert answers == [(3, None, 1), (4, None, 1)]


@pytest.mark.rule("RR-7.4")
def test_a_pipe_that_is_full_for_long_is_tried_with_few_messages():
    client = make_client()
    greet(client)
    client.feed(Requested(1, (b"\x04", b"\x01")))
    client.feed(Unsent(0, b"", client.sent[0]))
    for n in range(2, 1001):
        client.feed(Requested(n, (b"\x04", b"\x01")))
    client.wait(0.025)
    first = client.sent
    assert len(first) < 100
    for frames in first:
        client.feed(Unsent(0, b"", frames))
    client.wait(0.025)
    assert len(client.sent) == len(first)
    client.wait(1.0)
    assert len(client.sent) == 1000 - len(first)


@pytest.mark.rule("RR-7.4")
def test_an_exec_that_was_not_sent_keeps_a_client_that_ends_until_it_is_sent():
    client = make_client()
    greet(client)
    client.feed(Requested(1, (b"\x03", b"\x01")))
    assert client.answers == [(1, (), 1)]
    client.feed(Unsent(0, b"", client.sent[0]))
    client.feed(Drained())
    assert not client.halted
    client.wait(1.0)
    assert len(client.sent) == 1
    assert client.halted


@pytest.mark.rule("RR-6.8")
def test_a_worker_whose_message_was_not_sent_begins_anew():
    worker = make_worker()
    register(worker)
    worker.get(*message(1))
    worker.get(*message(2))
    worker.finish([b""], lane=1)
    for frames in worker.sent:
        worker.feed(Unsent(0, b"", frames))
        assert worker.drops == ["not sent"]
    assert worker.machine.statistics().reopened == 1
    register(worker)
    worker.finish([b""], lane=2)
    assert worker.sent == []
