"""The server of round robin: its door with the manager of its gateway."""

from __future__ import annotations

import pytest

from tests.unit.gateways.round_robin import (
    EXEC,
    PING,
    PONG,
    RESPONSE,
    TRACKADDRESS,
    TRACKEXEC,
    Server,
    V,
)
from wmp.actions import Drop, End, Resolve
from wmp.events import Drained
from wmp.foreign import Arrived, Left, Settled, Unsent
from wmp.gateways.common.job_end import UNREADABLE
from wmp.gateways.common.job_lanes import REPORT_INTERVAL


@pytest.mark.rule("RR-2.3", "RR-1.5", "RR-1.3")
def test_ping_is_answered_over_all_hops():
    server = Server()
    server.get(b"", V, PING, b"12345678", b"", peer=b"c")
    assert server.emitted == [(b"c", (b"", V, PONG, b"12345678", b""))]
    server.get(b"", V, PING, b"1234", b"", b"far", b"near", peer=b"c")
    assert server.emitted == [(b"c", (b"near", b"far", b"", V, PONG, b"1234", b""))]


@pytest.mark.rule("RR-3.1", "RR-3.3", "RR-3.4", "RR-3.5", "RR-1.3", "RR-1.5")
@pytest.mark.parametrize("id", [b"1234", b"12345678"])
def test_a_message_goes_to_a_worker_and_its_result_back_over_all_hops(id):
    server = Server()
    server.register(b"w", 10)
    server.get(b"", V, TRACKEXEC, id, b"\x0a", b"STREAM_ID", b"", b"", b"far", b"near", peer=b"c")
    ((peer, frames),) = server.emitted
    token = frames[-1]
    assert (peer, frames) == (
        b"w",
        (b"", V, TRACKEXEC, id, b"\x0a", b"STREAM_ID", b"", b"", token),
    )
    assert (len(token), token[:1]) == (17, b"~")
    assert token.decode().isprintable()
    server.answer(b"w", frames, b"data", b"")
    assert server.emitted == [
        (b"c", (b"near", b"far", b"", V, RESPONSE, id, b"data", b"", b"", b"w")),
    ]
    server.answer(b"w", frames, b"again")
    assert server.emitted == []
    assert server.counted == {"late reply": 1}


@pytest.mark.rule("RR-3.5", "RR-4.5", "RR-3.4")
def test_exec_has_no_answer_and_ends_at_increment():
    server = Server()
    server.register(b"w", 2)
    server.exec(b"c", b"1234", b"\x01", tracked=False)
    ((_, frames),) = server.emitted
    assert frames[2] == EXEC
    server.answer(b"w", frames)
    assert (server.emitted, server.counted) == ([], {"RESPONSE to EXEC": 1})
    assert server.door.statistics().waiting == 1
    server.increment(b"w")
    assert server.emitted == []
    assert server.door.statistics().waiting == 0
    assert server.rows == [(b"w", 2)]


@pytest.mark.rule("RR-4.5")
def test_increment_of_an_answered_message_does_not_end_an_exec():
    server = Server()
    server.register(b"w", 2)
    server.exec(b"c", b"exec", b"\x01", tracked=False)
    server.exec(b"c", b"trac", b"\x01")
    ((_, frames),) = server.emitted
    server.answer(b"w", frames)
    server.increment(b"w")
    assert server.door.statistics().waiting == 1
    server.increment(b"w")
    assert server.door.statistics().waiting == 0


@pytest.mark.rule("RR-4.6")
def test_a_message_that_cannot_be_answered_any_more_ends():
    server = Server()
    server.register(b"w", 2)
    server.exec(b"c", b"1234", b"\x0a", b"S", b"7")
    server.increment(b"w")
    assert server.emitted == []
    seen = server.door.statistics()
    assert (seen.waiting, dict(seen.unanswered)) == (0, {"error": 1})
    assert server.rows == [(b"w", 2)]


@pytest.mark.rule("RR-3.2")
def test_a_message_with_an_address_is_passed_on():
    server = Server()
    server.get(b"w", b"far", b"", V, RESPONSE, b"1234", b"x", b"", b"hop", peer=b"c")
    assert server.emitted == [
        (b"w", (b"far", b"", V, RESPONSE, b"1234", b"x", b"", b"hop", b"c")),
    ]
    ((_, frames),) = server.emitted
    server.feed(Unsent(0, b"w", frames))
    assert server.counted == {"not sent": 1}


