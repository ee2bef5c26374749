"""A lane at work: k jobs one after the other, and who may take which of them away.

Three threads touch a lane: the one that runs its jobs, the driver (recall, interrupt) and the
reporter. What keeps them apart:

- ``pending`` holds the jobs that have not begun. Whoever removes a job from it owns it: the
  runner to begin it, the driver to recall or cancel it. ``set.remove`` is one atomic step, so
  the hot path needs no lock and the driver never waits for one.
- The runner appends to ``payloads``, ``outcomes`` and last ``done``; everybody else only takes
  prefixes as long as ``done`` is, under ``lock``. So a result is seen whole or not at all.
- ``job``, the running job that may report, and its progress are changed under ``lock``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from wmp.actions import Run
from wmp.errors import JobCancelled
from wmp.events import Finished, Recalled, Reported
from wmp.message import Frame, Outcome
from wmp.runtime.handlers import (
    REPORT_INTERVAL,
    RunningJob,
    Served,
    decode_payload,
    describe_error,
    encode_result,
)

if TYPE_CHECKING:
    from wmp.runtime.executors.reporter import Reporter

__all__ = [
    "FLUSH_INTERVAL",
    "Lane",
    "PoolEvent",
    "PostEvent",
    "Terminated",
    "run_lane",
    "run_lane_async",
]

PoolEvent = Finished | Recalled | Reported
"""What a pool tells the worker's machine."""

PostEvent = Callable[[PoolEvent], None]
"""Hands an event to the driver: from any thread, and it only queues."""

FLUSH_INTERVAL: Final = 0.002
"""Seconds that a result waits for others of its lane at most.

Long enough that a bundle of fast jobs is one event, too short for a person or a TCP round trip
in a data center to notice.
"""

_CANCELLATIONS: Final = (
    JobCancelled,
    concurrent.futures.CancelledError,
    asyncio.CancelledError,
)


class Terminated(SystemExit):
    """Raised in a handler by its worker process that is told to end; it may clean up."""


class Lane:
    """One ``Run`` action being carried out."""

    __slots__ = (
        "action",
        "begin",
        "cancelled",
        "current",
        "done",
        "job",
        "lock",
        "number",
        "outcomes",
        "payloads",
        "pending",
        "post",
        "reporter",
        "served",
        "task",
        "watched",
    )

    def __init__(self, action: Run, served: Served, post: PostEvent, reporter: Reporter) -> None:
        self.action = action
        self.number = action.lane
        self.served = served
        self.post = post
        self.reporter = reporter
        self.pending = set(action.ids)
        self.begin: Callable[[int], None] = self.pending.remove
        """Takes a job out of ``pending``, or raises KeyError; worker processes hook in here."""
        self.cancelled: set[int] = set()
        self.current = 0
        self.job: RunningJob | None = None
        self.task: asyncio.Task[None] | None = None
        self.lock = Lock()
        self.watched = False
        """Whether the reporter looks at this lane within ``FLUSH_INTERVAL`` anyway."""
        self.done: list[int] = []
        self.outcomes: list[Outcome] = []
        self.payloads: list[Frame] = []

    def __len__(self) -> int:
        return len(self.action.ids)

    # -- by the driver's thread -------------------------------------------------------------

    def recall(self, ids: Iterable[int]) -> list[int]:
        """Take those of ``ids`` that have not begun; they never will."""
        taken = []
        remove = self.pending.remove
        for id in ids:
            try:
                remove(id)
            except KeyError:
                continue
            taken.append(id)
        return taken

    def interrupt(self, ids: Sequence[int]) -> list[int]:
        """Take those that have not begun, raise the flag of the others."""
        taken = self.recall(ids)
        self.cancelled.update(ids)
        return taken

    def abandon(self) -> None:
        """Begin nothing more and raise every flag: the pool closes."""
        self.pending.clear()
        self.cancelled.update(self.action.ids)

    # -- by the reporter's and the runner's -------------------------------------------------

    def flush(self, now: float) -> bool:
        """Post what is done, and progress that is due.

        Returns:
            Whether progress is left that is not due yet.
        """
        with self.lock:
            if self.done:
                self._post_done()
            job = self.job
            if job is None or not job.pending:
                return False
            if now - job.reported_at < REPORT_INTERVAL:
                return True
            self._post_progress(job, now)
            return False

    def keep(self, put: Callable[[int, Outcome, Frame], bool]) -> None:
        """Have the last result put away; post all when there is no room for it."""
        with self.lock:
            if self.done and not put(self.done[-1], self.outcomes[-1], self.payloads[-1]):
                self._post_done()

    def report(self, job: RunningJob, fraction: float | None, text: str | None) -> None:
        """Note a handler's progress: sent now, or by the reporter when it comes too fast."""
        now = monotonic()
        with self.lock:
            if self.job is not job:
                return  # a handler's own thread that outlived its job
            if fraction is not None:
                job.fraction = fraction
            if text is not None:
                job.text = text
            if now - job.reported_at >= REPORT_INTERVAL:
                self._post_progress(job, now)
                return
            job.pending = True
        if not self.watched:
            self.reporter.watch(self)

    def end_job(self, job: RunningJob) -> None:
        """Send the last progress of a job that ends, and hear nothing more from it."""
        with self.lock:
            if job.pending:
                self._post_progress(job, job.reported_at)
            self.job = None

    def _post_done(self) -> None:
        count = len(self.done)
        event = Finished(
            self.number, self.done[:count], self.outcomes[:count], self.payloads[:count]
        )
        # The runner may append meanwhile, but only behind the prefix that goes.
        del self.done[:count], self.outcomes[:count], self.payloads[:count]
        self.post(event)

    def _post_progress(self, job: RunningJob, now: float) -> None:
        job.pending = False
        job.reported_at = now
        self.post(Reported(self.number, job.id, job.fraction, job.text))

    def uncancel(self) -> None:
        """The next job of this task must not see itself as cancelled."""
        while self.task is not None and self.task.cancelling():
            self.task.uncancel()

    def failed(self, id: int, error: BaseException) -> tuple[Outcome, bytes]:
        """What becomes of a job whose handler raised, or whose payload or result is wrong.

        Raises:
            Terminated: This process is about to end; its parent answers for the job.
        """
        if isinstance(error, Terminated):
            raise error
        if id in self.cancelled and isinstance(error, _CANCELLATIONS):
            return Outcome.CANCELLED, b""
        return Outcome.ERROR, describe_error(error)


