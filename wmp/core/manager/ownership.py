"""The owners of a manager's jobs on the wire: the manager itself, or the store that it serves.

Stored jobs belong to the store (WMP-14.1), so that another manager of the store can take them over.
Every message about jobs names one owner. The number of a job shows its owner: the numbers of stored
jobs are below ``FIRST_UNSTORED``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from attrs import define, field

from wmp.core.manager.job_lifecycle import JobRecord
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.message import Field, ForwardedKind, Peer

_REMEMBERED_OWNERS: Final = 10_000


@define(eq=False)
class Ownership:
    """The owners of the jobs of one manager."""

    me: Peer
    """The manager."""
    orphan_ttl_ms: int
    """Milliseconds for which workers keep stored jobs without a manager."""
    store: Peer | None = None
    """The store; None without one, and before it is opened."""
    standby: bool = False
    """Whether the manager grants no jobs, because the other manager of its pair does (§17)."""
    forwarded: OrderedDict[Peer, None] = field(factory=OrderedDict)
    """Owners of jobs that this manager handed to its own workers (section 19)."""

    def of(self, id: int) -> Peer:
        """Return the owner of a job."""
        return self.me if self.store is None or id >= FIRST_UNSTORED else self.store

    def is_stored(self, owner: Peer) -> bool:
        """Return whether an owner is the store."""
        return self.store is not None and owner == self.store

    def is_foreign(self, owner: Peer) -> bool:
        """Return whether an owner is another manager, or a store of another manager."""
        return owner != self.me and owner != self.store

    def fields_of_take(self, id: int) -> dict[int | str, Any]:
        """Return the fields for the owner of the jobs of a TAKE, one of which is ``id``."""
        if self.store is None or id >= FIRST_UNSTORED:
            return {Field.MANAGER: self.me}
        return {Field.MANAGER: self.store, Field.KEEP: self.orphan_ttl_ms}

    def fields_of_pong(self) -> dict[int | str, Any]:
        """Return the field that reports which store the manager serves, or its standby."""
        if self.standby:
            return {Field.STANDBY: True}  # WMP-17.1
        return {} if self.store is None else {Field.SERVES: (self.store,)}

    def is_own(self, owner: Peer) -> bool:
        """Return whether an owner is this manager, or the store that this manager serves."""
        return owner[0] == self.me[0] or (self.store is not None and owner[0] == self.store[0])

    def note_forwarded(self, owner: Peer) -> None:
        """Remember an owner of forwarded jobs; late results of its jobs are no errors."""
        self.forwarded[owner] = None
        self.forwarded.move_to_end(owner)
        if len(self.forwarded) > _REMEMBERED_OWNERS:
            self.forwarded.popitem(last=False)

    def misnamed(self, owner: Peer, ids: Sequence[int]) -> str:
        """Return why jobs that a worker names are not of this owner; empty if they may be."""
        if self.is_stored(owner):
            foreign = max(ids) >= FIRST_UNSTORED
        elif owner == self.me:
            foreign = self.store is not None and min(ids) < FIRST_UNSTORED
        else:
            known = owner in self.forwarded
            return "" if known else "the message names a manager whose jobs were not forwarded here"
        return "the message names jobs of another owner" if foreign else ""

    def groups(self, jobs: Sequence[JobRecord]) -> list[tuple[Peer, Sequence[JobRecord]]]:
        """Return jobs by owner."""
        if self.store is None and not self.forwarded:
            return [(self.me, jobs)]
        parts: dict[Peer, list[JobRecord]] = {}
        for job in jobs:
            kind = job.kind
            owner = kind.owner if type(kind) is ForwardedKind else self.of(job.id)
            parts.setdefault(owner, []).append(job)
        return list(parts.items())
