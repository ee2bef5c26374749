"""A worker of WMP/1, profile `core`, in plain pyzmq and cbor2, from `specs/wmp.md` alone.

python worker.py tcp://127.0.0.1:5555[,tcp://…]          your work goes into ROLES
"""

import argparse
import os
import signal
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import cbor2
import zmq
from messages import CANCELLED, FAILED, OK, REFUSED, decode, encode

LOCK_TIMEOUT, PING_INTERVAL = 5, 1  # units
SLOT = {"slots": 1}  # all that it has, and the most that a job may need
RECEIVES = "WAKE TAKE NO CANCEL PONG ERROR"


def slow(payload: bytes) -> bytes:
    """Take as many milliseconds as the payload says."""
    time.sleep(int(payload) / 1000)
    return payload


ROLES: dict[str, Any] = {"echo": bytes, "slow": slow, "fail": lambda payload: bytes(1 // 0)}


class Worker:
    """READY; GIVE for a WAKE; what TAKE brings; DONE. It has one place, and runs one job there."""

    def __init__(self, endpoints: list[str], unit: float) -> None:
        self.me: list[Any] = [os.urandom(16), time.time_ns() // 1_000_000]
        self.unit, self.ready, self.last_lock = unit, 1, 0
        self.managers: dict[bytes, Any] = {}
        self.lock: Any = None  # manager, number, until
        self.job: Any = None  # manager, owner, id, attempt, what runs
        self.pool = ThreadPoolExecutor(1)
        self.links: list[Any] = [zmq.Context.instance().socket(zmq.DEALER) for _ in endpoints]
        for link, endpoint in zip(self.links, endpoints, strict=True):
            link.set(zmq.MAXMSGSIZE, 1 << 28)
            link.set(zmq.HEARTBEAT_IVL, 1000)
            link.connect(endpoint)
            self.send(link, [], "READY", **self.offer())

    def has_room(self) -> bool:
        return not self.lock and not self.job

    def offer(self) -> dict[str, Any]:
        credit = int(self.has_room())
        return {"ready": self.ready, "credit": credit, "roles": [*ROLES], "resources": SLOT}

    def send(self, link: Any, to: Any, command: str, *frames: bytes, **fields: Any) -> None:
        try:
            link.send_multipart([encode(self.me, to, command, fields), *frames], zmq.DONTWAIT)
        except zmq.Again:
            pass  # who does not read has other worries

    def say(self, manager: Any, command: str, /, *frames: bytes, **fields: Any) -> None:
        if manager.session:
            fields |= {"session": manager.session, "ack": manager.received}
        self.send(manager.link, manager.to, command, *frames, **fields)

    def say_ready(self, manager: Any) -> None:
        self.ready = manager.ready = self.ready + 1
        self.say(manager, "READY", **self.offer())

    def answer(self, job: Any, outcome: int, payload: bytes) -> None:
        manager, owner, number, attempt, *_ = job
        manager.sent += 1
        columns = cbor2.dumps({1: [number], 2: attempt, 4: outcome, 5: [None]})
        self.say(manager, "DONE", columns, payload, number=manager.sent, manager=owner)

    def use_room(self) -> None:
        """For who waits, the one served least recently before all (WMP-3.10); else tell it."""
        for one in sorted(self.managers.values(), key=lambda one: one.served):
            if one.wake and one.wake["needs"] in ({}, SLOT) and self.has_room():
                one.served = self.last_lock = self.last_lock + 1
                self.lock = one, one.served, time.monotonic() + LOCK_TIMEOUT * self.unit
                role, needs, one.wake = one.wake["role"], one.wake["needs"], None
                self.say(one, "GIVE", lock=one.served, want=1, roles=[role], needs=needs)
        for one in self.managers.values() if self.has_room() else ():
            self.say_ready(one)

    def receive(self, link: Any, frames: list[bytes]) -> None:
        command, sender, fields, jobs = decode(self.me, frames, RECEIVES)
        if not command:
            self.send(link, sender, "ERROR", **fields)
        elif command != "ERROR":
            manager = self.meet(link, sender, fields.get("session"))
            if manager and self.is_next(manager, fields.get("number")):
                getattr(self, command.lower())(manager, fields, jobs)

    def meet(self, link: Any, sender: Any, session: int | None) -> Any:
        """The manager, by identity, unless the message is of an epoch or session that is over."""
        known = self.managers.get(sender[0])
        if known and (sender[1], session or known.session) < (known.epoch, known.session):
            return None
        if not known or (sender[1], session or 0) > (known.epoch, known.session):
            self.lock = None if self.lock and self.lock[0] is known else self.lock
            self.job = None if self.job and self.job[0] is known else self.job
            numbers = {"epoch": sender[1], "session": session or 0, "sent": 0, "received": 0}
            numbers |= {"ready": known.ready if known else 1, "served": 0}
            known = self.managers[sender[0]] = SimpleNamespace(**numbers, wake=None)
        known.link, known.to = link, sender[::-1]  # the latest way to it (WMP-1.8)
        return known

    def is_next(self, manager: Any, number: int | None) -> bool:
        if number is not None and number > manager.received + 1:
            self.say(manager, "PING", again=True)
        fresh = number == manager.received + 1
        manager.received += fresh
        return fresh or number is None

    def wake(self, manager: Any, fields: Any, jobs: Any) -> None:
        manager.wake = fields
        if self.has_room() and fields["needs"] in ({}, SLOT):
            return self.use_room()
        self.say_ready(manager)  # and it stays pending (WMP-3.9)

    def unlock(self, manager: Any, number: int) -> bool:
        held = bool(self.lock and self.lock[:2] == (manager, number))
        self.lock = None if held else self.lock
        return held

    def take(self, manager: Any, fields: Any, jobs: Any) -> None:
        self.unlock(manager, fields["lock"])
        for number, attempt, left, payload in jobs:
            job = [manager, fields["manager"], number, attempt]
            if self.job and self.job[1:3] == job[1:3]:  # the higher attempt counts (WMP-4.14)
                self.job[:4] = job if attempt > self.job[3] else self.job[:4]
            elif not self.has_room() or fields["role"] not in ROLES:
                self.answer(job, REFUSED, b"no such role, or no room")
            elif left == 0:
                self.answer(job, CANCELLED, b"")
            else:
                self.job = [*job, self.pool.submit(ROLES[fields["role"]], payload)]
        if self.has_room():
            self.use_room()

    def no(self, manager: Any, fields: Any, jobs: Any) -> None:
        if self.unlock(manager, fields["lock"]):
            self.use_room()
        elif fields["lock"] > self.last_lock:
            self.send(manager.link, manager.to, "ERROR", code="unknown")

    def cancel(self, manager: Any, fields: Any, jobs: Any) -> None:
        for number, attempt, *_ in jobs:
            job = [manager, fields["manager"], number, attempt]
            if not self.job or self.job[1:4] != job[1:]:
                self.answer(job, CANCELLED, b"")

    def pong(self, manager: Any, fields: Any, jobs: Any) -> None:
        asks = manager.wake or (self.lock and self.lock[0] is manager)
        knows = fields.get("ready") == manager.ready and fields.get("credit") >= self.has_room()
        if not asks and not knows:
            self.say_ready(manager)

    def tick(self) -> None:
        if self.lock and time.monotonic() > self.lock[2]:
            self.lock = None
            self.use_room()
        if self.job and self.job[4].done():
            job, self.job = self.job, None
            error = job[4].exception()
            told = "".join(traceback.format_exception(error)) if error else ""
            failure = cbor2.dumps([type(error).__name__, str(error), told])
            self.answer(job, FAILED if error else OK, failure if error else job[4].result())
            self.use_room()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="a minimal worker of WMP/1")
    parser.add_argument("endpoints", help="joined by commas")
    parser.add_argument("--unit", type=int, default=1000, help="milliseconds in place of a second")
    given = parser.parse_args()
    worker, ping_at = Worker(given.endpoints.split(","), given.unit / 1000), 0.0
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        for link in zmq.select(worker.links, [], [], 0.01)[0]:
            worker.receive(link, link.recv_multipart())
        worker.tick()
        if time.monotonic() > ping_at:
            ping_at = time.monotonic() + PING_INTERVAL * worker.unit
            for link in worker.links:
                worker.send(link, [], "PING")
            for manager in worker.managers.values():
                worker.say(manager, "PING", idle=not worker.job)  # no DONE is kept
