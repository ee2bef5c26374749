"""The broker of Majordomo: the requests of clients, with the manager of the gateway."""

from __future__ import annotations

import pytest

from tests.unit.gateways.majordomo import Broker, C
from wmp.foreign import Arrived
from wmp.gateways import MajordomoService
from wmp.gateways.majordomo.wire import MAX_BODY


@pytest.mark.rule("MDP-2.1", "MDP-4.1", "MDP-4.2", "MDP-3.1")
def test_a_request_goes_to_a_worker_and_its_reply_to_the_client():
    broker = Broker()
    broker.ready(b"w")
    assert broker.emitted == []
    broker.ask(b"c", b"Hello", b"", b"world")
    token, body = broker.given(b"w")
    assert body == (b"Hello", b"", b"world")
    assert len(token) == 33
    assert token.decode().isprintable()
    broker.answer(b"w", token, b"olleH", b"")
    assert broker.emitted == [(b"c", (b"", C, b"echo", b"olleH", b""))]
    seen = broker.door.statistics()
    assert (seen.requests, seen.replies, seen.waiting, seen.workers) == (1, 1, 0, {"idle": 1})


@pytest.mark.rule("MDP-4.3")
def test_a_token_names_the_connection_of_its_client():
    broker = Broker()
    broker.ready(b"w")
    tokens = []
    for client in (b"c", b"d", b"c"):
        broker.ask(client, b"x")
        token, _ = broker.given(b"w")
        broker.answer(b"w", token, b"y")
        tokens.append(token)
    assert len(set(tokens)) == 3
    assert tokens[0][16:] == tokens[2][16:] != tokens[1][16:]


@pytest.mark.rule("MDP-2.3", "MDP-1.3", "MDP-2.1")
def test_the_envelope_of_a_request_returns_unchanged():
    broker = Broker()
    broker.ready(b"w")
    broker.get(b"hop", b"correlation", b"", C, b"echo", b"x", peer=b"device")
    token, body = broker.given(b"w")
    assert body == (b"x",)
    broker.answer(b"w", token, b"y")
    assert broker.emitted == [(b"device", (b"hop", b"correlation", b"", C, b"echo", b"y"))]


@pytest.mark.rule("MDP-3.1", "MDP-3.5")
def test_requests_wait_for_a_worker_of_their_service_in_order():
    broker = Broker()
    broker.ask(b"c1", b"1")
    broker.ask(b"c2", b"2")
    broker.ask(b"c3", b"other", service=b"other")
    assert broker.emitted == []
    broker.ready(b"w")
    token, body = broker.given(b"w")
    assert body == (b"1",)
    broker.answer(b"w", token, b"one")
    (reply, run) = broker.emitted
    assert reply == (b"c1", (b"", C, b"echo", b"one"))
    assert run[1][5:] == (b"2",)
    broker.ready(b"v", b"other")
    assert broker.given(b"v")[1] == (b"other",)


@pytest.mark.rule("MDP-1.5", "MDP-1.4", "MDP-2.2")
def test_a_request_without_service_or_body_is_dropped():
    broker = Broker()
    broker.get(b"", C, peer=b"c")
    broker.get(b"", C, b"echo", peer=b"c")
    broker.get(b"", C, b"", b"x", peer=b"c")
    broker.get(b"", C, b"x" * 256, b"x", peer=b"c")
    assert broker.counted == {"invalid": 2, "unusable service": 2}
    assert broker.door.statistics().requests == 0
    (cause,) = broker.causes[-1:]
    assert cause.startswith(f"dropped a request of c for the service {b'x' * 255} of 256 bytes;")


@pytest.mark.rule("MDP-3.3", "MDP-2.2")
def test_a_request_survives_max_worker_losses_and_no_more():
    broker = Broker(
        services=[
            MajordomoService("once", max_worker_losses=0),
            MajordomoService("*", max_worker_losses=1),
        ]
    )
    for service, attempts in ((b"once", 1), (b"echo", 2)):
        broker.ask(b"c", b"x", service=service)
        for number in range(3):
            peer = b"%s %d" % (service, number)
            broker.ready(peer, service)
            runs = [frames for _, frames in broker.emitted if frames[2] == b"\x02"]
            assert len(runs) == (number < attempts), (service, number)
            broker.leave(peer)
            if number == attempts - 1:
                (cause,) = broker.causes
                assert cause.startswith(f"a request for the service {service.decode()!r}: the work")
                assert cause.endswith(
                    "max_worker_losses allows no further loss: its connection ended"
                )
    assert broker.door.statistics().unanswered == {"lost": 2}
    assert broker.door.statistics().waiting == 0


