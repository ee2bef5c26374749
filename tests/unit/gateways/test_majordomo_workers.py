"""The worker of Majordomo as a machine."""

from __future__ import annotations

import pytest

from tests.unit.gateways.foreign import Driven
from tests.unit.gateways.majordomo import DISCONNECT, HEARTBEAT, W
from wmp.actions import Interrupt, Run
from wmp.events import Drained, Finished, Ticked
from wmp.gateways.aio import MajordomoWorker
from wmp.gateways.majordomo.aio_worker import _RequestHolder
from wmp.gateways.majordomo.wire import MAX_BODY
from wmp.gateways.majordomo.worker_machine import MajordomoTimes, MajordomoWorkerMachine
from wmp.message import Kind, Outcome

READY = (b"", W, b"\x01", b"echo")


class Worker(Driven):
    """A worker with short times."""

    def __init__(self, **times) -> None:
        chosen = {"heartbeat": 1.0, "silence": 3.0, "reconnect": 1.0, "reconnect_max": 4.0, **times}
        super().__init__(MajordomoWorkerMachine(b"echo", MajordomoTimes(**chosen)))

    def request(self, *body: bytes, address: bytes = b"client") -> list:
        return self.get(b"", W, b"\x02", address, b"", *body)

    def reply(self, *body: bytes, address: bytes = b"client") -> tuple[bytes, ...]:
        return (b"", W, b"\x03", address, b"", *body)


@pytest.fixture
def worker():
    driven = Worker()
    driven.connect()
    assert driven.sent == [READY]
    return driven


@pytest.mark.rule("MDP-5.1", "MDP-5.2", "MDP-5.4")
def test_a_worker_registers_and_answers_at_once(worker):
    worker.request(b"hello", b"", address=b"tok")
    assert [payload for _, payload in worker.runs]
    worker.finish([b"olleh", b""])
    assert worker.sent == [worker.reply(b"olleh", b"", address=b"tok")]
    worker.finish(b"again")
    assert (worker.sent, worker.drops) == ([], ["no such request"])


@pytest.mark.rule("MDP-5.1")
def test_a_worker_sends_ready_once_on_each_connection(worker):
    worker.get(*HEARTBEAT)
    worker.request(b"x")
    worker.finish(b"y")
    assert READY not in worker.sent
    worker.connect()  # the socket may still hold a message of the ended connection
    assert (worker.reopened, worker.sent) == (True, [])
    worker.request(b"late")
    assert worker.runs == []
    worker.connect()
    assert (worker.reopened, worker.sent) == (False, [READY])


@pytest.mark.rule("MDP-5.3")
def test_a_worker_does_one_request_at_a_time(worker):
    worker.request(b"1", address=b"a")
    worker.request(b"2", address=b"b")
    assert worker.runs == []
    worker.finish(b"one")
    assert worker.sent == [worker.reply(b"one", address=b"a")]
    assert worker.runs == [("", b"2")]
    worker.finish(b"two")
    assert worker.sent == [worker.reply(b"two", address=b"b")]


@pytest.mark.rule("MDP-5.3")
def test_requests_above_the_limit_are_dropped(worker):
    for _ in range(1002):
        worker.request(b"x")
    assert worker.drops == ["limit"]


@pytest.mark.rule("MDP-5.5")
def test_an_idle_worker_sends_heartbeats_and_a_busy_one_none(worker):
    worker.wait(1.0)
    assert worker.sent == [HEARTBEAT]
    worker.get(*HEARTBEAT)
    worker.request(b"x")
    worker.wait(20.0)
    assert worker.sent == []
    worker.finish(b"y")
    worker.wait(0.9)
    assert worker.sent == []
    worker.wait(0.2)
    assert worker.sent == [HEARTBEAT]


@pytest.mark.rule("MDP-5.5")
def test_a_worker_may_send_heartbeats_while_it_works():
    worker = Worker(while_busy=True)
    worker.connect()
    worker.request(b"x")
    worker.wait(3.5)
    assert worker.sent == [HEARTBEAT] * 3


@pytest.mark.rule("MDP-5.6", "MDP-5.7")
def test_a_worker_replaces_the_socket_of_a_silent_broker_after_growing_waits(worker):
    begun, times = worker.now, []
    for _ in range(5):
        while not worker.reopened:
            worker.wait(0.5)
        times.append(worker.now - begun)
        worker.connect()
        assert worker.sent == [READY]
        begun = worker.now
    assert times == [4.0, 5.0, 7.0, 7.0, 7.0]  # 3 s of silence, and 1, 2, 4 s
    worker.get(*HEARTBEAT)
    begun = worker.now
    worker.feed(Ticked())
    while not worker.reopened:
        worker.wait(0.5)
    assert worker.now - begun == 4.0


@pytest.mark.rule("MDP-5.6")
@pytest.mark.parametrize("request_comes", [True, False])
def test_a_message_during_the_wait_ends_it(worker, request_comes):
    worker.wait(3.5)
    assert worker.machine.state.name == "WAITING"
    if request_comes:
        worker.request(b"x")
        assert worker.runs == [("", b"x")]
    else:
        worker.get(*HEARTBEAT)
    worker.wait(0.9)
    assert worker.sent == ([] if request_comes else [HEARTBEAT])
    assert not worker.reopened


