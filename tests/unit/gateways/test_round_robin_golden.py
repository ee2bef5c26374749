"""Each message of the LMQ layer, frame by frame and both ways, as the original programs send it.

The rows have the frames behind the first address: the ROUTER of a sender takes this address away,
and the ROUTER of the receiver reports the sender.
"""

from __future__ import annotations

import pytest

from tests.unit.gateways.foreign import Driven
from tests.unit.gateways.round_robin import Server
from wmp.events import Drained
from wmp.foreign import Requested
from wmp.gateways.round_robin.client_machine import RoundRobinClientMachine
from wmp.gateways.round_robin.lmq_link import LinkTimes
from wmp.gateways.round_robin.stream_data import pack_stream, unpack_stream
from wmp.gateways.round_robin.wire import LmqMessage, LmqType, read_lmq, write_lmq
from wmp.gateways.round_robin.worker_machine import RoundRobinWorkerMachine

V = b"LMQv100"
ID4 = b"\1\0\0\0"
ID8 = b"\1\0\0\0\0\0\0\0"
WORKER = b"tcp://127.0.0.1:6714:643972"
CLIENT = b"tcp://127.0.0.1:6714:18"
T = LmqType


def block(offset: int, size: int) -> bytes:
    return offset.to_bytes(4, "little") + size.to_bytes(4, "little") + b"\x01" * size


HEAD = b"2R\x08" + bytes(8)
STREAM_1024 = HEAD + b"".join(block(offset, 256) for offset in (0, 256, 512, 768))
STREAM_300 = HEAD + block(0, 256) + block(256, 44)

GOLDEN = {
    "PING": ((b"", V, b"\x01", ID8, b""), LmqMessage(T.PING, ID8)),
    "PING at its receiver": (
        (b"", V, b"\x01", ID8, b"", CLIENT),
        LmqMessage(T.PING, ID8, (), (CLIENT,)),
    ),
    "PONG": ((b"", V, b"\x02", ID8, b""), LmqMessage(T.PONG, ID8)),
    "REGISTER": (
        (b"", V, b"\x04", ID4, b"\x08", b"10", b""),
        LmqMessage(T.TRACKEXEC, ID4, (b"\x08", b"10")),
    ),
    "answer to REGISTER": ((b"", V, b"\x06", ID4, b""), LmqMessage(T.RESPONSE, ID4)),
    "DEREGISTER": (
        (b"", V, b"\x03", b"WORKER", b"\x09", b""),
        LmqMessage(T.EXEC, b"WORKER", (b"\x09",)),
    ),
    "INCREMENT": ((b"", V, b"\x03", ID4, b"\x07", b""), LmqMessage(T.EXEC, ID4, (b"\x07",))),
    "tracked PING": (
        (b"", V, b"\x04", ID8, b"\x01", b""),
        LmqMessage(T.TRACKEXEC, ID8, (b"\x01",)),
    ),
    "untracked PING": ((b"", V, b"\x03", ID8, b"\x01", b""), LmqMessage(T.EXEC, ID8, (b"\x01",))),
    "PING at the worker": (
        (b"", V, b"\x04", ID8, b"\x01", b"", CLIENT),
        LmqMessage(T.TRACKEXEC, ID8, (b"\x01",), (CLIENT,)),
    ),
    "untracked PING at the worker": (
        (b"", V, b"\x03", ID8, b"\x01", b"", CLIENT),
        LmqMessage(T.EXEC, ID8, (b"\x01",), (CLIENT,)),
    ),
    "answer of the worker": (
        (CLIENT, b"", V, b"\x06", ID8, b""),
        LmqMessage(T.RESPONSE, ID8, (), (), (CLIENT,)),
    ),
    "answer at the client": (
        (b"", V, b"\x06", ID8, b"", WORKER),
        LmqMessage(T.RESPONSE, ID8, (), (WORKER,)),
    ),
    "STREAM": (
        (b"", V, b"\x04", ID4, b"\x0a", b"STREAM_ID", b"1024", b""),
        LmqMessage(T.TRACKEXEC, ID4, (b"\x0a", b"STREAM_ID", b"1024")),
    ),
    "STREAM at the worker": (
        (b"", V, b"\x04", ID4, b"\x0a", b"STREAM_ID", b"1024", b"", CLIENT),
        LmqMessage(T.TRACKEXEC, ID4, (b"\x0a", b"STREAM_ID", b"1024"), (CLIENT,)),
    ),
    "data of 1024 bytes": (
        (CLIENT, b"", V, b"\x06", ID4, STREAM_1024, b""),
        LmqMessage(T.RESPONSE, ID4, (STREAM_1024,), (), (CLIENT,)),
    ),
    "data of 300 bytes over two hops": (
        (CLIENT, b"hop", b"", V, b"\x06", ID4, STREAM_300, b""),
        LmqMessage(T.RESPONSE, ID4, (STREAM_300,), (), (CLIENT, b"hop")),
    ),
    "data at the client": (
        (b"", V, b"\x06", ID4, STREAM_1024, b"", WORKER),
        LmqMessage(T.RESPONSE, ID4, (STREAM_1024,), (WORKER,)),
    ),
    "TRACKADDRESS": (
        (CLIENT, b"", V, b"\x05", ID8, b""),
        LmqMessage(T.TRACKADDRESS, ID8, (), (), (CLIENT,)),
    ),
    "an empty argument": (
        (b"", V, b"\x03", ID8, b"\x01", b"", b"", b"a", b"b"),
        LmqMessage(T.EXEC, ID8, (b"\x01", b""), (b"a", b"b")),
    ),
}