@pytest.mark.rule("MDP-3.5", "MDP-2.2")
def test_requests_for_a_service_without_workers_end_after_a_while():
    broker = Broker(services=[MajordomoService("*", unserved=5.0)])
    broker.ask(b"c", b"1")
    broker.wait(3.0)
    broker.ask(b"c", b"2")
    broker.wait(2.5)
    assert broker.causes == [
        (
            "1 request for the service 'echo': no worker came within 5 s; start a worker of this "
            "service"
        )
    ]
    assert broker.door.statistics().waiting == 1
    broker.ready(b"w")
    token, body = broker.given(b"w")
    assert body == (b"2",)
    broker.ask(b"c", b"3")
    broker.wait(20.0)  # the service has a worker, and its requests wait
    broker.beat(b"w")
    broker.answer(b"w", token, b"two")
    assert broker.emitted[1][1][5:] == (b"3",)
    assert broker.door.statistics().unanswered == {"unserved": 1}


@pytest.mark.rule("MDP-3.2")
def test_requests_above_a_limit_are_dropped():
    broker = Broker(
        services=[MajordomoService("small", limit=2), MajordomoService("*")],
        client_limit=4,
        limit_bytes=2 * 4096 + 5 * 512 + 100,
    )
    for _ in range(3):
        broker.ask(b"c1", b"x", service=b"small")
    assert broker.counted == {"limit": 1}
    assert broker.causes == ["a request for the service 'small' exceeds limit"]
    for _ in range(3):
        broker.ask(b"c1", b"x", service=b"large")
    assert broker.counted == {"limit": 2}
    broker.ask(b"c2", b"x" * 5000, service=b"large")
    assert broker.counted == {"limit": 3}
    assert broker.causes == ["a request for the service 'large' exceeds limit_bytes"]
    broker.get(b"h" * 5000, b"", C, b"large", b"x", peer=b"c2")
    assert broker.counted == {"limit": 4}  # the envelope counts, too
    broker.ask(b"c2", b"x" * 96, service=b"large")
    assert broker.counted == {"limit": 4}
    assert broker.door.statistics().services == {"small": 2, "large": 3}


@pytest.mark.rule("MDP-3.8")
def test_at_the_limit_the_client_with_the_most_requests_makes_way():
    broker = Broker(services=[MajordomoService("*", limit=10)])
    for _ in range(12):
        broker.ask(b"hog", b"x")
    assert broker.counted == {"limit": 2}  # alone, it may use everything
    for _ in range(7):
        broker.ask(b"late", b"y")
    assert broker.counted == {"limit": 4, "share": 5}
    broker.ask(b"third", b"z")
    assert broker.counted == {"limit": 4, "share": 6}
    assert broker.door.statistics().services == {"echo": 10}


@pytest.mark.rule("MDP-3.8")
def test_requests_of_a_client_with_few_go_before_those_of_one_with_many():
    broker = Broker()
    broker.ask(b"other", b"first")
    for number in range(200):
        broker.ask(b"hog", b"%d" % number)
    broker.ask(b"late", b"y")
    broker.ready(b"w")
    bodies = []
    for _ in range(40):
        token, body = broker.given(b"w")
        bodies.append(body[0])
        broker.answer(b"w", token, b"done")
        broker.actions = [
            action for action in broker.actions if getattr(action, "peer", b"") == b"w"
        ]
    assert bodies.index(b"y") <= 18
    hog = [body for body in bodies if body not in (b"first", b"y")]
    assert hog == [b"%d" % number for number in range(len(hog))]  # in their order


