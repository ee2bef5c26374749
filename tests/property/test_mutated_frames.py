"""Mutated frames of the golden messages: no machine crashes, refused frames change no state."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.property.mutations import mutated, vectors
from wmp.actions import Send
from wmp.balance import least_recently_used
from wmp.codec import decode, peek
from wmp.core.device import DeviceMachine
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import DeviceSettings, ManagerSettings, WorkerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import DecodeError
from wmp.events import Connected, Garbled, Received, Submitted, Ticked
from wmp.message import Command, ErrorCode, Field, Kind, Message
from wmp.testing.state.snapshots import Machine, snapshot

PARTLY: Final = {ErrorCode.UNKNOWN}
"""ERROR codes of messages whose other jobs are acted on (WMP-10.5)."""
RENEW: Final = 400
"""Messages that end a machine; a new machine takes its place."""


def make_manager() -> ManagerMachine:
    machine = ManagerMachine(ManagerSettings(identity=b"manager", epoch=1000), least_recently_used)
    machine.handle(Submitted(range(1, 9), [b"job"] * 8, Kind(), timeout=9.0), 0.0)
    return machine


def make_worker() -> WorkerMachine:
    settings = WorkerSettings(identity=b"worker", epoch=2000, roles=("default", "echo"))
    machine = WorkerMachine(settings, 2)
    machine.handle(Connected(0), 0.0)
    machine.handle(Connected(1), 0.0)
    return machine


def make_device() -> DeviceMachine:
    return DeviceMachine(DeviceSettings(identity=b"device", epoch=3000, upstreams=2))


KINDS: Final[dict[str, tuple[Callable[[], Machine], tuple[int | bytes, ...]]]] = {
    "manager": (make_manager, (b"l1", b"l2")),
    "worker": (make_worker, (0, 1)),
    "device": (make_device, (b"l1", b"l2", 0, 1)),
}
NOISE: Final = Message(Command.ERROR, (), (b"noise", 1), {Field.CODE: "noise"})


def refusals(actions: Any) -> set[str]:
    """Return the codes of ERRORs in the answers."""
    sends = [action.message for action in actions if isinstance(action, Send)]
    return {message.fields[Field.CODE] for message in sends if message.command is Command.ERROR}


def play(kind: str, seed: int, count: int) -> Iterator[str]:
    """Send mutated messages to one kind of machine; yield the result of each."""
    draw, known = random.Random(seed), vectors()
    make, links = KINDS[kind]
    read = peek if kind == "device" else decode
    for number in range(count):
        if number % RENEW == 0:
            machine, now = make(), 0.0
        now += draw.choice((0.0, 0.001, 0.02, 0.3))
        due = machine.deadline()
        if due is not None and due <= now:
            machine.handle(Ticked(), now)  # type: ignore[arg-type]
        link = draw.choice(links)
        frames = list(draw.choice(known)) if draw.random() < 0.2 else mutated(draw, known)
        # Any frame ends the silence of a worker's link, also a frame that is refused.
        machine.handle(Received(link, NOISE), now)
        before = snapshot(machine, now)
        event: Garbled | Received
        try:
            event = Received(link, read(frames))
        except DecodeError as error:
            event = Garbled(link, error)
        codes = refusals(machine.handle(event, now))
        refused = isinstance(event, Garbled) or bool(codes - PARTLY)
        where = f"seed {seed}, message {number} of a {kind}: {[f.hex() for f in frames]}"
        if refused and not codes & PARTLY:
            assert snapshot(machine, now) == before, f"a refused frame changed state; {where}"
        if number % 50 == 0 and not isinstance(machine, DeviceMachine):
            machine.check_invariants()
        yield "garbled" if isinstance(event, Garbled) else "refused" if refused else "taken"


@pytest.mark.rule("WMP-10.1")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [800, pytest.param(67_000, marks=pytest.mark.deep)])
def test_a_refused_frame_changes_nothing(kind: str, count: int) -> None:
    became = list(play(kind, 15, count))

    assert len(became) == count
    assert min(became.count(word) for word in ("garbled", "refused", "taken")) > count // 100
