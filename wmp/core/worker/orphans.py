"""Jobs and answers of a worker whose manager has gone, for another manager (spec §14).

The jobs of a store outlive their manager. When the worker forgets the manager, these jobs go on,
and their answers wait here. A manager that serves their store gets the answers, and a list of the
jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import define, field

from wmp.core.protocol.outbound import Kept
from wmp.core.worker.executions import Executions
from wmp.core.worker.held_table import ORPHANED
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.timers import KeepTimer
from wmp.message import Command, Field, Limits, Peer, counted

MAX_SERVED: Final = 4
"""Limit of the stores of one manager: the worker sends a list for each of them."""

_MAX_OWNERS: Final = 256
"""Limit of the owners whose jobs outlive their managers."""


@define(eq=False)
class Orphans:
    """Orphaned jobs and answers, and the managers that may take them."""

    outbound: WorkerOutbound
    executions: Executions
    size: int = 0
    """Number of payload bytes in all answers."""
    answering: RemoteManager | None = None
    """The manager whose PONG has come in this step."""
    _answers: dict[Peer, list[Kept]] = field(factory=dict)
    """The orphaned DONEs by owner, oldest first."""

    # -- what managers report

    def note_keep(self, fields: Mapping[int | str, Any]) -> float:
        """Return for how long the jobs of a TAKE with KEEP are kept without a manager, in
        seconds."""
        owner, keeps = tuple(fields[Field.MANAGER]), self.outbound.keeps
        if owner not in keeps and len(keeps) >= _MAX_OWNERS:
            return 0.0
        seconds: float = fields[Field.KEEP] / 1000
        keeps[owner] = seconds
        return seconds

    # -- a manager is forgotten

    def gather(self, manager: RemoteManager) -> None:
        """Keep the DONEs of a lost session that are not known to be stored (WMP-14.5)."""
        outbound, stream = self.outbound, manager.stream
        for kept in manager.unwritten:
            outbound.kept_bytes -= kept.size
        some = [*manager.unwritten, *(() if stream is None else stream.kept)]
        manager.unwritten.clear()
        for kept in some:
            if outbound.is_stored(kept):
                self._keep(kept)

    def settle(self, now: float) -> None:
        """Keep the answers of this step to orphaned jobs, and look for another manager."""
        answering, self.answering = self.answering, None
        if self.outbound.keeps:
            for kept in self.executions.orphaned_answers():
                self._keep(kept)
            self._move(answering, now)

    def _keep(self, kept: Kept) -> None:
        self._answers.setdefault(kept.fields[Field.MANAGER], []).append(kept)
        self.size += kept.size
        self.outbound.kept_bytes += kept.size

    # -- another manager

    @property
    def owners(self) -> Sequence[Peer]:
        """Return the owners of orphaned jobs and answers."""
        held = [jobs.owner for jobs in self.executions.held(ORPHANED)]
        return tuple(dict.fromkeys((*held, *self._answers)))

    def _move(self, manager: RemoteManager | None, now: float) -> None:
        """Give orphaned jobs to the manager whose PONG has come, if it serves their owners
        (WMP-14.6)."""
        for owner in self.owners:
            timer, timers = KeepTimer(owner), self.outbound.timers
            if manager is None or manager.stream is None or owner not in manager.serves:
                if timer not in timers:
                    timers.set(timer, now + self.outbound.keeps[owner])
                    self._ask(owner, now)
                continue
            timers.clear(timer)
            self.executions.jobs.give_orphans(owner, manager)
            for kept in self._answers.pop(owner, ()):
                self.size -= kept.size
                self.outbound.kept_bytes -= kept.size
                left = (Field.NUMBER, Field.SESSION)
                fields = {key: value for key, value in kept.fields.items() if key not in left}
                self.outbound.push(manager, Command.DONE, fields, kept.columns, now, kept.size)
            self.list_jobs(manager, owner, now)

    def _ask(self, owner: Peer, now: float) -> None:
        """Ask the known managers that served an owner whether they are there."""
        for manager in self.outbound.links.managers.values():
            if owner in manager.serves and manager.path is not None:
                self.outbound.ping(manager, now)

    def list_jobs(self, manager: RemoteManager, owner: Peer, now: float) -> None:
        """Send the list of the jobs of one owner that the manager gets answers to (WMP-14.6)."""
        rows = self.executions.jobs.unanswered(manager, owner)
        parts = [rows[first : first + Limits.JOBS] for first in range(0, len(rows), Limits.JOBS)]
        for part in parts or [[]]:
            listing = [id for id, _ in part], [attempt for _, attempt in part]
            self.outbound.ping(manager, now, listing=listing, owner=owner, more=len(parts) > 1)

    # -- no manager came

    def expire(self, owner: Peer) -> None:
        """Drop the orphaned jobs and answers of an owner (WMP-14.5)."""
        answers = self._answers.pop(owner, ())
        size = sum(kept.size for kept in answers)
        self.size -= size
        self.outbound.kept_bytes -= size
        jobs = self.executions.jobs.drop_orphans(owner)
        lost = f"{counted(jobs, 'job')} and {counted(len(answers), 'answer')}"
        text = f"no manager that serves the store came in time: dropped {lost}"
        self.outbound.drop("orphaned for too long", detail=text)