@pytest.mark.rule("MDP-3.2", "MDP-2.4")
def test_the_bytes_of_joined_requests_return_to_zero():
    broker = Broker(services=[MajordomoService("*", key="body")])
    for hop in (b"", b"x" * 100, b"y"):
        broker.get(*filter(None, [hop]), b"", C, b"echo", b"x", peer=b"c")
    broker.ready(b"w")
    token, _ = broker.given(b"w")
    broker.answer(b"w", token, b"y")
    assert broker.emitted == [(b"c", (b"y", b"", C, b"echo", b"y"))]
    assert broker.door.requests._bytes.total == 0


@pytest.mark.rule("MDP-1.2")
def test_a_body_fits_into_a_message_to_a_worker():
    broker = Broker()
    broker.ready(b"w")
    broker.ask(b"c", *[b"x"] * (MAX_BODY + 1))
    assert (broker.emitted, broker.counted) == ([], {"too many frames": 1})
    (cause,) = broker.causes
    assert cause.endswith("from c; expected 1022 at most, for the service b'echo'")
    broker.ask(b"c", *[b"x"] * MAX_BODY)
    token, body = broker.given(b"w")
    assert len(body) == MAX_BODY
    broker.answer(b"w", token, *[b"y"] * MAX_BODY)
    assert broker.emitted == [(b"c", (b"", C, b"echo", *[b"y"] * MAX_BODY))]
    hops = [b"%d" % n for n in range(6)]
    broker.get(*hops, b"", C, b"echo", b"x", peer=b"c")
    token, _ = broker.given(b"w")
    broker.answer(b"w", token, *[b"y"] * MAX_BODY)
    assert broker.emitted == []
    assert broker.door.statistics().unanswered == {"too many frames": 1}


@pytest.mark.rule("MDP-3.7")
def test_the_requests_of_a_client_that_left_are_not_begun():
    broker = Broker()
    broker.ready(b"w")
    broker.ask(b"c1", b"1")
    token, _ = broker.given(b"w")
    broker.ask(b"c1", b"2")
    broker.ask(b"c2", b"3")
    broker.leave(b"c1")
    broker.answer(b"w", token, b"one")
    assert broker.given(b"w")[1] == (b"3",)
    assert broker.door.statistics().dropped == {"client left": 2}


@pytest.mark.rule("MDP-3.2", "MDP-3.7")
def test_requests_that_have_their_replies_count_no_more():
    broker = Broker(client_limit=1)
    broker.ready(b"w")
    for number in range(3):
        broker.ask(b"c", b"%d" % number)
        token, _ = broker.given(b"w")
        broker.ask(b"c", b"above the limit")
        assert (broker.drops, broker.causes) == (
            ["limit"],
            ["a request for the service 'echo' exceeds client_limit"],
        )
        broker.answer(b"w", token, b"y")
        assert broker.emitted == [(b"c", (b"", C, b"echo", b"y"))]
    broker.leave(b"c")
    assert broker.counted == {"limit": 3}


@pytest.mark.rule("MDP-3.7")
def test_the_requests_of_a_client_that_left_in_the_same_turn_are_not_begun():
    broker = Broker()
    broker.ready(b"w")
    requests = [(b"c1", b"1"), (b"c2", b"2"), (b"c1", b"3")]
    for peer, body in requests:
        broker.feed(Arrived(0, peer, (b"", C, b"echo", body)))
    broker.feed(Arrived(0, b"c1", (b"", C, b"echo", b"4", b"of two frames")))
    broker.feed(Arrived(0, b"c1", (b"", C, b"other", b"5")))
    broker.leave(b"c1")
    token, body = broker.given(b"w")
    assert body == (b"2",)
    broker.answer(b"w", token, b"two")
    assert broker.emitted == [(b"c2", (b"", C, b"echo", b"two"))]
    assert broker.door.statistics().waiting == 0
    assert sum(broker.manager.statistics().ended.values()) == 1  # the others never were jobs


@pytest.mark.rule("MDP-2.4", "MDP-3.7")
def test_a_request_that_is_sent_again_may_join_the_job_in_progress():
    broker = Broker(services=[MajordomoService("*", key="body")])
    broker.ready(b"w")
    broker.ask(b"c1", b"x")
    token, _ = broker.given(b"w")
    broker.leave(b"c1")
    broker.ask(b"c2", b"x")
    assert broker.emitted == []
    broker.answer(b"w", token, b"y")
    assert broker.emitted == [(b"c2", (b"", C, b"echo", b"y"))]
    assert broker.door.statistics().requests == 2