@pytest.mark.rule("RR-3.3")
def test_only_the_worker_that_has_a_message_can_answer_it():
    server = Server()
    server.register(b"w", 1)
    server.exec(b"c", b"1234", b"\x01")
    ((_, frames),) = server.emitted
    server.answer(b"thief", frames, b"wrong")
    assert server.emitted == []
    server.get(frames[-1], b"x", b"", V, RESPONSE, b"1234", b"", peer=b"w")
    assert server.emitted == []
    assert server.counted == {"late reply": 1, "invalid": 1}
    server.answer(b"w", frames, b"right")
    assert server.emitted == [(b"c", (b"", V, RESPONSE, b"1234", b"right", b"", b"w"))]


@pytest.mark.rule("RR-4.1", "RR-4.2", "RR-4.3", "RR-4.4", "RR-4.9")
def test_the_table_is_served_in_turn():
    server = Server()
    server.register(b"a", 2)
    server.register(b"b", 1)
    used = []
    for n in range(4):
        server.exec(b"c", b"id%02d" % n, b"\x01")
        used += [peer for peer, _ in server.emitted]
    assert used == [b"a", b"b", b"a"]
    assert server.rows == [(b"b", 0), (b"a", 0)]
    server.register(b"b", 3)
    assert [peer for peer, frames in server.emitted if frames[2] == TRACKEXEC] == [b"b"]
    assert server.rows == [(b"b", 2), (b"a", 0)]
    server.increment(b"a")
    assert server.rows == [(b"b", 2), (b"a", 1)]
    server.increment(b"a")
    server.increment(b"a")
    server.increment(b"nobody")
    assert server.rows == [(b"b", 2), (b"a", 2)]
    assert server.counted == {"INCREMENT without a message": 2}


@pytest.mark.rule("RR-4.2", "RR-4.4")
def test_increment_never_gives_more_slots_than_were_registered_last():
    server = Server()
    server.register(b"w", 3)
    for n in range(3):
        server.exec(b"c", b"id%02d" % n, b"\x01")
    server.register(b"w", 1)
    for _ in range(3):
        server.increment(b"w")
        assert server.rows == [(b"w", 1)]


@pytest.mark.rule("RR-4.7")
def test_a_worker_that_deregisters_finishes_what_it_has():
    server = Server()
    server.register(b"w", 2)
    server.exec(b"c", b"1234", b"\x01")
    ((_, first),) = server.emitted
    server.exec(b"c", b"5678", b"\x01")
    server.exec(b"w", b"WORKER", b"\x09", tracked=False)
    assert server.rows == []
    server.exec(b"c", b"next", b"\x01")
    assert server.emitted == []
    server.answer(b"w", first)
    assert len(server.emitted) == 1
    server.increment(b"w")
    server.register(b"v", 5)
    assert len(server.emitted) == 2
    server.wait(15.0)
    assert [frames[3] for peer, frames in server.emitted if peer == b"v"] == [b"5678"]
    server.exec(b"stranger", b"WORKER", b"\x09", tracked=False)
    assert server.counted == {}


@pytest.mark.parametrize("heartbeat", [5.0, 15.0])
def test_a_worker_that_deregistered_and_falls_silent_leaves_once(heartbeat):
    server = Server(heartbeat=heartbeat)
    server.register(b"w", 2)
    server.exec(b"c", b"1234", b"\x01")
    server.exec(b"w", b"WORKER", b"\x09", tracked=False)
    server.wait(60.0)
    assert server.rows == []
    server.register(b"v", 1)
    assert [frames[3] for peer, frames in server.emitted] == [b"reg1", b"1234"]


@pytest.mark.rule("RR-4.8", "RR-3.6")
@pytest.mark.parametrize("how", ["left", "unsent", "silent"])
def test_the_messages_and_slots_of_a_worker_that_left_return(how):
    server = Server()
    server.register(b"w", 3)
    server.exec(b"c", b"trac", b"\x01")
    server.exec(b"c", b"exec", b"\x01", tracked=False)
    ((_, frames),) = server.emitted
    if how == "left":
        server.feed(Left(0, b"w"))
    elif how == "unsent":
        server.feed(Unsent(0, b"w", frames))
    else:
        server.wait(90.0)
    assert server.rows == []
    server.register(b"v", 3)
    given = [(peer, frames) for peer, frames in server.emitted if frames[2] != RESPONSE]
    # An EXEC that was not sent has not begun.
    expected = [b"trac", b"exec"] if how == "unsent" else [b"trac"]
    assert [(peer, frames[3]) for peer, frames in given] == [(b"v", id) for id in expected]
    server.answer(b"v", given[0][1])
    assert [peer for peer, _ in server.emitted] == [b"c"]
    for _ in expected:
        server.increment(b"v")
    assert server.door.statistics().waiting == 0
    assert server.rows == [(b"v", 3)]


