"""A manager of WMP/1 in plain pyzmq and cbor2, written from `specs/wmp.md` alone.

    python manager.py tcp://127.0.0.1:5555

It shares no code with `wmp`. Lines on stdin, `submit NAME ROLE HEX` and `cancel NAME`, tell it what
to do; lines on stdout, `ended NAME ok HEX` for example, what became of it (`specs/testee.md`).
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import messages as wire
import zmq
from messages import Message
from node import BATCH, EXPIRE, Node, run
from stream import Peer, Stream
from waiting import Queue

WAKE_TIMEOUT = 0.25  # units
NEEDS = {"slots": 1}  # of every job


@dataclass
class Worker(Peer):
    """What a manager remembers of a worker."""

    ready: int = 0  # number of the last READY, 0: none
    roles: list[str] = field(default_factory=list)
    resources: dict[str, int] = field(default_factory=dict)
    offered: int = 0  # the oldest offers go first
    lock: int = 0  # the last that was served
    woken: dict[str, int] = field(default_factory=dict)  # jobs by role, not answered yet
    leases: set[int] = field(default_factory=set)


def fits(amounts: dict[str, int]) -> bool:
    """Whether a job needs no more than this."""
    return all(amounts.get(resource, 0) >= amount for resource, amount in NEEDS.items())


class Manager(Node[Worker]):
    """Leases jobs to workers that ask."""

    receives = (wire.READY, wire.GIVE, wire.DONE, wire.STATUS, wire.PING, wire.BYE)

    def __init__(self, endpoint: str, unit: float) -> None:
        super().__init__(None, unit)
        self.router = self.socket(zmq.ROUTER)
        self.router.set(zmq.ROUTER_MANDATORY, 1)
        self.router.bind(endpoint)
        self.inputs: list[Any] = [self.router, 0]
        self.queue = Queue(self.stop)
        self.unanswered: dict[str, tuple[float, int]] = {}  # WAKEs of a role: since, and stretch
        self.session = self.offers = 0

    def transmit(self, connection: bytes, frames: list[bytes]) -> None:
        self.router.send_multipart([connection, *frames], zmq.DONTWAIT)

    # --- what workers say ---

    def ready(self, worker: Worker, message: Message) -> None:
        fields = message.fields
        if fields["ready"] > worker.ready:  # the newest replaces the older (WMP-3.3)
            worker.offered = self.offers = self.offers + 1
            worker.ready, worker.credit = fields["ready"], fields["credit"]
            worker.roles, worker.resources, worker.woken = fields["roles"], fields["resources"], {}

    def give(self, worker: Worker, message: Message) -> None:
        """Answered at once, whatever its `hold` (WMP-4.4)."""
        fields, roles = message.fields, message.fields.get("roles", ())
        for role in worker.woken.keys() & {*roles}:
            del worker.woken[role]
            self.unanswered.pop(role, None)  # somebody comes
        if fields["lock"] <= worker.lock or not worker.stream:  # served already (WMP-4.5)
            return
        worker.lock, waiting = fields["lock"], self.queue.waiting
        firsts = [(waiting[role][0], role) for role in roles if waiting.get(role)]
        if fields["want"] and firsts and fits(fields["needs"]):
            role, take = min(firsts)[1], worker.stream.sent + 1
            count = min(fields["want"], len(waiting[role]), BATCH)
            rows = [self.queue.lease(role, worker, take) for _ in range(count)]
            fields = {"lock": worker.lock, "role": role, "needs": NEEDS, "manager": self.me}
            self.send_jobs(worker, wire.TAKE, fields, "ids attempts left payloads", rows)
        else:
            self.send_numbered(worker, wire.NO, {"lock": worker.lock})

    def done(self, worker: Worker, message: Message) -> None:
        for number, outcome, payload in self.rows(worker, message, "outcomes", "payloads"):
            if outcome in (wire.OK, wire.FAILED):
                self.queue.end(number, "ok" if outcome == wire.OK else "error", payload)
            else:  # refused and handed back cost nothing (WMP-6.5, WMP-6.11)
                self.queue.lose(number, payload, spend=outcome == wire.LOST)

    def status(self, worker: Worker, message: Message) -> None:
        for number, fraction, text in self.rows(worker, message, "fractions", "texts"):
            words = (text or "").encode().hex() or "-"
            print("status", self.queue.jobs[number].name, fraction, words, flush=True)

    def rows(self, worker: Worker, message: Message, *names: str) -> Iterator[tuple[Any, ...]]:
        """Those about leases that this worker has now (WMP-6.2, WMP-10.5)."""
        columns, mine = message.columns, message.fields["manager"] == self.me
        if not mine or max(columns["ids"]) > self.queue.last:
            self.complain(worker.connection, message, "unknown")
        nothing = [None] * len(columns["ids"])
        table = [columns.get(name, nothing) for name in ("ids", "attempts", *names)]
        for number, attempt, *row in zip(*table, strict=True):
            job = self.queue.jobs.get(number) if mine else None
            if job and job.worker is worker and job.attempt == attempt:
                yield number, *row

    def ping(self, worker: Worker, message: Message) -> None:
        fields, columns, stream = message.fields, message.columns, worker.stream
        if stream and stream.session == fields.get("session") and (columns or fields.get("idle")):
            held = {*zip(columns.get("ids", ()), columns.get("attempts", ()), strict=True)}
            self.queue.lose_missing(worker, held, fields.get("ack", 0))
        self.pong(worker)

    def pong(self, worker: Worker, **more: Any) -> None:
        fields = {"expire": int(EXPIRE * self.unit * 1000), **more}
        fields |= {"lock": worker.lock} if worker.lock else {}
        fields |= {"ready": worker.ready, "credit": worker.credit} if worker.ready else {}
        self.send(worker, wire.PONG, fields)

    def bye(self, worker: Worker, message: Message) -> None:
        self.part(worker.identity)

    # --- sessions ---

    def meet(self, identity: bytes, epoch: int) -> Worker:
        worker = Worker(identity, epoch, EXPIRE * self.unit)
        self.forget(worker)
        return worker

    def forget(self, peer: Worker) -> None:
        """Lose its leases, and go on in a session greater than every one before (WMP-7.5)."""
        self.session += 1
        peer.stream = Stream(self.session)
        self.queue.lose_missing(peer)

    def in_session(self, peer: Worker, message: Message) -> bool:
        session, stream = message.fields.get("session"), peer.stream or Stream(0)
        if message.command == wire.PING and message.to and session is None:
            if stream.sent or stream.received:
                self.forget(peer)
        elif "number" in message.fields and session != stream.session:
            self.pong(peer)  # names the current one (WMP-7.7)
            return False
        return True

    def ask_again(self, peer: Worker) -> None:
        self.pong(peer, again=True)

    def stop(self, worker: Worker, number: int, attempt: int) -> None:
        rows, fields = [(number, attempt)], {"manager": self.me}
        self.send_jobs(worker, wire.CANCEL, fields, "ids attempts", rows)

    def wake(self, role: str, waiting: int) -> None:
        """As many jobs as wait, and ever more while nobody comes (WMP-3.5, WMP-3.6)."""
        now = time.monotonic()
        since, stretch = self.unanswered.get(role, (now, 1))
        if now > since + WAKE_TIMEOUT * self.unit:
            self.unanswered[role] = since, stretch = now, min(2 * stretch, 1 << 20)
        workers = [worker for worker in self.peers.values() if role in worker.roles]
        room = waiting * stretch - sum(worker.woken.get(role, 0) for worker in workers)
        able = [x for x in workers if x.credit and role not in x.woken and fits(x.resources)]
        for index, worker in enumerate(sorted(able, key=lambda worker: worker.offered)):
            count = min(worker.credit, -(-room // (len(able) - index)))
            if count > 0 and worker.connection is not None:
                worker.credit, worker.woken[role], room = worker.credit - count, count, room - count
                self.unanswered.setdefault(role, (now, 1))
                self.send(worker, wire.WAKE, {"count": count, "role": role, "needs": NEEDS})
        if not any(role in worker.woken for worker in workers):
            self.unanswered.pop(role, None)

    def tick(self) -> None:
        super().tick()
        self.queue.end_late()
        for role, waiting in self.queue.waiting.items():
            self.wake(role, len(waiting))

    def turn(self) -> None:
        if 0 in zmq.select(self.inputs, [], [], 0.02)[0] and not self.queue.read():
            self.inputs.remove(0)
        try:
            for _ in range(1000):
                connection, *frames = self.router.recv_multipart(zmq.DONTWAIT)
                self.receive(connection, frames)
        except zmq.Again:
            pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="a minimal manager of WMP/1")
    parser.add_argument("endpoint", help="to bind")
    run(parser, lambda given, unit: Manager(given.endpoint, unit))
