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
from typing import ClassVar

from attrs import define, field

from wmp.actions import End
from wmp.checks.time_facts import TimeFacts
from wmp.message import Outcome, Peer, counted

INVARIANTS: Mapping[str, str] = {
    "every job ends": "an accepted job ends if the process of its manager lives",
    "one end for each job": "at most one end of a job is reported to its submitter",
    "executions": (
        "a job is begun at most once for each lease, so at most 1 + its lost leases times"
    ),
    "runs are counted": (
        "a job begins with the number of its earlier runs: at least those that began, and at most "
        "its earlier leases without those that were refused or handed back before the job began"
    ),
    "leases are lost for a cause": (
        "a new attempt is granted only after a refusal, a return, BYE, ERROR `superseded` from the "
        "worker, silence for `max_silence`, "
        "the end of a direct connection for `reconnect_grace`, a newer epoch, a new session, "
        "a list of held jobs without the job, DONE `lost`, or a refused TAKE"
    ),
    "no double booking": "the started jobs of a worker never need more than its resources",
    "leases fit": "a worker never has more leases than the capacity that it reported",
    "no stale result": "a result is accepted only from the holder of the newest attempt",
    "cancelled stays cancelled": (
        "a job is not begun after its worker answered `cancelled`, and not granted again after "
        "its submitter cancelled it or any end was reported to its submitter"
    ),
    "worker losses are kept": (
        "a job is given up when more leases were lost than max_worker_losses allows, and only "
        "then; refusals and jobs handed back do not count"
    ),
    "ends have a cause": (
        "a job is cancelled only when its submitter cancels it, and times out only when its time "
        "has passed or an attempt ran for too long"
    ),
    "times are kept": (
        "no attempt is granted before its start time or the wait after a failure, and no attempt "
        "is granted or begun after the expiry of its job"
    ),
    "retries are kept": (
        "a job whose attempt failed is tried again as often as its settings allow, and not more "
        "often"
    ),
    "exact results": "a result is byte for byte the handler's result",
    "they meet": "without faults, a job and an idle worker that can do it meet in bounded time",
    "tables are bounded": (
        "no table grows beyond the number of live peers and jobs that it is about"
    ),
    "no livelock": "a world needs no more events than its budget, and time moves on",
    "one process for each identity": (
        "a worker stops as superseded only while another process has its identity; of two such "
        "processes, the process that no manager serves stops"
    ),
    "a pause ends with a question": (
        "a worker that sent nothing to a manager for its `max_silence` begins no job of this "
        "manager before the manager has answered the worker's question"
    ),
    "standby is kept": "a manager on standby sends no WAKE and no TAKE",
    "a pair serves": (
        "when the faults have ended, one manager of a pair serves, and the other is on standby"
    ),
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
    max_worker_losses: int
    attempt: int = 0
    """The newest granted attempt."""
    holder: Peer | None = None
    """The worker with the newest lease; None when this lease is over."""
    over: int = 0
    """Number of leases that ended without a result."""
    spent: int = 0
    """Number of ended leases that count as worker losses."""
    left: set[bytes] = field(factory=set)
    """Identities of the workers that left with the job."""
    cancel_requested: bool = False
    """Whether the submitter requested the cancellation of the job."""
    deadline: float | None = None
    """The deadline on its manager's clock."""
    times: TimeFacts | None = None
    """Times of the job; None for a job without start time, expiry, run limit and settings about
    errors.
    """
    begun: dict[int, Peer] = field(factory=dict)
    """The worker that began each attempt, by attempt."""
    unbegun: int = 0
    """Number of leases that were refused or handed back before the job began."""
    end: End | None = None


@define(eq=False)
class History:
    """All jobs of all owners.

    Attributes:
        names: The qualified names of the errors that handlers raise in this world.
    """

    names: ClassVar[tuple[str, ...]] = (
        "builtins.ConnectionError",
        "builtins.OSError",
        "builtins.Exception",
    )
    jobs: dict[Peer, dict[int, _JobFacts]] = field(factory=dict)
    open: dict[Peer, dict[int, None]] = field(factory=dict)
    """Jobs without an end, of owners whose process runs."""
    _answered: dict[tuple[Peer, Peer, int], int] = field(factory=dict)
    """The newest attempt that was answered `cancelled`, by (worker, owner, id)."""
    _begin_by: dict[tuple[Peer, Peer, int, int], float] = field(factory=dict)
    """The time, on the worker's clock, after which an attempt may not be begun, by (worker, owner,
    id, attempt).
    """

    def accepted(
        self, owner: Peer, id: int, results: Mapping[End, bytes], max_worker_losses: int = 3
    ) -> None:
        """Record that a manager accepted a job.

        Args:
            owner: The manager.
            id: The job's number there.
            results: The handler's results, for the ends that carry a result.
            max_worker_losses: Number of lost leases that the job survives.
        """
        self.jobs.setdefault(owner, {})[id] = _JobFacts(results, max_worker_losses)
        self.open.setdefault(owner, {})[id] = None

    def limited(self, owner: Peer, id: int, deadline: float) -> None:
        """Record the deadline of a job, on its manager's clock."""
        self._job(owner, id).deadline = deadline

    def timed(self, owner: Peer, id: int, times: TimeFacts) -> None:
        """Record the times of a job, on its manager's clock."""
        self._job(owner, id).times = times

    def begin_by(self, worker: Peer, owner: Peer, id: int, attempt: int, until: float) -> None:
        """Record the time until which the job of a TAKE may begin, on the worker's clock."""
        key = worker, owner, id, attempt
        self._begin_by[key] = max(until, self._begin_by.get(key, until))

    def failed(self, owner: Peer, id: int, attempt: int, now: float, wait: int | None) -> None:
        """Record that an attempt failed, and the manager keeps the job for another one."""
        job = self._job(owner, id)
        what = f"{_name(owner, id)} is tried again after attempt {attempt}"
        if job.times is None:
            job.times = TimeFacts(now, None, False, None)
        if job.times.retry is None and wait is None:
            raise Violation(
                "retries are kept",
                f"{what}; expected no retry: neither the job nor its handler requested one",
            )
        job.times.fail(now, wait)
        if job.times.too_often:
            raise Violation(
                "retries are kept",
                f"{what}, which was failure {job.times.failed}; expected no further retry",
            )

    def wished(self, owner: Peer, id: int, wait: int | None) -> None:
        """Record the milliseconds after which an error requests another attempt; None: never."""
        job = self.jobs.get(owner, {}).get(id)
        if job is not None and job.times is not None:
            job.times.wish = wait

    def overran(self, owner: Peer, id: int) -> None:
        """Record that a manager received DONE overrun of the job's newest attempt."""
        times = self._job(owner, id).times
        if times is not None and times.limited:
            times.overran = True

    def cancelled(self, owner: Peer, id: int) -> None:
        """Record a request of the submitter to cancel jobs; unknown jobs are skipped."""
        job = self.jobs.get(owner, {}).get(id)
        if job is not None and job.end is None:
            job.cancel_requested = True

    def granted(
        self, owner: Peer, id: int, attempt: int, worker: Peer, now: float | None = None
    ) -> None:
        """Record that a manager sent the first TAKE of this attempt."""
        job = self._job(owner, id)
        wrong = self._wrong_grant(job, attempt, now)
        if wrong is not None:
            what = f"attempt {attempt} of {_name(owner, id)} was granted to {_peer(worker)}"
            raise Violation(wrong[0], f"{what} {wrong[1]}")
        # Attempts that no message showed: granted without a route, and lost before there was a
        # route.
        job.over += attempt - job.attempt - 1
        job.attempt, job.holder = attempt, worker

    @staticmethod
    def _wrong_grant(job: _JobFacts, attempt: int, now: float | None) -> tuple[str, str] | None:
        """Return the invariant that the grant of an attempt breaks, with the reason; or None."""
        if job.end is not None:
            return "cancelled stays cancelled", f"after the job had ended as {job.end.value}"
        if job.cancel_requested:
            return "cancelled stays cancelled", "after its submitter had cancelled the job"
        if attempt <= job.attempt:
            return "no stale result", f"after attempt {job.attempt}; expected a greater attempt"
        if job.holder is not None:
            held = f"while {_peer(job.holder)} still held attempt {job.attempt}"
            return "leases are lost for a cause", held
        if job.spent > job.max_worker_losses:
            return "worker losses are kept", f"after {_losses(job)}"
        if now is not None and job.times is not None:
            wrong = job.times.too_early(now) or job.times.too_late(now)
            if wrong:
                return "times are kept", wrong
        return None

    def leased(self, owner: Peer, worker: Peer, name: str, amount: int, bound: int) -> None:
        """Record the amount of a resource that the leases of a worker need, and its bound."""
        if amount > bound:
            raise Violation(
                "leases fit",
                f"{_peer(worker)} has leases of {_peer(owner)} that need {amount} {name}; "
                f"it reported {bound}, window included",
            )

    def lost(
        self,
        owner: Peer,
        id: int,
        attempt: int,
        *,
        counts: bool = True,
        leaving: bool = False,
        unbegun: bool = False,
    ) -> None:
        """Record that a lease ended without a result, for a cause that the manager knows.

        Args:
            owner: The job's manager.
            id: The job's number there.
            attempt: The attempt of the lease.
            counts: Whether the loss counts as a worker loss; a refusal does not.
            leaving: Whether the worker left or had forgotten the job: of these losses of one
                identity only the first counts.
            unbegun: Whether the worker refused the job, or handed it back before it began.
        """
        job = self._job(owner, id)
        if job.attempt == attempt and job.holder is not None:
            job.over += 1
            job.unbegun += unbegun
            if leaving and counts:
                counts = job.holder[0] not in job.left
                job.left.add(job.holder[0])
            job.spent += counts
            job.holder = None

    def begun(
        self,
        worker: Peer,
        owner: Peer,
        id: int,
        attempt: int,
        now: float | None = None,
        runs: int | None = None,
    ) -> None:
        """Record that a handler began.

        Args:
            worker: The worker.
            owner: The job's manager.
            id: The job's number there.
            attempt: The attempt.
            now: The time on the worker's clock.
            runs: The number of earlier runs that the handler reads; None if it is not known.
        """
        job = self._job(owner, id)
        if runs is not None and owner in self.open:
            self._check_runs(job, owner, id, attempt, runs)
        name, wrong = "executions", ""
        until = inf if now is None else self._begin_by.get((worker, owner, id, attempt), inf)
        if self._answered.get((worker, owner, id), 0) >= attempt:
            name, wrong = "cancelled stays cancelled", " after its worker answered cancelled"
        elif now is not None and now > until:
            name, wrong = "times are kept", f" at {now}, after its expiry at {until}"
        elif attempt in job.begun:
            wrong = f", and before by {_peer(job.begun[attempt])}"
        else:
            job.begun[attempt] = worker
            if owner in self.open and len(job.begun) > 1 + job.over:
                lost = counted(job.over, "lost lease")
                wrong = f", which is execution {len(job.begun)} after {lost}"
        if wrong:
            what = f"{_name(owner, id)} attempt {attempt} was begun by {_peer(worker)}"
            raise Violation(name, f"{what}{wrong}")

    @staticmethod
    def _check_runs(job: _JobFacts, owner: Peer, id: int, attempt: int, runs: int) -> None:
        earlier = sum(number < attempt for number in job.begun)
        maximum = attempt - 1 - (job.unbegun if attempt == job.attempt else 0)
        if not earlier <= runs <= maximum:
            raise Violation(
                "runs are counted",
                f"{_name(owner, id)} begins in attempt {attempt} with "
                f"{counted(runs, 'earlier run')}; expected {earlier} to {maximum}",
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
        wrong = self._wrong_end(job, end, payload, attempt, by, now)
        if wrong is not None:
            what = f"{_name(owner, id)} ended {end.value} with attempt {attempt}"
            raise Violation(wrong[0], f"{what}{wrong[1]}")
        job.end = end
        self.open[owner].pop(id)

    def _wrong_end(
        self, job: _JobFacts, end: End, payload: bytes, attempt: int, by: Peer | None, now: float
    ) -> tuple[str, str] | None:
        """Return the invariant that an end breaks, with the reason; or None."""
        if job.end is not None:
            return "one end for each job", f"; it had already ended as {job.end.value}"
        if end in (End.OK, End.ERROR):
            if attempt != job.attempt or job.holder is None or job.holder != by:
                holder = "no worker" if job.holder is None else _peer(job.holder)
                sender = "no worker" if by is None else _peer(by)
                held = f"expected DONE of {holder}, which held attempt {job.attempt}"
                return "no stale result", f" by DONE of {sender}; {held}"
            if payload != job.results.get(end):
                expected = f"expected {job.results.get(end, b'')[:60]!r}"
                difference = f" and {len(payload)} bytes {payload[:60]!r}; {expected}"
                return "exact results", difference
        if end is End.LOST and job.spent <= job.max_worker_losses:
            return "worker losses are kept", f" after {_losses(job)}"
        if end is End.CANCELLED and not job.cancel_requested:
            expected = "; expected another end, because its submitter did not cancel it"
            return "ends have a cause", expected
        times = job.times
        if end is End.TIMEOUT and (job.deadline is None or now < job.deadline):
            expired = times is not None and (times.overran or times.expired(now))
            if not expired:
                return "ends have a cause", f" at {now}, before its deadline {job.deadline}"
        if end is End.ERROR and times is not None and not job.cancel_requested:
            early = times.gave_up_early(now, job.deadline, self.names)
            if early:
                failure = f" at {now} after failure {times.failed + 1}; expected a retry"
                return "retries are kept", failure
        return None

    def died(self, owner: Peer) -> None:
        """Record that a manager's process ended, and its jobs with the process."""
        self.open.pop(owner, None)

    def booked(self, worker: str, taken: Mapping[str, int], have: Mapping[str, int]) -> None:
        """Record the resources that a worker's started jobs take."""
        for name, amount in taken.items():
            if amount > have.get(name, 0):
                raise Violation(
                    "no double booking",
                    f"{worker} runs jobs that need {amount} {name}; it has {have.get(name, 0)}",
                )

    def waits(self) -> list[str]:
        """Return the jobs without an end whose manager's process runs, in words."""
        return [_name(owner, id) for owner, ids in self.open.items() for id in ids]

    def finish(self) -> None:
        """Check that all jobs have ended, because no further event can happen."""
        if waiting := self.waits():
            raise Violation("every job ends", f"{', '.join(waiting[:8])} did not end")

    def _job(self, owner: Peer, id: int) -> _JobFacts:
        job = self.jobs.get(owner, {}).get(id)
        if job is None:
            raise Violation(
                "exact results", f"{_name(owner, id)} was observed, but was never submitted"
            )
        return job


def _peer(peer: Peer) -> str:
    return f"{peer[0].decode(errors='replace')}:{peer[1]}"


def _losses(job: _JobFacts) -> str:
    lost = counted(job.spent, "lost lease")
    return f"{lost}; max_worker_losses is {job.max_worker_losses}"


def _name(owner: Peer, id: int) -> str:
    return f"job {id} of {_peer(owner)}"
