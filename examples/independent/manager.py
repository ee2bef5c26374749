"""A WMP manager/1 in plain pyzmq and cbor2, written from `specs/wmp.md` alone.

    python manager.py tcp://127.0.0.1:5570

It shares no code with `wmp`. It reads requests from stdin, `submit NAME ROLE HEX` and `cancel
NAME`, and writes reports to stdout, for example `ended NAME ok HEX` (`specs/testee.md`).
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import messages as wire
import zmq
from messages import Message
from node import MAX_SILENCE, NO_ACK, Node, run
from stream import Stream
from waiting import Queue
from workers import NEEDS, Give, Policy, Worker

MARGIN = 0.5  # units before the end of `hold` at which a GIVE is answered


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
        self.policy = Policy(unit)
        self.session = self.offers = 0
        self.departed: dict[bytes, int] = {}  # the epochs of workers that sent BYE

    def transmit(self, connection: bytes, frames: list[bytes]) -> None:
        self.router.send_multipart([connection, *frames], zmq.DONTWAIT)

    # --- messages of workers ---

    def ready(self, worker: Worker, message: Message) -> None:
        fields = message.fields
        if fields["ready"] > worker.ready:  # the newest READY replaces the older one (WMP-3.3)
            worker.offered = self.offers = self.offers + 1
            worker.ready, worker.credit = fields["ready"], fields["credit"]
            worker.contacts += 1
            worker.window = max(worker.window, fields.get("window", 0))
            worker.roles, worker.resources, worker.woken = fields["roles"], fields["resources"], {}

    def give(self, worker: Worker, message: Message) -> None:
        fields, lock, hold = message.fields, message.fields["lock"], message.fields.get("hold", 0)
        self.policy.comes(worker, fields.get("roles", []))
        worker.window = max(worker.window, fields.get("window", 0))
        if lock > worker.lock and fields["want"]:
            worker.lock, worker.contacts = lock, worker.contacts + 1
            until = time.monotonic() + hold / 1000 - min(MARGIN * self.unit, hold / 2000)
            roles, needs = fields.get("roles", []), fields.get("needs", {})
            worker.gives[lock] = Give(fields["want"], roles, needs, until)
        elif lock in worker.gives and not fields["want"]:  # a withdrawn GIVE (WMP-4.5)
            worker.gives[lock].want = 0
        self.serve(worker)

    def serve(self, worker: Worker) -> None:
        """Answer open GIVEs: by TAKE while there are jobs, by NO in time (WMP-4.4, WMP-5.3)."""
        for lock, give in list(worker.gives.items()):
            role, rows = self.queue.lease(worker, give)
            give.want -= len(rows)
            more = give.want > 0 and time.monotonic() < give.until
            fields = {"lock": lock, "role": role, "needs": NEEDS, "manager": self.me, "more": more}
            self.send_jobs(worker, wire.TAKE, fields, "ids attempts left begun payloads", rows)
            if not more:
                del worker.gives[lock]
                if not rows:
                    self.send_numbered(worker, wire.NO, {"lock": lock})

    def done(self, worker: Worker, message: Message) -> None:
        names = ("outcomes", "payloads", "checksums", "texts")
        for number, outcome, payload, sum, text in self.rows(worker, message, *names):
            if sum not in (None, crc32(payload)):  # the result does not fit its checksum (WMP-2.13)
                self.queue.lose(number, b"the result is damaged", spend=True, begun=True)
            elif outcome in (wire.OK, wire.FAILED):
                self.queue.end(number, "ok" if outcome == wire.OK else "error", payload)
            elif outcome == wire.OVERRUN:
                self.queue.end(number, "timeout", payload)
            else:  # a refused job or a job handed back costs no retry (WMP-6.5, WMP-6.11)
                job = self.queue.jobs[number]
                job.refused = (
                    (worker.identity, worker.contacts) if outcome == wire.REFUSED else None
                )
                lost = outcome == wire.LOST
                begun = lost or (outcome == wire.CANCELLED and bool(text))  # WMP-6.34
                self.queue.lose(number, payload, spend=lost, begun=begun)

    def status(self, worker: Worker, message: Message) -> None:
        for number, fraction, text in self.rows(worker, message, "fractions", "texts"):
            words = (text or "").encode().hex() or "-"
            print("status", self.queue.jobs[number].name, fraction, words, flush=True)

    def rows(self, worker: Worker, message: Message, *names: str) -> Iterator[tuple[Any, ...]]:
        """Return the rows that are about current leases of this worker (WMP-6.2, WMP-10.5)."""
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
        challenge = fields.get("challenge")
        self.pong(worker, **({"answer": challenge} if challenge else {}))

    def refused(self, connection: bytes, message: Message) -> None:
        worker = self.peers.get(message.sender[0])
        if worker and (worker.connection, worker.to) == (connection, message.sender[::-1]):
            self.part(worker.identity)

    def pong(self, worker: Worker, **more: Any) -> None:
        fields = {"max_silence": int(MAX_SILENCE * self.unit * 1000), **more}
        fields |= {"lock": worker.lock} if worker.lock else {}
        fields |= {"ready": worker.ready, "credit": worker.credit} if worker.ready else {}
        self.send(worker, wire.PONG, fields)

    def bye(self, worker: Worker, message: Message) -> None:
        self.part(worker.identity)
        self.departed[worker.identity] = worker.epoch
        if len(self.departed) > 1000:
            del self.departed[next(iter(self.departed))]

    def admits(self, connection: bytes, message: Message) -> bool:
        identity, epoch = message.sender[:2]
        if identity not in self.peers and self.departed.get(identity) == epoch:
            if message.command not in (wire.READY, wire.PING):  # a late message (WMP-9.11)
                return False
            del self.departed[identity]
        return super().admits(connection, message)

    # --- sessions ---

    def meet(self, identity: bytes, epoch: int) -> Worker:
        worker = Worker(identity, epoch, MAX_SILENCE * self.unit)
        self.forget(worker)
        return worker

    def forget(self, peer: Worker) -> None:
        """Lose a worker's leases, and continue in a greater session (WMP-7.5)."""
        self.queue.lose_missing(peer)
        self.session += 1
        peer.stream, peer.contacts, peer.gives = Stream(self.session), peer.contacts + 1, {}

    def others(self, peer: Worker, kept: list[Any], text: str | None) -> list[tuple[int, Any, Any]]:
        _, _, command, fields, columns = kept
        if command != wire.TAKE:
            return []
        for number in columns["ids"]:
            if number in peer.leases:
                single = len(columns["ids"]) == 1
                self.queue.jobs[number].alone = True
                cause = (text or NO_ACK).encode()
                self.queue.lose(number, cause, spend=single, begun=single or text is None)
        peer.gives.pop(fields["lock"], None)
        return [(wire.NO, {"lock": fields["lock"]}, {})]

    def in_session(self, peer: Worker, message: Message) -> bool:
        session, stream = message.fields.get("session"), peer.stream or Stream(0)
        forgot = message.command == wire.PING and message.to and session is None
        if forgot and "answer" not in message.fields:
            if stream.sent or stream.received:
                self.forget(peer)
        elif "number" in message.fields and session != stream.session:
            self.pong(peer)  # PONG names the current session (WMP-7.7)
            return False
        return True

    def ask_again(self, peer: Worker, **more: Any) -> None:
        self.pong(peer, **(more or {"again": True}))

    def unreachable(self, peer: Worker) -> None:
        super().unreachable(peer)
        for give in peer.gives.values():
            give.want = 0  # the open GIVE is answered by NO (WMP-9.12)

    def stop(self, worker: Worker, number: int, attempt: int) -> None:
        rows, fields = [(number, attempt)], {"manager": self.me}
        self.send_jobs(worker, wire.CANCEL, fields, "ids attempts", rows)

    def tick(self) -> None:
        super().tick()
        self.queue.end_late()
        for worker in sorted(self.peers.values(), key=lambda worker: worker.offered):
            self.serve(worker)
        for role, waiting in self.queue.waiting.items():
            for worker, count in self.policy.wake(role, len(waiting), list(self.peers.values())):
                self.send(worker, wire.WAKE, {"count": count, "role": role, "needs": NEEDS})

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
    parser = argparse.ArgumentParser(description="Run a minimal manager of WMP/1.")
    parser.add_argument("endpoint", help="to bind")
    run(parser, lambda given, unit: Manager(given.endpoint, unit))
