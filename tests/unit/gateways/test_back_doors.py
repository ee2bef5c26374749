"""The back doors of the Pirate patterns and of ping-pong, message by message."""

from __future__ import annotations

import pytest

from tests.unit.gateways.foreign import Driven
from wmp.actions import Interrupt, Recall, Run
from wmp.codec import pack_frames, unpack_error
from wmp.events import Closed, Drained, Finished, Recalled
from wmp.foreign import Arrived, Dismissed, Emit, Left, Of, Staff, Unsent
from wmp.gateways import MajordomoDoor, WorkerDoor
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.queue_doors.settings import BackDoorSettings
from wmp.gateways.queue_doors.worker_door_machine import BackDoorMachine
from wmp.gateways.queue_doors.worker_door_wire import (
    HeartbeatStyle,
    ParanoidDoorWire,
    PingPongDoorWire,
    SimpleDoorWire,
)
from wmp.message import Kind, Outcome

WIRES = {"simple": SimpleDoorWire, "paranoid": ParanoidDoorWire, "ping-pong": PingPongDoorWire}
READY = {"simple": (b"", b"\x01"), "paranoid": (b"\x01",), "ping-pong": (b"", b"READY")}
PONG = [(b"", b"PONG")]
HEARTBEAT = (b"\x02",)


class Door(Driven):
    """A back door, with readers of what it gives."""

    def __init__(self, wire, **settings) -> None:
        settings = {"epoch": 1, "max_silence": None if wire.sign is None else 3.0, **settings}
        super().__init__(BackDoorMachine(wire, BackDoorSettings(**settings)))
        self.lanes = 0

    def run(self, *body: bytes, codec: str = "") -> None:
        """Give the door a job on a new lane."""
        self.lanes += 1
        payload = pack_frames(body) if codec else body[0]
        kind = Kind("default", codec=codec)
        self.order(Run(self.lanes, kind, (b"m", 1), [self.lanes], [1], None, [payload]))

    def order(self, what) -> None:
        self.feed(Of("workers", what))

    @property
    def emitted(self) -> list[tuple[bytes, tuple[bytes, ...]]]:
        return [(action.peer, action.frames) for action in self.actions if isinstance(action, Emit)]

    @property
    def ends(self) -> list[tuple[int, Outcome, bytes]]:
        return [
            (action.what.lane, action.what.outcomes[0], action.what.payloads[0])
            for action in self.actions
            if isinstance(action, Of) and isinstance(action.what, Finished)
        ]

    @property
    def places(self) -> int | None:
        """The number of places that the last step reported; None if it reported none."""
        return next((action.places for action in self.actions if isinstance(action, Staff)), None)

    def state(self, peer: bytes) -> Attendance:
        worker = self.machine._workers.get(peer)
        return Attendance.UNKNOWN if worker is None else worker.state


@pytest.fixture(params=WIRES)
def name(request):
    return request.param


@pytest.fixture
def door(name):
    return Door(WIRES[name]())


def request_of(frames):
    """Return the token and the body of a request, and the frames around the token."""
    index = next((n for n, frame in enumerate(frames) if len(frame) == 16), None)
    if index is None:
        return None, frames[1:], (b"",)
    return frames[index], frames[index + 2 :], frames[: index + 2]


def reply(door, peer, *body):
    """Answer the request that the last step gave to a worker."""
    frames = dict(door.emitted)[peer]
    _, _, envelope = request_of(frames)
    door.get(*envelope, *body, peer=peer)


@pytest.mark.rule("PIRATE-7.1", "PIRATE-8.1", "PING-4.1", "PING-4.2", "PING-4.3")
def test_ready_makes_a_place_and_the_least_recently_used_worker_gets_the_job(door, name):
    for peer, places in ((b"a", 1), (b"b", 2)):
        door.get(*READY[name], peer=peer)
        assert door.places == places
        assert door.sent == (PONG if name == "ping-pong" else [])

    used = []
    for _ in range(4):
        door.run(b"body")
        ((peer, frames),) = door.emitted
        assert request_of(frames)[1] == (b"body",)
        used.append(peer)
        reply(door, peer, b"result")
        assert door.ends == [(door.lanes, Outcome.OK, b"result")]
        assert door.places is None
    assert used == [b"a", b"b", b"a", b"b"]


