"""The server of round robin beside a plain model of the description's table and queue.

With commands of several roles the manager has a queue for each role, and each of them is the queue
of the description.
"""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.gateways.round_robin import EXEC, RESPONSE, TRACKEXEC, Server, V
from wmp.foreign import Left

COMMANDS = (b"\x01", b"\x0a", b"\x20")
ROLES = {COMMANDS[1]: "stream"}
"""The other commands have the role of the door."""

HOPS = ((), (b"far",), (b"far", b"near"))


class Message:
    """A message of the client as the model has it."""

    def __init__(self, id: bytes, hops: tuple[bytes, ...], role: str, *, tracked: bool) -> None:
        self.id = id
        self.role = role
        self.hops = hops
        self.tracked = tracked
        self.ended = False
        self.again = False
        """Whether a worker died that had the message."""


class Model:
    """The table and the queue as the description has them, with a checker after each event."""

    def __init__(self, *, several: bool) -> None:
        self.several = several
        """Whether the commands have several roles."""
        self.moved = b""
        """Id of the newest message that waited when slots left the table."""
        self.table: list[list] = []
        """Address and free slots."""
        self.slots: dict[bytes, int] = {}
        self.held: dict[bytes, list[Message]] = {}
        """Messages of each worker for which INCREMENT has not come."""
        self.queue: list[Message] = []
        self.sent: list[tuple[bytes, Message]] = []

    def next(self, given: list[bytes]) -> Message:
        """Return the message that is given next: the oldest of its role.

        Messages that are given again have no order. With several roles, nor have messages that
        waited when slots left the table.
        """
        oldest: dict[tuple[str, bytes], Message] = {}
        for message in self.queue:
            free = message.again or (self.several and message.id <= self.moved)
            oldest.setdefault((message.role, message.id if free else b""), message)
        chosen = given[len(self.sent)] if len(given) > len(self.sent) else b""
        return next((message for message in oldest.values() if message.id == chosen), self.queue[0])

    def remove(self, peer):
        if self.queue:
            self.moved = self.queue[-1].id
        self.table = [row for row in self.table if row[0] != peer]

    def register(self, peer, slots):
        self.remove(peer)
        self.slots[peer] = slots
        self.table.append([peer, slots])

    def done(self, peer, message):
        """INCREMENT comes for a message."""
        self.held[peer].remove(message)
        message.ended = True
        rows = [row for row in self.table if row[0] == peer]
        if rows:
            free = min(self.slots[peer], rows[0][1] + 1)
            self.remove(peer)
            self.table.append([peer, free])

    def dies(self, peer):
        """The connection of a worker ends: its slots are gone, its messages are in the queue."""
        self.remove(peer)
        lost = [
            message for message in self.held.pop(peer, []) if message.tracked and not message.ended
        ]
        for message in lost:
            message.again = True
        self.queue = sorted([*lost, *self.queue], key=lambda message: message.id)

    def drain(self, given: list[bytes]):
        """Give waiting messages to workers.

        Args:
            given: Ids of the messages in the order of the server.
        """
        while self.queue:
            for _ in range(len(self.table)):
                row = self.table.pop(0)
                self.table.append(row)
                if row[1]:
                    row[1] -= 1
                    message = self.next(given)
                    self.queue.remove(message)
                    self.held.setdefault(row[0], []).append(message)
                    self.sent.append((row[0], message))
                    break
            else:
                return


