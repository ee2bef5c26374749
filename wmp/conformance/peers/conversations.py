"""Conversations with a manager, a worker and a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from wmp import codec
from wmp.codec import CodecLimits
from wmp.conformance.peers.conversation import Conversation, Player, ReceivedMessage
from wmp.conformance.peers.neighbor import Neighbor
from wmp.conformance.peers.played_manager import PlayedManager, WorkerBook
from wmp.conformance.peers.played_worker import ManagerBook, PlayedWorker
from wmp.conformance.script.case import Broken
from wmp.conformance.wire.frame_check import check_form, check_head
from wmp.conformance.wire.wire import Connection
from wmp.errors import DecodeError
from wmp.message import Command, Frame, Message, Path, Peer

_MAX_ROUNDS = 5
"""Maximum number of barriers in a row: messages of the kit's own peers may arrive meanwhile."""


@define(eq=False)
class ManagerConversation(Conversation):
    """The testee is a manager; the kit plays workers."""

    _unread: set[Connection] = field(factory=set)
    """Connections with messages that the manager may not have read yet."""
    _probes: dict[Connection, Peer] = field(factory=dict)
    """A worker without jobs on each connection, whose PINGs show what the manager has read."""

    _awaited: set[Connection] = field(factory=set)
    """Connections whose probe has received no PONG since its last PING."""

    _handling: bool = False
    """Whether the kit handles an event, and the script waits."""

    def __attrs_post_init__(self) -> None:
        self.book = ManagerBook()

    def pump(self, until: float) -> bool:
        before, self._handling = self._handling, True
        try:
            return Conversation.pump(self, until)
        finally:
            self._handling = before

    def send(self, who: str, connection: Connection, frames: Sequence[Frame]) -> None:
        self.turn_to(connection)
        self._unread.add(connection)
        Conversation.send(self, who, connection, frames)

    def turn_to(self, connection: Connection | None) -> None:
        if not self._handling:
            self.let_read(but=connection)

    def submit(self, payload: bytes | None = None, *, role: str = "echo", **wishes: Any) -> str:
        self.let_read()
        return Conversation.submit(self, payload, role=role, **wishes)

    def cancel(self, name: str) -> None:
        self.let_read()
        Conversation.cancel(self, name)

    def let_read(self, but: Connection | None = None) -> None:
        """Wait until the manager has read all messages that were sent to it.

        A line of stdin and a message of a socket may cross, and so may messages of two
        connections: a manager may read either first. So a worker of the kit that does nothing
        else sends PING over each connection that was used, and its PONG shows that the manager has
        read what came before. A manager that sends no PONG gets the time of "at once".

        Args:
            but: A connection whose messages need not be read.
        """
        if not self.wire.grace:
            return  # nothing crosses in virtual time
        for _ in range(_MAX_ROUNDS):
            used = {getattr(player, "connection", None) for player in self.players}
            waiting = {
                connection
                for connection in self._unread & used
                if connection.side == "dialled" and connection != but
            }
            self._unread &= {but}
            if not waiting:
                return
            for connection in waiting:
                number = len(self._probes) + 1
                probe = self._probes.setdefault(connection, (b"probe-%d" % number, self.wire.epoch))
                ping = Message(Command.PING, (), probe)
                Conversation.send(self, probe[0].decode(), connection, codec.encode(ping))
            until = self.now + self.wire.grace
            self._awaited = waiting
            while self._awaited and self._read_one(until):
                pass

    def _read_one(self, until: float) -> bool:
        """Handle one message. The peers of the kit send nothing of their own meanwhile.

        A PING in the middle of a script would get a PONG that the script does not expect.
        """
        before, self._handling = self._handling, True
        try:
            arrived = self.wire.receive(until)
            if arrived is not None:
                self._receive(*arrived)
        finally:
            self._handling = before
        return arrived is not None or self.now < until

    def _hand_over(
        self,
        connection: Connection,
        frames: Sequence[Frame],
        message: Message | None,
        receivers: Sequence[Player],
    ) -> None:
        probe = self._probes.get(connection)
        if probe is None or message is None or message.to != probe[::-1]:
            Conversation._hand_over(self, connection, frames, message, receivers)
            return
        self.check_form(connection, frames)
        if message.command is Command.PONG:
            self._awaited.discard(connection)

    def check_form(self, connection: Connection, frames: Sequence[Frame]) -> None:
        check_form(frames, announces=connection.side == "taken")

    def worker(self, name: str = "", **changes: Any) -> PlayedWorker:
        """Make a worker on a connection of its own.

        The manager has received nothing of the worker yet.
        """
        name = name or f"w{len(self.players) + 1}"
        identity = changes.pop("identity", name.encode())
        connection = changes.pop("connection", None) or self.wire.dial()
        epoch = changes.pop("epoch", self.wire.epoch)
        worker = PlayedWorker(self, name, connection, identity=identity, epoch=epoch, **changes)
        self.players.append(worker)
        return worker

    def device(self, endpoint: int = 0) -> Neighbor:
        """Make a device to which the manager dials in."""
        device = Neighbor(self, f"device-{endpoint}", None, endpoint, "taken", b"device")
        self.players.append(device)
        return device

    def met(self, name: str = "", **changes: Any) -> PlayedWorker:
        """Make a worker and let the manager receive its first messages."""
        worker = self.worker(name, **changes)
        worker.meet()
        return worker

    def _elsewhere(self, message: Message) -> None:
        for player in self.players:
            if isinstance(player, PlayedWorker) and message.to == player.path[::-1]:
                raise Broken(
                    "WMP-1.2",
                    f"{message.command.name} to {player.name} arrives on the connection of another "
                    f"peer; expected the connection of the last message of {player.name}",
                )

    def still_works(self) -> None:
        """Check that a new worker gets a job and finishes it.

        Raises:
            Broken: The manager does not work any more (WMP-10.1).
        """
        self.remark("check that the manager still works")
        newcomer = self.met("newcomer", roles=["still"])
        newcomer.ready(4)  # a GIVE alone may find a defect of WMP-4.3
        name = self.submit(b"still there?", role="still")
        newcomer.serve(name)