def test_bodies_of_several_frames_have_the_codec_frames(door, name):
    door.get(*READY[name], peer=b"a")

    door.run(b"one", b"", codec="frames")
    ((_, frames),) = door.emitted
    assert request_of(frames)[1] == (b"one", b"")
    reply(door, b"a", b"1", b"", b"3")
    assert door.ends == [(1, Outcome.OK, pack_frames([b"1", b"", b"3"]))]

    door.run(b"one")
    reply(door, b"a", b"1", b"2")
    ((_, outcome, payload),) = door.ends
    assert outcome is Outcome.ERROR
    assert "submit the job with the codec 'frames'" in unpack_error(payload)[1]


@pytest.mark.rule("PIRATE-7.1", "PING-4.3")
def test_a_job_without_a_worker_goes_back_unbegun(door, name):
    door.run(b"body")
    assert (door.ends, door.emitted) == ([(1, Outcome.CANCELLED, b"")], [])

    door.get(*READY[name], peer=b"a")
    door.run(b"body")
    door.run(b"body")
    assert door.ends == []
    door.feed(Left(0, b"a"))
    assert [row[:2] for row in door.ends] == [(2, Outcome.LOST), (3, Outcome.CANCELLED)]


@pytest.mark.rule("PIRATE-7.3", "PING-4.6", "PING-4.7")
@pytest.mark.parametrize("how", ["left", "unsent", "ready", "disconnect"])
def test_a_busy_worker_that_leaves_or_begins_anew_loses_its_job(door, name, how):
    door.get(*READY[name], peer=b"a")
    door.run(b"body")
    frames = door.sent[0]

    if how == "left":
        door.feed(Left(0, b"a"))
    elif how == "unsent":
        door.feed(Unsent(0, b"a"))
    elif how == "ready":
        door.get(*READY[name], peer=b"a")
    elif name == "ping-pong":
        door.get(b"", b"DISCONNECT", peer=b"a")
    else:
        return
    ((lane, outcome, _),) = door.ends
    assert (lane, outcome) == (1, Outcome.LOST)
    assert door.places == (None if how == "ready" else 0)

    # Its reply comes too late, whatever the worker is now.
    door.get(*request_of(frames)[2], b"result", peer=b"a")
    assert door.ends == []


@pytest.mark.rule("PIRATE-7.2")
def test_no_two_attempts_have_one_token_and_neither_has_a_later_start():
    tokens = []
    for epoch in (1_800_000_000_000, 1_800_000_000_001):
        door = Door(SimpleDoorWire(), epoch=epoch)
        door.get(*READY["simple"], peer=b"a")
        for _ in range(3):
            door.run(b"body")
            tokens.append(request_of(door.sent[0])[0])
            reply(door, b"a", b"result")

    assert len(set(tokens)) == 6
    assert {len(token) for token in tokens} == {16}
    assert all(token.decode().isprintable() for token in tokens)


@pytest.mark.rule("PIRATE-7.2")
@pytest.mark.parametrize("name", ["simple", "paranoid"])  # ping-pong has no place for a token
def test_a_reply_of_another_worker_or_with_another_token_is_dropped(name):
    door = Door(WIRES[name]())
    for peer in (b"a", b"b"):
        door.get(*READY[name], peer=peer)
    door.run(b"one")
    first = door.sent[0]
    _, _, envelope = request_of(first)
    wrong = tuple(bytes(16) if len(frame) == 16 else frame for frame in envelope)

    door.get(*envelope, b"stolen", peer=b"b")
    assert (door.ends, door.drops) == ([], ["other reply"])
    door.get(*wrong, b"wrong", peer=b"a")
    assert (door.ends, door.drops) == ([], ["other reply"])
    assert door.state(b"a") is Attendance.BUSY
    door.get(*envelope, b"right", peer=b"a")
    assert door.ends == [(1, Outcome.OK, b"right")]
    door.get(*envelope, b"again", peer=b"a")
    assert (door.ends, door.drops) == ([], ["other reply"])


