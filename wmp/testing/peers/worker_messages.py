"""The messages of a scripted worker, a method for each command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field

from wmp.message import Command, Frame, Message, Path
from wmp.testing.peers.scripted_peer import ScriptedPeer


@define(eq=False, kw_only=True, slots=False)
class WorkerMessages(ScriptedPeer):
    """The memory of a worker for its next message, and a method for each of its commands.

    Each method takes further fields by their names in the specification; a None leaves a field out.
    A job is a pair (id, attempt).
    """

    roles: Sequence[str] = ("default",)
    resources: Mapping[str, int] = field(factory=lambda: {"slots": 8})
    ready_number: int = 0
    """The highest number of a READY so far."""
    lock: int = 0
    """The highest number of a lock so far."""

    def compose_ready(self, credit: int, *, to: Path = (), **fields: Any) -> Message:
        """Compose READY with the next number unless ``ready`` is given."""
        number = fields.setdefault("ready", self.ready_number + 1)
        self.ready_number = max(self.ready_number, number)
        fields.setdefault("roles", list(self.roles))
        fields.setdefault("resources", dict(self.resources))
        return self.compose(Command.READY, to=to, credit=credit, **fields)

    def compose_give(self, want: int, *, hold: float | None = None, **fields: Any) -> Message:
        """Compose GIVE under the next lock unless ``lock`` is given."""
        number = fields.setdefault("lock", self.lock + 1)
        self.lock = max(self.lock, number)
        if want:
            fields.setdefault("roles", list(self.roles))
            fields.setdefault("needs", {"slots": 1})
        if hold is not None:
            fields["hold"] = self.milliseconds(hold)
        return self.compose(Command.GIVE, want=want, **fields)

    def compose_done(
        self,
        jobs: Sequence[tuple[int, int]],
        payloads: Sequence[Frame],
        outcomes: Sequence[int],
        **fields: Any,
    ) -> Message:
        """Compose DONE with an outcome and a payload for each job."""
        results = {"outcomes": [int(outcome) for outcome in outcomes], "payloads": list(payloads)}
        columns = self.columns(jobs, fields, **results)
        if "manager" not in fields:
            fields["manager"] = self.to[::-1]
        return self.compose(Command.DONE, columns, **fields)

    def compose_ping(
        self, held: Iterable[tuple[int, int]] = (), *, to: Path | None = None, **fields: Any
    ) -> Message:
        """Compose PING; ``held`` lists jobs."""
        held = list(held)
        columns = self.columns(held, fields) if held else None
        return self.compose(Command.PING, columns, to=to, **fields)