@pytest.mark.rule("RR-4.8")
def test_a_message_is_not_lost_with_its_workers_for_ever():
    server = Server(max_worker_losses=1)
    server.register(b"a", 1)
    server.exec(b"c", b"1234", b"\x01")
    for peer, next_peer in ((b"a", b"b"), (b"b", b"d")):
        server.feed(Left(0, peer))
        server.register(next_peer, 1)
    assert dict(server.door.statistics().unanswered) == {"lost": 1}


@pytest.mark.rule("RR-5.4")
@pytest.mark.parametrize("tracked", [True, False])
def test_the_log_has_the_cause_of_a_message_without_a_result(tracked):
    server = Server(max_worker_losses=0, commands={b"\x0b": "late"})
    server.register(b"w", 1)
    server.exec(b"c", b"1234", b"\x0b", tracked=tracked)
    server.feed(Left(0, b"w"))
    assert server.emitted == []
    assert server.drops == ["no reply"]
    name, why = (
        (
            "TRACKEXEC",
            "the worker '/round-robin' was lost, and max_worker_losses allows no further loss",
        )
        if tracked
        else ("EXEC", "the handler failed: WorkerLost")
    )
    assert server.causes == [f"{name} for the role 'late': {why}: its connection ended"]


@pytest.mark.rule("RR-5.4")
def test_a_result_of_another_codec_is_no_response():
    server = Server()
    server.exec(b"c", b"1234", b"\x0a")
    server.actions = server.door.handle(
        Resolve([1], [End.OK], [b"\xff"], [1], codecs={1: "frames"}), server.now
    )
    assert server.emitted == []
    assert dict(server.door.statistics().unanswered) == {"unreadable": 1}
    assert server.causes == [f"TRACKEXEC for the role 'round-robin': {UNREADABLE}"]


@pytest.mark.rule("RR-2.6")
def test_a_silent_worker_gets_ping():
    server = Server()
    server.register(b"w", 1)
    server.wait(29.0)
    assert server.emitted == []
    server.wait(1.0)
    ((peer, frames),) = server.emitted
    assert (peer, frames[:3]) == (b"w", (b"", V, PING))
    server.get(b"", V, PONG, frames[3], b"", peer=b"w")
    server.wait(89.0)
    assert len(server.emitted) == 2
    assert server.rows == [(b"w", 1)]
    server.wait(1.0)
    assert server.rows == []


@pytest.mark.rule("RR-4.10")
@pytest.mark.parametrize("how", ["unsent", "silent"])
def test_a_worker_that_was_away_returns_with_the_slots_that_it_does_not_use(how):
    server = Server()
    server.register(b"w", 3)
    server.exec(b"c", b"1234", b"\x01")
    ((_, frames),) = server.emitted
    if how == "unsent":
        server.feed(Unsent(0, b"w", frames))
    else:
        server.wait(90.0)
    assert server.rows == []
    server.get(b"", V, PONG, b"1234", b"", peer=b"w")
    # The message is given again, to the same worker. One that was not sent takes no slot.
    assert server.rows == [(b"w", 1 if how == "silent" else 2)]
    server.answer(b"w", frames, b"late")
    assert server.emitted == []
    server.increment(b"w")
    assert server.rows == [(b"w", 2 if how == "silent" else 3)]
    server.increment(b"w")
    assert server.rows == [(b"w", 3)]
    assert server.door.statistics().waiting == 0


@pytest.mark.rule("RR-3.7")
def test_a_client_that_left_is_forgotten():
    server = Server()
    server.exec(b"c", b"1234", b"\x01")
    server.exec(b"d", b"5678", b"\x01")
    server.feed(Left(0, b"c"))
    server.register(b"w", 5)
    assert [frames[3] for peer, frames in server.emitted if peer == b"w"] == [b"reg1", b"5678"]
    assert server.counted == {"client left": 1}


@pytest.mark.rule("RR-5.3")
def test_a_queue_with_a_limit_drops_the_newest():
    server = Server(max_queue=2)
    server.register(b"w", 1)
    for n in range(5):
        server.exec(b"c", b"id%02d" % n, b"\x01")
    assert server.counted == {"limit": 2}
    done = []
    for _ in range(3):
        server.increment(b"w")
        done += [frames[3] for peer, frames in server.emitted if peer == b"w"]
    assert done == [b"id01", b"id02"]


