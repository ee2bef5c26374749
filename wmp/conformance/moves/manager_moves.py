"""Moves of workers in drawn conversations with a manager."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from wmp.conformance.peers.conversations import ManagerConversation
from wmp.conformance.peers.played_worker import HeldJob, PlayedWorker
from wmp.conformance.wire.bad_messages import CODES, NOISE, bad_heads
from wmp.message import Columns, Command, Message


@define(eq=False)
class ManagerMoves:
    """Two workers that send drawn messages to a manager."""

    talk: ManagerConversation
    workers: list[PlayedWorker] = field(factory=list)
    names: list[str] = field(factory=list)
    cancelled: set[str] = field(factory=set)
    gone: set[str] = field(factory=set)
    past: list[HeldJob] = field(factory=list)

    def begin(self) -> None:
        self.workers = [self.talk.met(f"w{number}") for number in (1, 2)]

    def move(self, name: str, *numbers: int) -> None:
        first, second, third = (*numbers, 0, 0, 0)[:3]
        worker = self.workers[first % 2]
        if worker.name in self.gone and name not in ("submit", "cancel", "wait", "restart"):
            return
        getattr(self, f"_{name}")(worker, second, third)

    def end(self) -> None:
        """Check that every job ends once a helper takes the jobs."""
        for worker in self.workers:
            if worker.name not in self.gone:
                worker.bye()
        helper = self.talk.met("helper", roles=["echo", "other"])
        for name in self.names:
            if name not in self.cancelled:
                self._until_ended(helper, name)

    def _until_ended(self, helper: PlayedWorker, name: str) -> None:
        until = self.talk.now + 20.0
        while not any(end.name == name for end in self.talk.collect_ends()):
            self.talk.check(
                self.talk.now < until,
                f"{name} has not ended within 20 units, although a worker sends GIVE",
                "WMP-6.1",
            )
            jobs = helper.take(8, hold=1.0, within=2.0)
            if jobs:
                helper.done(*jobs)
            self.talk.settle()

    def _held(self, worker: PlayedWorker, number: int) -> HeldJob | None:
        held = list(worker.held.values())
        return held[number % len(held)] if held else None

    # -- moves: (worker, number, number)

    def _submit(self, worker: PlayedWorker, role: int, max_worker_losses: int) -> None:
        self.names.append(
            self.talk.submit(
                role=("echo", "echo", "other")[role % 3], max_worker_losses=3 + max_worker_losses
            )
        )

    def _cancel(self, worker: PlayedWorker, number: int, _: int) -> None:
        if self.names:
            name = self.names[number % len(self.names)]
            self.cancelled.add(name)
            self.talk.cancel(name)

    def _ready(self, worker: PlayedWorker, credit: int, window: int) -> None:
        worker.ready(credit, window=min(credit, window))

    def _old_ready(self, worker: PlayedWorker, back: int, _: int) -> None:
        if worker.ready_number > back:
            worker.ready(9, ready=worker.ready_number - back)

    def _give(self, worker: PlayedWorker, want: int, hold: int) -> None:
        worker.give(1 + want, hold=hold / 3)
        self.talk.settle()

    def _old_give(self, worker: PlayedWorker, back: int, want: int) -> None:
        if worker.lock > back:
            worker.give(want, lock=worker.lock - back)

    def _done(self, worker: PlayedWorker, number: int, outcome: int) -> None:
        if (job := self._held(worker, number)) is not None:
            self.past.append(job)
            worker.done(job, outcome=(0, 0, 0, 0, 1, 2, 3, 0, 0, 0)[outcome % 10])

    def _stale_done(self, worker: PlayedWorker, number: int, ahead: int) -> None:
        if self.past:
            job = self.past[number % len(self.past)]
            columns = Columns([job.id], [job.attempt], outcomes=[0], payloads=[b"stale"])
            if job.id not in worker.held:
                worker.send(Command.DONE, columns, manager=worker.testee)

    def _early_done(self, worker: PlayedWorker, number: int, ahead: int) -> None:
        """Send a DONE behind a gap; the numbers before it arrive later."""
        if (job := self._held(worker, number)) is not None:
            columns = Columns([job.id], [job.attempt], outcomes=[0], payloads=[b"too early"])
            number = worker.number + 2 + ahead
            worker.send(Command.DONE, columns, manager=worker.testee, number=number)

    def _repeat(self, worker: PlayedWorker, back: int, _: int) -> None:
        if worker.number > back:
            worker.repeat(worker.number - back)

    def _status(self, worker: PlayedWorker, number: int, fraction: int) -> None:
        if (job := self._held(worker, number)) is not None:
            worker.status(job, fraction / 9)

    def _ping(self, worker: PlayedWorker, kind: int, _: int) -> None:
        match kind % 4:
            case 0:
                worker.ping()
            case 1:
                worker.ping(again=True)
            case 2:
                worker.ping(held=list(worker.held.values()))
            case _:
                worker.ping(to=())

    def _drop(self, worker: PlayedWorker, number: int, _: int) -> None:
        """Drop a held job, and report this by a PING that does not list the job."""
        if (job := self._held(worker, number)) is not None:
            worker.ping(held=[other for other in worker.held.values() if other is not job])

    def _forget(self, worker: PlayedWorker, *_: int) -> None:
        worker.forget_manager()

    def _bye(self, worker: PlayedWorker, *_: int) -> None:
        worker.bye()
        self.gone.add(worker.name)

    def _restart(self, worker: PlayedWorker, *_: int) -> None:
        self.gone.discard(worker.name)
        worker.restart()
        worker.lively = True
        worker.meet()

    def _reconnect(self, worker: PlayedWorker, device: int, _: int) -> None:
        hops = () if device % 2 else (b"device", 3, b"\x00" + bytes((device,)))
        worker.move(self.talk.wire.dial(), hops=hops)
        worker.ping()

    def _wait(self, worker: PlayedWorker, units: int, _: int) -> None:
        self.talk.wait(units / 4)

    def _noise(self, worker: PlayedWorker, kind: int, _: int) -> None:
        worker.raw(*NOISE[kind % len(NOISE)])

    def _bad(self, worker: PlayedWorker, kind: int, more: int) -> None:
        fields: dict[int | str, Any] = {7: ["echo"], 11: {"slots": 1}, 12: worker.lock + 1, 13: 1}
        bad = list(bad_heads(Message(Command.GIVE, worker.to, worker.path, fields)))
        worker.raw(*bad[(10 * kind + more) % len(bad)].frames)

    def _error(self, worker: PlayedWorker, code: int, _: int) -> None:
        worker.error(CODES[code % len(CODES)], about=int(Command.TAKE))
