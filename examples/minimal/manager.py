"""A manager of WMP/1, profile `core`, from `specs/wmp.md` alone. Type: submit NAME ROLE HEX."""

import argparse
import bisect
import contextlib
import math
import os
import signal
import sys
import time
from collections import deque
from threading import Thread
from types import SimpleNamespace
from typing import Any

import cbor2
import zmq
from messages import FAILED, LOST, OK, REFUSED, decode, encode

EXPIRE, WAKE_TIMEOUT = 6, 0.25  # units
SLOT = {"slots": 1}  # what a job needs
RECEIVES = "READY GIVE DONE STATUS PING BYE ERROR"


class Manager:
    """READY, then WAKE while jobs wait; TAKE or NO for a GIVE; a DONE ends a job."""

    def __init__(self, endpoint: str, unit: float) -> None:
        self.me: list[Any] = [os.urandom(16), time.time_ns() // 1_000_000]
        self.unit, self.session, self.last = unit, 0, 0
        self.workers, self.jobs = dict[bytes, Any](), dict[int, Any]()
        self.waiting: list[tuple[int, int]] = []  # (-priority, id)
        self.pace: dict[str, tuple[float, int]] = {}  # of WAKEs for a role: since, how many fold
        self.router: Any = zmq.Context.instance().socket(zmq.ROUTER)
        self.router.set(zmq.ROUTER_MANDATORY, 1)
        self.router.set(zmq.MAXMSGSIZE, 1 << 28)
        self.router.bind(endpoint)

    def send(self, link: bytes, to: Any, command: str, /, *frames: bytes, **fields: Any) -> bool:
        try:
            self.router.send_multipart(
                [link, encode(self.me, to, command, fields), *frames], zmq.DONTWAIT
            )
            return True
        except zmq.ZMQError:  # nobody is there, or does not read
            return False

    def say(self, worker: Any, command: str, /, *frames: bytes, **fields: Any) -> bool:
        fields |= {"session": worker.session, "ack": worker.received}
        fields |= {"number": worker.sent + 1} if command in ("TAKE", "NO") else {}
        left = self.send(worker.link, worker.to, command, *frames, **fields)
        worker.sent += left and "number" in fields
        return left

    def submit(self, name: str, role: str, payload: str, *options: str) -> None:
        given: dict[str, Any] = {"timeout": 0, "retries": 3, "priority": 0, "attempt": 0}
        given |= {word: int(x) for word, x in (option.split("=") for option in options)}
        given["payload"] = bytes.fromhex(payload.replace("-", ""))
        self.last += 1
        job = self.jobs[self.last] = SimpleNamespace(name=name, role=role, refused=None, **given)
        job.deadline = time.monotonic() + (job.timeout or math.inf) / 1000
        self.wait(self.last)
        print("submitted", name, flush=True)

    def wait(self, number: int, cost: int = 0, cause: bytes = b"") -> None:
        job = self.jobs[number]
        job.worker, job.retries = None, job.retries - cost
        if job.retries < 0:
            return self.end(number, "lost", cause)
        bisect.insort(self.waiting, (-job.priority, number))

    def end(self, number: int, word: str, payload: bytes) -> None:
        job = self.jobs.pop(number)
        self.waiting = [one for one in self.waiting if one[1] != number]
        print("ended", job.name, word, payload.hex() or "-", flush=True)

    def bye(self, worker: Any, *_: Any) -> None:
        self.workers.pop(worker.identity)
        for number in [number for number, job in self.jobs.items() if job.worker is worker]:
            self.wait(number, 1, b"the worker is gone")

    def receive(self, link: bytes, frames: list[bytes]) -> None:
        command, sender, fields, jobs = decode(self.me, frames, RECEIVES)
        if not command:
            self.send(link, sender, "ERROR", **fields)
        worker = self.meet(link, sender) if command not in ("", "ERROR") else None
        if worker and "number" in fields:
            place = fields["session"], fields["number"]
            command = command if place == (worker.session, worker.received + 1) else "PING"
            worker.received += command != "PING"
        if worker and command != "STATUS":  # which is only told
            getattr(self, command.lower())(worker, fields, jobs)

    def meet(self, link: bytes, sender: Any) -> Any:
        """The worker, by identity; a newer epoch is another one, an older one is nobody."""
        worker, epoch = self.workers.get(sender[0]), sender[1]
        if worker and epoch < worker.epoch:
            return None
        if worker and epoch > worker.epoch:
            self.bye(worker)
        if not worker or epoch > worker.epoch:
            self.session += 1
            names = ("sent", "received", "ready", "credit", "lock", "offered", "asked")
            more: Any = {"roles": [], "resources": {}, "woken": {}, **dict.fromkeys(names, 0)}
            more |= {"identity": sender[0], "epoch": epoch, "session": self.session}
            worker = self.workers[sender[0]] = SimpleNamespace(**more)
        worker.link, worker.to, worker.heard = link, sender[::-1], time.monotonic()
        return worker

    def ping(self, worker: Any, *_: Any) -> None:
        told = {"expire": int(EXPIRE * self.unit * 1000)}
        told |= {"lock": worker.lock} if worker.lock else {}
        told |= {"ready": worker.ready, "credit": worker.credit} if worker.ready else {}
        self.say(worker, "PONG", **told)

    def ready(self, worker: Any, fields: Any, jobs: Any) -> None:
        if fields["ready"] > worker.ready:  # the newest replaces the older (WMP-3.3)
            worker.asked, worker.offered, worker.woken = worker.asked + 1, time.monotonic(), {}
            for name in ("ready", "credit", "roles", "resources"):
                setattr(worker, name, fields[name])

    def give(self, worker: Any, fields: Any, jobs: Any) -> None:
        roles, want = fields.get("roles", []), fields["want"]
        worker.woken = {role: x for role, x in worker.woken.items() if role not in roles}
        self.pace = {role: x for role, x in self.pace.items() if role not in roles}
        if fields["lock"] <= worker.lock:
            return
        worker.lock, worker.asked = fields["lock"], worker.asked + 1
        fit = [n for _, n in self.waiting if self.jobs[n].role in roles]
        fit = [n for n in fit if self.jobs[n].refused != (worker.identity, worker.asked)]
        fit = fit[: want if fields.get("needs", {}).get("slots", 0) else 0]
        for number in fit:  # a TAKE each
            job, more = self.jobs[number], number != fit[-1]
            job.attempt += 1
            rest = 1000 * (job.deadline - time.monotonic())
            left = max(0, math.ceil(rest)) if job.timeout else None
            columns = cbor2.dumps({1: [number], 2: job.attempt, 3: left, 5: [None]})
            take = {"lock": worker.lock, "role": job.role, "needs": SLOT, "manager": self.me}
            if self.say(worker, "TAKE", columns, job.payload, **take, more=more):
                self.waiting.remove((-job.priority, number))
                job.worker = worker
        if want and not fit:
            self.say(worker, "NO", lock=worker.lock)

    def done(self, worker: Any, fields: Any, jobs: Any) -> None:
        mine = [one for one in jobs if fields["manager"] == self.me and one[0] <= self.last]
        if mine != jobs:
            self.send(worker.link, worker.to, "ERROR", code="unknown")
        for number, attempt, outcome, payload in mine:
            job = self.jobs.get(number)
            if job and job.worker is worker and job.attempt == attempt:  # WMP-6.2
                job.refused = (worker.identity, worker.asked) if outcome == REFUSED else None
                if outcome in (OK, FAILED):
                    self.end(number, "ok" if outcome == OK else "error", payload)
                else:
                    self.wait(number, int(outcome == LOST), payload)  # only that costs (WMP-6.5)

    def tick(self) -> None:
        now, workers = time.monotonic(), [*self.workers.values()]
        for worker in workers:
            if now > worker.heard + EXPIRE * self.unit:
                self.bye(worker)
        for number in [number for number, job in self.jobs.items() if now > job.deadline]:
            self.end(number, "timeout", b"")
        roles = [self.jobs[number].role for _, number in self.waiting]
        for role in set(roles):  # as many as wait, twice as many if nobody came (WMP-3.5)
            since, fold = self.pace.get(role, (now, 1))
            if now > since + WAKE_TIMEOUT * self.unit:
                self.pace[role] = since, fold = now, min(2 * fold, 1 << 20)
            room = roles.count(role) * fold - sum(one.woken.get(role, 0) for one in workers)
            able = [x for x in workers if role in x.roles and role not in x.woken and x.credit]
            able = [one for one in able if one.resources.get("slots", 0)]
            for index, one in enumerate(sorted(able, key=lambda one: one.offered)):
                count = min(one.credit, -(-room // (len(able) - index)))
                if count > 0:
                    one.credit, one.woken[role], room = one.credit - count, count, room - count
                    self.pace.setdefault(role, (now, 1))
                    self.say(one, "WAKE", count=count, role=role, needs=SLOT)
            if not any(role in one.woken for one in workers):
                self.pace.pop(role, None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="a minimal manager of WMP/1")
    parser.add_argument("endpoint", help="to bind")
    parser.add_argument("--unit", type=int, default=1000, help="milliseconds in place of a second")
    given = parser.parse_args()
    manager, lines = Manager(given.endpoint, given.unit / 1000), deque[str]()
    Thread(target=lines.extend, args=(sys.stdin,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        if manager.router.poll(10):
            link, *frames = manager.router.recv_multipart()
            manager.receive(link, frames)
        while lines:
            with contextlib.suppress(TypeError, ValueError):  # a line that says nothing to us
                if (line := lines.popleft().split())[:1] == ["submit"]:
                    manager.submit(*line[1:])
        manager.tick()