@pytest.mark.rule("MDP-5.7")
def test_disconnect_replaces_the_socket_at_once_after_a_heartbeat(worker):
    worker.get(*HEARTBEAT)
    worker.get(*DISCONNECT)
    assert worker.reopened
    assert worker.sent == []
    worker.connect()
    assert worker.sent == [READY]


@pytest.mark.rule("MDP-5.7")
def test_a_worker_that_is_refused_again_and_again_waits_longer(worker):
    waits = []
    for _ in range(4):
        worker.get(*DISCONNECT)
        assert not worker.reopened
        begun = worker.now
        while not worker.reopened:
            worker.wait(0.5)
            assert worker.sent == []
        waits.append(worker.now - begun)
        worker.connect()
    assert waits == [1.0, 2.0, 4.0, 4.0]


@pytest.mark.rule("MDP-5.7")
def test_a_worker_takes_nothing_after_disconnect(worker):
    worker.get(*DISCONNECT)
    worker.request(b"x")
    assert (worker.runs, worker.drops) == ([], ["no READY on this connection"])


@pytest.mark.rule("MDP-5.8")
def test_a_worker_whose_handler_fails_takes_leave_and_comes_back(worker):
    worker.request(b"1")
    worker.request(b"2")
    worker.fail()
    assert worker.sent == [DISCONNECT]
    assert worker.reopened
    assert worker.drops == ["connection ended"]
    assert worker.runs == []
    worker.connect()
    assert worker.sent == [READY]
    assert worker.machine.statistics().failed == 1
    worker.request(b"3")
    worker.finish(b"three")
    assert worker.sent == [worker.reply(b"three")]
    assert worker.runs == []  # the second request went with its connection


@pytest.mark.rule("MDP-5.9", "MDP-5.7")
@pytest.mark.parametrize("how", ["DISCONNECT", "connected again", "not connected yet"])
def test_the_reply_to_a_request_of_an_ended_connection_is_dropped(worker, how):
    worker.request(b"x")
    if how == "connected again":
        worker.connect()
    else:
        worker.get(*DISCONNECT)
        assert worker.reopened
    assert worker.interrupted == [1]
    if how != "not connected yet":
        worker.connect()
    assert worker.sent == []
    worker.finish(b"y")
    assert worker.drops == ["late reply"]
    if how == "not connected yet":
        assert worker.sent == []
        worker.connect()
    assert worker.sent == [READY]
    worker.request(b"z")
    worker.finish(b"w")
    assert worker.sent == [worker.reply(b"w")]


@pytest.mark.rule("MDP-5.11", "MDP-1.6")
@pytest.mark.parametrize(
    "frames", [(b"x",), (b"", W, b"\x09"), READY, (b"", W, b"\x03", b"c", b"", b"x"), ()]
)
def test_other_messages_are_dropped_and_count_as_a_sign_of_life(worker, frames):
    worker.wait(2.5)
    worker.get(*frames)
    assert (worker.drops, worker.sent, worker.runs) == (["invalid"], [], [])
    worker.wait(2.5)
    assert worker.machine.state.name == "IDLE"


@pytest.mark.rule("MDP-5.10")
def test_a_worker_that_ends_answers_first(worker):
    worker.request(b"x")
    worker.request(b"y")
    worker.feed(Drained())
    assert not worker.halted
    worker.finish(b"one")
    worker.finish(b"two")
    assert worker.sent == [worker.reply(b"two"), DISCONNECT]
    assert worker.halted


@pytest.mark.rule("MDP-1.2", "MDP-5.8")
def test_a_reply_of_too_many_frames_counts_as_a_failure(worker):
    worker.request(b"a", b"b")
    worker.finish([b"y"] * MAX_BODY)
    assert worker.sent == [worker.reply(*[b"y"] * MAX_BODY)]
    worker.request(b"a", b"b")
    worker.finish([b"y"] * (MAX_BODY + 1))
    assert worker.sent == [DISCONNECT]
    assert worker.machine.statistics().dropped == {"too many frames": 1}


def test_a_reply_may_have_another_codec_than_its_request(worker):
    worker.request(b"a", b"b")
    worker.feed(Finished(1, (1,), (Outcome.OK,), (b"one",), codec=""))
    assert worker.sent == [worker.reply(b"one")]


@pytest.mark.rule("MDP-5.9")
@pytest.mark.parametrize("taken", [False, True])
def test_a_request_that_nobody_received_yet_is_given_up_with_its_connection(taken):
    receiver = MajordomoWorker("tcp://127.0.0.1:1", "echo")
    holder = _RequestHolder(receiver)
    holder.run(Run(1, Kind(), (b"", 0), (1,), (1,), None, (b"x",)))
    receiver._taken = taken
    holder.interrupt(Interrupt(1, (1,)))
    assert (receiver._given is not None) == taken
    ends = [event for event in receiver._node.inbox.entries if isinstance(event, Finished)]
    assert [end.outcomes for end in ends] == ([] if taken else [[Outcome.CANCELLED]])