@pytest.mark.rule("PIRATE-7.4", "PING-4.3")
def test_an_interrupted_worker_has_no_place_until_it_answers(door, name):
    door.get(*READY[name], peer=b"a")
    door.run(b"body")
    frames = door.sent[0]

    door.order(Recall(1, [1]))
    assert door.actions == [Of("workers", Recalled(1, ()))]
    door.order(Interrupt(1, [1]))
    assert (door.ends, door.places) == ([(1, Outcome.CANCELLED, b"")], 0)
    assert door.state(b"a") is Attendance.LATE
    door.order(Interrupt(1, [1]))
    assert door.actions == []

    door.get(*request_of(frames)[2], b"result", peer=b"a")
    assert (door.ends, door.places, door.drops) == ([], 1, ["late reply"])
    assert door.state(b"a") is Attendance.IDLE


@pytest.mark.rule("PIRATE-7.4")
def test_a_request_that_takes_too_long_is_lost(name):
    door = Door(WIRES[name](), busy_timeout=10.0)
    door.get(*READY[name], peer=b"a")
    door.run(b"body")

    door.wait(9.9)
    assert door.ends == []
    door.wait(0.1)
    assert [(lane, outcome) for lane, outcome, _ in door.ends] == [(1, Outcome.LOST)]
    assert door.state(b"a") is Attendance.LATE

    door.get(*READY[name], peer=b"b")
    door.run(b"body")
    reply(door, b"b", b"result")
    door.wait(100.0)
    assert door.ends == []


@pytest.mark.rule("PIRATE-9.2", "PING-4.4")
@pytest.mark.parametrize("name", ["paranoid", "ping-pong"])
def test_an_idle_worker_that_is_silent_is_forgotten_and_a_busy_one_is_not(name):
    sign = {"paranoid": HEARTBEAT, "ping-pong": (b"", b"PING")}[name]
    door = Door(WIRES[name]())
    door.get(*READY[name], peer=b"a")
    door.wait(2.9)
    door.get(*sign, peer=b"a")
    door.wait(2.9)
    assert door.places is None
    door.wait(0.1)
    assert door.places == 0
    assert door.machine._workers == {}

    door.get(*READY[name], peer=b"a")
    door.run(b"body")
    frames = door.sent[0]
    door.wait(100.0)
    assert (door.ends, door.places) == ([], None)
    door.get(*request_of(frames)[2], b"result", peer=b"a")
    assert len(door.ends) == 1
    door.wait(3.0)
    assert door.places == 0


@pytest.mark.rule("PIRATE-9.1")
@pytest.mark.parametrize(("guide", "places"), [(False, None), (True, 1)])
def test_a_heartbeat_of_a_stranger_is_ready_in_the_profile_of_the_guide_only(guide, places):
    door = Door(ParanoidDoorWire(guide=guide))

    door.get(*HEARTBEAT, peer=b"a")

    assert door.places == places


@pytest.mark.rule("PING-4.2")
def test_ping_of_a_stranger_is_ready():
    door = Door(PingPongDoorWire())

    door.get(b"", b"PING", peer=b"a")

    assert (door.places, door.sent) == (1, PONG)


@pytest.mark.rule("PIRATE-8.2")
def test_a_reply_of_a_stranger_is_ready_at_a_simple_queue_only(door, name):
    door.get(*{"simple": (b"",)}.get(name, ()), b"token", b"", b"result", peer=b"a")

    assert door.places == (1 if name == "simple" else None)
    assert door.ends == []


@pytest.mark.rule("PIRATE-9.3")
def test_heartbeats_go_to_idle_workers_and_to_busy_workers_that_answer():
    door = Door(ParanoidDoorWire())
    door.get(b"\x01", peer=b"a")
    door.wait(1.0)
    assert door.emitted == [(b"a", HEARTBEAT)]
    door.get(*HEARTBEAT, peer=b"a")
    door.run(b"body")

    # One heartbeat at most waits for a worker that does not read.
    door.wait(100.0)
    assert door.emitted == [(b"a", HEARTBEAT)]
    door.get(*HEARTBEAT, peer=b"a")
    door.wait(2.0)
    assert door.emitted == [(b"a", HEARTBEAT)]