@pytest.mark.rule("RR-5.3")
def test_the_bytes_of_waiting_messages_are_bounded():
    frames = [b"", V, TRACKEXEC, b"id01", b"\x01", b"1234", b"", b"far"]
    size = 512 + sum(map(len, frames))
    server = Server(limit_bytes=2 * size)
    for n in range(3):
        frames[3] = b"id%02d" % n
        server.get(*frames, peer=b"c")
    assert server.counted == {"limit": 1}
    server.feed(Left(0, b"c"))
    server.get(*frames, peer=b"d")
    assert server.door.statistics().waiting == 1

    # An empty command with a long id or hops takes memory, too.
    server = Server(limit_bytes=600)
    server.exec(b"c", bytes(200), b"\x01")
    assert server.counted == {"limit": 1}


def test_a_late_answer_frees_its_own_slot():
    server = Server(busy_timeout=5.0, max_worker_losses=0)
    server.register(b"w", 2)
    server.exec(b"c", b"late", b"\x01")
    ((_, late),) = server.emitted
    server.wait(5.0)
    server.exec(b"c", b"exec", b"\x01", tracked=False)
    server.answer(b"w", late)
    server.increment(b"w")
    assert server.door.statistics().waiting == 1
    assert server.rows == [(b"w", 1)]
    server.increment(b"w")
    assert server.door.statistics().waiting == 0
    assert server.rows == [(b"w", 2)]


def test_the_server_finishes_its_messages_at_the_end():
    server = Server()
    server.register(b"w", 1)
    server.exec(b"c", b"1234", b"\x01")
    ((_, first),) = server.emitted
    server.exec(b"c", b"5678", b"\x01")
    server.feed(Drained())
    server.exec(b"c", b"late", b"\x01")
    assert server.counted == {"draining": 1}
    server.answer(b"w", first)
    server.increment(b"w")
    ((_, second),) = server.emitted
    server.answer(b"w", second)
    assert server.halted


@pytest.mark.rule("RR-4.6")
def test_a_message_without_a_response_ends_under_steady_load():
    """Each INCREMENT without a RESPONSE narrows down the message that it belongs to."""
    server = Server()
    server.register(b"w", 3)
    held = []

    def send(id):
        server.exec(b"c", id, b"\x01")
        held.extend(frames for peer, frames in server.emitted if peer == b"w")

    for id in (b"old1", b"mute", b"old2"):
        send(id)
    server.increment(b"w")  # of the mute message
    for n in range(20):
        # At every time at least two messages are at the worker.
        send(b"%04d" % n)
        frames = held.pop(0)
        if frames[3] == b"mute":
            frames = held.pop(0)
        server.answer(b"w", frames)
        assert [(peer, frames[3]) for peer, frames in server.emitted] == [(b"c", frames[3])]
        server.increment(b"w")
        ended = n >= 1  # old1 and old2 were answered
        assert server.door.statistics().unanswered == ({"error": 1} if ended else {})
    assert server.door.statistics().waiting == 2


@pytest.mark.rule("RR-4.6")
def test_several_messages_without_a_response_end_together_and_no_other_one_does():
    server = Server()
    server.register(b"w", 5)
    for n in range(4):
        server.exec(b"c", b"%04d" % n, b"\x01")
    first = server.emitted
    server.increment(b"w")
    server.increment(b"w")
    server.increment(b"w")
    assert server.door.statistics().unanswered == {}  # each of the four may still be answered
    server.exec(b"c", b"late", b"\x01")
    ((_, late),) = server.emitted
    server.increment(b"w")
    assert server.door.statistics().unanswered == {}  # each of the five may still be answered
    server.answer(b"w", first[0][1])
    assert server.emitted[0][1][3] == b"0003"
    assert server.door.statistics().unanswered == {"error": 4}
    assert server.door.statistics().waiting == 0
    server.increment(b"w")
    assert server.rows == [(b"w", 5)]
    server.answer(b"w", late)
    assert server.counted == {"late reply": 1}


