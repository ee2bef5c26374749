"""The named invariants of every world, checked over a history of jobs.

A :class:`History` receives facts in the order in which they happened, and raises
:class:`Violation` at the first fact that breaks an invariant. It uses no machine: facts may come
from a simulated world, from the logs of real processes or from a test.

Jobs in a manager's memory end with its process. So a job belongs to an *owner*, the
(identity, epoch) of its manager, and the invariants of the job end with that epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from attrs import define, field

from wmp.actions import End
from wmp.message import Outcome, Peer

__all__ = ["INVARIANTS", "History", "Violation"]

INVARIANTS: Mapping[str, str] = {
    "every job ends": "an accepted job ends if its manager's process lives",
    "one end a job": "at most one end of a job is reported to its submitter",
    "executions": "a job is begun at most once a lease: at most 1 + its lost leases",
    "leases are lost for a cause": (
        "a new attempt is granted only after a refusal, a return, BYE, silence for `expire`, "
        "the end of a direct connection for `reconnect_grace`, a newer epoch, a new session, "
        "a list of held jobs without the job, or DONE `lost`"
    ),
    "no double booking": "started jobs never exceed a worker's resources",
    "leases fit": "a worker has no more leases than it reported capacity for",
    "no stale result": "a result is accepted only from the holder of the newest attempt",
    "cancelled stays cancelled": (
        "a job is not begun after its worker answered `cancelled`, and not granted again after "
        "any end was reported to its submitter"
    ),
    "retries are kept": (
        "a job is given up when more leases were lost than it has retries, and only then; "
        "refusals and jobs handed back do not count"
    ),
    "ends have a cause": (
        "a job is cancelled only when its submitter asked for it, and times out only when its "
        "time has passed"
    ),
    "exact results": "a result is byte for byte the handler's result",
    "they meet": "without faults an idle worker gets a job that it can do in bounded time",
    "tables are bounded": "the size of each table is bounded by the number of its live subjects",
    "no livelock": "a world needs no more events than its budget, and time moves on",
    "one process an identity": "a worker stops as superseded while another process of its identity "
    "runs, and not otherwise; of two such processes none goes on that no manager serves",
    "no crash": "no machine raises an exception, and each machine's own invariants hold",
}
"""The name and the statement of each invariant."""


class Violation(AssertionError):
    """An invariant is broken.

    Attributes:
        name: The name of the invariant, a key of ``INVARIANTS``.
        detail: The observation.
    """

    def __init__(self, name: str, detail: str) -> None:
        assert name in INVARIANTS, name
        super().__init__(f"{name}: {detail}")
        self.name = name
        self.detail = detail

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        """Pickle the violation by its arguments, for travel between processes."""
        return Violation, (self.name, self.detail)


@define(eq=False)
class _JobFacts:
    """The recorded facts of one job of one owner."""

    results: Mapping[End, bytes]
    retries: int
    attempt: int = 0
    """The newest granted attempt."""
    holder: Peer | None = None
    """The worker with the newest lease; None when that lease is over."""
    over: int = 0
    """Leases that ended without a result."""
    spent: int = 0
    """Those of the ended leases that count against the retries."""
    left: set[bytes] = field(factory=set)
    """Identities of the workers that left with the job."""
    asked: bool = False
    """Whether its submitter asked for its cancellation."""
    deadline: float | None = None
    """The deadline on its manager's clock."""
    begun: dict[int, Peer] = field(factory=dict)
    """Attempt to the worker that began it."""
    end: End | None = None