@pytest.mark.rule("PIRATE-9.4", "PING-4.5")
def test_payloads_that_a_worker_would_not_take_end_as_errors():
    for wire, body in (
        (PingPongDoorWire(), [b"EXIT"]),
        (PingPongDoorWire(), [b"PONG"]),
        (ParanoidDoorWire(one_frame=True), [b"1", b"2"]),
    ):
        door = Door(wire)
        protocol = "ping-pong" if isinstance(wire, PingPongDoorWire) else "paranoid"
        door.get(*READY[protocol], peer=b"a")
        door.run(*body, codec="frames" if len(body) > 1 else "")
        ((_, outcome, payload),) = door.ends
        assert (outcome, unpack_error(payload)[0]) == (Outcome.ERROR, "UnfitPayload")
        assert door.state(b"a") is Attendance.IDLE


@pytest.mark.rule("PIRATE-7.5")
def test_the_number_of_workers_is_bounded(name):
    door = Door(WIRES[name](), max_workers=2)
    for peer in (b"a", b"b"):
        door.get(*READY[name], peer=peer)
        door.run(b"body")
    door.get(*READY[name], peer=b"c")
    assert (door.drops, door.places) == (["limit"], None)

    door.feed(Left(0, b"a"))
    door.get(*READY[name], peer=b"c")
    assert door.places == 2


@pytest.mark.rule("PIRATE-7.12")
def test_an_idle_worker_that_never_replied_makes_way_at_the_limit(name):
    door = Door(WIRES[name](), max_workers=3)
    for peer in (b"a", b"b", b"c", b"d"):
        door.get(*READY[name], peer=peer)
    assert door.drops == ["limit"]
    assert set(door.machine.workers) == {b"b", b"c", b"d"}


def test_a_door_that_drains_ends_behind_its_last_job(door, name):
    door.get(*READY[name], peer=b"a")
    door.run(b"body")
    frames = door.sent[0]

    door.feed(Drained())
    assert not door.halted
    door.get(*READY[name], peer=b"b")
    assert door.drops == ["unknown worker"]
    door.get(*request_of(frames)[2], b"result", peer=b"a")
    assert (len(door.ends), door.halted) == (1, True)

    other = Door(WIRES[name]())
    other.feed(Closed())
    assert other.halted
    assert other.feed(Arrived(0, b"a", READY[name])) == []


@pytest.mark.rule("PIRATE-9.3")
def test_a_worker_that_does_not_read_finds_one_heartbeat_later():
    door = Door(ParanoidDoorWire(), max_silence=None)
    door.get(b"\x01", peer=b"a")
    door.wait(100.0)
    assert door.emitted == [(b"a", HEARTBEAT)]


@pytest.mark.parametrize("style", HeartbeatStyle)
def test_the_style_of_the_heartbeats_is_a_setting(style):
    door = Door(ParanoidDoorWire(), style=style, max_silence=None)
    door.get(b"\x01", peer=b"a")
    first = door.emitted
    door.get(*HEARTBEAT, peer=b"a")
    answered = door.emitted
    door.wait(1.0)

    pong = [(b"a", HEARTBEAT)]
    assert first == answered == (pong if style is HeartbeatStyle.PING_PONG else [])
    assert door.emitted == (pong if style is HeartbeatStyle.ONE_WAY else [])


def test_no_heartbeat_is_sent_beside_other_messages():
    door = Door(ParanoidDoorWire())
    door.get(b"\x01", peer=b"a")
    for _ in range(10):
        door.wait(0.9)
        assert door.emitted == []
        door.run(b"body")
        reply(door, b"a", b"result")


@pytest.mark.rule("PING-4.9")
def test_a_dismissed_worker_gets_exit_and_no_further_job():
    door = Door(PingPongDoorWire())
    for peer in (b"a", b"b"):
        door.get(b"", b"READY", peer=peer)
    door.run(b"body")
    exit = (b"", b"EXIT")

    door.feed(Dismissed(0, b"b"))
    assert (door.emitted, door.places) == ([(b"b", exit)], 1)
    door.feed(Dismissed(0, b"a"))
    assert (door.emitted, door.places, door.ends) == ([(b"a", exit)], None, [])
    door.get(b"", b"result", peer=b"a")
    assert (door.ends, door.places) == ([(1, Outcome.OK, b"result")], 0)
    door.wait(100.0)

    door.feed(Dismissed(0, b"a"))
    assert door.drops == ["unknown worker"]
    simple = Door(SimpleDoorWire())
    simple.get(*READY["simple"], peer=b"a")
    simple.feed(Dismissed(0, b"a"))
    assert (simple.drops, simple.places) == (["no EXIT"], None)


