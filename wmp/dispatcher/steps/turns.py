"""Which worker gets the next job: those that have proven themselves first (DSP-3.4, DSP-3.16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from wmp.dispatcher.records import WorkerRecord


class Turns:
    """The places of all workers, which become fewer with each job that is given.

    Args:
        workers: All workers of the registry.
        now: The time of the transaction.
        max_unproven: Jobs that the workers of one network address have together at most beyond what
            they have proven.
    """

    def __init__(self, workers: Iterable[WorkerRecord], now: int, max_unproven: int) -> None:
        self._workers = {worker.id: worker for worker in workers}
        self._free = {id: worker.free(now) for id, worker in self._workers.items()}
        self._proven = {id: worker.proven_places(now) for id, worker in self._workers.items()}
        self._jobs = {id: len(worker.jobs) for id, worker in self._workers.items()}
        self._limit = max_unproven
        self._over_of_peer: Counter[str | None] = Counter()
        for worker in self._workers.values():
            self._over_of_peer[worker.peer] += worker.unproven

    def __bool__(self) -> bool:
        """Whether any worker has a place."""
        return any(self._places(worker) for worker in self._workers.values())

    def _allowance(self, peer: str | None) -> int:
        return max(0, self._limit - self._over_of_peer[peer])

    def _places(self, worker: WorkerRecord) -> int:
        """Return the places of a worker, beside which others of its address have none."""
        free = self._free[worker.id]
        if worker.trusted:
            return free
        proven = self._proven[worker.id]
        return proven + min(free - proven, self._allowance(worker.peer))

    def knows(self, role: str) -> bool:
        """Return whether any worker knows a type."""
        return any(role in worker.handlers for worker in self._workers.values())

    def capacity(self, role: str) -> int:
        """Return how many jobs of a type could be given."""
        total, beyond = 0, Counter[str | None]()
        for worker in self._workers.values():
            if role in worker.handlers:
                free, proven = self._free[worker.id], self._proven[worker.id]
                total += proven
                beyond[worker.peer] += free - proven
        return total + sum(
            min(count, self._allowance(peer)) for peer, count in beyond.items() if count
        )

    def offered(self, role: str) -> Sequence[int]:
        """Return the places of each worker that count beside the requests of WMP workers (DSP-3.7).

        A worker that has proven nothing counts with one.
        """
        offered = []
        for worker in self._workers.values():
            if role in worker.handlers:
                places, proven = self._places(worker), self._proven[worker.id]
                idle = not worker.jobs and not worker.trusted
                offered.append(max(proven, min(places, 1)) if idle else proven)
        return offered

    def take(self, role: str) -> int | None:
        """Take a place for a job of a type; return the number of the worker, or None."""
        knowing = [
            worker
            for worker in self._workers.values()
            if role in worker.handlers and self._places(worker)
        ]
        if not knowing:
            return None
        worker = max(knowing, key=self._rank)
        self._free[worker.id] -= 1
        self._jobs[worker.id] += 1
        if self._proven[worker.id]:
            self._proven[worker.id] -= 1
        else:
            self._over_of_peer[worker.peer] += 1
        return worker.id

    def _rank(self, worker: WorkerRecord) -> tuple[int, ...]:
        """Return what the worker with the next turn has most of."""
        proven, free = self._proven[worker.id], self._free[worker.id]
        if proven:
            return 1, proven, -worker.id
        # Those that nobody knows share evenly, however many places they claim.
        return 0, -self._over_of_peer[worker.peer], -self._jobs[worker.id], free, -worker.id
