"""A worker played by hand, for driving a manager machine line by line.

``ScriptedWorker`` makes correct messages with few words and keeps the two numberings; what
it does not do is decide anything. Messages that are wrong on purpose are made with
``message`` and keyword overrides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from attrs import define, evolve, field

from wmp.actions import ManagerAction, Send
from wmp.core.manager.machine import ManagerMachine
from wmp.events import Received
from wmp.message import Columns, Command, Field, Frame, Link, Message, Outcome, Path, Peer

__all__ = ["ScriptedWorker", "sent"]


def sent(actions: Sequence[object], *commands: Command) -> list[Message]:
    """The messages among ``actions``, of these commands when any are named."""
    return [
        action.message
        for action in actions
        if isinstance(action, Send) and (not commands or action.message.command in commands)
    ]


@define
class ScriptedWorker:
    """One worker talking to ``manager``.

    Every method sends one message and returns the manager's actions.
    """

    manager: ManagerMachine
    identity: bytes = b"w1"
    epoch: int = 1
    link: Link = b"link-1"
    hops: Path = ()
    roles: Sequence[str] = ("default",)
    resources: Mapping[str, int] = field(factory=lambda: {"slots": 8})
    now: float = 0.0
    ready_number: int = 0
    lock: int = 0
    number: int = 0
    session: int = 0
    received: int = 0

    @property
    def managed_by(self) -> Peer:
        """(identity, epoch) of the manager."""
        settings = self.manager.settings
        return settings.identity, settings.epoch

    @property
    def to(self) -> Path:
        """The ``to`` of a message to the manager."""
        return self.managed_by[::-1]

    def message(
        self, command: Command, fields: Mapping[int | str, Any], columns: Columns | None = None
    ) -> Message:
        """A message as it arrives at the manager."""
        return Message(
            command, self.to, (self.identity, self.epoch, *self.hops), dict(fields), columns
        )

    def send(self, message: Message) -> list[ManagerAction]:
        """Let it arrive; note the session and the acks of what comes back for this worker."""
        actions = self.manager.handle(Received(self.link, message), self.now)
        self.note(actions)
        return actions

    def note(self, actions: Sequence[ManagerAction]) -> None:
        """Read what the manager sent to this worker."""
        for message in sent(actions):
            if message.receiver == self.identity:
                self.session = message.fields.get(Field.SESSION, self.session)
                self.received = message.fields.get(Field.NUMBER, self.received)

    def ready(self, credit: int = 1, **changes: Any) -> list[ManagerAction]:
        """READY without ``to``, with the next number unless ``number`` is given."""
        self.ready_number = changes.get("number", self.ready_number + 1)
        fields: dict[int | str, Any] = {
            Field.READY: self.ready_number,
            Field.CREDIT: credit,
            Field.WINDOW: changes.get("window", 0),
            Field.ROLES: list(self.roles),
            Field.RESOURCES: dict(self.resources),
            Field.LABEL: self.identity.decode(),
        }
        return self.send(evolve(self.message(Command.READY, fields), to=()))

    def give(self, want: int = 1, **changes: Any) -> list[ManagerAction]:
        """GIVE under the next lock number unless ``lock`` is given."""
        self.lock = lock = changes.get("lock", self.lock + 1)
        fields: dict[int | str, Any] = {Field.LOCK: lock, Field.WANT: want}
        if want:
            fields[Field.ROLES] = list(changes.get("roles", self.roles))
            fields[Field.NEEDS] = dict(changes.get("needs", {"slots": 1}))
        if "hold" in changes:
            fields[Field.HOLD] = int(changes["hold"] * 1000)
        if "window" in changes:
            fields[Field.WINDOW] = changes["window"]
        return self.send(self.message(Command.GIVE, fields))

    def done(
        self,
        ids: Sequence[int],
        payloads: Sequence[Frame] | None = None,
        *,
        outcome: Outcome = Outcome.OK,
        attempt: int = 1,
        **changes: Any,
    ) -> list[ManagerAction]:
        """DONE for these jobs, numbered next unless ``number`` is given."""
        columns = Columns(
            ids=list(ids),
            attempts=[attempt] * len(ids),
            outcomes=[outcome] * len(ids),
            payloads=payloads or [b"result"] * len(ids),
        )
        return self.send(self.numbered(Command.DONE, columns, **changes))

    def numbered(self, command: Command, columns: Columns, **changes: Any) -> Message:
        """A message of the numbered stream."""
        self.number = changes.get("number", self.number + 1)
        fields: dict[int | str, Any] = {
            Field.NUMBER: self.number,
            Field.ACK: self.received,
            Field.SESSION: changes.get("session", self.session),
            Field.MANAGER: changes.get("manager", self.managed_by),
        }
        return self.message(command, fields, columns)

    def ping(self, *, to: bool = True, **changes: Any) -> list[ManagerAction]:
        """PING, to this manager or to anyone; with ``held`` it lists (id, attempt) pairs."""
        fields: dict[int | str, Any] = {}
        if to and changes.get("session", self.session):
            fields = {
                Field.ACK: changes.get("ack", self.received),
                Field.SESSION: changes.get("session", self.session),
            }
        if changes.get("again"):
            fields[Field.AGAIN] = True
        columns = None
        if held := cast("Sequence[tuple[int, int]]", changes.get("held")):
            columns = Columns([id for id, _ in held], [attempt for _, attempt in held])
        message = self.message(Command.PING, fields, columns)
        return self.send(message if to else evolve(message, to=()))

    def bye(self) -> list[ManagerAction]:
        """BYE."""
        return self.send(self.message(Command.BYE, {}))
