"""A WMP manager/1, profile `core`, in pyzmq and cbor2, from `specs/smallest-manager.md` alone.

python manager.py tcp://127.0.0.1:5570 [UNIT]         then type: submit NAME ROLE HEX
"""

import sys
import time
from collections import Counter, deque
from threading import Thread
from types import SimpleNamespace
from typing import Any

import wire
import zmq

WORDS, SILENCE = {0: "ok", 1: "error"}, 6  # outcomes that end a job; units of silence


class Manager:
    """READY, then WAKE while jobs wait; TAKE or NO for a GIVE; a DONE ends a job."""

    def __init__(self, endpoint: str, unit: float) -> None:
        self.me, self.unit, self.session, self.last = wire.introduce(), unit, 0, 0
        self.workers, self.jobs = dict[bytes, Any](), dict[int, Any]()
        self.router: Any = wire.make(zmq.ROUTER, endpoint)

    def say(self, worker: Any, command: str, /, **fields: Any) -> bool:
        fields |= {"session": worker.session, "ack": worker.received}
        fields |= {"number": worker.sent + 1} if command in ("TAKE", "NO") else {}
        left = wire.write(self.router, [worker.link], worker.to, self.me, command, **fields)
        worker.sent += left and "number" in fields
        return left

    def submit(self, name: str, role: str, payload: str, *options: str) -> None:
        given = dict(option.split("=") for option in options)
        priority = int(given.pop("priority", 0))
        if given:
            return print("unknown", name, next(iter(given)), flush=True)
        job = SimpleNamespace(name=name, role=role, priority=priority, attempt=0, worker=None)
        job.payload, self.last = bytes.fromhex(payload.replace("-", "")), self.last + 1
        self.jobs[self.last] = job
        print("submitted", name, flush=True)

    def waiting(self) -> list[int]:  # by priority, then as submitted (WMP-6.13)
        free = [number for number, job in self.jobs.items() if not job.worker]
        return sorted(free, key=lambda number: -self.jobs[number].priority)

    def receive(self, link: bytes, *frames: bytes) -> None:
        """Act on a message. An error is raised before anything changes."""
        command, sender, fields = wire.read(self.me, frames[0], "READY GIVE DONE STATUS PING BYE")
        done = wire.rows(frames[1:], "ids", "attempts", "outcomes") if command == "DONE" else []
        if not (worker := self.meet(link, sender, int(fields.get("window", 0)))):
            return
        if "number" in fields:
            position = fields["session"], fields["number"]
            command = command if position == (worker.session, worker.received + 1) else "PING"
            worker.received += command != "PING"
        if command == "READY" and fields["ready"] > worker.ready:
            worker.slots, worker.woken = fields["resources"].get("slots", 0), {}
            worker.roles, worker.offered = fields["roles"] if worker.slots else [], worker.heard
            worker.ready, worker.credit = fields["ready"], fields["credit"]
        elif command == "GIVE":
            self.give(worker, **fields)
        elif command == "DONE" and fields["manager"] == self.me:
            for job in done:
                self.done(worker, *job)
        elif command == "PING":
            state = {"lock": worker.lock} if worker.lock else {}
            state |= {"ready": worker.ready, "credit": worker.credit} if worker.ready else {}
            self.say(worker, "PONG", max_silence=int(SILENCE * self.unit * 1000), **state)
        elif command == "BYE":
            self.forget(worker)

    def meet(self, link: bytes, sender: list[Any], window: int) -> Any:  # None: an older epoch
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

    def give(self, worker: Any, roles: Any, want: int, lock: int, needs: Any, **_: Any) -> None:
        worker.woken = {role: count for role, count in worker.woken.items() if role not in roles}
        if lock <= worker.lock or not want:
            return
        worker.lock = lock
        limit = worker.slots + 2 * worker.window if worker.ready else 512  # WMP-4.16
        limit = min(want, limit - sum(job.worker is worker for job in self.jobs.values()))
        fit = [number for number in self.waiting() if self.jobs[number].role in roles]
        fit = fit[: max(0, limit) if needs.get("slots", 0) else 0]
        for number in fit:  # a TAKE for each job
            job, more = self.jobs[number], number != fit[-1]
            job.attempt += 1
            frames = wire.columns(ids=[number], attempts=job.attempt, payloads=[None]), job.payload
            take = {"lock": lock, "role": job.role, "needs": wire.SLOT, "manager": self.me}
            job.worker = (
                worker if self.say(worker, "TAKE", more=more, frames=frames, **take) else None
            )
        if not fit:
            self.say(worker, "NO", lock=lock)

    def done(self, worker: Any, number: int, attempt: int, outcome: int, payload: bytes) -> None:
        job = self.jobs.get(number)
        if not job or job.worker is not worker or job.attempt != attempt:  # WMP-6.2
            return
        job.worker = None
        if outcome in WORDS:
            del self.jobs[number]
            print("ended", job.name, WORDS[outcome], payload.hex() or "-", flush=True)

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
                    worker.woken[role], left = count, left - count
                    worker.credit -= count
                    self.say(worker, "WAKE", count=count, role=role, needs=wire.SLOT)


if __name__ == "__main__":
    manager, lines = Manager(sys.argv[1], wire.unit()), deque[str]()
    Thread(target=lines.extend, args=(sys.stdin,), daemon=True).start()
    while True:
        if manager.router.poll(10):
            wire.safely(lambda: manager.receive(*manager.router.recv_multipart()))
        while lines:
            if (words := lines.popleft().split())[:1] == ["submit"]:
                wire.safely(manager.submit, *words[1:])
        manager.tick()