@define(eq=False)
class WorkerConversation(Conversation):
    """The testee is a worker; the kit plays managers."""

    def __attrs_post_init__(self) -> None:
        self.book = WorkerBook()

    def manager(self, name: str = "", **changes: Any) -> PlayedManager:
        """Make a manager of which the worker has received nothing yet.

        Every further manager at an endpoint is behind a device, so that the worker reaches all of
        them over one connection.
        """
        book: WorkerBook = self.book
        endpoint: int = changes.get("endpoint", 0)
        name = name or f"m{len(self.players) + 1}"
        before = [other for other in book.managers if other.endpoint == endpoint]
        if before:
            changes.setdefault("hops", (b"between", 7, len(before)))
            changes.setdefault("connection", before[0].connection)
            changes.setdefault("testee", before[0].testee)
        identity = changes.pop("identity", name.encode())
        manager = PlayedManager(
            self,
            name,
            identity=identity,
            epoch=changes.pop("epoch", self.wire.epoch),
            **changes,
        )
        book.managers.append(manager)
        self.players.append(manager)
        return manager

    def met(self, name: str = "", **changes: Any) -> PlayedManager:
        """Make a manager and let the worker receive its first messages."""
        manager = self.manager(name, **changes)
        if manager.testee is None:
            manager.meet()
        else:
            manager.pong()
            self.settle()
        return manager

    def farewell(self) -> None:
        # Without these acks a worker would wait for the acks of its last results.
        for manager in self.book.managers:
            if manager.connection is not None and manager.testee is not None:
                manager.pong()

    def still_works(self) -> None:
        """Check that a new manager gets a job done.

        Raises:
            Broken: The worker does not work any more (WMP-10.1).
        """
        self.remark("check that the worker still works")
        if not self.players:
            self.met().echoes()
            return
        for other in self.book.managers:
            if other.testee is not None and other.answers:
                other.retire()
        self.met("newcomer").echoes(within=12.0)


