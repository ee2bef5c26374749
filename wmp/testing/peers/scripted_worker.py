"""A worker with scripted messages, which drives a manager machine line by line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from wmp.actions import ManagerAction
from wmp.core.manager.machine import ManagerMachine
from wmp.events import Received
from wmp.message import Columns, Command, Field, Frame, Link, Message, Outcome, Path, Peer
from wmp.testing.peers.scripted_peer import sent
from wmp.testing.peers.worker_messages import WorkerMessages


@define
class ScriptedWorker(WorkerMessages):
    """One worker of the machine ``manager``.

    Every method sends one message and returns the manager's actions. Each takes further fields by
    their names in the specification.
    """

    manager: ManagerMachine
    identity: bytes = b"w1"
    epoch: int = 1
    link: Link = b"link-1"
    now: float = 0.0
    owners: dict[int, Peer] = field(factory=dict)
    """Owners of the jobs of all TAKEs, by number of the job."""

    @property
    def managed_by(self) -> Peer:
        """(identity, epoch) of the manager."""
        settings = self.manager.settings
        return settings.identity, settings.epoch

    @property
    def to(self) -> Path:
        """The ``to`` of a message to the manager."""
        return self.managed_by[::-1]

    def send(self, message: Message) -> list[ManagerAction]:
        """Let a message arrive; read the session and the acks of the manager's answers."""
        actions = self.manager.handle(Received(self.link, message), self.now)
        self.note(actions)
        return actions

    def note(self, actions: Sequence[ManagerAction]) -> None:
        """Read the messages of the manager to this worker."""
        for message in sent(actions):
            if message.receiver == self.identity:
                self.session = message.fields.get(Field.SESSION, self.session)
                self.received = message.fields.get(Field.NUMBER, self.received)
                if message.command is Command.TAKE and message.columns is not None:
                    owner = message.fields[Field.MANAGER]
                    self.owners.update(dict.fromkeys(message.columns.ids, owner))

    def ready(self, credit: int = 1, **fields: Any) -> list[ManagerAction]:
        """Send READY without ``to``, with the next number unless ``ready`` is given."""
        label = self.identity.decode()
        return self.send(self.compose_ready(credit, **{"window": 0, "label": label, **fields}))

    def give(self, want: int = 1, **fields: Any) -> list[ManagerAction]:
        """Send GIVE under the next lock number unless ``lock`` is given; ``hold`` is in seconds."""
        return self.send(self.compose_give(want, **fields))

    def done(
        self,
        ids: Sequence[int],
        payloads: Sequence[Frame] | None = None,
        *,
        outcome: Outcome = Outcome.OK,
        attempt: int = 1,
        **fields: Any,
    ) -> list[ManagerAction]:
        """Send DONE for these jobs, with the next number unless ``number`` is given."""
        jobs = [(id, attempt) for id in ids]
        payloads = payloads or [b"result"] * len(ids)
        fields.setdefault("manager", self.owners.get(ids[0], self.managed_by))
        stream = self._next_number(fields)
        return self.send(self.compose_done(jobs, payloads, [outcome] * len(ids), **stream))

    def numbered(self, command: Command, columns: Columns, **fields: Any) -> Message:
        """Compose a message of the numbered stream."""
        owner = self.owners.get(columns.ids[0], self.managed_by)
        stream = self._next_number({"manager": owner, **fields})
        return self.compose(command, columns, **stream)

    def _next_number(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Add the place in the numbered stream; a worker without a session has the session 0."""
        self.number = fields.setdefault("number", self.number + 1)
        return {"session": self.session, "ack": self.ack, **fields}

    def ping(
        self, *, to: bool = True, held: Sequence[tuple[int, int]] = (), **fields: Any
    ) -> list[ManagerAction]:
        """Send PING, to this manager or without ``to``; ``held`` lists (id, attempt) pairs."""
        if not fields.get("session", self.session):
            fields |= {"session": None, "ack": None}
        return self.send(self.compose_ping(held, to=self.to if to else (), **fields))

    def bye(self, **fields: Any) -> list[ManagerAction]:
        """Send BYE."""
        return self.send(self.compose_bye(**fields))
