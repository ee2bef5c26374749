"""A manager played by hand, for driving a worker machine line by line.

``ScriptedManager`` makes correct messages with few words and keeps the numbering; what it
does not do is decide anything. Messages that are wrong on purpose are made with
``message`` and keyword overrides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from wmp.actions import Send, WorkerAction
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Received
from wmp.message import Columns, Command, Field, Frame, Message, Path, Peer

__all__ = ["ScriptedManager"]


@define
class ScriptedManager:
    """One manager talking to ``worker``.

    Every method sends one message and returns the worker's actions. ``number``, ``session``
    and ``ack`` may be given to any of them; ``now`` is when it arrives.
    """

    worker: WorkerMachine
    identity: bytes = b"m1"
    epoch: int = 1
    link: int = 0
    hops: Path = ()
    session: int = 1
    expire: float = 6.0
    now: float = 0.0
    number: int = 0
    received: int = 0
    """Highest number received of the worker: the ack that rides on every message."""
    last_id: int = 0
    ready: int = 0
    """Newest READY seen, as the next PONG says."""
    credit: int = 0
    last_lock: int = 0
    """Newest lock seen, as the next PONG says."""
    owner: Peer | None = field(default=None)
    """Whose jobs it gives; None for its own."""

    @property
    def peer(self) -> Peer:
        """(identity, epoch)."""
        return self.identity, self.epoch

    def message(
        self,
        command: Command,
        fields: Mapping[int | str, Any],
        columns: Columns | None = None,
        to: Path | None = None,
    ) -> Message:
        """A message as it arrives at the worker."""
        settings = self.worker.settings
        if to is None:
            to = (settings.epoch, settings.identity)
        return Message(command, to, (*self.peer, *self.hops), dict(fields), columns)

    def send(self, message: Message) -> list[WorkerAction]:
        """Let it arrive; note what comes back."""
        actions = self.worker.handle(Received(self.link, message), self.now)
        self.note(actions)
        return actions

    def note(self, actions: Sequence[object]) -> None:
        """Read what the worker sent to this manager."""
        for action in actions:
            if isinstance(action, Send) and action.message.receiver in (None, self.identity):
                fields = action.message.fields
                if action.message.command is Command.GIVE:
                    self.last_lock = max(self.last_lock, fields[Field.LOCK])
                if action.message.command is Command.READY:
                    self.ready, self.credit = fields[Field.READY], fields[Field.CREDIT]
                if fields.get(Field.NUMBER) == self.received + 1:
                    self.received += 1

    def meet(self) -> list[WorkerAction]:
        """Agree on a session, as a manager does that is just there. Of several on one link, which
        are behind a device then, the first connects it."""
        actions: list[WorkerAction] = []
        if all(row.link != self.link for row in self.worker.statistics().managers):
            actions = self.worker.handle(Connected(self.link), self.now)
            self.note(actions)
        return actions + self.pong() + self.pong()

    def pong(self, **changes: Any) -> list[WorkerAction]:
        """PONG with what this manager remembers; ``ready=None`` for nothing."""
        fields = self._stamp(changes)
        ready = changes.get("ready", self.ready or None)
        if ready is not None:
            fields[Field.READY] = ready
            fields[Field.CREDIT] = changes.get("credit", self.credit)
        lock = changes.get("lock", self.last_lock)
        if lock:
            fields[Field.LOCK] = lock
        fields[Field.EXPIRE] = int(changes.get("expire", self.expire) * 1000)
        if changes.get("again"):
            fields[Field.AGAIN] = True
        return self.send(self.message(Command.PONG, fields))

    def wake(self, count: int = 1, **changes: Any) -> list[WorkerAction]:
        """WAKE."""
        fields: dict[int | str, Any] = {
            Field.COUNT: count,
            Field.ROLE: changes.get("role", "default"),
            Field.NEEDS: dict(changes.get("needs", {"slots": 1})),
        }
        return self.send(self.message(Command.WAKE, fields))

    def take(self, lock: int, *payloads: Frame, **changes: Any) -> list[WorkerAction]:
        """TAKE, with the next ids unless ``ids`` are given."""
        payloads = payloads or (b"job",)
        ids = changes.get("ids", range(self.last_id + 1, self.last_id + 1 + len(payloads)))
        self.last_id = max(self.last_id, *ids)
        columns = Columns(
            ids=list(ids),
            attempts=[changes.get("attempt", 1)] * len(ids),
            left=changes.get("left"),
            payloads=list(payloads),
        )
        fields: dict[int | str, Any] = {
            Field.ROLE: changes.get("role", "default"),
            Field.NEEDS: dict(changes.get("needs", {"slots": 1})),
            Field.LOCK: lock,
            Field.MANAGER: self.owner or self.peer,
        }
        if changes.get("more"):
            fields[Field.MORE] = True
        if "codec" in changes:
            fields[Field.CODEC] = changes["codec"]
        return self.send(self.numbered(Command.TAKE, fields, columns, **changes))

    def no(self, lock: int, **changes: Any) -> list[WorkerAction]:
        """NO."""
        return self.send(self.numbered(Command.NO, {Field.LOCK: lock}, None, **changes))

    def cancel(self, *ids: int, attempt: int = 1, **changes: Any) -> list[WorkerAction]:
        """CANCEL."""
        fields: dict[int | str, Any] = {Field.MANAGER: self.owner or self.peer}
        if changes.get("unstarted"):
            fields[Field.UNSTARTED] = True
        columns = Columns(list(ids), [attempt] * len(ids))
        return self.send(self.numbered(Command.CANCEL, fields, columns, **changes))

    def error(self, code: str, **changes: Any) -> list[WorkerAction]:
        """ERROR, ``about`` a peer and perhaps a ``command`` and its ``number``."""
        fields: dict[int | str, Any] = {Field.CODE: code}
        if "about" in changes:
            fields[Field.ABOUT_PEER] = changes["about"]
        if "command" in changes:
            fields[Field.ABOUT] = int(changes["command"])
        if "about_number" in changes:
            fields[Field.ABOUT_NUMBER] = changes["about_number"]
        return self.send(self.message(Command.ERROR, fields, to=changes.get("to")))

    def numbered(
        self,
        command: Command,
        fields: Mapping[int | str, Any],
        columns: Columns | None,
        **changes: Any,
    ) -> Message:
        """A message of the numbered stream, the next unless ``number`` is given."""
        self.number = changes.get("number", self.number + 1)
        stamped = {**fields, **self._stamp(changes), Field.NUMBER: self.number}
        return self.message(command, stamped, columns)

    def _stamp(self, changes: Mapping[str, Any]) -> dict[int | str, Any]:
        return {
            Field.ACK: changes.get("ack", self.received),
            Field.SESSION: changes.get("session", self.session),
        }
