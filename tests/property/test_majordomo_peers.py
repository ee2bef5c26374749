"""Any messages at clients and workers of Majordomo: no crash, one answer, one request at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_majordomo_broker import FRAMES, SHAPED
from tests.unit.gateways.foreign import Driven
from tests.unit.gateways.majordomo import DISCONNECT, HEARTBEAT, C, W
from wmp.actions import Reconnect
from wmp.events import Connected
from wmp.foreign import Arrived, Emit, Requested, Unsent, Withdrawn
from wmp.gateways.majordomo.client_machine import MajordomoClientMachine
from wmp.gateways.majordomo.pipelined_machine import MajordomoPipelinedMachine
from wmp.gateways.majordomo.worker_machine import MajordomoTimes, MajordomoWorkerMachine

READY = (b"", W, b"\x01", b"echo")
MESSAGES = FRAMES | SHAPED
PORTS = st.integers(0, 1)


class Socket:
    """The messages that left over one socket since its start, and over its newest connection."""

    def __init__(self) -> None:
        self.connected = False
        self.sent: list[tuple[bytes, ...]] = []


def look(machine: Driven, sockets: dict[int, Socket]) -> None:
    """Note the messages and new sockets of the last step, in their order."""
    for action in machine.actions:
        if isinstance(action, Reconnect):
            sockets[action.link] = Socket()
        elif isinstance(action, Emit):
            assert sockets[action.port].connected, "a message for a socket without a connection"
            sockets[action.port].sent.append(tuple(action.frames))


@pytest.mark.rule("MDP-6.1", "MDP-6.2", "MDP-6.4", "MDP-6.5", "MDP-6.6")
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("get"), PORTS, MESSAGES),
            st.tuples(st.sampled_from(["connect", "connect", "reply", "reply", "unsent"]), PORTS),
            st.tuples(st.sampled_from(["ask", "ask", "withdraw", "wait"]), st.integers(0, 5)),
        ),
        max_size=60,
    )
)
def test_a_client_answers_each_request_once_and_has_one_on_each_socket(steps):
    client = Driven(MajordomoClientMachine(1.0, 2, sockets=2))
    sockets = {0: Socket()}
    number, open_ = 0, set()
    for step, *arguments in steps:
        client.actions = []
        if step == "ask":
            number += 1
            open_.add(number)
            client.feed(Requested(number, (b"echo", b"%d" % number)))
        elif step == "withdraw":
            open_.discard(number - arguments[0])
            client.feed(Withdrawn((number - arguments[0],)))
        elif step == "wait":
            client.wait(0.4 * arguments[0])
        elif (port := arguments[0]) in sockets:
            if step == "connect":
                sockets[port].connected = True
                client.feed(Connected(port))
            elif step == "unsent" and sockets[port].sent:
                sockets[port].sent.pop()
                client.feed(Unsent(port, b""))
            elif step == "reply" and sockets[port].sent:
                # The reply to the oldest request on this socket.
                client.feed(Arrived(port, b"", sockets[port].sent.pop(0)))
                for id, frames, _ in client.answers:
                    assert frames == (b"%d" % id,), "the reply to another request"
            elif step == "get" and arguments[1][:3] != (b"", C, b"echo"):
                client.feed(Arrived(port, b"", arguments[1]))
                assert client.answers == []
        for id, _, _ in client.answers:
            open_.remove(id)
        look(client, sockets)
        assert all(len(socket.sent) <= 1 for socket in sockets.values())


@pytest.mark.rule("MDP-6.3", "MDP-6.5", "MDP-6.6")
@given(
    steps=st.lists(
        st.tuples(st.just("get"), MESSAGES)
        | st.tuples(st.sampled_from(["ask", "ask", "reply", "connect", "unsent", "wait"])),
        max_size=60,
    )
)
def test_a_stream_answers_or_loses_each_request_once(steps):
    stream = Driven(MajordomoPipelinedMachine(1.0, window=3))
    sockets = {0: Socket()}
    requests = ended = 0
    for step, *arguments in steps:
        stream.actions = []
        if step == "ask":
            requests += 1
            stream.feed(Requested(requests, (b"echo", b"%d" % requests)))
        elif step == "wait":
            stream.wait(0.7)
        elif step == "connect":
            sockets[0].connected = True
            stream.feed(Connected(0))
        elif step == "unsent" and sockets[0].sent:
            stream.feed(Unsent(0, b""))
        elif step == "reply" and sockets[0].sent:
            stream.feed(Arrived(0, b"", sockets[0].sent.pop(0)))
            assert len(stream.answers) == 1
        elif step == "get" and arguments[0][:3] != (b"", C, b"echo"):
            stream.feed(Arrived(0, b"", arguments[0]))
            assert stream.answers == []
        ended += sum(1 if frames is not None else count for _, frames, count in stream.answers)
        look(stream, sockets)
        assert len(sockets[0].sent) <= 3
        seen = stream.machine.statistics()
        assert requests == ended + seen.waiting + len(sockets[0].sent)


@pytest.mark.rule("MDP-5.1", "MDP-5.3", "MDP-5.4", "MDP-5.7", "MDP-5.11")
@given(
    busy=st.booleans(),
    steps=st.lists(
        st.tuples(st.just("get"), MESSAGES)
        | st.tuples(st.sampled_from(["connect", "request", "request", "beat", "disconnect"]))
        | st.tuples(st.sampled_from(["finish", "finish", "fail", "wait", "wait"])),
        max_size=60,
    ),
)
def test_a_worker_begins_with_ready_and_answers_what_it_was_asked(busy, steps):
    times = MajordomoTimes(1.0, 3.0, 0.5, 2.0, while_busy=busy)
    worker = Driven(MajordomoWorkerMachine(b"echo", times))
    sockets = {0: Socket()}
    number, running = 0, False
    requests: set[bytes] = set()
    """Addresses on this connection without a reply."""
    for step, *arguments in steps:
        worker.actions = []
        before = sockets[0]
        if step == "connect":
            sockets[0].connected = True
            worker.feed(Connected(0))
        elif step == "wait":
            worker.wait(0.9)
        elif step in ("finish", "fail"):
            if running:
                running = False
                worker.finish(b"done") if step == "finish" else worker.fail()
        elif not sockets[0].connected:
            continue
        elif step == "get":
            if len(arguments[0]) > 3 and arguments[0][:3] == (b"", W, b"\x02"):
                requests.add(arguments[0][3])
            worker.get(*arguments[0])
        elif step == "request":
            number += 1
            requests.add(b"%d" % number)
            worker.get(b"", W, b"\x02", b"%d" % number, b"", b"x")
        else:
            worker.get(*(HEARTBEAT if step == "beat" else DISCONNECT))
        for _ in worker.runs:
            assert not running, "one request at a time"
            running = True
        look(worker, sockets)
        for frames in before.sent:
            if frames[2] == b"\x03":
                requests.remove(frames[3])
        if before.sent:
            assert before.sent[0] == READY
            assert before.sent.count(READY) == 1
            del before.sent[1:]
        if sockets[0] is not before:
            requests.clear()
