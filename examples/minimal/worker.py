"""A WMP worker/1, profile `core`, in pyzmq and cbor2, from `specs/smallest-worker.md` alone.

python worker.py tcp://127.0.0.1:5570[,tcp://…] [UNIT]      your work goes into HANDLERS
"""

import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import cbor2
import wire
import zmq

OK, FAILED, REFUSED = range(3)
HANDLERS: dict[str, Any] = {"echo": bytes, "slow": wire.slow, "fail": lambda payload: bytes(1 // 0)}


class Worker:
    """READY; GIVE for a WAKE; the job of a TAKE; DONE. It runs one job at a time."""

    def __init__(self, endpoints: list[str], unit: float) -> None:
        self.me, self.unit, self.ready, self.last_lock = wire.introduce(), unit, 1, 0
        self.managers: dict[bytes, Any] = {}
        self.lock: Any = None  # manager, number, until
        self.job: Any = None  # manager, owner, id, attempt, future
        self.pool = ThreadPoolExecutor(1)
        self.links: list[Any] = [wire.make(zmq.DEALER, endpoint) for endpoint in endpoints]
        for link in self.links:
            wire.write(link, [], [], self.me, "READY", **self.offer())

    def room(self) -> int:
        return int(not self.lock and not self.job)

    def offer(self, **more: Any) -> dict[str, Any]:
        room = {"ready": self.ready, "credit": self.room(), **more}
        return {**room, "roles": [*HANDLERS], "resources": wire.SLOT}

    def say(self, manager: Any, command: str, /, **fields: Any) -> None:
        if manager.session:
            fields |= {"session": manager.session, "ack": manager.received}
        wire.write(manager.link, [], manager.to, self.me, command, **fields)

    def say_ready(self, manager: Any, **more: Any) -> None:
        self.ready = manager.ready = self.ready + 1
        self.say(manager, "READY", **self.offer(**more))

    def answer(self, job: Any, outcome: int, payload: bytes) -> None:
        manager, owner, number, attempt, *_ = job
        manager.sent += 1
        table = {"ids": [number], "attempts": attempt, "outcomes": outcome, "payloads": [None]}
        frames = [wire.columns(**table), payload]
        self.say(manager, "DONE", number=manager.sent, manager=owner, frames=frames)

    def use_room(self) -> None:
        """Send GIVE to the waiting manager served least recently (WMP-3.10), else READY to all."""
        waiting = [manager for manager in self.managers.values() if manager.wake]
        if self.room() and waiting:
            manager = min(waiting, key=lambda manager: manager.served)
            manager.served = self.last_lock = self.last_lock + 1
            self.lock = manager, manager.served, time.monotonic() + 5 * self.unit
            (role, needs), manager.wake = manager.wake, None
            self.say(manager, "GIVE", lock=manager.served, want=1, roles=[role], needs=needs)
        elif self.room():
            for manager in self.managers.values():
                self.say_ready(manager)

    def receive(self, link: Any, frames: list[bytes]) -> None:
        """Act on a message. An error is raised before anything changes."""
        command, sender, fields = wire.read(self.me, frames[0], "WAKE TAKE NO CANCEL PONG")
        jobs = wire.rows(frames[1:], "ids", "attempts") if command == "TAKE" else []
        manager = self.meet(link, sender, fields.get("session", 0))
        if not manager or ("number" in fields and not self.is_next(manager, fields["number"])):
            return
        if command == "WAKE":
            fits = fields["role"] in HANDLERS and fields["needs"] in ({}, wire.SLOT)
            # The WAKE stays pending (WMP-3.9).
            manager.wake = (fields["role"], fields["needs"]) if fits else manager.wake
            self.use_room() if fits and self.room() else self.say_ready(manager, credit=0)
        elif command in ("TAKE", "NO"):
            if self.lock and self.lock[:2] == (manager, fields["lock"]):
                self.lock = None
            for job in jobs:
                self.take(fields["role"], [manager, fields["manager"], *job])
            self.use_room()
        elif command == "PONG" and not manager.wake:
            known = fields.get("ready") == manager.ready
            lacks = not known or (self.room() and not fields.get("credit"))
            if lacks and not (self.lock and self.lock[0] is manager):
                self.say_ready(manager)

    def meet(self, link: Any, sender: Any, session: int) -> Any:
        """Return the manager by identity; None for a message of an old epoch or session."""
        identity, epoch = sender[:2]
        known = self.managers.get(identity)
        if known and (epoch, session or known.session) < (known.epoch, known.session):
            return None
        if not known or (epoch, session) > (known.epoch, known.session):
            self.lock = None if self.lock and self.lock[0] is known else self.lock
            self.job = None if self.job and self.job[0] is known else self.job
            numbers = {"epoch": epoch, "session": session, "sent": 0, "received": 0, "served": 0}
            known = self.managers[identity] = SimpleNamespace(**numbers, ready=1, wake=None)
        known.link, known.to = link, sender[::-1]  # the latest route to the manager (WMP-1.8)
        return known

    def is_next(self, manager: Any, number: int) -> bool:
        if number > manager.received + 1:
            self.say(manager, "PING", again=True)
        fresh = number == manager.received + 1
        manager.received += fresh
        return fresh

    def take(self, role: str, job: list[Any]) -> None:
        if self.room() and role in HANDLERS:
            self.job = [*job[:4], self.pool.submit(HANDLERS[role], job[4])]
        else:
            self.answer(job, REFUSED, b"no such role, or no room")

    def tick(self) -> None:
        if self.lock and time.monotonic() > self.lock[2]:
            self.lock = None
            self.use_room()
        if self.job and self.job[4].done():
            job, self.job = self.job, None
            error = job[4].exception()
            trace = "".join(traceback.format_exception(error)) if error else ""
            failure = cbor2.dumps([type(error).__name__, str(error), trace])
            self.answer(job, FAILED if error else OK, failure if error else job[4].result())
            self.use_room()

    def ping(self) -> None:
        for link in self.links:
            wire.write(link, [], [], self.me, "PING")
        for manager in self.managers.values():
            self.say(manager, "PING", idle=not self.job)  # no DONE is kept


if __name__ == "__main__":
    worker, ping_at = Worker(sys.argv[1].split(","), wire.unit()), 0.0
    while True:
        for link in zmq.select(worker.links, [], [], 0.001 if worker.job else 0.01)[0]:
            wire.safely(worker.receive, link, link.recv_multipart())
        worker.tick()
        if time.monotonic() > ping_at:
            ping_at = time.monotonic() + worker.unit
            worker.ping()
