"""Any frames at a client, server or worker of another protocol: no crash, no wrong reply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.gateways.foreign import Driven
from wmp.events import Ticked
from wmp.foreign import Left, Requested, Unsent, Withdrawn
from wmp.gateways.common.ping_pong_wire import PingPongWire
from wmp.gateways.common.pirate_wire import ParanoidWire, SimpleWire
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.common.server_machine import LazyServerMachine
from wmp.gateways.common.worker_machine import ForeignWorkerMachine, SignTimes

WORDS = (b"", b"\x01", b"\x02", b"READY", b"PING", b"PONG", b"EXIT", b"DISCONNECT", b"a", b"b")
FRAMES = st.lists(st.sampled_from(WORDS) | st.binary(max_size=9), min_size=1, max_size=12).map(
    tuple
)
TIMES = SignTimes(1.0, 3.0, 1.0, 32.0)
WORKERS = {
    "simple": lambda: ForeignWorkerMachine(SimpleWire(), limit=3),
    "paranoid": lambda: ForeignWorkerMachine(ParanoidWire(), TIMES, limit=3),
    "ping-pong": lambda: ForeignWorkerMachine(PingPongWire(), SignTimes(1.0, 3.0), limit=3),
}


@pytest.mark.rule("PIRATE-1.3", "PING-1.2")
@pytest.mark.parametrize("name", WORKERS)
@given(steps=st.lists(FRAMES | st.sampled_from(["connect", "finish", "fail", "wait"]), max_size=30))
def test_a_worker_answers_each_request_once_whatever_arrives(name, steps):
    worker = Driven(WORKERS[name]())
    controls = {worker.machine.wire.ready, worker.machine.wire.sign, worker.machine.wire.goodbye}
    running: list[bytes] = []
    replies = 0
    for step in steps:
        worker.actions = []
        if isinstance(step, tuple):
            worker.get(*step)
        elif step == "connect":
            worker.connect()
        elif step == "wait":
            worker.wait(1.5)
        elif running:
            running.pop()
            if step == "fail":
                worker.fail()
            else:
                worker.finish(b"result" if worker.codec == "" else [b"result"] * 2)
        running += [payload for _, payload in worker.runs]
        assert len(running) <= 1
        replies += sum(frames not in controls for frames in worker.sent)
        if worker.halted:
            break
    seen = worker.machine.statistics()
    assert replies == seen.replies <= seen.requests
    assert seen.requests == seen.replies + seen.failed + len(running)


@pytest.mark.rule("PIRATE-3.1", "PIRATE-1.3")
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([b"A", b"B"]), FRAMES | st.sampled_from(["finish", "leave"])),
        max_size=30,
    )
)
def test_a_server_sends_each_reply_to_the_asker_with_its_envelope(steps):
    server = Driven(LazyServerMachine(slots=2, limit=4, as_list=True))
    requests: dict[bytes, list[tuple[bytes, ...]]] = {b"A": [], b"B": []}
    running: list[int] = []
    lanes = 0
    for peer, step in steps:
        if step == "leave":
            server.feed(Left(0, peer))
            requests[peer].clear()
        elif step == "finish":
            if not running:
                continue
            server.finish([b"reply"], lane=running.pop(0))
        else:
            server.get(*step, peer=peer)
            if not server.drops:
                requests[peer].append(step[: step.index(b"") + 1])
        running += range(lanes + 1, lanes + 1 + len(server.runs))
        lanes += len(server.runs)
        assert len(running) <= 2
        for action in server.actions:
            if server.sent and hasattr(action, "frames"):
                assert action.frames[-1] == b"reply"
                requests[action.peer].remove(action.frames[:-1])


@pytest.mark.rule("PIRATE-1.3", "PIRATE-2.2")
@given(
    steps=st.lists(
        FRAMES | st.sampled_from(["request", "withdraw", "connect", "wait", "unsent", "tick"]),
        max_size=40,
    )
)
def test_a_client_ends_each_request_once_and_in_order(steps):
    client = Driven(LazyClientMachine(1.0, 2))
    open_: list[int] = []
    number = 0
    for step in steps:
        if isinstance(step, tuple):
            client.get(*step)
        elif step == "request":
            number += 1
            open_.append(number)
            client.feed(Requested(number, (b"%d" % number,)))
        elif step == "withdraw" and open_:
            client.feed(Withdrawn((open_.pop(len(open_) // 2),)))
        elif step == "connect":
            client.connect()
        elif step == "wait":
            client.wait(0.7)
        elif step == "unsent":
            client.feed(Unsent(0, b""))
        else:
            client.feed(Ticked())
        for id, frames, tries in client.answers:
            assert id == open_.pop(0)
            assert tries <= 2
            assert frames is None or frames == step[1:]
        for frames in client.sent:
            assert frames == (b"", b"%d" % open_[0])
    client.wait(2.0 * (number + 1))
    assert [id for id, _, _ in client.answers] == open_
