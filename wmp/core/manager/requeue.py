"""Jobs that come back from a worker without a result: they are queued again, or end.

A lost lease is a worker loss if the job may have started (WMP-6.4, 6.15, 6.17). If the same
worker loses further leases of the job by leaving, they do not count (WMP-6.23). A refusal costs no
retry (WMP-6.5), and a job that was handed back costs none (WMP-6.11). Jobs that are queued again
stand before the others of their priority, in their old order (WMP-6.28).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from attrs import define, field

from wmp.actions import End, Note
from wmp.core.manager.failures import Failures
from wmp.core.manager.job_lifecycle import JobInput, JobRecord, JobState
from wmp.core.manager.leases import BEGUN, Leases, Returned
from wmp.core.manager.queues import Queue, Queues
from wmp.core.manager.remote_worker import ManagerOutbound, RemoteWorker
from wmp.core.manager.store_writes import FIRST_UNSTORED
from wmp.core.manager.stored_changes import StoredChanges
from wmp.message import ForwardedKind, Frame, Limits, Outcome, Peer, printable

CONNECTION_ENDED: Final = "the connection ended"
"""Cause of leases that are lost by the end of a direct connection (WMP-9.16)."""
SILENCE: Final = "silence"
"""Cause of the leases of a worker that was given up (WMP-9.3)."""
REFUSED: Final = "the worker refused the TAKE"
"""Cause of the lost leases of a TAKE that the worker cannot read, or that exceeds its limits."""
SEPARATED: Final = "the worker refused a TAKE of several jobs"
"""Cause of the lost leases of a TAKE in which the worker cannot read some job. Each job is sent
again in a TAKE of its own.
"""
UNACKNOWLEDGED: Final = "the worker acknowledged no TAKE of several jobs"
"""Cause of the lost leases of a TAKE of several jobs that was sent again too often (WMP-7.12). As
after ``SEPARATED``, each job is sent again in a TAKE of its own, but the jobs may have begun.
"""
_LOST: Final = "lost at the worker"
_COUNTED: Final = frozenset({CONNECTION_ENDED, SILENCE, REFUSED, _LOST})
"""Causes that are a worker loss each time.

