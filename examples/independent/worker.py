"""A WMP worker/1 in plain pyzmq and cbor2, written from `specs/wmp.md` alone.

    python worker.py tcp://127.0.0.1:5570[,tcp://…] [--slots 4] [--identity NAME]

It shares no code with `wmp`. Its roles: `echo` returns the payload, `fail` always fails, and `slow`
takes as many milliseconds as its payload says, and ends at once when it is cancelled. None of them
blocks this thread; a worker with real work would use another thread for it.
"""

import argparse
import time
from typing import Any
from zlib import crc32

import messages as wire
import zmq
from jobs import ROLES, Jobs
from links import Link, Manager
from messages import Message
from node import MAX_SILENCE, Node, Superseded, run
from stream import Stream

PING_INTERVAL, LOCK_TIMEOUT, MIN_SILENCE, SEARCH = 1, 5, 0.3, 10  # units and pings
MAX_KEPT = 1 << 28  # bytes of results without an ack


class Worker(Node[Manager]):
    """Sends READY and GIVE, does the jobs of TAKE, and sends DONE."""

    receives = (wire.WAKE, wire.TAKE, wire.NO, wire.CANCEL, wire.PONG)

    def __init__(self, endpoints: list[str], slots: int, name: bytes | None, unit: float) -> None:
        super().__init__(name, unit)
        self.jobs, self.room_grew = Jobs(slots), False
        self.ready, self.greeted, self.pings, self.ping_at = 0, 0, 0, 0.0
        # Sessions that must not be entered again (WMP-7.8).
        self.left: dict[tuple[bytes, int], int] = {}
        self.links = [Link(endpoint, self.socket) for endpoint in endpoints]

    def transmit(self, connection: Link, frames: list[bytes]) -> None:
        connection.socket.send_multipart(frames, zmq.DONTWAIT)

    # --- capacity ---

    def room(self) -> int:
        kept = sum(peer.stream.size for peer in self.peers.values() if peer.stream)
        return self.jobs.free() if kept < MAX_KEPT and not self.ending else 0  # WMP-7.9

    def say_ready(self, credit: int, to: Manager | None = None) -> None:
        """Send READY to one manager, or without a receiver over all links."""
        self.ready += 1
        fields = {"ready": self.ready, "credit": credit, "roles": ROLES, "resources": self.jobs.all}
        for manager in [to] if to else self.peers.values():
            manager.ready = self.ready
        if to:
            return self.send(to, wire.READY, fields)
        self.greeted = self.ready
        for link in self.links:
            link.send(Message(wire.READY, [], self.me, fields))

    def share_room(self) -> None:
        """Send GIVE to the managers that sent WAKE, the least recently served first (WMP-3.10)."""
        for manager in sorted(self.peers.values(), key=lambda manager: manager.served):
            if manager.wake and manager.connection:
                slots = self.jobs.slots_for(manager.wake["needs"])
                if want := min(manager.wake["count"], self.room() // slots):
                    lock = self.jobs.lock(manager, slots, want, LOCK_TIMEOUT * self.unit)
                    give = {"lock": lock, "want": want, "roles": [manager.wake["role"]]}
                    self.send(manager, wire.GIVE, {**give, "needs": manager.wake["needs"]})
                    manager.wake, manager.served = None, lock
        if self.room_grew and self.room():
            self.say_ready(self.room())
        self.room_grew = False

    # --- messages of managers ---

    def wake(self, manager: Manager, message: Message) -> None:
        slots = self.jobs.slots_for(message.fields["needs"])
        fits = message.fields["role"] in ROLES and slots <= self.jobs.all_slots
        manager.wake = message.fields if fits else manager.wake
        self.share_room()
        if manager.wake or not fits:
            self.say_ready(0, manager)  # a WAKE that fits stays pending (WMP-3.9)

    def take(self, manager: Manager, message: Message) -> None:
        fields, columns = message.fields, message.columns
        count, slots = len(columns["ids"]), self.jobs.slots_for(fields["needs"])
        self.jobs.unlock(manager, fields["lock"], count if fields.get("more") else wire.JOBS)
        sums = zip(columns.get("checksums", ()), columns["payloads"], strict=False)
        damaged = any(sum not in (None, crc32(payload)) for sum, payload in sums)
        role = "" if damaged else fields["role"]  # an empty role is refused (WMP-2.12)
        names = ("ids", "attempts", "left", "expires", "limits", "payloads")
        for name in names[2:5]:
            columns.setdefault(name, [None] * count)
        for row in zip(*(columns[name] for name in names), strict=True):
            self.jobs.take(manager, tuple(fields["manager"]), role, slots, row)
        self.room_grew = True  # the rest is reported before any DONE of these jobs (WMP-3.11)
        self.share_room()

    def no(self, manager: Manager, message: Message) -> None:
        number = message.fields["lock"]
        if not self.jobs.unlock(manager, number, wire.JOBS) and number > self.jobs.last_lock:
            self.complain(manager.connection, message, "unknown")

    def cancel(self, manager: Manager, message: Message) -> None:
        owner, unstarted = tuple(message.fields["manager"]), message.fields.get("unstarted", False)
        for row in zip(message.columns["ids"], message.columns["attempts"], strict=True):
            self.jobs.cancel(manager, owner, unstarted, row)

    def answer(self, connection: Link, message: Message) -> None:
        """Answer over every route, with the session of the challenging manager (WMP-15.4)."""
        manager, challenge = self.peers[message.sender[0]], message.fields.get("challenge")
        if challenge:
            fields = {"answer": challenge}
            if manager.stream and manager.epoch == message.sender[1]:
                fields["session"] = manager.stream.session
            connection.send(Message(wire.PING, message.sender[::-1], self.me, fields))

    def refused(self, connection: Link, message: Message) -> None:
        """Record that a manager serves another process of this identity (WMP-15.9)."""
        manager = self.peers.get(message.sender[0])
        if manager:
            if (manager.connection, manager.to) != (connection, message.sender[::-1]):
                return
            if manager.claim and manager.claim.message.sender[1] == manager.epoch:
                return self.admit(manager)
            self.part(manager.identity)
        if self.peers:
            return
        if connection.refuse(self.links, 3 * PING_INTERVAL * self.unit):
            raise Superseded(
                f"no manager serves identity {self.me[0].hex()}, because another process has the "
                "same identity"
            )

    def pong(self, manager: Manager, message: Message) -> None:
        if "challenge" in message.fields:
            self.send(manager, wire.PING, {"answer": message.fields["challenge"]})
        fields, room = message.fields, self.room()
        manager.max_silence = max(MIN_SILENCE * self.unit, fields["max_silence"] / 1000)  # WMP-9.15
        differs = fields.get("ready") != manager.ready or fields.get("credit", 0) < room
        waits = manager.wake or any(manager.identity == key for key, _ in self.jobs.locks)
        if differs and not waits:
            self.say_ready(room, manager)

    def send_answers(self) -> None:
        self.room_grew |= self.jobs.over(hand_back=self.ending)
        for (identity, owner), rows in self.jobs.answers.items():
            names, fields = "ids attempts outcomes payloads checksums", {"manager": list(owner)}
            summed = [(*row, crc32(row[3])) for row in rows]
            self.send_jobs(self.peers[identity], wire.DONE, fields, names, summed)
        self.jobs.answers.clear()

    # --- sessions ---

    def meet(self, identity: bytes, epoch: int) -> Manager:
        for link in self.links:
            link.refused_since = 0.0
        return Manager(identity, epoch, MAX_SILENCE * self.unit, ready=self.greeted)

    def forget(self, peer: Manager) -> None:
        if peer.stream and peer.stream.sent + peer.stream.received:
            self.left[peer.identity, peer.epoch] = peer.stream.session
        peer.stream, peer.wake, self.pings = None, None, 0
        self.jobs.forget(peer)

    def in_session(self, peer: Manager, message: Message) -> bool:
        if peer.connection.fresh and len(message.sender) == 2:  # WMP-9.12
            peer.connection.fresh = False
            for gone in peer.connection.others(peer, self.peers.values()):
                self.unreachable(gone)
        session, number = message.fields.get("session"), message.fields.get("number", 0)
        if session is None or (peer.stream and session <= peer.stream.session):
            return session is None or session == (peer.stream and peer.stream.session)
        left = self.left.get((peer.identity, peer.epoch), 0)
        if session <= left or (not peer.stream and number > 1):  # WMP-7.8
            if number:
                self.send(peer, wire.PING)
            return not number
        if peer.stream:
            self.forget(peer)
        peer.stream = Stream(session)
        return True

    def ask_again(self, peer: Manager, **more: Any) -> None:
        self.send(peer, wire.PING, more or {"again": True})

    def tick(self) -> None:
        super().tick()
        self.room_grew |= self.jobs.unlock_late()
        expires = [manager.max_silence / 3 for manager in self.peers.values()]
        now, interval = time.monotonic(), min([PING_INTERVAL * self.unit, *expires])
        if sum(link.replace_if_silent(interval, self.unit) for link in self.links):
            self.pings = 0
        if now > self.ping_at or self.pings == 0:
            self.ping_at = now + interval
            self.ping()

    def ping(self) -> None:
        """Send PING to every manager, and on links without a known manager (WMP-3.1, WMP-9.1)."""
        if self.pings == 0:  # the link is new, or it is time to search for managers again
            self.say_ready(self.room())
        known = [manager.connection for manager in self.peers.values()]
        for link in self.links:
            if link not in known or self.pings % SEARCH == 0:
                link.send(Message(wire.PING, [], self.me, {}))
        for manager in self.peers.values():
            self.send(manager, wire.PING)
        self.pings += 1

    def turn(self) -> None:
        zmq.select([link.socket for link in self.links], [], [], 0.02)
        for link in self.links:
            for frames in link.receive():
                self.receive(link, frames)
        self.send_answers()
        self.share_room()

    def leave(self) -> None:
        self.send_answers()
        for manager in self.peers.values():
            self.send(manager, wire.BYE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run a minimal worker of WMP/1.")
    parser.add_argument("endpoints", type=lambda text: text.split(","), help="joined by commas")
    parser.add_argument("--slots", type=int, default=4, help="jobs at once")
    parser.add_argument(
        "--identity", type=str.encode, help="identity of the worker (default: random bytes)"
    )
    run(parser, lambda given, unit: Worker(given.endpoints, given.slots, given.identity, unit))
