"""A front door, message by message: requests become jobs, and their ends replies."""

from __future__ import annotations

from itertools import count

import pytest

from tests.unit.gateways.foreign import Driven
from wmp.actions import End, Resolve
from wmp.codec import pack_frames
from wmp.events import Cancelled, Drained
from wmp.foreign import Emit, Left, Settled
from wmp.gateways.common.job_end import UNREADABLE, explain_end
from wmp.gateways.freelance.wire import AgentWire, ShotgunWire
from wmp.gateways.queue_doors.client_door_machine import FrontDoorMachine
from wmp.gateways.queue_doors.settings import Service
from wmp.message import Kind


class Front(Driven):
    """A front door, with readers of what it gives."""

    def __init__(self, **terms) -> None:
        super().__init__(FrontDoorMachine(Service(**terms), count(1)))

    def settle(self) -> dict[int, tuple[str, bytes]]:
        """Return the jobs of this turn: codec and payload by number."""
        return {
            id: (batch.kind.codec, payload)
            for batch in self.machine.handle(Settled(), self.now)
            for id, payload in zip(batch.ids, batch.payloads, strict=True)
        }

    def end(self, id: int, payload: bytes = b"", end: End = End.OK) -> None:
        self.feed(Resolve([id], [end], [payload], [1]))

    @property
    def emitted(self) -> list[tuple[bytes, tuple[bytes, ...]]]:
        return [(action.peer, action.frames) for action in self.actions if isinstance(action, Emit)]

    @property
    def cancelled(self) -> list[int]:
        reports = [action for action in self.actions if isinstance(action, Cancelled)]
        assert all(report.unstarted for report in reports)
        return [id for report in reports for id in report.ids]


@pytest.mark.rule("PIRATE-7.6")
def test_requests_of_a_turn_become_one_batch_and_their_ends_replies():
    door = Front(kind=Kind("role"), priority=2, max_worker_losses=5, timeout=9.0)
    door.get(b"", b"one", peer=b"a")
    door.get(b"hop", b"", b"two", peer=b"b")
    door.get(b"", b"one", b"more", peer=b"a")
    single, several = door.machine.handle(Settled(), 0.0)
    assert door.machine.handle(Settled(), 0.0) == []
    assert (list(single.ids), list(single.payloads)) == ([1, 2], [b"one", b"two"])
    assert (list(several.ids), list(several.payloads)) == ([3], [pack_frames([b"one", b"more"])])
    assert (single.kind, several.kind) == (Kind("role"), Kind("role", codec="frames"))
    assert {
        (batch.priority, batch.max_worker_losses, batch.timeout) for batch in (single, several)
    } == {(2, 5, 9.0)}

    door.end(2, b"second")
    assert door.emitted == [(b"b", (b"hop", b"", b"second"))]
    door.end(3, pack_frames([b"1", b""]))
    assert door.emitted == [(b"a", (b"", b"1", b""))]
    door.end(1, b"first")
    assert door.emitted == [(b"a", (b"", b"first"))]
    door.end(1, b"first")
    assert door.emitted == []


@pytest.mark.rule("PIRATE-7.9", "PING-4.10")
@pytest.mark.parametrize("end", [end for end in End if end is not End.OK])
def test_a_job_without_a_result_gets_no_reply_and_the_log_has_the_cause(end):
    door = Front(kind=Kind("role"))
    door.get(b"", b"one", peer=b"a")
    door.settle()

    payload = b"\nthe cause"
    door.end(1, payload, end)

    assert door.emitted == []
    assert door.machine.statistics().unanswered == {end.value: 1}
    assert door.drops == ["no reply"]
    assert door.causes == [f"a request for the role 'role': {explain_end(end, payload)}"]


@pytest.mark.rule("PIRATE-7.9", "PING-4.10")
def test_a_result_of_another_codec_gets_no_reply():
    door = Front()
    door.get(b"", b"one", peer=b"a")
    door.settle()

    door.feed(Resolve([1], [End.OK], [b"\xff"], [1], codecs={1: "frames"}))

    assert door.emitted == []
    assert door.machine.statistics().unanswered == {"unreadable": 1}
    assert door.causes == [f"a request for the role 'default': {UNREADABLE}"]


@pytest.mark.rule("PIRATE-7.6")
@pytest.mark.parametrize("frames", [(b"x",), (b"",), (b"1", b""), (*[b"h"] * 9, b"", b"b")])
def test_frames_that_are_no_request_are_dropped(frames):
    door = Front()

    door.get(*frames, peer=b"a")

    assert (door.drops, door.settle()) == (["invalid"], {})


