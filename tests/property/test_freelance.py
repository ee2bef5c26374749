"""Any frames at the clients of Freelance: no crash, no wrong reply, one end of each request."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.gateways.foreign import Driven
from wmp.events import Connected
from wmp.foreign import Arrived, Emit, Left, Requested, Unsent, Withdrawn
from wmp.gateways.common.request_machine import LazyClientMachine
from wmp.gateways.freelance.agent_machine import AgentClientMachine
from wmp.gateways.freelance.shotgun_machine import ShotgunClientMachine

PORTS = st.integers(0, 2)
WORDS = (b"", b"0", b"1", b"2", b"PING", b"PONG", b"a")
FRAMES = st.lists(st.sampled_from(WORDS) | st.binary(max_size=9), max_size=8).map(tuple)
STEPS = st.one_of(
    st.tuples(st.just("get"), PORTS, FRAMES),
    st.tuples(st.sampled_from(["connect", "unsent", "left", "reply"]), PORTS, st.none()),
    st.tuples(st.sampled_from(["request", "withdraw", "wait"]), st.just(0), st.none()),
)
CLIENTS = {
    "failover": lambda: LazyClientMachine(1.0, 3, 3),
    "shotgun": lambda: ShotgunClientMachine(2.5),
    "agent": lambda: AgentClientMachine(3.0, 2.0, 6.0),
}


def reply_to(frames):
    """Return the reply of a server that has got a request, and None for any other message."""
    return None if len(frames) < 2 else (*frames[:-1], b"reply to " + frames[-1])


@pytest.mark.rule("FREE-1.4", "FREE-3.2", "FREE-4.6")
@pytest.mark.parametrize("model", CLIENTS)
@given(steps=st.lists(STEPS, max_size=40))
@example(steps=[("request", 0, None), ("connect", 0, None), ("reply", 0, None), ("left", 0, None)])
def test_each_request_ends_once_with_its_own_reply(model, steps):
    client = Driven(CLIENTS[model]())
    open_: dict[int, bytes] = {}
    waiting: dict[int, tuple[bytes, ...]] = {}
    number = 0
    for what, port, frames in steps:
        honest = False
        if what == "get":
            client.feed(Arrived(port, b"", frames))
        elif what == "connect":
            waiting.pop(port, None)
            client.feed(Connected(port))
        elif what == "unsent":
            client.feed(Unsent(port, b""))
        elif what == "left":
            waiting.pop(port, None)
            if model != "agent":  # only an agent gets the ends of its connections
                continue
            client.feed(Left(port, b""))
        elif what == "reply" and port in waiting:
            honest = True
            client.feed(Arrived(port, b"", waiting.pop(port)))
        elif what == "request":
            number += 1
            open_[number] = b"body %d" % number
            client.feed(Requested(number, (open_[number],)))
        elif what == "withdraw" and open_:
            client.feed(Withdrawn((open_.popitem()[0],)))
        elif what == "wait":
            client.wait(0.7)
        else:
            continue
        for id, server, _ in client.answers:
            body = open_.pop(id)  # a second end is a KeyError
            assert not honest or server == (b"reply to " + body,)
        for action in client.actions:
            if isinstance(action, Emit) and (reply := reply_to(action.frames)) is not None:
                waiting[action.port] = reply
    seen = client.machine.statistics()
    assert seen.requests == number
    client.wait(60.0)
    ended = [id for id, _, _ in client.answers]
    assert sorted(ended) == sorted(open_)