@pytest.mark.rule("RR-1.3", "RR-1.4")
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_frames_both_ways(name):
    frames, message = GOLDEN[name]
    assert read_lmq(frames) == message
    written = write_lmq(
        message.type, message.id, message.arguments, to=message.addresses, hops=message.hops
    )
    assert written == frames


@pytest.mark.rule("RR-6.7")
@pytest.mark.parametrize(
    ("size", "data"),
    [(1, HEAD + block(0, 1)), (300, STREAM_300), (1024, STREAM_1024)],
)
def test_golden_data_of_streams_both_ways(size, data):
    assert pack_stream(size) == data
    assert unpack_stream(data) == size
    # A worker of other origin may divide the bytes in another way.
    odd = HEAD + b"".join(block(offset, 1) for offset in range(size))
    assert unpack_stream(odd) == size


def sent(name: str) -> tuple[bytes, ...]:
    return GOLDEN[name][0]


def greeted(peer: Driven) -> Driven:
    """Let a peer greet as the original programs do."""
    peer.connect()
    assert peer.sent == [sent("PING")]
    peer.get(*sent("PONG"))
    return peer


@pytest.mark.rule("RR-1.2", "RR-2.1", "RR-6.1", "RR-6.3", "RR-6.6")
def test_our_worker_sends_and_takes_the_frames_of_the_original_one():
    roles = {b"\x01": "ping", b"\x0a": "stream"}
    worker = greeted(Driven(RoundRobinWorkerMachine(roles, 10, LinkTimes())))
    ((_, _, kind, id, *others),) = worker.sent
    assert (kind, len(id), others) == (b"\x04", 4, [b"\x08", b"10", b""])
    worker.get(b"", V, b"\x06", id, b"")
    assert worker.machine.registered

    worker.get(*sent("PING at the worker"))
    worker.finish([b""])
    answer, increment = worker.sent
    assert answer == sent("answer of the worker")
    ours, original = read_lmq(increment), GOLDEN["INCREMENT"][1]
    assert (ours.type, ours.arguments, len(ours.id)) == (original.type, original.arguments, 4)
    worker.get(*sent("untracked PING at the worker"))
    worker.finish([b""])
    assert [frames[4] for frames in worker.sent] == [b"\x07"]
    worker.get(*sent("STREAM at the worker"))
    worker.finish([pack_stream(1024)])
    assert worker.sent[0] == sent("data of 1024 bytes")
    worker.get(*sent("PING at its receiver"))
    assert worker.sent == [(CLIENT, *sent("PONG"))]
    worker.feed(Drained())
    assert worker.sent == [sent("DEREGISTER")]


@pytest.mark.rule("RR-2.1", "RR-7.1", "RR-7.5")
def test_our_client_sends_and_takes_the_frames_of_the_original_one():
    client = greeted(Driven(RoundRobinClientMachine()))
    client.feed(Requested(1, (b"\x04", b"\x01")))
    ((*front, id, command, end),) = client.sent
    assert (*front, ID8, command, end) == sent("tracked PING")
    assert len(id) == 8
    client.get(b"", V, b"\x05", id, b"", WORKER)
    assert (client.answers, client.drops) == ([], [])
    client.get(b"", V, b"\x06", id, b"", WORKER)
    assert client.answers == [(1, (), 1)]
    client.feed(Requested(2, (b"\x03", b"\x01")))
    ((*front, _, command, end),) = client.sent
    assert (*front, ID8, command, end) == sent("untracked PING")
    client.feed(Requested(3, (b"\x04", b"\x0a", b"STREAM_ID", b"1024")))
    ((*front, id, command, stream, size, end),) = client.sent
    assert (*front, ID4, command, stream, size, end) == sent("STREAM")
    client.get(b"", V, b"\x06", id, STREAM_1024, b"", WORKER)
    assert client.answers == [(3, (STREAM_1024,), 1)]


@pytest.mark.rule("RR-1.5", "RR-3.2", "RR-3.4", "RR-3.5")
def test_our_server_takes_and_sends_the_frames_of_the_original_one():
    server = Server()
    server.get(*sent("PING"), peer=WORKER)
    assert server.emitted == [(WORKER, sent("PONG"))]
    server.get(*sent("REGISTER"), peer=WORKER)
    assert server.emitted == [(WORKER, sent("answer to REGISTER"))]
    assert server.rows == [(WORKER, 10)]

    for request, passed, answer in (
        ("tracked PING", "PING at the worker", "answer at the client"),
        ("STREAM", "STREAM at the worker", "data at the client"),
    ):
        server.get(*sent(request), peer=CLIENT)
        # In place of the client's address the worker sees a token.
        ((peer, (*front, token)),) = server.emitted
        assert (peer, (*front, CLIENT)) == (WORKER, sent(passed))
        server.get(token, *sent(answer)[:-1], peer=WORKER)
        assert server.emitted == [(CLIENT, sent(answer))]
        server.get(*sent("INCREMENT"), peer=WORKER)
        assert server.emitted == []
        assert server.rows == [(WORKER, 10)]

    server.get(*sent("untracked PING"), peer=CLIENT)
    ((peer, (*front, _)),) = server.emitted
    assert (peer, (*front, CLIENT)) == (WORKER, sent("untracked PING at the worker"))
    server.get(*sent("INCREMENT"), peer=WORKER)
    # An answer to any other address is passed on.
    server.get(*sent("answer of the worker"), peer=WORKER)
    assert server.emitted == [(CLIENT, sent("answer at the client"))]
    server.get(*sent("DEREGISTER"), peer=WORKER)
    assert (server.emitted, server.rows) == ([], [])
