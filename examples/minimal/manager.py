"""A WMP manager/1, profile `core`, in plain pyzmq and cbor2, from `specs/wmp.md` alone.

python manager.py tcp://127.0.0.1:5570                   then type: submit NAME ROLE HEX
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter, deque
from threading import Thread
from types import SimpleNamespace
from typing import Any

import cbor2
import zmq

READY, WAKE, GIVE, TAKE, NO, DONE, STATUS, CANCEL, PING, PONG, BYE, ERROR = range(1, 13)
# The keys of fields and columns, and the outcomes.
NUMBER, ACK, SESSION, AGAIN, READY_NUMBER, CREDIT, WINDOW, ROLES, RESOURCES = range(9)
COUNT, ROLE, NEEDS, LOCK, WANT, HOLD, MORE, MANAGER, CODEC, UNSTARTED, MAX_SILENCE = range(9, 20)
IDS, ATTEMPTS, LEFT, OUTCOMES, PAYLOADS = range(1, 6)
WORDS = {0: "ok", 1: "error"}  # other outcomes do not end the job
RECEIVES: dict[int, dict[int, type]] = {  # required fields
    READY: {READY_NUMBER: int, CREDIT: int, ROLES: list, RESOURCES: dict},
    GIVE: {LOCK: int, WANT: int, ROLES: list, NEEDS: dict},
    DONE: {NUMBER: int, SESSION: int, MANAGER: list},
    STATUS: {NUMBER: int, SESSION: int, MANAGER: list},  # counted, otherwise ignored
    PING: {},
    BYE: {},
}
SILENCE, SLOT = 6, {"slots": 1}  # units after which a worker is given up; needs of a job


class Manager:
    """READY, then WAKE while jobs wait; TAKE or NO for a GIVE; a DONE ends a job."""

    def __init__(self, endpoint: str, unit: float) -> None:
        self.me: list[Any] = [os.urandom(16), time.time_ns() // 1_000_000]
        self.unit, self.session, self.last = unit, 0, 0
        self.workers, self.jobs = dict[bytes, Any](), dict[int, Any]()
        self.router: Any = zmq.Context.instance().socket(zmq.ROUTER)
        self.router.set(zmq.ROUTER_MANDATORY, 1)
        self.router.set(zmq.MAXMSGSIZE, 1 << 28)
        self.router.bind(endpoint)

    def say(self, worker: Any, command: int, fields: Any, *frames: bytes) -> bool:
        fields = {**fields, SESSION: worker.session, ACK: worker.received}
        fields |= {NUMBER: worker.sent + 1} if command in (TAKE, NO) else {}
        try:
            head = cbor2.dumps([1, command, worker.to, self.me, fields], canonical=True)
            self.router.send_multipart([worker.link, head, *frames], zmq.DONTWAIT)
        except (zmq.ZMQError, cbor2.CBORError):  # no such worker, or a full pipe
            return False
        worker.sent += NUMBER in fields
        return True

    def submit(self, name: str, role: str, payload: str, *options: str) -> None:
        given = dict(option.split("=") for option in options)
        priority = int(given.pop("priority", 0))
        if given:
            return print("unknown", name, next(iter(given)), flush=True)
        job = SimpleNamespace(name=name, role=role, priority=priority, attempt=0, worker=None)
        job.payload = bytes.fromhex(payload.replace("-", ""))
        self.last += 1
        self.jobs[self.last] = job
        print("submitted", name, flush=True)

    def waiting(self) -> list[int]:
        """Return jobs without a lease, by priority, then as submitted (WMP-6.13)."""
        free = [number for number, job in self.jobs.items() if not job.worker]
        return sorted(free, key=lambda number: -self.jobs[number].priority)

    def receive(self, link: bytes, *frames: bytes) -> None:
        """Act on a message. An error is raised before anything changes."""
        version, command, to, sender, fields = cbor2.loads(frames[0])
        good = all(type(fields[key]) is kind for key, kind in RECEIVES[command].items())
        found = to == self.me[::-1] or (to == [] and command in (READY, PING))
        if version != 1 or not found or not good:
            raise ValueError("the message has another version, another receiver or a wrong type")
        done = self.read_jobs(frames) if command == DONE else []
        worker = self.meet(link, sender, int(fields.get(WINDOW, 0)))
        if worker and NUMBER in fields:
            place = fields[SESSION], fields[NUMBER]
            command = command if place == (worker.session, worker.received + 1) else PING
            worker.received += command != PING
        if worker and command == READY and fields[READY_NUMBER] > worker.ready:
            worker.roles = fields[ROLES] if fields[RESOURCES].get("slots", 0) > 0 else []
            worker.ready, worker.credit = fields[READY_NUMBER], fields[CREDIT]
            worker.woken, worker.offered, worker.all = {}, worker.heard, fields[RESOURCES]
        elif worker and command == GIVE:
            self.give(worker, fields)
        elif worker and command == DONE and fields[MANAGER] == self.me:
            for job in done:
                self.done(worker, *job)
        elif worker and command == PING:
            told = {LOCK: worker.lock} if worker.lock else {}
            told |= {READY_NUMBER: worker.ready, CREDIT: worker.credit} if worker.ready else {}
            self.say(worker, PONG, {MAX_SILENCE: int(SILENCE * self.unit * 1000), **told})
        elif worker and command == BYE:
            self.forget(worker)

    def read_jobs(self, frames: tuple[bytes, ...]) -> list[Any]:
        """Return id, attempt, outcome and payload of each job."""
        table, behind = cbor2.loads(frames[1]), iter(frames[2:])
        columns = [table[key] for key in (IDS, ATTEMPTS, OUTCOMES, PAYLOADS)]
        columns = [x if type(x) is list else [x] * len(columns[0]) for x in columns]
        columns[3] = [next(behind, b"") if one is None else one + b"" for one in columns[3]]
        return list(zip(*columns, strict=True))

    def meet(self, link: bytes, sender: list[Any], window: int) -> Any:
        """Return the worker; a newer epoch is a new worker, an older epoch is ignored."""
        identity, epoch = sender[:2]
        worker = self.workers.get(identity)
        if worker and epoch < worker.epoch:
            return None
        if worker and epoch > worker.epoch:
            self.forget(worker)
        if not worker or epoch > worker.epoch:
            self.session += 1
            worker = SimpleNamespace(identity=identity, epoch=epoch, session=self.session)
            worker.sent = worker.received = worker.ready = worker.credit = worker.lock = 0
            worker.roles, worker.woken, worker.offered, worker.window = [], {}, 0, 0
            self.workers[identity] = worker
        worker.link, worker.to, worker.heard = link, sender[::-1], time.monotonic()
        worker.window = max(worker.window, window)
        return worker

    def forget(self, worker: Any) -> None:
        del self.workers[worker.identity]
        for job in self.jobs.values():
            job.worker = None if job.worker is worker else job.worker

    def give(self, worker: Any, fields: Any) -> None:
        roles, want, lock = fields[ROLES], fields[WANT], fields[LOCK]
        worker.woken = {role: count for role, count in worker.woken.items() if role not in roles}
        if lock <= worker.lock or not want:
            return
        worker.lock = lock
        maximum = (
            worker.all.get("slots", 0) + 2 * worker.window if worker.ready else 512
        )  # WMP-4.16
        maximum = min(want, maximum - sum(job.worker is worker for job in self.jobs.values()))
        fit = [number for number in self.waiting() if self.jobs[number].role in roles]
        fit = fit[: max(0, maximum) if fields[NEEDS].get("slots", 0) else 0]
        for number in fit:  # a TAKE for each job
            job, more = self.jobs[number], number != fit[-1]
            job.attempt += 1
            columns = cbor2.dumps({IDS: [number], ATTEMPTS: job.attempt, PAYLOADS: [None]})
            take = {LOCK: lock, ROLE: job.role, NEEDS: SLOT, MANAGER: self.me, MORE: more}
            if self.say(worker, TAKE, take, columns, job.payload):
                job.worker = worker
        if not fit:
            self.say(worker, NO, {LOCK: lock})

    def done(self, worker: Any, number: int, attempt: int, outcome: int, payload: bytes) -> None:
        job = self.jobs.get(number)
        if not job or job.worker is not worker or job.attempt != attempt:  # WMP-6.2
            return
        if outcome in WORDS:
            del self.jobs[number]
            print("ended", job.name, WORDS[outcome], payload.hex() or "-", flush=True)
        else:
            job.worker = None

    def tick(self) -> None:
        """Give up silent workers; wake workers for the waiting jobs, the oldest offers first."""
        for worker in list(self.workers.values()):
            if time.monotonic() > worker.heard + SILENCE * self.unit:
                self.forget(worker)
        workers = sorted(self.workers.values(), key=lambda worker: worker.offered)
        for role, left in Counter(self.jobs[number].role for number in self.waiting()).items():
            left -= sum(worker.woken.get(role, 0) for worker in workers)  # WMP-3.5
            for worker in workers:
                count = min(worker.credit, left) if role in worker.roles else 0
                if count > 0 and role not in worker.woken:
                    worker.woken[role] = count
                    worker.credit, left = worker.credit - count, left - count
                    self.say(worker, WAKE, {COUNT: count, ROLE: role, NEEDS: SLOT})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a minimal manager of WMP/1.")
    parser.add_argument("endpoint", help="to bind")
    parser.add_argument(
        "--unit", type=int, default=1000, help="milliseconds that one second of the timers takes"
    )
    given = parser.parse_args()
    manager, lines = Manager(given.endpoint, given.unit / 1000), deque[str]()
    Thread(target=lines.extend, args=(sys.stdin,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        try:
            if manager.router.poll(10):
                manager.receive(*manager.router.recv_multipart())
            while lines:
                word, *words = lines.popleft().split()
                if word == "submit":
                    manager.submit(*words)
        except (ValueError, TypeError, LookupError, AttributeError, cbor2.CBORError) as error:
            print("dropped:", repr(error), file=sys.stderr)  # the manager continues (WMP-10.1)
        manager.tick()
