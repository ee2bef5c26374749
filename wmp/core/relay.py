"""The relay of leases: ties jobs of a worker machine to jobs of a manager machine (spec §19).

A forwarding manager is a worker towards the managers above, and a manager towards the workers
below. Each of the two machines does its part of the protocol by itself. The relay stands where the
handlers of other workers are: it turns the lanes of the worker machine into forwarded jobs of the
manager machine, and their ends into the ends of the lanes. It sends no message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, assert_never

from attrs import define, field

from wmp.actions import Answer, Interrupt, Notify, Recall, Run
from wmp.core.protocol.resources import Offered
from wmp.events import (
    FIRST_FORWARDED,
    Closed,
    Drained,
    Finished,
    Forwarded,
    Recalled,
    Reported,
    Resized,
    Retracted,
    Ticked,
)
from wmp.message import ForwardedKind, Outcome

RelayEvent: TypeAlias = (
    Run | Recall | Interrupt | Answer | Notify | Offered | Ticked | Drained | Closed
)
"""What the relay takes: actions of both machines, what the workers offer, and the end."""

ForManager: TypeAlias = Forwarded | Retracted
"""Events that the relay makes for the manager machine."""

ForWorker: TypeAlias = Finished | Recalled | Reported | Resized
"""Events that the relay makes for the worker machine."""


@define(eq=False)
class LeaseRelay:
    """Sans-I/O relay.

    Invariant: ``_lanes`` maps lane and number of each job to its number below, and ``_jobs`` maps
    it back.

    Args:
        patience: Seconds for which a job waits for a worker below before it goes back (WMP-19.10).
    """

    patience: float = 1.0
    _last_id: int = FIRST_FORWARDED - 1
    _jobs: dict[int, tuple[int, int]] = field(factory=dict)
    """Lane and number of each open job, by its number at the manager machine."""
    _lanes: dict[int, dict[int, int]] = field(factory=dict)
    """Numbers at the manager machine, by lane and number at the worker machine."""
    _waiting: deque[tuple[float, Sequence[int]]] = field(factory=deque)
    """When jobs that perhaps wait for a worker are looked at, the earliest first."""
    _offered: Offered | None = None

    def __len__(self) -> int:
        """Return the number of open jobs."""
        return len(self._jobs)

    def deadline(self) -> float | None:
        """Return when ``Ticked`` is due, in seconds on the clock of ``now``; None for never."""
        return self._waiting[0][0] if self._waiting else None

    def handle(self, event: RelayEvent, now: float) -> list[ForManager | ForWorker]:
        """Take an action of one machine; return events for both machines, in order.

        Args:
            event: An action of one of the machines; ``Offered`` about the workers below;
                ``Ticked`` at the deadline; ``Drained`` when the worker machine drains, and
                ``Closed`` when it has ended.
            now: Seconds.
        """
        match event:
            case Run():
                return [self._run(event, now)]
            case Recall(lane, ids):
                return self._cancel(self._known(lane, ids), unstarted=True)
            case Interrupt(lane, ids):
                return self._cancel(self._known(lane, ids))
            case Answer():
                return self._answered(event)
            case Notify(id, fraction, text):
                lane, number = self._jobs.get(id, (0, 0))
                return [Reported(lane, number, fraction, text)] if number else []
            case Offered():
                return self._offer(event)
            case Ticked():
                return self._overdue(now)
            case Drained():
                return self._cancel(list(self._jobs), unstarted=True, waiting=True)
            case Closed():
                return self._cancel(list(self._jobs))
            case _:
                assert_never(event)

    def _run(self, run: Run, now: float) -> Forwarded:
        """Hand the jobs of a lane to the manager machine."""
        first = self._last_id + 1
        ids = range(first, first + len(run.ids))
        self._last_id = ids[-1]
        self._lanes[run.lane] = dict(zip(run.ids, ids, strict=True))
        self._jobs.update((id, (run.lane, number)) for number, id in self._lanes[run.lane].items())
        self._waiting.append((now + self.patience, ids))
        kind = run.kind
        passed = kind.passed if type(kind) is ForwardedKind else ()
        return Forwarded(
            ids=ids,
            kind=ForwardedKind(
                kind.role, kind.needs, kind.codec, kind.checksum, run.manager, passed
            ),
            numbers=run.ids,
            attempts=run.attempts,
            payloads=run.payloads,
            deadlines=run.deadlines,
            begin_by=run.begin_by,
            limits=run.limits,
            failed=run.failed,
            begun=run.begun,
        )

    def _known(self, lane: int, numbers: Iterable[int]) -> list[int]:
        """Return the numbers at the manager machine of those jobs that have not ended."""
        jobs = self._lanes.get(lane, {})
        return [jobs[number] for number in numbers if number in jobs]

    @staticmethod
    def _cancel(ids: list[int], **how: bool) -> list[ForManager | ForWorker]:
        return [Retracted(ids, **how)] if ids else []

    def _answered(self, answer: Answer) -> list[ForManager | ForWorker]:
        """End jobs of lanes. Those that never began are handed back."""
        ended: dict[int, list[tuple[Any, ...]]] = {}
        unbegun: dict[int, list[int]] = {}
        for id, outcome, payload, text, wait in zip(
            answer.ids, answer.outcomes, answer.payloads, answer.texts, answer.waits, strict=True
        ):
            lane, number = self._jobs.pop(id, (0, 0))
            if not number:
                continue
            jobs = self._lanes[lane]
            del jobs[number]
            if not jobs:
                del self._lanes[lane]
            if outcome is Outcome.CANCELLED and text is None:
                unbegun.setdefault(lane, []).append(number)
            else:
                ended.setdefault(lane, []).append((number, outcome, payload, text, wait))
        events: list[ForManager | ForWorker] = []
        for lane, rows in ended.items():
            numbers, outcomes, payloads, texts, waits = map(list, zip(*rows, strict=True))
            end = Finished(lane, numbers, outcomes, payloads, texts, waits, answer.codec)
            events.append(end)
        return events + [Recalled(lane, numbers) for lane, numbers in unbegun.items()]

    def _offer(self, offered: Offered) -> list[ForManager | ForWorker]:
        """Offer the capacity of the workers below to the managers above."""
        if offered == self._offered:
            return []
        self._offered = offered
        return [Resized(offered.resources, offered.roles, offered.forwards)]

    def _overdue(self, now: float) -> list[ForManager | ForWorker]:
        """Take back the jobs that no worker below took in time."""
        late: list[int] = []
        while self._waiting and self._waiting[0][0] <= now:
            _, ids = self._waiting.popleft()
            late += [id for id in ids if id in self._jobs]
        return self._cancel(late, unstarted=True, waiting=True)

    def check_invariants(self) -> None:
        """Raise AssertionError when the invariant does not hold; for tests."""
        known = {
            id: (lane, number) for lane, jobs in self._lanes.items() for number, id in jobs.items()
        }
        assert known == self._jobs
        assert all(self._lanes.values()), "a lane without jobs is forgotten"