@pytest.mark.rule("PIRATE-7.7", "PING-4.8")
@pytest.mark.parametrize(
    "terms",
    [{"limit": 2}, {"client_limit": 2}, {"limit_bytes": 6}],
    ids=lambda terms: next(iter(terms)),
)
@pytest.mark.parametrize("full", [None, b"FULL"])
def test_requests_above_a_limit_are_dropped_or_answered(terms, full):
    door = Front(full=full, **terms)
    for _ in range(3):
        door.get(b"id", b"", b"one", peer=b"a")
    assert door.drops == ["limit"]
    assert door.emitted == ([] if full is None else [(b"a", (b"id", b"", b"FULL"))])
    assert len(door.settle()) == 2

    door.end(1, b"")
    door.get(b"", b"one", peer=b"a")
    assert len(door.settle()) == 1


@pytest.mark.rule("PING-4.5")
def test_control_words_of_the_protocol_are_refused_at_the_door():
    door = Front(forbidden=frozenset((b"PONG", b"EXIT")))

    door.get(b"", b"EXIT", peer=b"a")
    assert (door.drops, door.settle()) == (["control word"], {})
    door.get(b"", b"EXIT", b"EXIT", peer=b"a")
    assert len(door.settle()) == 1


@pytest.mark.rule("PIRATE-7.8")
def test_requests_of_a_client_that_left_are_cancelled_or_never_submitted():
    door = Front()
    door.get(b"", b"one", peer=b"a")
    door.get(b"", b"two", peer=b"b")
    door.settle()
    door.get(b"", b"three", peer=b"a")
    door.get(b"", b"four", peer=b"b")

    door.feed(Left(0, b"a"))

    assert door.cancelled == [1]
    assert set(door.settle()) == {4}
    door.end(1, b"late")
    assert door.emitted == []
    assert door.machine.statistics().waiting == 2
    door.feed(Left(0, b"a"))
    assert door.actions == []


@pytest.mark.rule("PIRATE-7.10")
def test_a_request_with_the_same_body_joins_and_the_newest_asker_has_the_reply():
    door = Front(join=True)
    door.get(b"", b"one", peer=b"a")
    assert set(door.settle()) == {1}
    door.get(b"x", b"", b"one", peer=b"b")
    door.get(b"", b"two", peer=b"b")
    assert set(door.settle()) == {2}

    door.feed(Left(0, b"a"))
    assert door.cancelled == []
    door.end(1, b"result")
    assert door.emitted == [(b"b", (b"x", b"", b"result"))]
    door.get(b"", b"one", peer=b"b")
    assert set(door.settle()) == {3}

    door.feed(Left(0, b"b"))
    assert door.cancelled == []
    door.get(b"", b"one", peer=b"c")
    assert door.settle() == {}
    door.end(3, b"result")
    assert door.emitted == [(b"c", (b"", b"result"))]


@pytest.mark.rule("PIRATE-7.8", "PIRATE-7.10")
def test_the_reply_to_a_joined_request_of_a_client_that_left_is_dropped():
    door = Front(join=True)
    door.get(b"", b"one", peer=b"a")
    assert set(door.settle()) == {1}

    door.feed(Left(0, b"a"))
    door.end(1, b"result")

    assert door.emitted == []
    assert door.machine.statistics().dropped == {"client left": 1}
    assert not door.machine.open_requests()


def test_a_door_that_drains_ends_behind_its_last_reply():
    door = Front()
    door.get(b"", b"one", peer=b"a")
    door.settle()

    door.feed(Drained())
    door.get(b"", b"two", peer=b"a")
    assert (door.drops, door.halted) == (["draining"], False)
    door.end(1, b"result")
    assert (door.sent, door.halted) == ([(b"", b"result")], True)


def test_a_reply_may_have_another_codec_than_its_request():
    door = Front()
    door.get(b"", b"one", peer=b"a")
    door.settle()
    codecs = {1: "frames"}
    door.feed(Resolve([1], [End.OK], [pack_frames([b"1", b"2"])], [1], codecs=codecs))
    assert door.emitted == [(b"a", (b"", b"1", b"2"))]


@pytest.mark.rule("FREE-5.2", "FREE-5.3")
def test_clients_of_freelance_get_the_sequence_of_their_request_and_pong():
    door = Front(wire=ShotgunWire())
    door.get(b"", b"7", b"one", peer=b"a")
    assert door.settle() == {1: ("", b"one")}
    door.end(1, b"reply")
    assert door.emitted == [(b"a", (b"", b"7", b"reply"))]

    door = Front(wire=AgentWire())
    door.get(b"PING", peer=b"a")
    assert door.emitted == [(b"a", (b"PONG",))]
    door.get(b"7", b"one", b"more", peer=b"a")
    assert door.settle() == {1: ("frames", pack_frames([b"one", b"more"]))}
    door.end(1, pack_frames([b"reply"]))
    assert door.emitted == [(b"a", (b"7", b"reply"))]