class Played:
    """A server and the model, which get the same events."""

    def __init__(self, roles: dict[bytes, str]) -> None:
        self.server = Server(max_worker_losses=100, commands=roles, heartbeat=1000.0, leave=1000.0)
        self.model = Model(several=bool(roles))
        self.roles = roles
        self.frames: dict[tuple[bytes, bytes], tuple[bytes, ...]] = {}
        """The newest frames of each message at each worker."""
        self.sent: list[tuple[bytes, bytes]] = []
        self.numbers = count(1)

    def look(self) -> None:
        """Take what the server sent, and compare it with the model."""
        for address, frames in self.server.emitted:
            if frames[2] in (EXEC, TRACKEXEC):
                self.sent.append((address, frames[3]))
                self.frames[address, frames[3]] = frames

    def drain(self) -> None:
        if self.roles and self.model.moved:
            # With several roles a message may then wait beside a free slot for a second.
            self.server.wait(1.0)
            self.look()
        self.model.drain([id for _, id in self.sent])

    def compare(self) -> None:
        server, model = self.server, self.model
        self.drain()
        assert self.sent == [(peer, message.id) for peer, message in model.sent]
        assert dict(server.rows) == dict(model.table)
        ready = [peer for peer, free in server.rows if free]
        assert ready == [peer for peer, free in model.table if free]
        assert server.door.statistics().queued == len(model.queue)
        server.machine.manager.check_invariants()

    # -- the steps

    def register(self, peer, n):
        self.server.exec(peer, b"reg1", b"\x08", b"%d" % n)
        self.model.register(peer, n)
        self.look()

    def deregister(self, peer, n):
        self.server.exec(peer, b"WORKER", b"\x09", tracked=False)
        self.model.remove(peer)
        self.look()

    def dies(self, peer, n):
        self.server.feed(Left(0, peer))
        self.model.dies(peer)
        self.look()

    def increment(self, peer, n):
        """INCREMENT of a worker without a message does nothing."""
        if not self.model.held.get(peer):
            self.server.increment(peer)
            self.look()

    def answer(self, peer, n):
        """The worker ends one of its messages."""
        held = self.model.held.get(peer, [])
        if not held:
            return
        message = held[n % len(held)]
        if not message.tracked:
            # INCREMENT has no id, so it is that of the oldest EXEC.
            message = next(untracked for untracked in held if not untracked.tracked)
        if message.tracked:
            self.server.answer(peer, self.frames[peer, message.id], b"did")
            (answer,) = (emitted for emitted in self.server.emitted if emitted[0] == b"client")
            back = message.hops[::-1]
            assert answer[1] == (*back, b"", V, RESPONSE, message.id, b"did", b"", peer)
            self.look()
        self.server.increment(peer)
        self.model.done(peer, message)
        self.look()

    def message(self, peer, n, *, tracked=True):
        for _ in range(n):
            number = next(self.numbers)
            id, hops = b"%04d" % number, HOPS[number % 3]
            command = COMMANDS[number * 7 % 3]
            self.server.get(
                b"", V, TRACKEXEC if tracked else EXEC, id, command, b"", *hops, peer=b"client"
            )
            self.look()
            role = self.roles.get(command, "")
            self.model.queue.append(Message(id, hops, role, tracked=tracked))
            self.drain()

    def exec(self, peer, n):
        self.message(peer, n, tracked=False)


PEERS = st.sampled_from([b"a", b"b", b"c"])
STEPS = st.one_of(
    st.tuples(st.just("register"), PEERS, st.integers(0, 4)),
    st.tuples(st.sampled_from(["deregister", "dies", "increment"]), PEERS, st.just(0)),
    st.tuples(st.just("answer"), PEERS, st.integers(0, 3)),
    st.tuples(st.sampled_from(["message", "message", "exec"]), st.just(b""), st.integers(1, 3)),
)


@pytest.mark.rule("RR-3.6", "RR-4.2", "RR-4.3", "RR-4.4", "RR-4.7", "RR-4.8", "RR-4.9", "RR-5.1")
@pytest.mark.rule("RR-5.2")
@pytest.mark.parametrize("roles", [{}, ROLES], ids=["one role", "two roles"])
@example(
    steps=[
        ("register", b"a", 1),
        ("register", b"b", 1),
        ("message", b"", 1),
        ("dies", b"a", 0),
        ("dies", b"b", 0),
        ("register", b"b", 1),
        ("dies", b"b", 0),
        ("register", b"a", 1),
    ]
)
@given(steps=st.lists(STEPS, max_size=40))
def test_the_server_serves_as_the_plain_model_of_table_and_queue(roles, steps):
    played = Played(roles)
    for what, peer, n in steps:
        getattr(played, what)(peer, n)
        played.compare()
