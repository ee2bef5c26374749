"""A WMP worker/1, profile `core`, in plain pyzmq and cbor2, from `specs/wmp.md` alone.

python worker.py tcp://127.0.0.1:5570[,tcp://…]          your work goes into HANDLERS
"""

import argparse
import os
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import cbor2
import zmq

READY, WAKE, GIVE, TAKE, NO, DONE, STATUS, CANCEL, PING, PONG, BYE, ERROR = range(1, 13)
# The keys of fields and columns, and the outcomes.
NUMBER, ACK, SESSION, AGAIN, READY_NUMBER, CREDIT, WINDOW, ROLES, RESOURCES = range(9)
COUNT, ROLE, NEEDS, LOCK, WANT, HOLD, MORE, MANAGER = range(9, 17)
MAX_SILENCE, IDLE = 19, 26
IDS, ATTEMPTS, LEFT, OUTCOMES, PAYLOADS = range(1, 6)
OK, FAILED, REFUSED = range(3)
RECEIVES: dict[int, dict[int, type]] = {  # required fields
    WAKE: {COUNT: int, ROLE: str, NEEDS: dict},
    TAKE: {NUMBER: int, SESSION: int, LOCK: int, ROLE: str, NEEDS: dict, MANAGER: list},
    NO: {NUMBER: int, SESSION: int, LOCK: int},
    CANCEL: {NUMBER: int, SESSION: int, MANAGER: list},  # the worker only counts CANCEL
    PONG: {MAX_SILENCE: int, SESSION: int},
}
LOCK_TIMEOUT, PING_INTERVAL, SLOT = 5, 1, {"slots": 1}  # units; units; resources in all


def slow(payload: bytes) -> bytes:
    """Take as many milliseconds as the payload says."""
    time.sleep(int(payload) / 1000)
    return payload