@pytest.mark.rule("FREE-5.5")
def test_a_repeated_request_of_an_agent_is_one_job():
    door = Front(wire=AgentWire(), remember=6.0)
    door.get(b"7", b"one", peer=b"a")
    door.get(b"7", b"one", peer=b"a")
    assert (door.drops, door.settle()) == (["repeated"], {1: ("", b"one")})
    door.end(1, b"reply")
    door.get(b"7", b"one", peer=b"a")
    assert (door.emitted, door.settle()) == ([(b"a", (b"7", b"reply"))], {})

    # Another connection has sequences of its own; so has this one after some time.
    door.get(b"7", b"two", peer=b"b")
    door.now += 6.0
    door.get(b"7", b"three", peer=b"a")
    assert door.settle() == {2: ("", b"two"), 3: ("", b"three")}

    # A request without a reply may come again: its job was lost, or its client left.
    door.end(2, end=End.LOST)
    door.feed(Left(0, b"a"))
    door.get(b"7", b"two", peer=b"b")
    door.get(b"7", b"three", peer=b"a")
    assert door.settle() == {4: ("", b"two"), 5: ("", b"three")}


def test_a_request_of_an_agent_above_a_limit_may_come_again():
    door = Front(wire=AgentWire(), limit=1)
    door.get(b"1", b"one", peer=b"a")
    door.get(b"2", b"two", peer=b"a")
    assert door.drops == ["limit"]
    door.end(1, b"reply")
    door.get(b"2", b"two", peer=b"a")
    assert door.settle() == {1: ("", b"one"), 2: ("", b"two")}


@pytest.mark.rule("PIRATE-7.11")
def test_at_the_limit_the_client_with_the_most_requests_makes_way():
    door = Front(limit=4, full=b"FULL")
    for number in range(5):
        door.get(b"id", b"", b"%d" % number, peer=b"hog")
    assert door.drops == ["limit"]  # alone, it may use everything
    assert len(door.settle()) == 4
    for _ in range(2):
        door.get(b"id", b"", b"late", peer=b"late")
        assert door.drops == ["share"]
        assert door.emitted == [(b"hog", (b"id", b"", b"FULL"))]
        assert [action.ids for action in door.actions if isinstance(action, Cancelled)]
    door.get(b"id", b"", b"late", peer=b"late")
    assert door.drops == ["limit"]
    assert door.machine.open_requests() == 4


@pytest.mark.rule("PIRATE-7.11")
def test_large_requests_of_one_client_make_way():
    door = Front(limit_bytes=1000)
    for _ in range(10):
        door.get(b"", b"x" * 100, peer=b"hog")
    door.get(b"", b"y" * 150, peer=b"late")
    assert door.drops == ["share", "share"]
    door.get(b"", b"y" * 900, peer=b"late")
    assert door.drops == ["limit"]


@pytest.mark.rule("PIRATE-7.11")
def test_requests_of_a_client_with_many_go_to_a_lower_priority_in_their_order():
    door = Front(priority=3)
    door.get(b"", b"first", peer=b"other")
    for number in range(200):
        door.get(b"", b"%d" % number, peer=b"hog")
    door.get(b"", b"late", peer=b"late")
    batches = door.machine.handle(Settled(), 0.0)
    priority = {id: batch.priority for batch in batches for id in batch.ids}
    assert priority[1] == priority[202] == 3
    hog = [priority[id] for id in range(2, 202)]
    assert hog == sorted(hog, reverse=True)
    assert (hog[0], hog[-1]) == (3, -4)


@pytest.mark.rule("FREE-5.5", "PIRATE-7.10")
def test_a_request_of_an_agent_whose_job_has_a_newer_asker_may_come_again():
    door = Front(wire=AgentWire(), join=True)
    door.get(b"1", b"one", peer=b"a")
    door.get(b"9", b"one", peer=b"b")
    door.get(b"9", b"one", peer=b"b")
    assert door.drops == ["repeated"]
    assert door.settle() == {1: ("", b"one")}
    door.end(1, b"reply")
    assert door.emitted == [(b"b", (b"9", b"reply"))]

    door.get(b"1", b"one", peer=b"a")
    assert door.settle() == {2: ("", b"one")}
    door.feed(Left(0, b"a"))
    door.get(b"1", b"one", peer=b"a")  # after the connection was made again
    assert (door.drops, door.settle()) == ([], {})
    door.end(2, b"reply")
    assert door.emitted == [(b"a", (b"1", b"reply"))]
