"""Parts of manager and worker that serve gateways are switched off, and a test notices each."""

from __future__ import annotations

import pytest

from wmp.actions import End, Resolve
from wmp.balance import least_recently_used
from wmp.codec import pack_frames
from wmp.core.manager.job_ends import JobEnds
from wmp.core.manager.leases import Leases
from wmp.core.manager.machine import ManagerMachine
from wmp.core.protocol.settings import ManagerSettings
from wmp.core.worker.machine import WorkerMachine
from wmp.errors import DecodeError
from wmp.events import Received
from wmp.foreign import Arrived, Emit, Left, Settled
from wmp.gateways import ClientDoor, WorkerDoor
from wmp.gateways.common.attendance import Attendance
from wmp.gateways.common.body import from_payload
from wmp.gateways.gateway.door_machine import DoorContext
from wmp.gateways.gateway.machine import GatewayMachine, GatewaySettings
from wmp.message import Command

FRONT, BACK = 0, 1


class PlainGateway:
    """A gateway in the place of a Simple Pirate queue, step by step."""

    def __init__(self, workers: int) -> None:
        home = (b"gateway", 1)
        manager = ManagerMachine(ManagerSettings(identity=home[0], epoch=1), least_recently_used)
        context = DoorContext(home=home)
        doors = [
            ClientDoor("inproc://front").make(context),
            WorkerDoor("inproc://back", protocol="simple-pirate").make(context),
        ]
        self.machine = GatewayMachine(
            GatewaySettings(identity=home[0], epoch=1), doors, [FRONT], manager
        )
        self.now = 1.0
        self.jobs: dict[bytes, tuple[bytes, ...]] = {}
        """The request that each worker has."""
        self.replies: list[tuple[bytes, ...]] = []
        for number in range(workers):
            self.feed(Arrived(BACK, b"w%d" % number, (b"", b"\x01")))
        self.settle()

    def feed(self, event: object) -> None:
        for action in self.machine.handle(event, self.now):
            if isinstance(action, Emit):
                if action.port == BACK:
                    self.jobs[action.peer] = action.frames
                else:
                    self.replies.append(action.frames)

    def settle(self) -> None:
        self.feed(Settled())

    def ask(self, *bodies: bytes, client: bytes = b"c") -> None:
        for body in bodies:
            self.feed(Arrived(FRONT, client, (b"", body)))
        self.settle()

    def answer(self, worker: bytes, *body: bytes) -> None:
        _, token, *_ = self.jobs.pop(worker)
        self.feed(Arrived(BACK, worker, (b"", token, b"", *body)))


@pytest.mark.parametrize("known", [True, False])
def test_a_manager_that_forgets_the_codec_of_a_result(known, monkeypatch):
    if not known:
        settle = Leases.settle

        def forget(self, worker, columns, codec):
            return settle(self, worker, columns, "")

        monkeypatch.setattr(Leases, "settle", forget)
    gateway = PlainGateway(1)
    gateway.ask(b"one")
    gateway.answer(b"w0", b"two", b"frames")
    gateway.settle()
    assert (gateway.replies == [(b"", b"two", b"frames")]) is known


@pytest.mark.parametrize("gathered", [True, False])
def test_a_worker_that_takes_each_result_in_a_step_of_its_own(gathered, monkeypatch):
    if not gathered:
        monkeypatch.setattr(WorkerMachine, "gather", WorkerMachine.handle)
    done = []
    handle = ManagerMachine.handle

    def watched(self, event, now):
        if isinstance(event, Received) and event.message.command is Command.DONE:
            done.append(len(event.message.columns.ids))
        return handle(self, event, now)

    monkeypatch.setattr(ManagerMachine, "handle", watched)
    gateway = PlainGateway(4)
    gateway.ask(b"a", b"b", b"c", b"d")
    for worker in tuple(gateway.jobs):
        gateway.answer(worker, b"did")
    gateway.settle()
    assert len(gateway.replies) == 4
    assert done == ([4] if gathered else [1, 1, 1, 1])


@pytest.mark.parametrize("unstarted", [True, False])
def test_a_manager_that_interrupts_what_a_client_that_left_has_begun(unstarted, monkeypatch):
    if not unstarted:
        cancel = JobEnds.cancel

        def interrupt(self, ids, now, *, unstarted=False):
            cancel(self, ids, now)

        monkeypatch.setattr(JobEnds, "cancel", interrupt)
    gateway = PlainGateway(1)
    gateway.ask(b"a", b"b")
    gateway.feed(Left(FRONT, b"c"))
    gateway.settle()
    (state,) = gateway.machine.doors[BACK].workers.values()
    assert state is (Attendance.BUSY if unstarted else Attendance.LATE)
    gateway.answer(b"w0", b"did")
    gateway.settle()
    assert (gateway.jobs, gateway.replies) == ({}, [])


@pytest.mark.parametrize("checked", [True, False])
def test_a_front_door_that_trusts_the_codecs_of_results(checked, monkeypatch):
    if not checked:
        monkeypatch.setattr(
            "wmp.gateways.queue_doors.client_door_machine.read_payload", from_payload
        )
    gateway = PlainGateway(0)
    gateway.ask(b"one", b"two")
    ends = (End.OK, End.OK)
    results = (b"no list", pack_frames([b"2", b"parts"]))
    resolve = Resolve((1, 2), ends, results, (1, 1), codecs={1: "frames", 2: "frames"})
    door = gateway.machine.doors[FRONT]
    if checked:
        drop, emit = door.handle(resolve, 1.0)
        assert drop.reason == "no reply"
        assert emit.frames == (b"", b"2", b"parts")
        assert door.statistics().unanswered == {"unreadable": 1}
    else:
        with pytest.raises(DecodeError):
            door.handle(resolve, 1.0)