Other causes count once for each identity of a worker, because a worker can leave and come back with
two messages (WMP-6.23).
"""


@define(eq=False)
class Requeue:
    """Queues jobs again when their lease is over without a result."""

    outbound: ManagerOutbound
    leases: Leases
    queues: Queues
    failures: Failures
    changes: StoredChanges | None
    """The changes of stored jobs; None without a store."""
    counts: Counter[str] = field(factory=Counter)
    """Number of jobs that were queued again, by cause."""

    def lose(
        self,
        worker: RemoteWorker,
        jobs: Sequence[JobRecord],
        cause: str,
        now: float,
        text: str = "",
    ) -> list[Queue]:
        """Queue leased jobs of a worker again, or end those that were lost too often (WMP-6.4).

        Args:
            worker: The worker that held the leases.
            jobs: The jobs.
            cause: Why the leases are lost.
            now: Seconds.
            text: More about the cause, for the submitter.

        Returns:
            The queues in which jobs wait again.
        """
        if jobs:
            self._note(worker, jobs, cause)
        changed: list[Queue] = []
        # Each job is put at the front, so the oldest job must be put last.
        for job in reversed(jobs):
            self.leases.release(worker, job)
            changed += self._lose(worker, job, text or cause, cause, now)
        return changed

    def _note(self, worker: RemoteWorker, jobs: Sequence[JobRecord], cause: str) -> None:
        """Let the journal show lost leases, those of each foreign owner in a line of its own."""
        peer = worker.identity, worker.epoch
        rows: dict[Peer | None, list[JobRecord]] = {}
        for job in jobs:
            owner = job.kind.owner if type(job.kind) is ForwardedKind else None
            rows.setdefault(owner, []).append(job)
        for owner, lost in rows.items():
            ids, attempts = [job.wire_id for job in lost], [job.attempt for job in lost]
            note = Note(cause, peer, owner=owner, ids=ids, attempts=attempts)
            self.outbound.actions.append(note)

    def take_back(
        self, worker: RemoteWorker, returned: Sequence[Returned], now: float
    ) -> list[Queue]:
        """Queue again the jobs that a worker answered without a result.

        Returns:
            The queues in which jobs wait again.
        """
        changed: list[Queue] = []
        # The order is the same as in ``lose``, for the same reason.
        for answer in sorted(returned, key=_number, reverse=True):
            job, outcome, payload, text, _ = answer
            if outcome == Outcome.LOST:
                changed += self._lose(worker, job, _text(payload), _LOST, now)
                continue
            if outcome == Outcome.ERROR or outcome == Outcome.OVERRUN:
                if self.failures.settle(worker, answer, now):
                    self.counts["tried again"] += 1
                continue
            if outcome == Outcome.REFUSED:
                job.refuse(*worker.mark)
                changed += self._step(job, JobInput.REFUSE, "refused", now, unbegun=1)
            else:
                # A text means that the job had begun (WMP-6.34).
                unbegun = int(text is None)
                changed += self._step(job, JobInput.RETURN, "handed back", now, unbegun=unbegun)
        return changed

    def _lose(
        self, worker: RemoteWorker, job: JobRecord, text: str, cause: str, now: float
    ) -> list[Queue]:
        """End one lease without a result (WMP-6.4, 6.15, 6.17, 6.23); return the job's queue if the
        job waits again.

        Args:
            text: Cause for the submitter, if the job ends.
            cause: Cause for the statistics, if the job is queued again.
        """
        perhaps_begun = worker.stream.left(job.take) and cause != SEPARATED
        counts = perhaps_begun and cause != UNACKNOWLEDGED
        if job.number:
            self._lose_forwarded(worker, job, text, begun=perhaps_begun, counts=counts)
            return []
        if counts:
            job.record(worker.name, now, f"lost: {text}".partition("\n")[0])
        cost = counts and (cause in _COUNTED or job.leave(worker.identity))
        job.lost += cost
        if job.lost <= job.max_worker_losses:
            return self._step(
                job, JobInput.LOSE, cause, now, int(cost), unbegun=int(not perhaps_begun)
            )
        if job.state is JobState.CANCELLING:
            return self._step(job, JobInput.SPEND, cause, now)
        job.step(JobInput.SPEND)
        self.leases.end(job, End.LOST, f"{worker.name}\n{text}".encode())
        return []

    def _lose_forwarded(
        self, worker: RemoteWorker, job: JobRecord, text: str, *, begun: bool, counts: bool
    ) -> None:
        """Answer the manager above: only that manager may grant the job again (WMP-19.4)."""
        job.step(JobInput.SPEND)
        if counts:
            cause = f"at worker {worker.name} of a forwarding manager: {text}"
            self.leases.answer(job, Outcome.LOST, cause.encode(errors="replace"), None)
        else:
            self.leases.answer(job, Outcome.CANCELLED, b"", BEGUN if begun else None)

    def _step(
        self,
        job: JobRecord,
        what: JobInput,
        cause: str,
        now: float,
        cost: int = 0,
        *,
        unbegun: int = 0,
    ) -> list[Queue]:
        """Step a job whose lease is over; return the queue in which the job waits, if any.

        Args:
            job: The job.
            what: The input of its table.
            cause: Cause for the statistics.
            now: Seconds.
            cost: Lost leases to count, 0 or 1.
            unbegun: Leases that ended before the job began, 0 or 1.
        """
        if job.state is JobState.LEASED and job.expired(now):
            job.step(JobInput.EXPIRE)  # WMP-6.20
            text = f"expired before a worker began it; its last lease ended: {cause}"
            self.leases.end(job, End.TIMEOUT, text.encode())
            return []
        job.step(what)
        if job.state is not JobState.QUEUED:
            self.leases.end(job, End.CANCELLED, b"")  # the job was being cancelled
            return []
        self.counts[cause] += 1
        job.unbegun += unbegun
        if self.changes is not None and job.id < FIRST_UNSTORED:
            self.changes.repeat(job, cost, unbegun)
            return []
        queue = self.queues.get(job.kind)
        queue.put_back(job)
        return [queue]


def _number(returned: Returned) -> int:
    return returned[0].id


def _text(payload: Frame) -> str:
    return printable(bytes(payload[: Limits.LONG_TEXT]).decode(errors="replace"), keep="\n")