def run_lane(lane: Lane) -> None:
    """Run the lane's jobs here and now; everything is posted when it returns.

    Raises:
        Terminated: In a worker process that is told to end; and nothing else.
    """
    try:
        # Plain handlers give it nothing to wait for, so its first step is its last.
        run_lane_async(lane).send(None)
    except StopIteration:
        return
    raise AssertionError("a plain handler cannot wait")


async def run_lane_async(lane: Lane) -> None:
    """Run the lane's jobs in the current task; everything is posted when it returns.

    Raises:
        Terminated: As for :func:`run_lane`.
    """
    action, served, begin = lane.action, lane.served, lane.begin
    call, takes_job, is_async = served.call, served.takes_job, served.is_async
    codec, manager, role = action.kind.codec, action.manager[0], action.kind.role
    decode, encode = decode_payload(codec), encode_result(codec)
    done, outcomes, payloads = lane.done, lane.outcomes, lane.payloads
    clock, interval = monotonic, FLUSH_INTERVAL
    ok, cancelled = Outcome.OK, Outcome.CANCELLED
    result: Any
    now = reported = clock()
    for id, attempt, deadline, payload in zip(
        action.ids,
        action.attempts,
        action.deadlines or repeat(None),
        action.payloads,
        strict=False,  # ``repeat`` has no end
    ):
        if done and not lane.watched:
            lane.reporter.watch(lane)  # the next job may be slow: results do not wait for it
        try:
            begin(id)
        except KeyError:
            continue
        if deadline is not None and deadline <= now:
            outcome, result = cancelled, b""  # WMP-6.7
        else:
            if is_async:
                lane.current = id  # from here on the task may be cancelled, for this job
            try:
                argument = payload if type(payload) is bytes else bytes(payload)
                if decode is not None:
                    argument = decode(argument)
                if takes_job:
                    job = RunningJob(lane, id, attempt, manager, role, deadline)
                    lane.job = job
                    try:
                        result = call(argument, job)
                        if is_async:
                            result = await result
                    finally:
                        lane.end_job(job)
                else:
                    result = call(argument)
                    if is_async:
                        result = await result
                if decode is not None or type(result) is not bytes:
                    result = encode(result)
                outcome = ok
            # Also SystemExit and KeyboardInterrupt: a handler's end is never the worker's.
            except BaseException as error:
                if is_async and isinstance(error, GeneratorExit):
                    raise  # the loop is gone and this coroutine with it: nothing to go on with
                outcome, result = lane.failed(id, error)
            if is_async:
                lane.current = 0
                if id in lane.cancelled:
                    lane.uncancel()
        payloads.append(result)
        outcomes.append(outcome)
        done.append(id)
        now = clock()
        if now - reported >= interval:
            lane.flush(now)
            reported = now
    lane.flush(now)
