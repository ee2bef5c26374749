"""A WMP worker/1, profile `core`, in pyzmq and cbor2, from `specs/smallest-worker.md` alone.

python worker.py tcp://127.0.0.1:5570[,tcp://…] [UNIT]      your work goes into HANDLERS
"""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import cbor2
import zmq

READY, WAKE, GIVE, TAKE, NO, DONE, _, CANCEL, PING, PONG = range(1, 11)
NAMES = (
    "number ack session again ready credit window roles resources count role needs lock want"
    " hold more manager codec unstarted max_silence"
)
KEYS = {name: key for key, name in enumerate(NAMES.split())} | {"idle": 26}
TYPES = {"role": str, "needs": dict, "manager": list}  # all other fields are integers
READS = {  # the fields that a message must have
    WAKE: "count role needs",
    TAKE: "number session lock role needs manager",
    NO: "number session lock",
    CANCEL: "number session manager",
    PONG: "max_silence session",
}
OK, FAILED, REFUSED, SLOT = 0, 1, 2, {"slots": 1}
HANDLERS: dict[str, Any] = {
    "echo": bytes,
    "slow": lambda payload: time.sleep(int(payload) / 1000) or payload,
    "fail": lambda payload: bytes(1 // 0),
}


class Worker:
    """READY; GIVE for a WAKE; the job of a TAKE; DONE. It runs one job at a time."""

    def __init__(self, endpoints: list[str]) -> None:
        self.me, self.pool = [os.urandom(16), time.time_ns() // 1_000_000], ThreadPoolExecutor(1)
        self.ready, self.last_lock, self.ping_at = 1, 0, 0.0
        self.managers, self.links = dict[bytes, Any](), dict[Any, Any]()
        self.slot: Any = ()  # (manager, lock), or (manager, owner, id, attempt, future) of a job
        for endpoint in endpoints:
            link: Any = zmq.Context.instance().socket(zmq.DEALER)
            link.set(zmq.MAXMSGSIZE, 1 << 28)
            link.set(zmq.HEARTBEAT_IVL, 1000)
            link.connect(endpoint)
            self.links[link] = SimpleNamespace(link=link, to=[], session=0)  # everybody
            self.say_ready(self.links[link], 1, 0)

    def say(self, peer: Any, command: int, *frames: bytes, **fields: Any) -> None:
        fields |= {"session": peer.session, "ack": peer.received} if peer.session else {}
        head = [1, command, peer.to, self.me, {KEYS[name]: fields[name] for name in fields}]
        with suppress(zmq.ZMQError, cbor2.CBORError):  # a full pipe (WMP-1.6), or a strange path
            peer.link.send_multipart([cbor2.dumps(head, canonical=True), *frames], zmq.DONTWAIT)

    def say_ready(self, peer: Any, credit: int, step: int = 1) -> None:
        self.ready = peer.ready = self.ready + step
        self.say(peer, READY, ready=self.ready, credit=credit, roles=[*HANDLERS], resources=SLOT)

    def answer(self, job: Any, outcome: int, payload: bytes) -> None:
        manager, owner, number, attempt, *_ = job
        manager.sent += 1
        columns = cbor2.dumps({1: [number], 2: attempt, 4: outcome, 5: [None]})
        self.say(manager, DONE, columns, payload, number=manager.sent, manager=owner)

    def use_slot(self) -> None:  # GIVE to the manager that waits longest (WMP-3.10), else READY
        managers = [] if self.slot else [*self.managers.values()]
        if waiting := [manager for manager in managers if manager.wake]:
            manager = min(waiting, key=lambda manager: manager.served)
            manager.served = self.last_lock = self.last_lock + 1
            self.slot, (role, needs), manager.wake = (manager, manager.served), manager.wake, None
            self.say(manager, GIVE, lock=manager.served, want=1, roles=[role], needs=needs)
        for manager in managers if not self.slot else ():
            self.say_ready(manager, 1)

    def receive(self, link: Any, frames: list[bytes]) -> None:
        """Act on a message. An error is raised before anything changes (WMP-10.1)."""
        version, command, to, sender, keyed = cbor2.loads(frames[0])
        field = {name: keyed.get(key) for name, key in KEYS.items()}
        good = all(type(field[name]) is TYPES.get(name, int) for name in READS[command].split())
        if version != 1 or to != self.me[::-1] or not good:
            raise ValueError("another version, receiver or type")
        jobs = _rows(*frames[1:]) if command == TAKE else []
        manager, number = self.meet(link, sender, field["session"] or 0), field["number"]
        if not manager or number not in (None, manager.received + 1):
            return
        manager.received += number is not None
        if command == WAKE:
            fits = field["role"] in HANDLERS and field["needs"] in ({}, SLOT)  # it then stays
            manager.wake = (field["role"], field["needs"]) if fits else manager.wake  # WMP-3.9
            self.say_ready(manager, 0) if self.slot or not fits else self.use_slot()
        elif command in (TAKE, NO):
            self.slot = () if self.slot == (manager, field["lock"]) else self.slot
            for *job, payload in jobs:
                if self.slot[:-1] in ((), (manager,)) and (handler := HANDLERS.get(field["role"])):
                    self.slot = manager, field["manager"], *job, self.pool.submit(handler, payload)
                else:
                    self.answer((manager, field["manager"], *job), REFUSED, b"no role or no slot")
            self.use_slot()
        elif command == PONG:
            known = field["ready"] == manager.ready and (self.slot or field["credit"])
            if not known and not manager.wake and self.slot[:-1] != (manager,):  # no GIVE is open
                self.say_ready(manager, int(not self.slot))

    def meet(self, link: Any, sender: Any, session: int) -> Any:
        """Return the manager by identity; None for a message of an old epoch or session."""
        (identity, epoch), known = sender[:2], self.managers.get(sender[0])
        if known and (epoch, session or known.session) < (known.epoch, known.session):
            return None
        if not known or (epoch, session) > (known.epoch, known.session):
            self.slot = () if self.slot[:1] == (known,) else self.slot
            known = SimpleNamespace(epoch=epoch, session=session, ready=self.links[link].ready)
            known.sent, known.received, known.served, known.wake = 0, 0, 0, None
        self.managers[identity], known.link, known.to = known, link, sender[::-1]  # WMP-1.8
        return known

    def tick(self, unit: float) -> None:
        if len(self.slot) == 5 and self.slot[4].done():
            job, self.slot, error = self.slot, (), self.slot[4].exception()
            failure = cbor2.dumps([type(error).__name__, str(error), ""])
            self.answer(job, FAILED if error else OK, failure if error else job[4].result())
            self.use_slot()
        if time.monotonic() > self.ping_at:
            self.ping_at = time.monotonic() + unit
            for peer in (*self.links.values(), *self.managers.values()):
                self.say(peer, PING, **({"idle": len(self.slot) < 5} if peer.to else {}))


def _rows(columns: bytes, *behind: bytes) -> list[Any]:
    """Return id, attempt and payload of each job."""
    table, frames = cbor2.loads(columns), iter(behind)
    attempts = table[2] if type(table[2]) is list else [table[2]] * len(table[1])
    payloads = [next(frames, b"") if payload is None else payload + b"" for payload in table[5]]
    return list(zip(table[1], attempts, payloads, strict=True))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    worker, unit = Worker(sys.argv[1].split(",")), int((*sys.argv, 1000)[2]) / 1000
    while True:
        for link in zmq.select([*worker.links], [], [], 0.002)[0]:
            with suppress(ValueError, TypeError, LookupError, AttributeError, cbor2.CBORError):
                worker.receive(link, link.recv_multipart())
        worker.tick(unit)