@pytest.mark.rule("RR-4.5", "RR-4.6")
def test_increment_of_an_exec_that_ended_early_ends_no_other_message():
    server = Server(busy_timeout=5.0, max_worker_losses=0)
    server.register(b"w", 3)
    server.exec(b"c", b"exec", b"\x01", tracked=False)
    server.wait(4.0)
    server.exec(b"c", b"trac", b"\x01")
    ((_, frames),) = server.emitted
    server.wait(1.0)
    assert server.door.statistics().unanswered == {"error": 1}
    server.increment(b"w")  # of the EXEC
    assert server.door.statistics().waiting == 1
    server.answer(b"w", frames)
    assert [peer for peer, _ in server.emitted] == [b"c"]


@pytest.mark.rule("RR-4.11")
def test_a_message_at_a_worker_for_too_long_is_lost_and_an_exec_is_not_given_again():
    server = Server(busy_timeout=10.0)
    server.register(b"w", 1)
    server.register(b"v", 1)
    server.exec(b"c", b"exec", b"\x01", tracked=False)
    server.wait(3.0)
    server.exec(b"c", b"trac", b"\x01")
    server.register(b"u", 5)
    server.wait(6.9)
    assert server.door.statistics().unanswered == {}
    server.wait(0.2)
    assert server.door.statistics().unanswered == {"error": 1}
    assert server.emitted == []
    server.wait(3.0)
    assert [(peer, frames[3]) for peer, frames in server.emitted] == [(b"u", b"trac")]
    assert server.door.statistics().lost == 1


@pytest.mark.rule("RR-4.11")
def test_a_message_ends_after_an_hour_at_its_worker_by_default():
    server = Server()
    server.register(b"w", 1)
    before = server.door.deadline()
    server.exec(b"c", b"trac", b"\x01")
    server.door._timers.clear_all([timer for timer in server.door._timers._at if timer[0] == b"w"])
    assert before is not None
    assert server.door.deadline() == server.now + 3600.0


@pytest.mark.rule("RR-4.1")
def test_slots_above_the_limit_are_reported_and_not_given():
    server = Server(max_slots=3)
    server.exec(b"w", b"reg1", b"\x08", b"5")
    assert server.rows == [(b"w", 3)]
    assert server.emitted == [(b"w", (b"", V, RESPONSE, b"reg1", b""))]
    (drop,) = (action for action in server.actions if isinstance(action, Drop))
    assert drop.detail == "a worker registers 5 slots, and gets 3; raise max_slots for more"
    server.register(b"w", 3)
    assert server.drops == []


@pytest.mark.rule("RR-4.1")
def test_all_workers_together_have_a_limited_number_of_slots():
    server = Server()
    assert server.door.table.maximum == 4096
    server.door.table.maximum = 8
    server.register(b"w", 5)
    server.exec(b"v", b"reg1", b"\x08", b"5")
    assert server.rows == [(b"w", 5), (b"v", 3)]
    (drop,) = (action for action in server.actions if isinstance(action, Drop))
    assert drop.detail == (
        "a worker registers 5 slots, and gets 3; all workers of a server have 8 slots together"
    )
    server.exec(b"w", b"WORKER", b"\x09", tracked=False)
    server.register(b"v", 5)
    assert server.rows == [(b"v", 5)]
    server.feed(Unsent(0, b"v", (b"",)))
    server.register(b"u", 4)
    server.get(b"", V, PONG, b"1234", b"", peer=b"v")
    assert server.rows == [(b"u", 4), (b"v", 4)]


@pytest.mark.deep
def test_all_slots_of_many_workers_are_used():
    server = Server()
    for n in range(5):
        server.exec(b"w%d" % n, b"reg1", b"\x08", b"1000")
    for n in range(4097):
        server.machine.handle(
            Arrived(0, b"c", (b"", V, EXEC, b"%04d" % n, b"\x01", b"")), server.now
        )
    server.feed(Settled())
    seen = server.door.statistics()
    assert (seen.queued, seen.free) == (1, 0)


@pytest.mark.rule("RR-3.3")
def test_no_peer_can_have_the_address_of_a_message():
    """A worker would answer a peer with the address of a token as it answers the message."""
    server = Server()
    server.register(b"w", 2)
    server.exec(b"c", b"1234", b"\x01")
    ((_, frames),) = server.emitted
    token = frames[-1]
    server.exec(token, b"5678", b"\x01")
    assert (server.emitted, server.counted) == ([], {"reserved address": 1})


