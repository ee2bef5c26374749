"""A worker played by hand, for driving a manager machine line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from wmp.actions import ManagerAction, Send
from wmp.core.manager.machine import ManagerMachine
from wmp.events import Received
from wmp.message import Columns, Command, Field, Frame, Link, Message, Outcome, Path, Peer
from wmp.testing.scripted_peer import ScriptedPeer

__all__ = ["ScriptedWorker", "sent"]


def sent(actions: Sequence[object], *commands: Command) -> list[Message]:
    """Select the messages among ``actions``, of these commands when any are named."""
    return [
        action.message
        for action in actions
        if isinstance(action, Send) and (not commands or action.message.command in commands)
    ]


@define
class ScriptedWorker(ScriptedPeer):
    """One worker that talks to ``manager``.

    Every method sends one message and returns the manager's actions. Further fields may be given to
    any of them, by their names in the specification.
    """

    manager: ManagerMachine
    identity: bytes = b"w1"
    epoch: int = 1
    link: Link = b"link-1"
    roles: Sequence[str] = ("default",)
    resources: Mapping[str, int] = field(factory=lambda: {"slots": 8})
    now: float = 0.0
    ready_number: int = 0
    lock: int = 0

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
        """Let a message arrive; note the session and the acks of the manager's answers."""
        actions = self.manager.handle(Received(self.link, message), self.now)
        self.note(actions)
        return actions

    def note(self, actions: Sequence[ManagerAction]) -> None:
        """Read the messages of the manager to this worker."""
        for message in sent(actions):
            if message.receiver == self.identity:
                self.session = message.fields.get(Field.SESSION, self.session)
                self.received = message.fields.get(Field.NUMBER, self.received)

    def ready(self, credit: int = 1, **fields: Any) -> list[ManagerAction]:
        """Send READY without ``to``, with the next number unless ``number`` is given."""
        self.ready_number = fields.pop("number", self.ready_number + 1)
        ready = {
            "ready": self.ready_number,
            "credit": credit,
            "window": 0,
            "roles": list(self.roles),
            "resources": dict(self.resources),
            "label": self.identity.decode(),
        }
        return self.send(self.compose(Command.READY, to=(), **{**ready, **fields}))

    def give(
        self, want: int = 1, *, hold: float | None = None, **fields: Any
    ) -> list[ManagerAction]:
        """Send GIVE under the next lock number unless ``lock`` is given; ``hold`` is in seconds."""
        self.lock = fields.setdefault("lock", self.lock + 1)
        if want:
            fields["roles"] = list(fields.get("roles", self.roles))
            fields["needs"] = dict(fields.get("needs", {"slots": 1}))
        if hold is not None:
            fields["hold"] = int(hold * 1000)
        return self.send(self.compose(Command.GIVE, want=want, **fields))

    def done(
        self,
        ids: Sequence[int],
        payloads: Sequence[Frame] | None = None,
        *,
        outcome: Outcome = Outcome.OK,
        attempt: int = 1,
        waits: Sequence[int | None] | None = None,
        **fields: Any,
    ) -> list[ManagerAction]:
        """Send DONE for these jobs, with the next number unless ``number`` is given."""
        columns = Columns(
            ids=list(ids),
            attempts=[attempt] * len(ids),
            outcomes=[outcome] * len(ids),
            payloads=payloads or [b"result"] * len(ids),
            waits=waits,
        )
        return self.send(self.numbered(Command.DONE, columns, **fields))

    def numbered(self, command: Command, columns: Columns, **fields: Any) -> Message:
        """Compose a message of the numbered stream."""
        self.number = fields.setdefault("number", self.number + 1)
        stream = {"session": self.session, "ack": self.ack, "manager": self.managed_by}
        return self.compose(command, columns, **{**stream, **fields})

    def ping(
        self, *, to: bool = True, held: Sequence[tuple[int, int]] = (), **fields: Any
    ) -> list[ManagerAction]:
        """Send PING, to this manager or without ``to``; ``held`` lists (id, attempt) pairs."""
        columns = Columns([id for id, _ in held], [attempt for _, attempt in held])
        if not fields.get("session", self.session):
            fields |= {"session": None, "ack": None}
        path = self.to if to else ()
        return self.send(self.compose(Command.PING, columns if held else None, to=path, **fields))

    def bye(self, **fields: Any) -> list[ManagerAction]:
        """Send BYE."""
        return self.send(self.compose(Command.BYE, **fields))
