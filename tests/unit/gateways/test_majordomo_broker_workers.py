"""The broker of Majordomo: its workers, their requests and their signs of life."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.unit.gateways.majordomo import DISCONNECT, HEARTBEAT, Broker, C, W
from wmp.events import Drained
from wmp.foreign import Emit
from wmp.gateways import MajordomoService
from wmp.gateways.common.body import MAX_FRAMES


@pytest.mark.rule("MDP-4.2")
def test_the_worker_that_was_used_least_recently_is_next():
    broker = Broker()
    for peer in (b"w1", b"w2"):
        broker.ready(peer)
    used = []
    for _ in range(4):
        broker.ask(b"c", b"x")
        ((peer, frames),) = broker.emitted
        used.append(peer)
        broker.answer(peer, frames[3], b"y")
    assert used == [b"w1", b"w2", b"w1", b"w2"]


@pytest.mark.rule("MDP-4.2", "MDP-4.3")
def test_a_worker_has_one_request_at_a_time_and_each_has_its_own_token():
    broker = Broker()
    broker.ready(b"w")
    broker.ask(b"c", b"1")
    first, _ = broker.given(b"w")
    broker.ask(b"c", b"2")
    assert broker.emitted == []
    broker.answer(b"w", first, b"one")
    second = broker.emitted[1][1][3]
    assert first != second


@pytest.mark.rule("MDP-4.8")
@pytest.mark.parametrize(
    "frames",
    [
        (b"", W, b"\x01", b"echo"),
        (b"", W, b"\x01", b"other"),
        (b"", W, b"\x02", b"c", b"", b"x"),
        (b"", W, b"\x03", b"c", b"", b"x"),
    ],
    ids=["second READY", "another service", "REQUEST", "REPLY without a request"],
)
def test_a_command_in_broken_order_gets_disconnect_and_nothing_more(frames):
    broker = Broker()
    broker.ready(b"w")
    broker.get(*frames, peer=b"w")
    assert broker.emitted == [(b"w", DISCONNECT)]
    broker.ask(b"c", b"x")
    assert broker.emitted == []
    for message in ((b"", W, b"\x01", b"echo"), HEARTBEAT, frames, (b"junk",)):
        broker.get(*message, peer=b"w")
        assert broker.emitted == []
    broker.leave(b"w")
    broker.ready(b"w")  # a new connection may have the same routing id
    assert broker.given(b"w")[1] == (b"x",)


@pytest.mark.rule("MDP-4.8")
@pytest.mark.parametrize(
    "frames", [HEARTBEAT, (b"", W, b"\x03", b"c", b"", b"x"), (b"", W, b"\x01", b"x" * 256)]
)
def test_an_unknown_worker_that_does_not_send_ready_gets_disconnect_once(frames):
    broker = Broker()
    broker.get(*frames, peer=b"w")
    assert broker.emitted == [(b"w", DISCONNECT)]
    broker.get(*frames, peer=b"w")
    assert broker.emitted == []
    assert broker.door.statistics().disconnected == 1


@pytest.mark.rule("MDP-4.9", "MDP-1.5", "MDP-1.2", "MDP-1.6")
@pytest.mark.parametrize(
    "frames",
    [
        (b"",),
        (b"x",),
        (b"", b"MDPX01", b"x"),
        (b"", W, b"\x09"),
        (b"", W),
        (b"hop", b"", W, b"\x04"),
    ],
)
def test_an_invalid_message_is_dropped_and_ends_a_known_worker(frames):
    broker = Broker()
    broker.get(*frames, peer=b"stranger")
    assert broker.emitted == []
    assert broker.counted == {"invalid": 1}
    broker.ready(b"w")
    broker.get(*frames, peer=b"w")
    assert broker.emitted == [(b"w", DISCONNECT)]
    assert broker.states == {}


@pytest.mark.rule("MDP-1.2", "MDP-4.9")
def test_a_message_of_too_many_frames_is_named_and_ends_a_known_worker():
    broker = Broker()
    frames = (b"", W, b"\x03", b"c", b"", *[b"x"] * (MAX_FRAMES - 4))
    broker.get(*frames, peer=b"stranger")
    assert broker.emitted == []
    assert broker.counted == {"too many frames": 1}
    (cause,) = broker.causes
    assert cause == "dropped a message of 1025 frames from stranger; expected 1024 at most"
    broker.ready(b"w")
    broker.get(*frames, peer=b"w")
    assert broker.emitted == [(b"w", DISCONNECT)]
    assert broker.states == {}


@pytest.mark.rule("MDP-1.4", "MDP-4.8")
def test_a_worker_of_a_service_without_a_role_is_refused_by_name():
    broker = Broker()
    broker.get(b"", W, b"\x01", b"\xff" * 86, peer=b"w")
    assert broker.emitted == [(b"w", DISCONNECT)]
    assert broker.counted == {"unusable service": 1}
    assert "of 86 bytes; expected a name whose role has 1 to 255 bytes" in broker.causes[0]


@pytest.mark.rule("MDP-4.3", "MDP-4.4", "MDP-3.3")
def test_the_request_of_a_worker_that_left_goes_to_another():
    broker = Broker()
    broker.ready(b"w1")
    broker.ask(b"c", b"x")
    token, _ = broker.given(b"w1")
    broker.ready(b"w2")
    broker.leave(b"w1")
    fresh, body = broker.given(b"w2")
    assert body == (b"x",)
    assert fresh != token
    broker.answer(b"w2", token, b"stale")  # not its token
    assert broker.emitted == [(b"w2", DISCONNECT)]
    broker.ready(b"w3")
    last, _ = broker.given(b"w3")
    broker.answer(b"w3", last, b"y")
    assert broker.emitted == [(b"c", (b"", C, b"echo", b"y"))]
    assert broker.door.statistics().lost == 2


@pytest.mark.rule("MDP-4.4", "MDP-4.11", "MDP-4.8")
@pytest.mark.parametrize("how", ["DISCONNECT", "READY", "not sent"])
def test_a_busy_worker_loses_its_request(how):
    broker = Broker()
    broker.ready(b"w1")
    broker.ready(b"w2")
    broker.ask(b"c", b"x")
    broker.given(b"w1")
    if how == "DISCONNECT":
        broker.get(*DISCONNECT, peer=b"w1")
    elif how == "READY":
        broker.ready(b"w1")
    else:
        broker.refuse(b"w1")
    assert [peer for peer, frames in broker.emitted if frames[2] == b"\x02"] == [b"w2"]
    assert ((b"w1", DISCONNECT) in broker.emitted) is (how == "READY")


@pytest.mark.rule("MDP-4.5", "MDP-4.6")
def test_heartbeats_go_both_ways_and_a_silent_idle_worker_is_forgotten():
    broker = Broker(heartbeat=1.0, liveness=3)
    broker.ready(b"w")
    broker.wait(1.0)
    assert broker.emitted == [(b"w", HEARTBEAT)]
    broker.wait(1.5)
    assert broker.emitted == []  # the worker has sent nothing since
    broker.beat(b"w")
    broker.wait(1.0)
    assert broker.emitted == [(b"w", HEARTBEAT)]
    broker.wait(2.5)
    assert broker.states == {}
    assert broker.counted == {"silent worker": 1}
    broker.ask(b"c", b"x")
    assert broker.emitted == []
    broker.beat(b"w")
    assert broker.emitted == [(b"w", DISCONNECT)]


@pytest.mark.rule("MDP-4.5")
def test_a_worker_that_gets_requests_gets_no_heartbeats():
    broker = Broker(heartbeat=1.0)
    broker.ready(b"w")
    seen = []
    for _ in range(10):
        broker.ask(b"c", b"x")
        broker.answer(b"w", broker.given(b"w")[0], b"y")
        broker.wait(0.5)
        seen += broker.emitted
    assert seen == []


@pytest.mark.rule("MDP-4.7")
@pytest.mark.parametrize("busy", ["honest", "strict"])
def test_a_busy_worker_may_be_silent_unless_the_setting_is_strict(busy):
    broker = Broker(heartbeat=1.0, liveness=3, busy=busy)
    broker.ready(b"w")
    broker.ask(b"c", b"x")
    token, _ = broker.given(b"w")
    broker.wait(30.0)
    assert broker.emitted[:1] == [(b"w", HEARTBEAT)]
    if busy == "strict":
        assert broker.states == {}
        broker.ready(b"v")
        assert broker.given(b"v")[1] == (b"x",)
    else:
        assert broker.emitted == [(b"w", HEARTBEAT)]
        broker.answer(b"w", token, b"y")
        assert broker.emitted == [(b"c", (b"", C, b"echo", b"y"))]


@pytest.mark.rule("MDP-4.7")
def test_a_strict_broker_keeps_a_busy_worker_that_sends_heartbeats():
    broker = Broker(heartbeat=1.0, liveness=3, busy="strict")
    broker.ready(b"w")
    broker.ask(b"c", b"x")
    for _ in range(10):
        broker.wait(1.0)
        broker.beat(b"w")
    assert broker.states == {"busy": 1}


@pytest.mark.rule("MDP-4.12", "MDP-3.4")
@pytest.mark.parametrize("how", ["busy_timeout", "timeout"])
def test_a_worker_that_takes_too_long_gets_no_request_before_it_answers(how):
    settings = {"busy_timeout": 1.0} if how == "busy_timeout" else {}
    timeout = 1.0 if how == "timeout" else None
    broker = Broker(
        services=[MajordomoService("*", max_worker_losses=0, timeout=timeout)], **settings
    )
    broker.ready(b"w")
    broker.ask(b"c", b"slow")
    token, _ = broker.given(b"w")
    if how == "busy_timeout":
        broker.answer(b"w", token, b"fast")
        assert len(broker.door.workers.timers) == 2  # of the worker, and of all requests
        broker.ask(b"c", b"slow")
        token, _ = broker.given(b"w")
    broker.wait(1.5)
    assert broker.states == {"late": 1}
    assert broker.door.statistics().waiting == 0
    broker.ask(b"c", b"next")
    assert broker.emitted == []
    broker.answer(b"w", token, b"too late")
    assert broker.given(b"w")[1] == (b"next",)
    assert broker.counted["late reply"] == 1


@pytest.mark.rule("MDP-4.2")
def test_a_service_whose_name_is_the_short_form_of_another_has_workers_of_its_own():
    broker = Broker(linger=1.0)
    long = "x" * 100
    broker.ready(b"w", long.encode())
    (group,) = broker.door.attendances()
    short = group.removeprefix("majordomo/")
    broker.ready(b"v", short.encode())
    broker.ask(b"c", b"1", service=long.encode())
    broker.given(b"w")
    broker.ask(b"c", b"2", service=short.encode())
    broker.given(b"v")
    assert {len(workers) for workers in broker.door.attendances().values()} == {1}
    broker.leave(b"w")
    broker.leave(b"v")
    broker.wait(2.0)
    assert broker.door.attendances() == {}


@pytest.mark.rule("MDP-4.13")
def test_workers_above_the_limit_are_dropped():
    broker = Broker(max_workers=1)
    broker.ready(b"w1")
    broker.ask(b"c", b"x")
    broker.ready(b"w2")
    assert (broker.emitted, broker.counted) == ([], {"limit": 1})


@pytest.mark.rule("MDP-4.15")
def test_an_idle_worker_that_never_replied_makes_way_at_the_limit():
    broker = Broker(max_workers=2)
    broker.ready(b"good")
    broker.ask(b"c", b"x")
    token, _ = broker.given(b"good")
    broker.answer(b"good", token, b"y")
    broker.ready(b"idle", b"nobody")
    broker.ready(b"late")
    assert broker.emitted == [(b"idle", DISCONNECT)]
    assert broker.states == {"idle": 2}
    assert broker.door.statistics().staff["echo"] == 2


@pytest.mark.rule("MDP-4.15")
def test_workers_that_never_answer_get_one_turn_of_four():
    broker = Broker()
    broker.ready(b"good")
    broker.ask(b"c", b"x")
    token, _ = broker.given(b"good")
    broker.answer(b"good", token, b"y")
    given = []
    for number in range(40):
        broker.ready(b"eater%d" % number)
    for _ in range(60):
        broker.ask(b"c", b"x")
        ((peer, frames),) = broker.emitted
        given.append(peer)
        if peer == b"good":
            broker.answer(b"good", frames[3], b"y")
    assert given[10:].count(b"good") >= 35


@pytest.mark.rule("MDP-4.13", "MDP-4.10")
def test_services_above_the_limit_are_dropped_until_one_is_forgotten():
    broker = Broker(max_workers=2, linger=10.0)
    for service in (b"a", b"b", b"c"):
        broker.ready(service, service)
        broker.leave(service)
    assert broker.counted == {"limit": 1}
    broker.ready(b"b", b"b")
    assert broker.states == {"idle": 1}
    broker.wait(11.0)
    broker.ready(b"c", b"c")
    assert broker.door.statistics().staff["c"] == 1


@pytest.mark.rule("MDP-7.1", "MDP-4.8")
def test_a_worker_of_a_reserved_service_is_disconnected():
    broker = Broker()
    broker.ready(b"w", b"mmi.service")
    assert broker.emitted == [(b"w", DISCONNECT)]
    assert broker.states == {}


@pytest.mark.rule("MDP-4.10", "MDP-3.6", "MDP-4.1")
def test_a_service_without_workers_is_forgotten_and_may_come_again():
    broker = Broker(linger=10.0)
    for round in range(3):
        peer = b"w%d" % round
        broker.ready(peer)
        assert list(broker.machine.groups) == ["majordomo/echo"]
        broker.leave(peer)
        broker.wait(5.0)
        broker.ready(peer)  # back in time
        broker.ask(b"c", b"x")
        broker.answer(peer, broker.given(peer)[0], b"y")
        broker.leave(peer)
        broker.wait(12.0)
        assert broker.machine.groups == {}
        assert broker.machine._by_number == {}
        assert broker.door.statistics().staff == {}
    broker.manager.check_invariants()


@pytest.mark.rule("MDP-3.6")
def test_many_services_without_workers_are_forgotten():
    broker = Broker()
    for number in range(1300):
        broker.ask(b"c", b"x", service=b"service %d" % number)
    broker.leave(b"c")
    assert broker.door.statistics().waiting == 0
    assert len(broker.door.requests._services) <= 1025
    assert len(broker.door.requests.timers) <= 1025


def test_a_group_has_a_greater_epoch_when_its_gateway_was_started_again():
    first, second = Broker(), Broker()
    second.machine.terms = evolve(second.machine.terms, epoch=first.machine.terms.epoch + 1)
    for number in range(100):
        first.ready(b"%d" % number, b"service %d" % number)
    second.ready(b"w", b"service 99")
    epochs = [
        broker.machine.groups["majordomo/service 99"].settings.epoch for broker in (first, second)
    ]
    assert epochs[0] < epochs[1]


def test_the_signs_of_life_of_groups_inside_the_gateway_are_few():
    broker = Broker()
    broker.ready(b"w")
    (group,) = broker.machine.groups.values()
    assert group.settings.ping == 2.0  # a third of the expiry, so that none expires falsely
    broker.wait(60.0)
    broker.ready(b"v")
    broker.ask(b"c", b"x")
    assert broker.given(b"v")[1] == (b"x",)


@pytest.mark.rule("MDP-4.14", "MDP-2.2")
def test_a_broker_that_ends_finishes_its_requests_and_takes_leave():
    broker = Broker()
    broker.ready(b"w")
    broker.ask(b"c", b"x")
    token, _ = broker.given(b"w")
    broker.feed(Drained())
    assert not broker.halted
    broker.ask(b"c", b"late")
    assert broker.counted == {"draining": 1}
    broker.answer(b"w", token, b"y")
    broker.wait(30.0) if not broker.halted else None
    sent = [(action.peer, action.frames) for action in broker.actions if isinstance(action, Emit)]
    assert (b"c", (b"", C, b"echo", b"y")) in sent
    assert (b"w", DISCONNECT) in sent
    assert broker.halted


@pytest.mark.rule("MDP-4.8")
def test_a_small_broker_remembers_more_connections_than_workers():
    broker = Broker(max_workers=1)
    for peer in (b"a", b"b", b"c"):
        broker.beat(peer)
        assert broker.emitted == [(peer, DISCONNECT)]
    broker.ready(b"a")
    assert broker.emitted == []
    assert broker.counted["disconnected"] == 1


@pytest.mark.rule("MDP-4.12")
def test_a_heartbeat_after_busy_timeout_makes_a_worker_idle_and_an_earlier_one_does_not():
    broker = Broker(busy_timeout=10.0, services=[MajordomoService("*", max_worker_losses=0)])
    broker.ready(b"w")
    broker.ask(b"c", b"first")
    token, _ = broker.given(b"w")
    for _ in range(4):
        broker.wait(2.4)
        broker.beat(b"w")
        assert broker.states == {"busy": 1}
    broker.wait(1.0)
    assert broker.states == {"late": 1}
    broker.beat(b"w")
    assert broker.states == {"idle": 1}
    assert broker.counted["unanswered request"] == 1

    broker.ask(b"c", b"next")
    next_token, body = broker.given(b"w")
    assert body == (b"next",)
    broker.answer(b"w", token, b"too late")  # of the first request: no reason for DISCONNECT
    assert (broker.emitted, broker.states) == ([], {"busy": 1})
    assert broker.counted["late reply"] == 1
    broker.answer(b"w", next_token, b"done")
    assert broker.emitted == [(b"c", (b"", C, b"echo", b"done"))]