@pytest.mark.rule("MDP-2.4", "MDP-3.7", "MDP-3.2")
def test_the_reply_to_a_joined_request_of_a_client_that_left_is_dropped():
    broker = Broker(services=[MajordomoService("*", key="body")], client_limit=1)
    broker.ready(b"w")
    broker.ask(b"c1", b"x")
    token, _ = broker.given(b"w")
    broker.ask(b"c2", b"x")
    broker.ask(b"c1", b"y")  # the first request is that of the second client now
    assert broker.counted == {}
    broker.leave(b"c1")
    broker.leave(b"c2")
    broker.answer(b"w", token, b"did x")
    assert broker.emitted[0][0] == b"w"
    assert broker.given(b"w")[1] == (b"y",)  # its client may send it again
    assert broker.counted == {"client left": 1}
    broker.answer(b"w", broker.given(b"w")[0], b"did y")
    assert broker.emitted == []
    assert broker.counted == {"client left": 2}
    assert broker.door.statistics().waiting == 0


@pytest.mark.rule("MDP-7.1", "MDP-7.2", "MDP-7.3")
def test_the_broker_answers_for_itself():
    broker = Broker()

    def reply_to(service, *body):
        broker.ask(b"c", *body, service=service)
        ((peer, frames),) = broker.emitted
        assert (peer, frames[:3]) == (b"c", (b"", C, service))
        return frames[3:]

    assert reply_to(b"mmi.service", b"echo") == (b"404",)
    broker.ask(b"c", b"x")
    assert reply_to(b"mmi.service", b"echo") == (b"404",)  # requested, and not registered
    broker.ready(b"w")
    assert reply_to(b"mmi.service", b"echo") == (b"200",)  # busy by now
    assert reply_to(b"mmi.service", b"echo", b"echo") == (b"404",)
    assert reply_to(b"mmi.service", b"\xff") == (b"404",)
    assert reply_to(b"mmi.other", b"x") == (b"501",)
    assert reply_to(b"mmi.", b"x") == (b"501",)
    broker.leave(b"w")
    assert reply_to(b"mmi.service", b"echo") == (b"404",)
    broker.door.offered = lambda role: role == "echo"  # a WMP worker
    assert reply_to(b"mmi.service", b"echo") == (b"200",)
    assert reply_to(b"mmi.service", b"other") == (b"404",)


@pytest.mark.rule("MDP-3.6", "MDP-3.1")
def test_a_service_with_requests_is_not_forgotten_when_there_are_many():
    broker = Broker(services=[MajordomoService("*", limit=2)])
    for number in range(1100):
        broker.ask(b"c", b"x", service=b"service %d" % number)
    broker.ready(b"w", b"service 7")
    token, _ = broker.given(b"w")
    broker.ask(b"c", b"y", service=b"service 7")
    broker.answer(b"w", token, b"x")
    assert broker.door.statistics().services["service 7"] == 1
    for _ in range(2):
        broker.ask(b"c", b"z", service=b"service 7")
    assert broker.counted == {"limit": 1}


@pytest.mark.rule("MDP-1.4")
def test_a_long_name_of_a_service_is_served():
    broker = Broker(group="g" * 32)
    for name in (b"x" * 255, b"x" * 254, "ü".encode() * 127):
        broker.ready(name[:9] + b"%d" % len(name), name)
        broker.ask(b"c", b"1", service=name)
        ((peer, frames),) = broker.emitted
        broker.answer(peer, frames[3], b"2")
        assert broker.emitted == [(b"c", (b"", C, name, b"2"))]


@pytest.mark.rule("MDP-1.1")
@pytest.mark.parametrize("side", ["clients", "workers"])
def test_a_door_for_one_side_drops_the_other(side):
    broker = Broker(serves=side)
    broker.ready(b"w")
    broker.ask(b"c", b"x")
    seen = broker.door.statistics()
    assert (seen.requests, seen.workers) == ((1, {}) if side == "clients" else (0, {"idle": 1}))
    assert seen.dropped == {"invalid": 1}
