"""Any messages at a Majordomo broker: no crash, one request at a time, one reply, its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.gateways.majordomo import DISCONNECT, HEARTBEAT, Broker, C, W
from wmp.gateways import MajordomoService

WORDS = (b"", C, W, *(bytes((n,)) for n in range(1, 7)), b"echo", b"mmi.service", b"a")
FRAMES = st.lists(st.sampled_from(WORDS) | st.binary(max_size=9), max_size=9).map(tuple)
SHAPED = st.tuples(st.just(b""), st.sampled_from([C, W]), FRAMES).map(
    lambda answer: (answer[0], answer[1], *answer[2])
)
PEERS = st.sampled_from([b"A", b"B", b"C"])
STEPS = st.one_of(
    st.tuples(PEERS, FRAMES | SHAPED),
    st.tuples(PEERS, st.sampled_from(["ask", "ask", "ready", "ready", "reply", "reply"])),
    st.tuples(PEERS, st.sampled_from(["replay", "steal", "beat", "leave", "refuse", "wait"])),
)


@pytest.mark.rule("MDP-2.1", "MDP-4.2", "MDP-4.3", "MDP-4.8", "MDP-1.5", "MDP-4.9")
@pytest.mark.parametrize("busy", ["honest", "strict"])
@given(steps=st.lists(STEPS, max_size=60))
def test_each_request_gets_one_reply_at_most_and_each_worker_one_request(busy, steps):
    broker = Broker(
        busy=busy,
        busy_timeout=20.0,
        max_workers=2,
        services=[MajordomoService("*", max_worker_losses=2)],
    )
    requests: dict[bytes, set[bytes]] = {}
    """Bodies without a reply, by client."""
    has: dict[bytes, tuple[bytes, bytes]] = {}
    """Token and body of the newest request of each worker."""
    open_: set[bytes] = set()
    """Workers that have a request and have not answered it."""
    expelled: set[bytes] = set()
    number = 0
    for peer, step in steps:
        broker.actions = []
        if isinstance(step, tuple):
            broker.get(*step, peer=peer)
            open_.discard(peer)
        elif step == "ask":
            number += 1
            client = b"client " + peer
            requests.setdefault(client, set()).add(b"%d" % number)
            broker.ask(client, b"%d" % number)
        elif step == "ready":
            broker.ready(peer)
        elif step in ("reply", "replay", "steal") and has:
            owner = peer if step != "steal" else min(has)
            if owner in has:
                token, body = has[owner]
                if owner == peer:
                    open_.discard(peer)
                broker.answer(peer, token, b"did " + body)
        elif step == "beat":
            broker.beat(peer)
        elif step in ("leave", "refuse"):
            open_.discard(peer)
            expelled.discard(peer)
            broker.leave(peer) if step == "leave" else broker.refuse(peer)
        elif step == "wait":
            broker.wait(2.0)
        for to, frames in broker.emitted:
            if frames == DISCONNECT:
                assert to not in expelled
                expelled.add(to)
                open_.discard(to)
            elif frames[1] == W and frames != HEARTBEAT:
                assert frames[:3] == (b"", W, b"\x02")
                assert to not in open_, "a worker has one request at a time"
                assert to not in expelled, "nothing after DISCONNECT"
                has[to] = frames[3], frames[5]
                open_.add(to)
            elif frames[1] == C and frames[2] == b"echo" and to.startswith(b"client"):
                requests[to].remove(frames[3].removeprefix(b"did "))
    broker.manager.check_invariants()
    states = broker.states
    assert sum(states.values()) <= 2
    seen = broker.door.statistics()
    assert seen.waiting <= number + len(steps)
