"""The unanswered jobs of a worker, by the manager that gets their answers, and by their owner.

Most jobs end with their manager's session (WMP-7.6). Jobs of a store outlive it (spec §14): they
are orphaned, and another manager may get them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import define, field

from wmp.actions import Interrupt, Note
from wmp.core.worker.execution_lifecycle import ExecutionInput
from wmp.core.worker.outbound import WorkerOutbound
from wmp.core.worker.remote_manager import RemoteManager
from wmp.core.worker.run_queue import HeldJobs, RunQueue
from wmp.message import Field, Peer

ORPHANED: Final = b""
"""Stands for the manager of orphaned jobs (WMP-14.5); no identity is empty."""


@define(eq=False)
class HeldTable:
    """All held jobs of a worker.

    Invariant: an owner without jobs is not kept, and neither is a manager without owners.
    """

    outbound: WorkerOutbound
    queue: RunQueue
    _held: dict[bytes, dict[Peer, HeldJobs]] = field(factory=dict)

    def count(self, manager: bytes) -> int:
        """Return the number of jobs of a manager."""
        return sum(map(len, self._held.get(manager, {}).values()))

    def of(self, manager: bytes) -> Iterable[HeldJobs]:
        """Return the jobs of a manager by owner."""
        return self._held.get(manager, {}).values()

    def find(self, manager: bytes, owner: Peer) -> HeldJobs | None:
        """Return the jobs of one owner that came from a manager; None for no jobs."""
        return self._held.get(manager, {}).get(owner)

    def make(self, manager: bytes, owner: Peer) -> HeldJobs:
        """Return a new entry, to which the caller adds jobs."""
        held = self._held.setdefault(manager, {})[owner] = HeldJobs(manager, owner)
        return held

    def check(self) -> int:
        """Raise AssertionError when the invariant does not hold; return the number of all jobs."""
        assert all(all(owners.values()) and owners for owners in self._held.values())
        return sum(map(self.count, self._held))

    def release(self, held: HeldJobs, ids: Sequence[int], what: ExecutionInput) -> list[int]:
        """Stop holding these jobs; return their attempts."""
        attempts = held.remove(ids, what)
        if not held.attempts:
            self._remove(held)
        return attempts

    def listing(self, manager: RemoteManager, maximum: int) -> tuple[list[int], list[int]] | None:
        """Return (ids, attempts) of all jobs held for a manager, for its PING (WMP-9.9).

        Answered jobs are included until the manager has acknowledged them.

        Returns:
            The lists; None for more than ``maximum`` jobs, or if a job has another owner, which
            PING cannot show.
        """
        if manager.stream is None:
            return None
        ids: list[int] = []
        attempts: list[int] = []
        for held in self.of(manager.identity):
            if held.owner != manager.peer:
                return None
            ids += held.attempts
            attempts += held.attempts.values()
        for kept in manager.stream.kept:
            if kept.columns is not None and kept.columns.outcomes is not None:
                if kept.fields[Field.MANAGER] != manager.peer:
                    return None
                ids += kept.columns.ids
                attempts += kept.columns.attempts
            if len(ids) > maximum:
                return None
        return (ids, attempts) if len(ids) <= maximum else None

    def forget(self, manager: RemoteManager) -> int:
        """End the jobs of a manager's lost session; no DONE is sent (WMP-7.6).

        Jobs that outlive their manager are orphaned instead (WMP-14.5).

        Returns:
            The number of the jobs that ended.
        """
        actions = self.outbound.actions
        for lane in self.queue.forget(manager.identity):
            actions.append(Interrupt(lane.number, list(lane.ids)))
        lost = 0
        self.orphan(manager)
        for owner, held in self._held.pop(manager.identity, {}).items():
            ids = list(held.attempts)
            lost += len(ids)
            attempts = held.remove(ids, ExecutionInput.FORGET)
            actions.append(Note("forget", manager.peer, owner=owner, ids=ids, attempts=attempts))
        return lost

    # -- jobs without a manager (spec §14)

    def orphan(self, manager: RemoteManager) -> None:
        """Orphan the jobs of a manager that outlive it; the others stay."""
        for held in tuple(self.of(manager.identity)):
            if held.keep:
                self._note("orphan", manager.peer, held)
                self._move(held, ORPHANED)

    def give_orphans(self, owner: Peer, manager: RemoteManager) -> None:
        """Let a manager get the answers to the orphaned jobs of an owner."""
        held = self.find(ORPHANED, owner)
        if held is not None:
            self._note("adopt", manager.peer, held)
            self._move(held, manager.identity)

    def drop_orphans(self, owner: Peer) -> int:
        """End the orphaned jobs of an owner, because no manager came; return their number."""
        held = self.find(ORPHANED, owner)
        if held is None:
            return 0
        self._note("forget", owner, held)
        self._remove(held)
        ids = list(held.attempts)
        self._discard(held, ids)
        return len(ids)

    def unanswered(self, manager: RemoteManager, owner: Peer) -> list[tuple[int, int]]:
        """Return (id, attempt) of the jobs of an owner that a manager gets answers to."""
        held = self.find(manager.identity, owner)
        return [] if held is None else list(held.attempts.items())

    def _note(self, reason: str, peer: Peer, held: HeldJobs) -> None:
        """Let the journal show what becomes of jobs."""
        ids, attempts = list(held.attempts), list(held.attempts.values())
        note = Note(reason, peer, owner=held.owner, ids=ids, attempts=attempts)
        self.outbound.actions.append(note)

    def _remove(self, held: HeldJobs) -> None:
        """Take an entry out of the table."""
        owners = self._held[held.manager]
        del owners[held.owner]
        if not owners:
            del self._held[held.manager]

    def _move(self, held: HeldJobs, manager: bytes) -> None:
        """Let jobs belong to another manager, or to none."""
        self._remove(held)
        target = self._held.setdefault(manager, {}).setdefault(held.owner, held)
        if target is not held:
            # The worker got one job from two managers: the lower attempt is not wanted any more.
            for id in held.attempts.keys() & target.attempts.keys():
                old = held if held.attempts[id] <= target.attempts[id] else target
                self._discard(old, [id])
            target.attempts.update(held.attempts)
            target.states.update(held.states)
            target.keep = max(target.keep, held.keep)
        self.queue.move(held, target, manager)

    def _discard(self, held: HeldJobs, ids: Sequence[int]) -> None:
        """End jobs without an answer; the other jobs of their lanes go on."""
        chosen = set(ids)
        self.queue.remove(held, chosen)
        for lane in self.queue.running.values():
            jobs = [job for job in lane.ids if job in chosen and job not in lane.answered]
            if lane.held is held and jobs:
                lane.answered.update(jobs)
                lane.limits = {} if lane.limits is None else lane.limits
                self.outbound.actions.append(Interrupt(lane.number, jobs))
        held.remove(ids, ExecutionInput.FORGET)
