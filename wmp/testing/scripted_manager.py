"""A manager played by hand, for driving a worker machine line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from wmp.actions import WorkerAction
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Received
from wmp.message import Columns, Command, Field, Frame, Message, Path, Peer
from wmp.testing.scripted import sent
from wmp.testing.scripted_peer import ScriptedPeer

__all__ = ["ScriptedManager"]


@define
class ScriptedManager(ScriptedPeer):
    """One manager that talks to ``worker``.

    Every method sends one message and returns the worker's actions. Further fields may be given to
    any of them, by their names in the specification; ``now`` is when the message arrives.
    """

    worker: WorkerMachine
    identity: bytes = b"m1"
    epoch: int = 1
    link: int = 0
    session: int = 1
    expire: float = 6.0
    now: float = 0.0
    last_id: int = 0
    ready: int = 0
    """The newest READY received, which the next PONG names."""
    credit: int = 0
    last_lock: int = 0
    """The newest lock received, which the next PONG names."""
    owner: Peer | None = field(default=None)
    """The owner named in TAKE; None for this manager itself."""

    @property
    def to(self) -> Path:
        """The ``to`` of a message to the worker."""
        settings = self.worker.settings
        return settings.epoch, settings.identity

    def send(self, message: Message) -> list[WorkerAction]:
        """Let a message arrive; note the worker's answers."""
        actions = self.worker.handle(Received(self.link, message), self.now)
        self.note(actions)
        return actions

    def note(self, actions: Sequence[object]) -> None:
        """Read the messages of the worker to this manager."""
        for message in sent(actions):
            if message.receiver in (None, self.identity):
                fields = message.fields
                if message.command is Command.GIVE:
                    self.last_lock = max(self.last_lock, fields[Field.LOCK])
                if message.command is Command.READY:
                    self.ready, self.credit = fields[Field.READY], fields[Field.CREDIT]
                if fields.get(Field.NUMBER) == self.received + 1:
                    self.received += 1

    def meet(self) -> list[WorkerAction]:
        """Agree on a session, as a new manager does. Several managers on one link are behind a
        device; the first of them connects the link."""
        actions: list[WorkerAction] = []
        if all(row.link != self.link for row in self.worker.statistics().managers):
            actions = self.worker.handle(Connected(self.link), self.now)
            self.note(actions)
        return actions + self.pong() + self.pong()

    def pong(self, *, expire: float | None = None, **fields: Any) -> list[WorkerAction]:
        """Send PONG with the remembered state; ``ready=None`` omits READY; ``expire`` is in
        seconds."""
        if fields.setdefault("ready", self.ready or None) is not None:
            fields.setdefault("credit", self.credit)
        fields["lock"] = fields.get("lock", self.last_lock) or None
        fields["expire"] = int((self.expire if expire is None else expire) * 1000)
        return self.send(self.compose(Command.PONG, **fields))

    def wake(self, count: int = 1, *, role: str = "default", **fields: Any) -> list[WorkerAction]:
        """Send WAKE."""
        fields["needs"] = dict(fields.get("needs", {"slots": 1}))
        return self.send(self.compose(Command.WAKE, count=count, role=role, **fields))

    def take(
        self,
        lock: int,
        *payloads: Frame,
        ids: Sequence[int] | None = None,
        attempt: int = 1,
        left: Sequence[int | None] | None = None,
        expires: Sequence[int | None] | None = None,
        limits: Sequence[int | None] | None = None,
        failed: Sequence[int | None] | None = None,
        role: str = "default",
        **fields: Any,
    ) -> list[WorkerAction]:
        """Send TAKE, with the next ids unless ``ids`` are given."""
        payloads = payloads or (b"job",)
        if ids is None:
            ids = range(self.last_id + 1, self.last_id + 1 + len(payloads))
        self.last_id = max(self.last_id, *ids)
        columns = Columns(
            list(ids),
            [attempt] * len(ids),
            left=left,
            payloads=list(payloads),
            expires=expires,
            limits=limits,
            failed=failed,
        )
        fields["needs"] = dict(fields.get("needs", {"slots": 1}))
        owner = self.owner or self.peer
        return self._send_numbered(
            Command.TAKE, columns, lock=lock, role=role, manager=owner, **fields
        )

    def no(self, lock: int, **fields: Any) -> list[WorkerAction]:
        """Send NO."""
        return self._send_numbered(Command.NO, lock=lock, **fields)

    def cancel(self, *ids: int, attempt: int = 1, **fields: Any) -> list[WorkerAction]:
        """Send CANCEL."""
        fields["unstarted"] = fields.get("unstarted") or None
        columns = Columns(list(ids), [attempt] * len(ids))
        return self._send_numbered(
            Command.CANCEL, columns, manager=self.owner or self.peer, **fields
        )

    def error(self, code: str, *, to: Path | None = None, **fields: Any) -> list[WorkerAction]:
        """Send ERROR."""
        return self.send(self.compose(Command.ERROR, to=to, code=code, **fields))

    def _send_numbered(
        self, command: Command, columns: Columns | None = None, **fields: Any
    ) -> list[WorkerAction]:
        """Send a message of the numbered stream, the next unless ``number`` is given."""
        self.number = fields.setdefault("number", self.number + 1)
        return self.send(self.compose(command, columns, **fields))
