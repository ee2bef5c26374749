"""Payloads that are not of the codec that their sender named, at the doors of every protocol."""

from __future__ import annotations

import pytest

from wmp.actions import End, Resolve, Run
from wmp.codec import unpack_error
from wmp.events import Finished
from wmp.foreign import Arrived, Emit, Of, Settled
from wmp.gateways import ClientDoor, MajordomoDoor, RoundRobinDoor
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.message import Kind, Outcome

HOME = (b"gateway", 1)

DOORS = {
    "pirates": lambda: ClientDoor("inproc://door").make(DoorContext()),
    "majordomo": lambda: MajordomoDoor("inproc://door").make(DoorContext(home=HOME)),
    "round-robin": lambda: RoundRobinDoor("inproc://door").make(DoorContext(home=HOME)),
}

REQUESTS = {
    "pirates": (b"", b"body"),
    "majordomo": (b"", b"MDPC01", b"echo", b"body"),
    "round-robin": (b"", b"LMQv100", b"\x04", b"0001", b"\x20", b"body", b""),
}


@pytest.mark.parametrize("protocol", DOORS)
def test_a_result_of_another_codec_than_its_worker_named_has_no_reply(protocol):
    door = DOORS[protocol]()
    dropped = door.handle(Arrived(0, b"client", REQUESTS[protocol]), 0.0)
    assert not any(isinstance(action, Emit) for action in dropped)
    (submitted,) = door.handle(Settled(), 0.0)

    resolve = Resolve(tuple(submitted.ids), (End.OK,), (b"no list",), (1,), codecs={1: "frames"})
    replies = door.handle(resolve, 0.0)

    assert not any(isinstance(action, Emit) for action in replies)
    assert door.statistics().unanswered == {"unreadable": 1}


def test_a_job_of_round_robin_whose_payload_is_no_list_of_frames_ends_as_error():
    door = DOORS["round-robin"]()
    kind = Kind("round-robin", codec="frames")
    run = Run(1, kind, (b"manager", 1), [1], [1], None, [b"no list"])
    register = (b"", b"LMQv100", b"\x04", b"0001", b"\x08", b"1", b"")
    door.handle(Arrived(0, b"worker", register), 0.0)

    ends = [
        action.what for action in door.handle(Of("round-robin", run), 0.0) if isinstance(action, Of)
    ]

    (end,) = [report for report in ends if isinstance(report, Finished)]
    assert end.outcomes == [Outcome.ERROR]
    assert unpack_error(end.payloads[0])[0] == "UnfitPayload"