@define(eq=False)
class History:
    """All jobs of all owners."""

    jobs: dict[Peer, dict[int, _JobFacts]] = field(factory=dict)
    open: dict[Peer, dict[int, None]] = field(factory=dict)
    """Jobs without an end, of owners whose process runs."""
    _answered: dict[tuple[Peer, Peer, int], int] = field(factory=dict)
    """(worker, owner, id) to the newest attempt answered `cancelled`."""

    def accepted(
        self, owner: Peer, id: int, results: Mapping[End, bytes], retries: int = 3
    ) -> None:
        """Record that a manager accepted a job.

        Args:
            owner: The manager.
            id: The job's number there.
            results: The handler's results, for the ends that carry a result.
            retries: How many lost leases the job survives.
        """
        self.jobs.setdefault(owner, {})[id] = _JobFacts(results, retries)
        self.open.setdefault(owner, {})[id] = None

    def limited(self, owner: Peer, id: int, deadline: float) -> None:
        """Record the deadline of a job, on its manager's clock."""
        self._job(owner, id).deadline = deadline

    def asked(self, owner: Peer, id: int) -> None:
        """Record that the submitter asked for a cancellation; unknown jobs are skipped."""
        job = self.jobs.get(owner, {}).get(id)
        if job is not None and job.end is None:
            job.asked = True

    def granted(self, owner: Peer, id: int, attempt: int, worker: Peer) -> None:
        """Record that a manager sent the first TAKE of this attempt."""
        job = self._job(owner, id)
        what = f"attempt {attempt} of {_name(owner, id)} was granted to {_peer(worker)}"
        if job.end is not None:
            raise Violation("cancelled stays cancelled", f"{what} after its end {job.end.value}")
        if attempt <= job.attempt:
            raise Violation("no stale result", f"{what}, after attempt {job.attempt}")
        if job.holder is not None:
            raise Violation(
                "leases are lost for a cause",
                f"{what} while {_peer(job.holder)} held attempt {job.attempt}",
            )
        if job.spent > job.retries:
            detail = f"{what} after {job.spent} leases were lost, of {job.retries} retries"
            raise Violation("retries are kept", detail)
        # Unseen leases: granted without a route, and lost before there was one.
        job.over += attempt - job.attempt - 1
        job.attempt, job.holder = attempt, worker

    def leased(self, owner: Peer, worker: Peer, name: str, amount: int, bound: int) -> None:
        """Record the amount of a resource that the leases of a worker need, and its bound."""
        if amount > bound:
            raise Violation(
                "leases fit",
                f"{_peer(worker)} has leases of {_peer(owner)} that need {amount} {name}; "
                f"it reported {bound}, its window included",
            )

    def lost(
        self, owner: Peer, id: int, attempt: int, *, counts: bool = True, leaving: bool = False
    ) -> None:
        """Record that a lease ended without a result, for a cause that the manager knows.

        Args:
            owner: The job's manager.
            id: The job's number there.
            attempt: The attempt of the lease.
            counts: Whether the loss counts against the retries; a refusal does not.
            leaving: Whether the worker left or had forgotten the job: of these losses of one
                identity only the first counts.
        """
        job = self._job(owner, id)
        if job.attempt == attempt and job.holder is not None:
            job.over += 1
            if leaving and counts:
                counts = job.holder[0] not in job.left
                job.left.add(job.holder[0])
            job.spent += counts
            job.holder = None

    def begun(self, worker: Peer, owner: Peer, id: int, attempt: int) -> None:
        """Record that a handler began."""
        job = self._job(owner, id)
        what = f"{_name(owner, id)} attempt {attempt} was begun by {_peer(worker)}"
        if self._answered.get((worker, owner, id), 0) >= attempt:
            raise Violation(
                "cancelled stays cancelled", f"{what} after its worker answered cancelled"
            )
        if attempt in job.begun:
            raise Violation("executions", f"{what} and earlier by {_peer(job.begun[attempt])}")
        job.begun[attempt] = worker
        if owner in self.open and len(job.begun) > 1 + job.over:
            raise Violation(
                "executions", f"{what}: execution {len(job.begun)} after {job.over} lost leases"
            )

    def answered(
        self, worker: Peer, owner: Peer, id: int, attempt: int, outcome: Outcome | int
    ) -> None:
        """Record that a worker sent DONE."""
        if outcome == Outcome.CANCELLED:
            key = (worker, owner, id)
            self._answered[key] = max(attempt, self._answered.get(key, 0))

    def resolved(
        self,
        owner: Peer,
        id: int,
        end: End,
        payload: bytes,
        attempt: int,
        by: Peer | None,
        now: float = inf,
    ) -> None:
        """Record that the end of a job was reported to its submitter.

        Args:
            owner: The job's manager.
            id: The job's number there.
            end: The end.
            payload: The payload of the end.
            attempt: The newest granted attempt.
            by: The worker whose DONE ended the job; None without a DONE.
            now: The time on the manager's clock.
        """
        job = self._job(owner, id)
        what = f"{_name(owner, id)} ended {end.value} with attempt {attempt}"
        if job.end is not None:
            raise Violation("one end a job", f"{what}, after an earlier end {job.end.value}")
        if end in (End.OK, End.ERROR):
            if attempt != job.attempt or job.holder is None or job.holder != by:
                holder = "nobody" if job.holder is None else _peer(job.holder)
                sender = "nobody" if by is None else _peer(by)
                raise Violation(
                    "no stale result",
                    f"{what} from {sender}; {holder} held attempt {job.attempt}",
                )
            if payload != job.results.get(end):
                raise Violation(
                    "exact results",
                    f"{what}: {payload[:60]!r} of {len(payload)} bytes, "
                    f"not {job.results.get(end, b'')[:60]!r}",
                )
        if end is End.LOST and job.spent <= job.retries:
            detail = f"{what} after {job.spent} leases were lost, of {job.retries} retries"
            raise Violation("retries are kept", detail)
        if end is End.CANCELLED and not job.asked:
            raise Violation("ends have a cause", f"{what}, and its submitter did not cancel it")
        if end is End.TIMEOUT and (job.deadline is None or now < job.deadline):
            raise Violation("ends have a cause", f"{what} at {now} before {job.deadline}")
        job.end = end
        self.open[owner].pop(id)

    def died(self, owner: Peer) -> None:
        """Record that a manager's process ended, and its jobs with the process."""
        self.open.pop(owner, None)

    def booked(self, worker: str, taken: Mapping[str, int], have: Mapping[str, int]) -> None:
        """Record the resources that a worker's started jobs take."""
        for name, amount in taken.items():
            if amount > have.get(name, 0):
                raise Violation(
                    "no double booking",
                    f"{worker} runs jobs that need {amount} {name} of {have.get(name, 0)}",
                )

    def waits(self) -> list[str]:
        """Return the jobs without an end whose manager lives, in words."""
        return [_name(owner, id) for owner, ids in self.open.items() for id in ids]

    def finish(self) -> None:
        """Check that all jobs have ended: no further event can happen."""
        if waiting := self.waits():
            raise Violation("every job ends", f"{', '.join(waiting[:8])} did not end")

    def _job(self, owner: Peer, id: int) -> _JobFacts:
        job = self.jobs.get(owner, {}).get(id)
        if job is None:
            raise Violation("exact results", f"{_name(owner, id)} was never submitted")
        return job


def _peer(peer: Peer) -> str:
    return f"{peer[0].decode(errors='replace')}:{peer[1]}"


def _name(owner: Peer, id: int) -> str:
    return f"job {id} of {_peer(owner)}"