HANDLERS: dict[str, Any] = {"echo": bytes, "slow": slow, "fail": lambda payload: bytes(1 // 0)}


class Worker:
    """READY; GIVE for a WAKE; the job of a TAKE; DONE. It runs one job at a time."""

    def __init__(self, endpoints: list[str], unit: float) -> None:
        self.me: list[Any] = [os.urandom(16), time.time_ns() // 1_000_000]
        self.unit, self.ready, self.last_lock = unit, 1, 0
        self.managers: dict[bytes, Any] = {}
        self.lock: Any = None  # manager, number, until
        self.job: Any = None  # manager, owner, id, attempt, future
        self.pool = ThreadPoolExecutor(1)
        self.links: list[Any] = [zmq.Context.instance().socket(zmq.DEALER) for _ in endpoints]
        for link, endpoint in zip(self.links, endpoints, strict=True):
            link.set(zmq.MAXMSGSIZE, 1 << 28)
            link.set(zmq.HEARTBEAT_IVL, 1000)
            link.connect(endpoint)
            self.send(link, [], READY, self.offer())

    def room(self) -> int:
        return int(not self.lock and not self.job)

    def offer(self, *nothing: int) -> dict[int, Any]:
        room = {CREDIT: self.room(), **dict.fromkeys(nothing, 0)}
        return {READY_NUMBER: self.ready, **room, ROLES: [*HANDLERS], RESOURCES: SLOT}

    def send(self, link: Any, to: Any, command: int, fields: Any, *frames: bytes) -> None:
        try:
            head = cbor2.dumps([1, command, to, self.me, fields], canonical=True)
            link.send_multipart([head, *frames], zmq.DONTWAIT)
        except (zmq.Again, cbor2.CBORError):
            pass  # a full pipe, or a path that is not CBOR

    def say(self, manager: Any, command: int, fields: Any, *frames: bytes) -> None:
        if manager.session:
            fields = {**fields, SESSION: manager.session, ACK: manager.received}
        self.send(manager.link, manager.to, command, fields, *frames)

    def say_ready(self, manager: Any, *nothing: int) -> None:
        self.ready = manager.ready = self.ready + 1
        self.say(manager, READY, self.offer(*nothing))

    def answer(self, job: Any, outcome: int, payload: bytes) -> None:
        manager, owner, number, attempt, *_ = job
        manager.sent += 1
        columns = cbor2.dumps(
            {IDS: [number], ATTEMPTS: attempt, OUTCOMES: outcome, PAYLOADS: [None]}
        )
        self.say(manager, DONE, {NUMBER: manager.sent, MANAGER: owner}, columns, payload)

    def use_room(self) -> None:
        """Send GIVE to the waiting manager served least recently (WMP-3.10), else READY to all."""
        waiting = [one for one in self.managers.values() if one.wake]
        if self.room() and waiting:
            one = min(waiting, key=lambda one: one.served)
            one.served = self.last_lock = self.last_lock + 1
            self.lock = one, one.served, time.monotonic() + LOCK_TIMEOUT * self.unit
            asked, one.wake = {ROLES: [one.wake[ROLE]], NEEDS: one.wake[NEEDS]}, None
            self.say(one, GIVE, {LOCK: one.served, WANT: 1, **asked})
        elif self.room():
            for one in self.managers.values():
                self.say_ready(one)

    def receive(self, link: Any, frames: list[bytes]) -> None:
        """Act on a message. An error is raised before anything changes."""
        version, command, to, sender, fields = cbor2.loads(frames[0])
        good = all(type(fields[key]) is kind for key, kind in RECEIVES[command].items())
        if version != 1 or to != self.me[::-1] or not good:
            raise ValueError("the message has another version, another receiver or a wrong type")
        jobs = self.read_jobs(frames) if command == TAKE else []
        manager = self.meet(link, sender, fields.get(SESSION, 0))
        if not manager or (NUMBER in fields and not self.is_next(manager, fields[NUMBER])):
            return
        if command == WAKE:
            fits = fields[ROLE] in HANDLERS and fields[NEEDS] in ({}, SLOT)
            manager.wake = fields if fits else manager.wake  # the WAKE stays pending (WMP-3.9)
            self.use_room() if fits and self.room() else self.say_ready(manager, CREDIT)
        elif command in (TAKE, NO):
            if self.lock and self.lock[:2] == (manager, fields[LOCK]):
                self.lock = None
            for job in jobs:
                self.take(fields[ROLE], [manager, fields[MANAGER], *job])
            self.use_room()
        elif command == PONG and not manager.wake and not (self.lock and self.lock[0] is manager):
            known = fields.get(READY_NUMBER) == manager.ready
            if not known or (self.room() and not fields.get(CREDIT)):
                self.say_ready(manager)

    def read_jobs(self, frames: list[bytes]) -> list[Any]:
        """Return id, attempt and payload of each job."""
        columns, behind = cbor2.loads(frames[1]), iter(frames[2:])
        ids, attempts, payloads = columns[IDS], columns[ATTEMPTS], columns[PAYLOADS]
        attempts = attempts if type(attempts) is list else [attempts] * len(ids)
        payloads = [next(behind, b"") if one is None else one + b"" for one in payloads]
        return list(zip(ids, attempts, payloads, strict=True))

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
            self.say(manager, PING, {AGAIN: True})
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
            told = "".join(traceback.format_exception(error)) if error else ""
            failure = cbor2.dumps([type(error).__name__, str(error), told])
            self.answer(job, FAILED if error else OK, failure if error else job[4].result())
            self.use_room()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a minimal worker of WMP/1.")
    parser.add_argument("endpoints", help="joined by commas")
    parser.add_argument(
        "--unit", type=int, default=1000, help="milliseconds that one second of the timers takes"
    )
    given = parser.parse_args()
    worker, ping_at = Worker(given.endpoints.split(","), given.unit / 1000), 0.0
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        for link in zmq.select(worker.links, [], [], 0.001 if worker.job else 0.01)[0]:
            try:
                worker.receive(link, link.recv_multipart())
            except (ValueError, TypeError, LookupError, AttributeError, cbor2.CBORError) as error:
                # A bad message must not end the worker (WMP-10.1).
                print("dropped:", repr(error), file=sys.stderr)
        worker.tick()
        if time.monotonic() > ping_at:
            ping_at = time.monotonic() + PING_INTERVAL * worker.unit
            for link in worker.links:
                worker.send(link, [], PING, {})
            for manager in worker.managers.values():
                worker.say(manager, PING, {IDLE: not worker.job})  # no DONE is kept
