"""Jobs that a worker holds, in columns: attempts and states by id (spec §6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from attrs import define, field

from wmp.message import Peer

__all__ = ["IGNORED", "TRANSITIONS", "ExecutionInput", "ExecutionState", "HeldJobs"]


class ExecutionState(IntEnum):
    """The life of a job at the worker. Integers, because they are hashed once a job."""

    ABSENT = 0
    """Not held: never taken, or answered by DONE."""
    PARKED = 1
    """Waits for resources, or for its lane."""
    STARTED = 2
    """Handed to a lane, where the job may still wait for those before it."""
    RECALLING = 3
    """Handed to a lane, and asked back in case the job has not begun."""
    INTERRUPTED = 4
    """Handed to a lane, and no result is wanted any more."""


class ExecutionInput(IntEnum):
    """The events in the life of a job at the worker."""

    TAKE = 0
    """A TAKE of the same or a higher attempt."""
    START = 1
    FINISH = 2
    RECALLED = 3
    """The lane reports that the job never began."""
    CANCEL = 4
    UNSTARTED = 5
    """CANCEL with ``unstarted``."""
    EXPIRE = 6
    """Its deadline passed."""
    HAND_BACK = 7
    """The worker ends."""
    FORGET = 8
    """The session or the epoch of its manager is lost."""


_S = ExecutionState
_I = ExecutionInput

TRANSITIONS: Final[Mapping[tuple[ExecutionState, ExecutionInput], ExecutionState]] = {
    (_S.ABSENT, _I.TAKE): _S.PARKED,
    (_S.PARKED, _I.TAKE): _S.PARKED,  # the higher attempt counts (WMP-4.14)
    (_S.PARKED, _I.START): _S.STARTED,
    (_S.PARKED, _I.CANCEL): _S.ABSENT,
    (_S.PARKED, _I.UNSTARTED): _S.ABSENT,
    (_S.PARKED, _I.EXPIRE): _S.ABSENT,
    (_S.PARKED, _I.HAND_BACK): _S.ABSENT,
    (_S.PARKED, _I.FORGET): _S.ABSENT,
    (_S.STARTED, _I.TAKE): _S.STARTED,  # what runs answers for the higher attempt too
    (_S.STARTED, _I.FINISH): _S.ABSENT,
    (_S.STARTED, _I.RECALLED): _S.ABSENT,
    (_S.STARTED, _I.CANCEL): _S.INTERRUPTED,
    (_S.STARTED, _I.UNSTARTED): _S.RECALLING,
    (_S.STARTED, _I.FORGET): _S.ABSENT,
    (_S.RECALLING, _I.TAKE): _S.RECALLING,
    (_S.RECALLING, _I.FINISH): _S.ABSENT,
    (_S.RECALLING, _I.RECALLED): _S.ABSENT,
    (_S.RECALLING, _I.CANCEL): _S.INTERRUPTED,
    (_S.RECALLING, _I.FORGET): _S.ABSENT,
    (_S.INTERRUPTED, _I.TAKE): _S.INTERRUPTED,
    (_S.INTERRUPTED, _I.FINISH): _S.ABSENT,
    (_S.INTERRUPTED, _I.RECALLED): _S.ABSENT,  # recalled first, interrupted after
    (_S.INTERRUPTED, _I.FORGET): _S.ABSENT,
}
"""The state that follows from each state by each input."""

_NOT_HELD = "not held: answered cancelled at once"
_NOT_BEGUN = "no lane has the job"
_BEGUN = "a lane has the job: only its handler can end the job"

IGNORED: Final[Mapping[tuple[ExecutionState, ExecutionInput], str]] = {
    (_S.ABSENT, _I.START): "nothing to start",
    (_S.ABSENT, _I.FINISH): "result of a job not held",
    (_S.ABSENT, _I.RECALLED): "result of a job not held",
    (_S.ABSENT, _I.CANCEL): _NOT_HELD,  # WMP-6.10
    (_S.ABSENT, _I.UNSTARTED): _NOT_HELD,
    (_S.ABSENT, _I.EXPIRE): "nothing to expire",
    (_S.ABSENT, _I.HAND_BACK): "nothing to hand back",
    (_S.ABSENT, _I.FORGET): "nothing to forget",
    (_S.PARKED, _I.FINISH): _NOT_BEGUN,
    (_S.PARKED, _I.RECALLED): _NOT_BEGUN,
    (_S.STARTED, _I.START): "started already",
    (_S.STARTED, _I.EXPIRE): _BEGUN,
    (_S.STARTED, _I.HAND_BACK): _BEGUN,
    (_S.RECALLING, _I.START): "started already",
    (_S.RECALLING, _I.UNSTARTED): "asked already",
    (_S.RECALLING, _I.EXPIRE): _BEGUN,
    (_S.RECALLING, _I.HAND_BACK): _BEGUN,
    (_S.INTERRUPTED, _I.START): "started already",
    (_S.INTERRUPTED, _I.CANCEL): "asked already",
    (_S.INTERRUPTED, _I.UNSTARTED): "interrupted already: no result is wanted",
    (_S.INTERRUPTED, _I.EXPIRE): _BEGUN,
    (_S.INTERRUPTED, _I.HAND_BACK): _BEGUN,
}
"""Every other pair, and why it changes nothing."""


@define(eq=False)
class HeldJobs:
    """The jobs of one owner that came from one manager.

    Invariant: ``attempts`` and ``states`` have the same keys, and no state is ABSENT.
    """

    manager: bytes
    """Identity of the manager that sent the jobs and gets their answers."""
    owner: Peer
    attempts: dict[int, int] = field(factory=dict)
    states: dict[int, ExecutionState] = field(factory=dict)

    def __len__(self) -> int:
        return len(self.attempts)

    def state(self, job: int) -> ExecutionState:
        """Where a job is."""
        return self.states.get(job, ExecutionState.ABSENT)

    def new_rows(self, ids: Sequence[int], attempts: Sequence[int]) -> list[int]:
        """Rows of jobs that are not held; of jobs that are held, the higher attempt counts."""
        rows: dict[int, int] = {}
        for row, (job, attempt) in enumerate(zip(ids, attempts, strict=True)):
            if job in self.attempts:
                # WMP-4.14: a job that is held already answers for the newer lease too.
                newer = attempt > self.attempts[job]
                if newer and self.step(job, ExecutionInput.TAKE) is not None:
                    self.attempts[job] = attempt
            elif job not in rows or attempt > attempts[rows[job]]:
                rows[job] = row
        return sorted(rows.values())

    def add(self, ids: Sequence[int], attempts: Iterable[int]) -> None:
        """Hold jobs that were absent."""
        parked = TRANSITIONS[ExecutionState.ABSENT, ExecutionInput.TAKE]
        self.attempts.update(zip(ids, attempts, strict=True))
        self.states.update(dict.fromkeys(ids, parked))

    def start(self, ids: Sequence[int]) -> list[int]:
        """Parked jobs go to a lane; returns their attempts."""
        self.states.update(
            dict.fromkeys(ids, TRANSITIONS[ExecutionState.PARKED, ExecutionInput.START])
        )
        return list(map(self.attempts.__getitem__, ids))

    def step(self, job: int, what: ExecutionInput) -> ExecutionState | None:
        """Move one job as the table says; its new state, or None when ``what`` is ignored."""
        state = TRANSITIONS.get((self.state(job), what))
        if state is None or state is ExecutionState.ABSENT:
            return state
        self.states[job] = state
        return state

    def remove(self, ids: Sequence[int], what: ExecutionInput) -> list[int]:
        """Jobs end by ``what``; returns their attempts.

        The table is asked once for each state among them, not once for each job.
        """
        for state in set(map(self.states.pop, ids)):
            assert TRANSITIONS[state, what] is ExecutionState.ABSENT
        return list(map(self.attempts.pop, ids))
