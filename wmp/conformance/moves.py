"""Drawn conversations: Hypothesis finds the messages and their order.

A conversation is a list of *moves*. A move is a list of a name and small integers, so it can
be written to a file as JSON, shrunk, and played again, in process or with a live peer. A move
that makes no sense in the current state does nothing. Moves send correct and wrong messages,
late, twice or never. In all cases the general rules hold, every job ends, and the testee works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field

from wmp import codec
from wmp.conformance.bad_messages import bad_heads
from wmp.conformance.case import Case
from wmp.conformance.conversations import DeviceTalk, ManagerTalk, Neighbor, WorkerTalk
from wmp.conformance.played_manager import PlayedManager
from wmp.conformance.played_worker import Held, PlayedWorker
from wmp.message import Columns, Command, ErrorCode, Field, Message

__all__ = ["MOVES", "Move", "drawn_case"]

Move = Sequence[Any]
"""A name, then integers from 0 to 9."""

_NOISE = (
    [b""],
    [b"GET / HTTP/1.1\r\n\r\n"],
    [b"\x85\x01\x04\x80\x80\xa0", b"\xa0"],
    [1000 * b"\x81"],
    [b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff"],
    [bytes(range(256)), b"", b"x"],
)
_CODES = (
    ErrorCode.UNKNOWN,
    ErrorCode.MALFORMED,
    ErrorCode.LIMIT,
    ErrorCode.LOOP,
    "of a later version",
)


@define(eq=False)
class _Managed:
    """Two workers that send drawn messages to a manager."""

    talk: ManagerTalk
    workers: list[PlayedWorker] = field(factory=list)
    names: list[str] = field(factory=list)
    cancelled: set[str] = field(factory=set)
    gone: set[str] = field(factory=set)
    past: list[Held] = field(factory=list)

    def begin(self) -> None:
        self.workers = [self.talk.met(f"w{number}") for number in (1, 2)]

    def move(self, name: str, *numbers: int) -> None:
        one, two, three = (*numbers, 0, 0, 0)[:3]
        worker = self.workers[one % 2]
        if worker.name in self.gone and name not in ("submit", "cancel", "wait", "restart"):
            return
        getattr(self, f"_{name}")(worker, two, three)

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
                self.talk.now < until, f"{name} does not end, though a worker asks", "WMP-6.1"
            )
            jobs = helper.take(8, hold=1.0, within=2.0)
            if jobs:
                helper.done(*jobs)
            self.talk.settle()

    def _held(self, worker: PlayedWorker, number: int) -> Held | None:
        held = list(worker.held.values())
        return held[number % len(held)] if held else None

    # -- moves: (worker, number, number)

    def _submit(self, worker: PlayedWorker, role: int, retries: int) -> None:
        self.names.append(
            self.talk.submit(role=("echo", "echo", "other")[role % 3], retries=3 + retries)
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
        """Send a DONE behind a gap: the numbers before it arrive later."""
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
        """Drop a held job, and report that by a PING without it."""
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
        worker.raw(*_NOISE[kind % len(_NOISE)])

    def _bad(self, worker: PlayedWorker, kind: int, more: int) -> None:
        fields: dict[int | str, Any] = {7: ["echo"], 11: {"slots": 1}, 12: worker.lock + 1, 13: 1}
        bad = list(bad_heads(Message(Command.GIVE, worker.to, worker.path, fields)))
        worker.raw(*bad[(10 * kind + more) % len(bad)].frames)

    def _error(self, worker: PlayedWorker, code: int, _: int) -> None:
        worker.error(_CODES[code % len(_CODES)], about=int(Command.TAKE))


@define(eq=False)
class _Worked:
    """Two managers that send drawn messages to a worker."""

    talk: WorkerTalk
    managers: list[PlayedManager] = field(factory=list)

    def begin(self) -> None:
        self.managers = [self.talk.met(f"m{number}") for number in (1, 2)]

    def move(self, name: str, *numbers: int) -> None:
        one, two, three = (*numbers, 0, 0, 0)[:3]
        getattr(self, f"_{name}")(self.managers[one % 2], two, three)

    def end(self) -> None:
        """Check that every job that was given is answered."""
        talk = self.talk
        for manager in self.managers:
            manager.retire()
            manager.pong()
        for manager in self.managers:
            talk.until(
                lambda manager=manager: not manager.given,  # type: ignore[misc]
                20.0,
                "WMP-6.6",
                f"jobs of {manager.name} are not answered",
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
            most = manager.locks[lock].want
            payloads = [self._payload(kind)] * min(most, 1 + kind % 3)
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
        """Give a held job again, as a higher attempt."""
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
        if manager.last_sent + manager.expire <= self.talk.now + 1.0:
            manager.new_session()
        manager.pong()

    def _wait(self, manager: PlayedManager, units: int, _: int) -> None:
        self.talk.wait(units / 4)

    def _noise(self, manager: PlayedManager, kind: int, _: int) -> None:
        manager.raw(*_NOISE[kind % len(_NOISE)])

    def _bad(self, manager: PlayedManager, kind: int, more: int) -> None:
        fields: dict[int | str, Any] = {
            Field.COUNT: 1,
            Field.ROLE: "echo",
            Field.NEEDS: {"slots": 1},
        }
        bad = list(bad_heads(Message(Command.WAKE, manager.to, manager.path, fields)))
        manager.raw(*bad[(10 * kind + more) % len(bad)].frames)

    def _error(self, manager: PlayedManager, code: int, _: int) -> None:
        manager.error(_CODES[code % len(_CODES)], about=int(Command.DONE))


@define(eq=False)
class _Passed:
    """Two peers below and two above a device that send drawn messages."""

    talk: DeviceTalk
    below: list[Neighbor] = field(factory=list)
    above: list[Neighbor] = field(factory=list)
    routes: dict[tuple[str, str], Any] = field(factory=dict)
    sent: int = 0

    def begin(self) -> None:
        first, above = self.talk.joined(2)
        self.above = list(above)
        self.below = [first, self.talk.below("second")]
        for lower in self.below:
            for upper in self.above:
                down, up = self.talk.route(upper, lower)
                self.routes[upper.name, lower.name] = down
                self.routes[lower.name, upper.name] = up
        self._clear()

    def move(self, name: str, *numbers: int) -> None:
        one, two, three = (*numbers, 0, 0, 0)[:3]
        getattr(self, f"_{name}")(one % 2, two % 2, three)

    def end(self) -> None:
        """Nothing remains to be checked."""

    def _clear(self) -> None:
        self.talk.settle()
        for one in (*self.below, *self.above):
            one.inbox.clear()

    def _arrives(self, who: Neighbor, *others: Neighbor) -> None:
        """Check that the last message arrives at one neighbor, once, and at no other."""
        label = f"n{self.sent}"
        who.expect(
            Command.PING,
            Command.PONG,
            where=lambda received: received["label"] == label,
            rule="WMP-8.2",
        )
        for one in (who, *others):
            again = one.wait_for(
                Command.PING,
                Command.PONG,
                where=lambda received: received["label"] == label,
                within=0.0,
            )
            self.talk.check(again is None, f"the message also arrives at {one.name}", "WMP-8.2")

    # -- moves: (below, above, number)

    def _up(self, lower: int, upper: int, _: int) -> None:
        self.sent += 1
        sender, receiver = self.below[lower], self.above[upper]
        to = self.routes[sender.name, receiver.name]
        sender.send(Command.PING, to=to, label=f"n{self.sent}", session=1, ack=0)
        self._arrives(receiver, self.above[1 - upper], *self.below)

    def _down(self, lower: int, upper: int, _: int) -> None:
        self.sent += 1
        sender, receiver = self.above[upper], self.below[lower]
        to = self.routes[sender.name, receiver.name]
        sender.send(Command.PONG, to=to, label=f"n{self.sent}", expire=6000, session=1)
        self._arrives(receiver, self.below[1 - lower], *self.above)

    def _all(self, lower: int, upper: int, _: int) -> None:
        self.sent += 1
        self.below[lower].send(Command.PING, label=f"n{self.sent}")
        for one in self.above:
            self._arrives(one, *self.below)

    def _noise(self, lower: int, upper: int, kind: int) -> None:
        side = (*self.below, *self.above)[(lower + 2 * upper) % 4]
        side.raw(*_NOISE[kind % len(_NOISE)])

    def _bad(self, lower: int, upper: int, kind: int) -> None:
        sender = self.below[lower]
        to = self.routes[sender.name, self.above[upper].name]
        bad = list(bad_heads(Message(Command.GIVE, to, sender.path, {12: 1, 13: 0})))
        sender.raw(*bad[kind * 3 % len(bad)].frames)

    def _astray(self, lower: int, upper: int, kind: int) -> None:
        sender = self.below[lower]
        to = list(self.routes[sender.name, self.above[upper].name])
        to[kind % 3] = (b"\x00nobody", 1, b"somebody")[kind % 3]
        sender.raw(*codec.encode(Message(Command.BYE, tuple(to), sender.path, {})))

    def _error(self, lower: int, upper: int, code: int) -> None:
        sender = self.above[upper]
        to = self.routes[sender.name, self.below[lower].name]
        sender.send(Command.ERROR, to=to, code=_CODES[code % len(_CODES)])


_ACTORS: dict[str, Callable[[Any], Any]] = {
    "manager": _Managed,
    "worker": _Worked,
    "device": _Passed,
}

MOVES: dict[str, tuple[str, ...]] = {
    kind: tuple(
        name.removeprefix("_")
        for name, method in vars(actor).items()
        if callable(method) and name[0] == "_" and name[1] != "_" and name not in _HELPERS
    )
    for kind, actor, _HELPERS in (
        ("manager", _Managed, ("_until_ended", "_held")),
        ("worker", _Worked, ("_open", "_role", "_payload")),
        ("device", _Passed, ("_clear", "_arrives")),
    )
}
"""The moves for each kind of testee."""


def drawn_case(testee: str, moves: Sequence[Move]) -> Case:
    """A case that makes these moves, and then holds that every job ends."""

    def script(talk: Any) -> None:
        actor = _ACTORS[testee](talk)
        actor.begin()
        for name, *numbers in moves:
            talk.remark(" ".join(map(str, (name, *numbers))))
            actor.move(name, *numbers)
        talk.settle()
        actor.end()

    script.__doc__ = f"{len(moves)} drawn moves."
    links = 2 if testee == "device" else 1
    return Case(f"{testee}/drawn", testee, ("WMP-10.1",), script, slots=2, links=links)
