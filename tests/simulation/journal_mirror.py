"""A worker's locks and jobs, rebuilt from its journal's lines with the machines' own tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import define, field

from tests.simulation.journal_back import peer_of, spread
from wmp.core.worker import execution_lifecycle, locks
from wmp.core.worker.execution_lifecycle import ExecutionInput, ExecutionState
from wmp.core.worker.locks import LockInput, LockState
from wmp.journal.reader import Line
from wmp.message import Outcome, Peer

__all__ = ["Mirror"]

_OUT_OF_ORDER: Final = frozenset(
    (
        *("duplicate", "gap", "ahead", "claimed", "old session", "unknown session"),
        *("misrouted", "superseded"),
    )
)
"""Reasons for which a numbered message is not acted on."""


@define(eq=False)
class Mirror:
    """One epoch of a worker.

    Every step must be in a table. ``passed`` lists the inputs that a table ignores.
    """

    locks: dict[tuple[Peer, int], tuple[LockState, int]] = field(factory=dict)
    """State and open places of each lock that is not closed, by (manager, number)."""
    jobs: dict[Peer, dict[int, tuple[ExecutionState, int]]] = field(factory=dict)
    """(state, attempt) of each job held, by owner and number."""
    lanes: dict[int, tuple[Peer, set[int]]] = field(factory=dict)
    passed: list[str] = field(factory=list)

    def step(self, lines: Sequence[Line]) -> None:
        """Apply the lines of one step."""
        for line in lines:
            what = line["what"]
            if what == "send" and line["command"] in ("GIVE", "DONE"):
                getattr(self, f"_{line['command'].lower()}")(line)
            elif what == "received" and line["command"] in ("TAKE", "NO", "CANCEL"):
                if line.get("reason") not in _OUT_OF_ORDER:
                    getattr(self, f"_{line['command'].lower()}")(line)
            elif what in ("run", "finished", "recall", "recalled", "note"):
                getattr(self, f"_{what}")(line)

    # -- locks

    def _give(self, line: Line) -> None:
        me = peer_of(line, "target")
        if line["want"]:
            what = LockInput.HOLD if "hold" in line else LockInput.GIVE
            self._lock(me, line["lock"], what, line["want"])
        else:
            self._lock(me, line["lock"], LockInput.WITHDRAW)

    def _lock(self, manager: Peer, number: int, what: LockInput, want: int = 0) -> None:
        before, had = self.locks.get((manager, number), (LockState.UNUSED, want))
        after = locks.TRANSITIONS.get((before, what))
        if after is None:
            self.passed.append(locks.IGNORED[before, what])
        elif after is LockState.CLOSED:
            del self.locks[manager, number]
        else:
            self.locks[manager, number] = (after, had)

    def _no(self, line: Line) -> None:
        self._lock(peer_of(line, "source"), line["lock"], LockInput.NO)

    def _note(self, line: Line) -> None:
        manager = _about(line)
        for number in line.get("locks", ()):
            self._lock(manager, number, LockInput(line["reason"]))
        if "ids" in line:
            for job in line["ids"]:
                self._job(peer_of(line, "owner"), job, ExecutionInput[line["reason"].upper()])

    # -- jobs

    def _take(self, line: Line) -> None:
        manager, owner = peer_of(line, "source"), peer_of(line, "owner")
        key = manager, line["lock"]
        _, want = self.locks.get(key, (LockState.UNUSED, 0))
        kept = min(len(line["ids"]), want)
        more = "more" in line and kept < want
        self._lock(manager, line["lock"], LockInput.MORE if more else LockInput.TAKE)
        if key in self.locks:
            self.locks[key] = (self.locks[key][0], want - kept)
        for job, attempt in zip(line["ids"], spread(line, "attempts"), strict=True):
            held = self.jobs.get(owner, {}).get(job)
            if held is None or attempt > held[1]:
                self._job(owner, job, ExecutionInput.TAKE, attempt)

    def _job(self, owner: Peer, job: int, what: ExecutionInput, attempt: int = 0) -> None:
        jobs = self.jobs.setdefault(owner, {})
        before, had = jobs.get(job, (ExecutionState.ABSENT, 0))
        after = execution_lifecycle.TRANSITIONS.get((before, what))
        if after is None:
            self.passed.append(execution_lifecycle.IGNORED[before, what])
        elif after is ExecutionState.ABSENT:
            del jobs[job]
        else:
            jobs[job] = (after, max(had, attempt))

    def _cancel(self, line: Line) -> None:
        owner = peer_of(line, "owner")
        what = ExecutionInput.UNSTARTED if line.get("unstarted") else ExecutionInput.CANCEL
        for job, attempt in zip(line["ids"], spread(line, "attempts"), strict=True):
            if self.jobs.get(owner, {}).get(job, (None, 0))[1] == attempt:
                self._job(owner, job, what)

    def _done(self, line: Line) -> None:
        """End the jobs that have ended without running: refused, expired or handed back."""
        jobs = self.jobs.get(peer_of(line, "owner"), {})
        rows = zip(line["ids"], spread(line, "attempts"), spread(line, "outcomes"), strict=True)
        for job, attempt, outcome in rows:
            if jobs.get(job, (None, 0))[1] == attempt:
                assert outcome in (Outcome.REFUSED, Outcome.CANCELLED)
                assert jobs[job][0] is ExecutionState.PARKED
                del jobs[job]

    def _run(self, line: Line) -> None:
        owner = peer_of(line, "owner")
        for job, attempt in zip(line["ids"], spread(line, "attempts"), strict=True):
            assert self.jobs[owner][job][1] == attempt
            self._job(owner, job, ExecutionInput.START)
        self.lanes[line["lane"]] = (owner, set(line["ids"]))

    def _finished(self, line: Line) -> None:
        self._leave(line, ExecutionInput.FINISH)

    def _recall(self, line: Line) -> None:
        owner, jobs = self.lanes.get(line["lane"], (None, set()))
        for job in line["ids"]:
            if owner is not None and job in jobs:
                self._job(owner, job, ExecutionInput.UNSTARTED)

    def _recalled(self, line: Line) -> None:
        self._leave(line, ExecutionInput.RECALLED)

    def _leave(self, line: Line, what: ExecutionInput) -> None:
        owner, jobs = self.lanes.get(line["lane"], (None, set()))
        for job in line["ids"]:
            if owner is not None and job in jobs:
                jobs.remove(job)
                self._job(owner, job, what)


def _about(line: Line) -> Peer:
    return peer_of({"about": line["about_peer"], "about_epoch": line["about_epoch"]}, "about")