@define(eq=False)
class DeviceConversation(Conversation):
    """The testee is a device; the kit plays the peers above and below the device."""

    _routes: int = 0

    def read(self, frames: Sequence[Frame]) -> Message | None:
        try:
            return codec.peek(frames, CodecLimits(hops=99))
        except DecodeError:
            return None

    def check_form(self, connection: Connection, frames: Sequence[Frame]) -> None:
        check_head(frames)  # a device reads only the head

    def above(self, endpoint: int = 0) -> Neighbor:
        """Make a manager at one of the device's upstream endpoints."""
        name = f"above-{endpoint}"
        above = Neighbor(self, name, None, endpoint, "taken", b"manager-%d" % endpoint)
        self.players.append(above)
        return above

    def dialed(self, name: str = "", identity: bytes = b"") -> Neighbor:
        """Make a manager that opens a connection to the device's upper ROUTER."""
        name = name or f"dialed-{len(self.players)}"
        connection = self.wire.dial(upper=True)
        dialed = Neighbor(self, name, connection, identity=identity or name.encode())
        self.players.append(dialed)
        return dialed

    def below(self, name: str = "") -> Neighbor:
        """Make a worker on a connection of its own."""
        name = name or f"below-{len(self.players)}"
        below = Neighbor(self, name, self.wire.dial(), identity=name.encode())
        self.players.append(below)
        return below

    def joined(
        self, endpoints: int = 1, rule: str = "WMP-8.1"
    ) -> tuple[Neighbor, Sequence[Neighbor]]:
        """Make a neighbor below and all neighbors above; wait until the device connects them."""
        above = [self.above(endpoint) for endpoint in range(endpoints)]
        below = self.below()
        until = self.now + max(self.wire.grace, self.wire.patience)
        for neighbor in above:
            # A device drops messages until it is connected, so the message is sent again.
            received = None
            while received is None:
                below.send(Command.PING, label="who is there")
                left = until - self.now
                received = neighbor.wait_for(
                    Command.PING, within=min(max(1.0, self.wire.grace), left)
                )
                self.check(
                    received is not None or self.now < until,
                    f"{neighbor.name} received no PING of the worker below the device",
                    rule,
                )
        self.settle()
        for neighbor in (below, *above):
            neighbor.inbox.clear()
        return below, above

    def route(self, above: Neighbor, below: Neighbor) -> tuple[Path, Path]:
        """Return (``to`` of messages down, ``to`` of messages up) with the hops of the device."""
        self._routes += 1
        label = f"route {self._routes}"

        def fits(received: ReceivedMessage) -> bool:
            return bool(received["label"] == label)

        below.send(Command.PING, label=label)
        ping = above.expect(Command.PING, where=fits, rule="WMP-8.1")
        down = ping.message.source[::-1]
        above.send(Command.PONG, to=down, max_silence=6000, session=1, label=label)
        pong = below.expect(Command.PONG, where=fits, rule="WMP-8.2")
        return down, pong.message.source[::-1]

    def still_works(self) -> None:
        """Check that a message passes up, and its answer down.

        Raises:
            Broken: The device does not work any more (WMP-10.1).
        """
        self.remark("check that the device still works")
        above = [p for p in self.players if isinstance(p, Neighbor) and p.side == "taken"]
        newcomer = self.below("newcomer")
        newcomer.send(Command.PING, label="still there?")
        upper = above[0] if above else self.above()
        received = upper.expect(
            Command.PING,
            where=lambda received: received["label"] == "still there?",
            rule="WMP-10.1",
        )
        upper.send(Command.PONG, to=received.message.answer_to, max_silence=6000, session=1)
        newcomer.expect(Command.PONG, rule="WMP-10.1")
