"""A WMP manager/1, profile `core`, in pyzmq and cbor2, from `specs/smallest-manager.md` alone.

python manager.py tcp://127.0.0.1:5570 [UNIT]         then type: submit NAME ROLE HEX
"""

import os
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from threading import Thread
from types import SimpleNamespace
from typing import Any

import cbor2
import zmq

READY, WAKE, GIVE, TAKE, NO, DONE, STATUS, _, PING, PONG, BYE = range(1, 12)
NAMES = (
    "number ack session again ready credit window roles resources count role needs lock want"
    " hold more manager codec unstarted max_silence"
)
KEYS = {name: key for key, name in enumerate(NAMES.split())}
TYPES = {"roles": list, "resources": dict, "needs": dict, "manager": list}  # all others: integers
READS = {READY: "ready credit roles resources", GIVE: "lock want", PING: "", BYE: ""}
READS |= dict.fromkeys((DONE, STATUS), "number session manager")  # what a message must have
WORDS, SLOT, STATE = {0: "ok", 1: "error"}, {"slots": 1}, "lock ready credit"  # as in PONG
ZEROS = dict.fromkeys(f"{STATE} sent received slots window offered".split(), 0)


class Manager:
    """READY, then WAKE while jobs wait; TAKE or NO for a GIVE; a DONE ends a job."""

    def __init__(self, endpoint: str, max_silence: int) -> None:
        self.me, self.max_silence = [os.urandom(16), time.time_ns() // 1_000_000], max_silence
        self.workers, self.jobs, self.session = dict[bytes, Any](), dict[int, Any](), 0
        self.router: Any = zmq.Context.instance().socket(zmq.ROUTER)
        self.router.set(zmq.ROUTER_MANDATORY, 1)
        self.router.set(zmq.MAXMSGSIZE, 1 << 28)
        self.router.bind(endpoint)

    def say(self, worker: Any, command: int, *frames: bytes, **fields: Any) -> None:
        fields |= {"session": worker.session, "ack": worker.received}
        head = [1, command, worker.to, self.me, {KEYS[name]: fields[name] for name in fields}]
        with suppress(zmq.ZMQError, cbor2.CBORError):  # no such peer, a full pipe, a strange path
            packed = cbor2.dumps(head, canonical=True)
            self.router.send_multipart([worker.link, packed, *frames], zmq.DONTWAIT)
            worker.sent += "number" in fields

    def submit(self, order: str, name: str, role: str, payload: str, *options: str) -> None:
        given = dict(option.split("=") for option in options)
        job = SimpleNamespace(name=name, role=role, attempt=0, session=0, number=len(self.jobs) + 1)
        job.priority, job.payload = int(given.pop("priority", 0)), bytes.fromhex(payload.strip("-"))
        self.jobs |= {} if given else {job.number: job}
        print("unknown" if given else "submitted", name, *list(given)[:1], flush=True)

    def waiting(self, roles: list[str]) -> list[Any]:  # by priority, then as submitted (WMP-6.13)
        held = {-1, *(worker.session for worker in self.workers.values())}  # -1: the job has ended
        free = [job for job in self.jobs.values() if job.role in roles and job.session not in held]
        return sorted(free, key=lambda job: -job.priority)

    def receive(self, link: bytes, head: bytes, *frames: bytes) -> None:
        version, command, to, sender, keyed = cbor2.loads(head)
        field = {name: keyed.get(key) for name, key in KEYS.items()}
        needed = READS[command] + (" roles needs" if command == GIVE and field["want"] else "")
        mine = to == self.me[::-1] or (to == [] and command in (READY, PING))
        good = all(type(field[name]) is TYPES.get(name, int) for name in needed.split())
        if version != 1 or not mine or not good:
            raise ValueError("another version, receiver or type")  # nothing has changed (WMP-10.1)
        done = _rows(*frames) if command == DONE else []
        worker = self.meet(link, sender, max(0, field["window"] or 0))
        if field["number"] is not None:
            fresh = (field["session"], field["number"]) == (worker.session, worker.received + 1)
            command, worker.received = command if fresh else PING, worker.received + fresh
        if command == READY and field["ready"] > worker.ready:
            worker.slots, worker.woken = field["resources"].get("slots", 0), {}
            worker.roles, worker.offered = field["roles"] if worker.slots else [], time.monotonic()
            worker.ready, worker.credit = field["ready"], field["credit"]
        elif command == GIVE:
            self.give(worker, field["roles"] or [], field["lock"], field["want"], field["needs"])
        elif command == DONE and field["manager"] == self.me:
            for number, attempt, outcome, payload in done:
                job, word = self.jobs.get(number), WORDS.get(outcome)
                if job and (job.session, job.attempt) == (worker.session, attempt):  # WMP-6.2
                    job.session = -1 if word else 0
                    if word:
                        print("ended", job.name, word, payload.hex() or "-", flush=True)
        elif command == PING:
            state = {k: v for k, v in vars(worker).items() if v and k in STATE.split()}
            self.say(worker, PONG, max_silence=self.max_silence, **state)
        elif command == BYE:
            del self.workers[sender[0]]

    def meet(self, link: bytes, sender: list[Any], window: int) -> Any:
        (identity, epoch), worker = sender[:2], self.workers.get(sender[0])
        if worker and epoch < worker.epoch:
            raise ValueError("an older epoch")
        if not worker or epoch > worker.epoch:
            worker = self.workers[identity] = SimpleNamespace(**ZEROS, roles=[], woken={})
            worker.epoch, worker.session, self.session = epoch, self.session + 1, self.session + 1
        worker.link, worker.to, worker.window = link, sender[::-1], max(worker.window, window)
        return worker

    def give(self, worker: Any, roles: list[str], lock: int, want: int, needs: Any) -> None:
        worker.woken = {role: count for role, count in worker.woken.items() if role not in roles}
        if lock <= worker.lock or not want:
            return
        worker.lock, limit = lock, worker.slots + 2 * worker.window if worker.ready else 512
        limit -= sum(job.session == worker.session for job in self.jobs.values())  # WMP-4.16
        fit = self.waiting(roles)[: max(0, min(want, limit)) if needs.get("slots", 0) else 0]
        for job in fit:  # a TAKE for each job
            job.attempt, number = job.attempt + 1, worker.sent + 1
            take = {"number": number, "lock": lock, "role": job.role, "manager": self.me}
            columns = cbor2.dumps({1: [job.number], 2: job.attempt, 5: [None]})
            self.say(worker, TAKE, columns, job.payload, needs=SLOT, more=job != fit[-1], **take)
            job.session = worker.session if worker.sent == number else 0
        if not fit:
            self.say(worker, NO, number=worker.sent + 1, lock=lock)

    def wake(self) -> None:  # the workers with the oldest offers first (WMP-3.5)
        workers = sorted(self.workers.values(), key=lambda worker: worker.offered)
        for role in {job.role for job in self.waiting([job.role for job in self.jobs.values()])}:
            left = len(self.waiting([role])) - sum(worker.woken.get(role, 0) for worker in workers)
            for worker in workers:
                count = min(worker.credit, left) if role in worker.roles else 0
                if count > 0 and role not in worker.woken:
                    worker.woken[role], left = count, left - count
                    worker.credit -= count
                    self.say(worker, WAKE, count=count, role=role, needs=SLOT)


def _rows(columns: bytes, *behind: bytes) -> list[Any]:  # id, attempt, outcome, payload
    table, frames = cbor2.loads(columns), iter(behind)
    both = [table[k] if type(table[k]) is list else [table[k]] * len(table[1]) for k in (2, 4)]
    payloads = [next(frames, b"") if payload is None else payload + b"" for payload in table[5]]
    return list(zip(table[1], *both, payloads, strict=True))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    manager, lines = Manager(sys.argv[1], 6 * int((*sys.argv, 1000)[2])), deque[str]()
    Thread(target=lines.extend, args=(sys.stdin,), daemon=True).start()
    while True:
        with suppress(ValueError, TypeError, LookupError, AttributeError, cbor2.CBORError):
            if manager.router.poll(10):
                manager.receive(*manager.router.recv_multipart())
            while lines:
                manager.submit(*lines.popleft().split())
        manager.wake()
