"""Moves of managers in drawn conversations with a worker."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from wmp.conformance.peers.conversations import WorkerConversation
from wmp.conformance.peers.played_manager import PlayedManager
from wmp.conformance.wire.bad_messages import CODES, NOISE, bad_heads
from wmp.message import Columns, Command, Field, Message


@define(eq=False)
class WorkerMoves:
    """Two managers that send drawn messages to a worker."""

    talk: WorkerConversation
    managers: list[PlayedManager] = field(factory=list)

    def begin(self) -> None:
        self.managers = [self.talk.met(f"m{number}") for number in (1, 2)]

    def move(self, name: str, *numbers: int) -> None:
        first, second, third = (*numbers, 0, 0, 0)[:3]
        getattr(self, f"_{name}")(self.managers[first % 2], second, third)

    def end(self) -> None:
        """Check that the worker answers every job that it received."""
        talk = self.talk
        for manager in self.managers:
            manager.retire()
            manager.pong()
        for manager in self.managers:
            talk.until(
                lambda manager=manager: not manager.given,  # type: ignore[misc]
                20.0,
                "WMP-6.6",
                f"{manager.name} received no DONE for some of its jobs within 20 units",
            )

    def _open(self, manager: PlayedManager, number: int) -> int | None:
        manager.drop_timed_out()
        open_ = [lock.number for lock in manager.locks.values() if lock.want]
        return open_[number % len(open_)] if open_ else None

    # -- moves: (manager, number, number)

    def _wake(self, manager: PlayedManager, count: int, role: int) -> None:
        if manager.credit:
            names = ("echo", "echo", "slow")
            manager.wake(min(1 + count, manager.credit), role=names[role % len(names)])
            self.talk.settle()

    def _take(self, manager: PlayedManager, number: int, kind: int) -> None:
        lock = self._open(manager, number)
        if lock is not None:
            maximum = manager.locks[lock].want
            payloads = [self._payload(kind)] * min(maximum, 1 + kind % 3)
            manager.take(lock, *payloads, role=self._role(kind), attempt=1, more=bool(number % 2))

    def _role(self, kind: int) -> str:
        return ("echo", "echo", "echo", "slow", "slow", "fail", "nobody's")[kind % 7]

    def _payload(self, kind: int) -> bytes:
        return b"%d" % self.talk.ms(kind / 10)

    def _late_take(self, manager: PlayedManager, back: int, kind: int) -> None:
        lock = manager.last_lock - back
        if lock > 0 and lock not in manager.locks:
            manager.take(lock, self._payload(kind), role=self._role(kind))

    def _same_take(self, manager: PlayedManager, number: int, kind: int) -> None:
        """Send TAKE for a held job again, with a higher attempt."""
        held = list(manager.given.values())
        lock = manager.last_lock
        if held and lock and lock not in manager.locks:
            job = held[number % len(held)]
            manager.take(lock, job.payload, ids=[job.id], attempt=job.attempt + 1)

    def _no(self, manager: PlayedManager, number: int, _: int) -> None:
        if (lock := self._open(manager, number)) is not None:
            manager.no(lock)

    def _late_no(self, manager: PlayedManager, back: int, _: int) -> None:
        lock = manager.last_lock + 2 - back
        if lock > 0 and lock not in manager.locks:
            manager.no(lock)

    def _cancel(self, manager: PlayedManager, number: int, kind: int) -> None:
        held = list(manager.given.values())
        if held and kind % 3:
            job = held[number % len(held)]
            unstarted = True if kind % 3 == 2 else None
            manager.cancel(job.id, attempt=job.attempt, unstarted=unstarted)
        elif not kind % 3:
            manager.cancel(500 + number, attempt=1 + kind)

    def _pong(self, manager: PlayedManager, kind: int, _: int) -> None:
        match kind % 4:
            case 0:
                manager.pong()
            case 1:
                manager.pong(ready=None)
            case 2:
                manager.pong(again=True)
            case _:
                manager.pong(credit=0)

    def _repeat(self, manager: PlayedManager, back: int, _: int) -> None:
        if manager.number > back:
            manager.repeat(manager.number - back)

    def _gap(self, manager: PlayedManager, ahead: int, _: int) -> None:
        columns = Columns([900 + ahead], [1], payloads=[b"behind a gap"])
        manager.send(
            Command.TAKE,
            columns,
            lock=1,
            role="echo",
            needs={"slots": 1},
            manager=(manager.identity, manager.epoch),
            number=manager.number + 2 + ahead,
        )

    def _new_session(self, manager: PlayedManager, *_: int) -> None:
        self.talk.settle()
        manager.new_session()
        manager.pong()

    def _restart(self, manager: PlayedManager, *_: int) -> None:
        manager.restart()
        manager.pong()

    def _reroute(self, manager: PlayedManager, number: int, _: int) -> None:
        self.talk.settle()
        manager.move(hops=(b"another", 9, number))
        manager.pong()

    def _silence(self, manager: PlayedManager, units: int, _: int) -> None:
        manager.answers = False
        self.talk.wait(units)
        manager.answers = True
        self.talk.settle()
        if manager.last_sent + manager.max_silence <= self.talk.now + 1.0:
            manager.new_session()
        manager.pong()

    def _wait(self, manager: PlayedManager, units: int, _: int) -> None:
        self.talk.wait(units / 4)

    def _noise(self, manager: PlayedManager, kind: int, _: int) -> None:
        manager.raw(*NOISE[kind % len(NOISE)])

    def _bad(self, manager: PlayedManager, kind: int, more: int) -> None:
        fields: dict[int | str, Any] = {
            Field.COUNT: 1,
            Field.ROLE: "echo",
            Field.NEEDS: {"slots": 1},
        }
        bad = list(bad_heads(Message(Command.WAKE, manager.to, manager.path, fields)))
        manager.raw(*bad[(10 * kind + more) % len(bad)].frames)

    def _error(self, manager: PlayedManager, code: int, _: int) -> None:
        manager.error(CODES[code % len(CODES)], about=int(Command.DONE))
