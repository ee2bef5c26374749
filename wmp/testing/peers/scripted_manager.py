"""A manager with scripted messages, which drives a worker machine line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define

from wmp.actions import WorkerAction
from wmp.core.worker.machine import WorkerMachine
from wmp.events import Connected, Received
from wmp.message import Command, Field, Frame, Message, Path
from wmp.testing.peers.manager_messages import ManagerMessages
from wmp.testing.peers.scripted_peer import sent


@define
class ScriptedManager(ManagerMessages):
    """One manager of the machine ``worker``.

    Every method sends one message and returns the worker's actions. Each takes further fields by
    their names in the specification; ``now`` is when the message arrives.
    """

    worker: WorkerMachine
    identity: bytes = b"m1"
    epoch: int = 1
    link: int = 0
    session: int = 1
    now: float = 0.0

    @property
    def to(self) -> Path:
        """The ``to`` of a message to the worker."""
        settings = self.worker.settings
        return settings.epoch, settings.identity

    def send(self, message: Message) -> list[WorkerAction]:
        """Let a message arrive; read the worker's answers."""
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
        """Begin a session, as a new manager does.

        Several managers on one link are behind a device; the first of them connects the link.
        """
        actions: list[WorkerAction] = []
        if all(row.link != self.link for row in self.worker.statistics().managers):
            actions = self.worker.handle(Connected(self.link), self.now)
            self.note(actions)
        return actions + self.pong() + self.pong()

    def pong(self, *, max_silence: float | None = None, **fields: Any) -> list[WorkerAction]:
        """Send PONG with the remembered state.

        ``ready=None`` omits READY; ``max_silence`` is in seconds.
        """
        if max_silence is not None:
            fields["max_silence"] = self.milliseconds(max_silence)
        return self.send(self.compose_pong(**fields))

    def wake(self, count: int = 1, **fields: Any) -> list[WorkerAction]:
        """Send WAKE."""
        return self.send(self.compose_wake(count, **fields))

    def take(self, lock: int, *payloads: Frame, **fields: Any) -> list[WorkerAction]:
        """Send TAKE, with the next ids unless ``ids`` are given."""
        fields = self._next_number(fields)
        return self.send(self.compose_take(lock, payloads or (b"job",), **fields))

    def no(self, lock: int, **fields: Any) -> list[WorkerAction]:
        """Send NO."""
        return self.send(self.compose_no(lock, **self._next_number(fields)))

    def cancel(self, *ids: int, attempt: int = 1, **fields: Any) -> list[WorkerAction]:
        """Send CANCEL."""
        return self.send(self.compose_cancel(ids, attempt, **self._next_number(fields)))

    def error(self, code: str, *, to: Path | None = None, **fields: Any) -> list[WorkerAction]:
        """Send ERROR."""
        return self.send(self.compose_error(code, to=to, **fields))

    def _next_number(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Add the next number of the stream, unless ``number`` is given."""
        self.number = fields.setdefault("number", self.number + 1)
        return fields
