"""The messages of a scripted manager, a method for each command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define

from wmp.message import Command, Frame, Message, Peer
from wmp.testing.peers.scripted_peer import ScriptedPeer


@define(eq=False, kw_only=True, slots=False)
class ManagerMessages(ScriptedPeer):
    """The memory of a manager for its next message, and a method for each of its commands.

    Each method takes further fields by their names in the specification; a None leaves a field out.
    """

    role: str = "default"
    """The role of jobs, unless a message names another."""
    max_silence: float = 6.0
    """Time of silence in PONG, in seconds or in units of the kit."""
    ready: int = 0
    """The number of the newest READY received, which PONG names; 0 for none."""
    credit: int = 0
    """The rest of the credit of that READY."""
    last_lock: int = 0
    """The newest lock received, which PONG names; 0 for none."""
    last_id: int = 0
    """The highest id of a job so far."""
    owner: Peer | None = None
    """The owner named in TAKE and CANCEL; None for this manager itself."""
    serves: Sequence[Peer] = ()
    """The stores that PONG names."""
    standby: bool = False
    """Whether PONG reports that the manager is on standby."""
    keep: float | None = None
    """Time in TAKE for which the worker keeps the jobs, in seconds or in units; None for none."""
    kept: int | None = None
    """The number up to which results are stored, as PONG names it; None for all."""

    @property
    def owner_of_jobs(self) -> Peer:
        """The owner that TAKE and CANCEL name."""
        return self.owner or self.peer

    def compose_pong(self, **fields: Any) -> Message:
        """Compose PONG with the remembered state."""
        fields.setdefault("max_silence", self.milliseconds(self.max_silence))
        if fields.setdefault("ready", self.ready or None) is not None:
            fields.setdefault("credit", self.credit)
        fields.setdefault("lock", self.last_lock or None)
        fields.setdefault("serves", tuple(self.serves) or None)
        fields.setdefault("kept", self.kept)
        fields.setdefault("standby", self.standby or None)
        return self.compose(Command.PONG, **fields)

    def compose_wake(self, count: int, **fields: Any) -> Message:
        """Compose WAKE for jobs of one slot, unless ``needs`` is given."""
        fields.setdefault("role", self.role)
        fields.setdefault("needs", {"slots": 1})
        return self.compose(Command.WAKE, count=count, **fields)

    def compose_take(
        self,
        lock: int,
        payloads: Sequence[Frame],
        *,
        ids: Sequence[int] | None = None,
        attempt: int = 1,
        **fields: Any,
    ) -> Message:
        """Compose TAKE of jobs with these payloads, with the next ids unless ``ids`` are given.

        Further columns may be given by their names, such as ``left``.
        """
        if ids is None:
            ids = range(self.last_id + 1, self.last_id + 1 + len(payloads))
        self.last_id = max(self.last_id, *ids)
        jobs = [(id, attempt) for id in ids]
        columns = self.columns(jobs, fields, payloads=list(payloads))
        fields.setdefault("role", self.role)
        fields.setdefault("needs", {"slots": 1})
        fields.setdefault("manager", self.owner_of_jobs)
        if self.keep is not None:
            fields.setdefault("keep", self.milliseconds(self.keep))
        return self.compose(Command.TAKE, columns, lock=lock, **fields)

    def compose_no(self, lock: int, **fields: Any) -> Message:
        """Compose NO."""
        return self.compose(Command.NO, lock=lock, **fields)

    def compose_cancel(self, ids: Sequence[int], attempt: int = 1, **fields: Any) -> Message:
        """Compose CANCEL of one attempt of these jobs."""
        fields.setdefault("manager", self.owner_of_jobs)
        columns = self.columns([(id, attempt) for id in ids], fields)
        return self.compose(Command.CANCEL, columns, **fields)