def test_workers_get_exit_on_drain_if_the_door_is_asked_to_send_it():
    door = Door(PingPongDoorWire(), exit_on_drain=True)
    door.get(b"", b"READY", peer=b"a")
    door.feed(Drained())
    assert (door.sent, door.halted) == ([(b"", b"EXIT")], True)


def test_the_submitters_of_the_doors_own_manager_take_replies_of_several_frames(name):
    door = Door(WIRES[name](), home=(b"m", 1))
    door.get(*READY[name], peer=b"a")
    door.run(b"one")
    reply(door, b"a", b"1", b"2")
    (end,) = [action.what for action in door.actions if isinstance(action, Of)]
    assert (end.outcomes, end.payloads, end.codec) == (
        [Outcome.OK],
        [pack_frames([b"1", b"2"])],
        "frames",
    )


PING = (b"", b"PING")


@pytest.mark.rule("PING-4.3", "PING-3.2")
@pytest.mark.parametrize("late", [False, True])
def test_the_second_ping_of_a_busy_worker_makes_it_idle(late):
    door = Door(PingPongDoorWire())
    door.get(*READY["ping-pong"], peer=b"a")
    door.run(b"body")
    door.get(*PING, peer=b"a")  # may have crossed with the job
    door.get(*PING, peer=b"a")  # arrived together with the first one, after a pause of the door
    assert (door.state(b"a"), door.ends, door.sent) == (Attendance.BUSY, [], PONG)
    if late:
        door.order(Interrupt(1, [1]))
        assert door.state(b"a") is Attendance.LATE
    door.wait(1.0)
    door.get(*PING, peer=b"a")
    assert door.state(b"a") is Attendance.IDLE
    assert [outcome for _, outcome, _ in door.ends] == ([] if late else [Outcome.LOST])
    assert (door.drops, door.sent) == (["unanswered request"], PONG)
    assert door.places == (1 if late else None)

    door.run(b"next")
    assert door.sent == [(b"", b"next")]
    door.get(*PING, peer=b"a")  # the count of PINGs starts anew
    assert door.state(b"a") is Attendance.BUSY


@pytest.mark.rule("PIRATE-7.4")
def test_a_heartbeat_after_busy_timeout_makes_a_worker_idle_and_an_earlier_one_does_not():
    door = Door(ParanoidDoorWire(), busy_timeout=10.0)
    door.get(*READY["paranoid"], peer=b"a")
    door.run(b"body")
    frames = door.sent[0]
    for _ in range(9):
        door.wait(1.0)
        door.get(*HEARTBEAT, peer=b"a")
        assert door.state(b"a") is Attendance.BUSY
    door.wait(1.0)
    assert door.state(b"a") is Attendance.LATE
    door.get(*HEARTBEAT, peer=b"a")
    assert (door.state(b"a"), door.places) == (Attendance.IDLE, 1)
    assert door.drops == ["unanswered request"]

    door.run(b"next")
    door.get(*request_of(frames)[2], b"late", peer=b"a")
    assert (door.ends, door.drops) == ([], ["other reply"])


def test_a_busy_timeout_is_an_hour_by_default():
    assert WorkerDoor("inproc://door", protocol="paranoid-pirate").busy_timeout == 3600.0
    assert MajordomoDoor("inproc://door").busy_timeout == 3600.0


@pytest.mark.rule("PIRATE-9.5")
def test_each_paranoid_worker_gets_heartbeats_in_its_own_form():
    door = Door(ParanoidDoorWire())
    door.get(b"READY", peer=b"words")
    door.get(b"\x01", peer=b"bytes")
    assert door.places == 2
    door.wait(1.0)
    assert sorted(door.emitted) == [(b"bytes", HEARTBEAT), (b"words", (b"HEARTBEAT",))]
    door.get(b"HEARTBEAT", peer=b"words")
    assert door.machine.statistics().tolerated == {"words instead of bytes": 1}


@pytest.mark.rule("PIRATE-8.3")
def test_a_simple_worker_may_send_the_word_ready():
    door = Door(SimpleDoorWire())
    door.get(b"", b"READY", peer=b"a")
    assert (door.places, door.drops) == (1, [])
    door.get(b"", b"HEARTBEAT", peer=b"b")
    assert door.drops == ["invalid"]