@pytest.mark.rule("RR-3.8")
def test_the_address_of_a_worker_is_passed_on_to_the_client():
    server = Server()
    server.register(b"w", 2)
    server.get(b"", V, TRACKEXEC, b"1234", b"\x01", b"", b"far", peer=b"c")
    ((_, frames),) = server.emitted
    server.get(frames[-1], b"", V, TRACKADDRESS, b"1234", b"", peer=b"w")
    assert server.emitted == [(b"c", (b"far", b"", V, TRACKADDRESS, b"1234", b"", b"w"))]
    # The client may now send PING to this address.
    server.get(b"w", b"", V, PING, b"5678", b"", peer=b"c")
    assert server.emitted == [(b"w", (b"", V, PING, b"5678", b"", b"c"))]
    server.get(b"c", b"", V, PONG, b"5678", b"", peer=b"w")
    assert server.emitted == [(b"c", (b"", V, PONG, b"5678", b"", b"w"))]
    server.answer(b"w", frames)
    assert len(server.emitted) == 1
    server.get(b"", V, TRACKADDRESS, b"1234", b"", peer=b"w")
    assert server.counted == {"other reply": 1}


@pytest.mark.rule("RR-4.7")
def test_an_increment_on_its_way_at_deregister_counts_for_no_later_message():
    server = Server()
    server.register(b"w", 2)
    server.exec(b"c", b"1234", b"\x01")
    ((_, frames),) = server.emitted
    server.answer(b"w", frames)
    server.exec(b"w", b"WORKER", b"\x09", tracked=False)
    server.register(b"w", 2)
    server.exec(b"c", b"5678", b"\x01")
    ((_, frames),) = server.emitted
    server.increment(b"w")
    assert server.door.statistics().waiting == 1
    server.answer(b"w", frames)
    assert [peer for peer, _ in server.emitted] == [b"c"]


@pytest.mark.rule("RR-5.2")
def test_between_response_and_increment_no_job_goes_back_to_the_manager():
    server = Server()
    server.register(b"w", 1)
    server.exec(b"c", b"0000", b"\x01")
    ((_, frames),) = server.emitted
    for n in range(1, 50):
        server.exec(b"c", b"%04d" % n, b"\x01")
    (group,) = server.machine.groups.values()
    answered = []
    for n in range(49):
        server.answer(b"w", frames)
        answered += [frames[3] for _, frames in server.emitted]
        assert group.places == 1
        server.increment(b"w")
        given = [frames for peer, frames in server.emitted if peer == b"w"]
        (frames,) = given
        assert frames[3] == b"%04d" % (n + 1)
        assert group.places == 1
    server.wait(REPORT_INTERVAL)
    answered += [frames[3] for _, frames in server.emitted]
    assert answered == [b"%04d" % n for n in range(49)]


def test_a_job_goes_back_when_increment_does_not_follow_response():
    server = Server(max_worker_losses=0)
    server.register(b"w", 1)
    server.exec(b"c", b"0001", b"\x01")
    ((_, frames),) = server.emitted
    server.exec(b"c", b"0002", b"\x01")
    server.exec(b"c", b"0003", b"\x01")
    server.answer(b"w", frames)
    assert server.machine.manager.statistics().queued == 0
    server.wait(0.6)
    # A WMP worker may have them now.
    assert server.machine.manager.statistics().queued == 2
    server.increment(b"w")
    assert [frames[3] for _, frames in server.emitted] == [b"0002"]
    assert server.door.statistics().unanswered == {}


@pytest.mark.rule("RR-3.7")
@pytest.mark.parametrize("how", ["left", "expired"])
def test_a_job_that_is_not_wanted_is_not_begun_at_increment(how):
    server = Server(timeout=0.3)
    server.register(b"w", 1)
    server.exec(b"d", b"0001", b"\x01")
    ((_, frames),) = server.emitted
    server.exec(b"c", b"0002", b"\x01")
    server.answer(b"w", frames)
    if how == "left":
        server.feed(Left(0, b"c"))
    else:
        server.wait(0.4)
    server.increment(b"w")
    assert server.emitted == []
    assert server.rows == [(b"w", 1)]
    assert server.door.statistics().waiting == 0


def test_a_job_for_a_slot_of_a_worker_that_leaves_goes_to_another_worker():
    server = Server()
    server.register(b"w", 1)
    server.exec(b"c", b"0001", b"\x01")
    ((_, frames),) = server.emitted
    server.exec(b"c", b"0002", b"\x01")
    server.answer(b"w", frames)
    server.feed(Left(0, b"w"))
    assert server.machine.manager.statistics().queued == 1
    server.register(b"v", 1)
    assert [(peer, frames[3]) for peer, frames in server.emitted[1:]] == [(b"v", b"0002")]
