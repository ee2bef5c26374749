"""The calls of handlers: a lane runs jobs one after the other, and some may be taken back.

Three threads use a lane: the thread that runs its jobs, the driver (recall, interrupt) and the
reporter. These rules keep them apart:

- ``pending`` holds the jobs that have not begun. The thread that removes a job from ``pending``
  owns the job: the runner to begin it, the driver to recall or cancel it. ``set.remove`` is one
  atomic step, so the hot path needs no lock and the driver never waits for a lock.
- The runner appends to ``payloads``, to ``outcomes`` and, last, to ``done``. The other threads take
  only prefixes as long as ``done``, under ``lock``. So they see a result whole or not at all.
- ``job`` is the running job that may report. It and its progress are changed under ``lock``.
"""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from itertools import repeat
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from wmp.error_reports import pack_error
from wmp.errors import JobCancelled
from wmp.lane_exchange import Begun, Finished, Recalled, Reported, Run
from wmp.runtime.codecs.payload_codecs import FRAMES, coders_of, encode_frames, is_frames
from wmp.runtime.common.threads import ThreadEnded
from wmp.runtime.executors.handler_context import await_in
from wmp.runtime.executors.handlers import (
    BEGAN,
    REPORT_INTERVAL,
    Prepared,
    RunningJob,
    Served,
    describe_error,
    describe_failure,
    within_limit,
)
from wmp.runtime.executors.job_log import RUNNING
from wmp.runtime.executors.reporter import Reporter
from wmp.vocabulary import Frame, Outcome

if TYPE_CHECKING:
    import asyncio

PoolEvent = Begun | Finished | Recalled | Reported | ThreadEnded
"""Events that an executor reports to the worker's machine, and the unexpected end of one of its
threads.
"""

PostEvent = Callable[[PoolEvent], None]
"""Puts an event into the driver's inbox. Any thread may call it."""

_CANCELLATIONS: Final = (JobCancelled, concurrent.futures.CancelledError)


class Terminated(SystemExit):
    """Raised in a handler when its worker process must end; the handler may still clean up."""


def cancelled(lane: int, ids: list[int]) -> Finished:
    """Return the end of jobs that were cancelled before they began."""
    return Finished(lane, ids, [Outcome.CANCELLED] * len(ids), [b""] * len(ids))


def lost(lane: int, ids: list[int], cause: str) -> Finished:
    """Return the end of jobs without an outcome here, for example after a crash (WMP-6.14)."""
    return Finished(lane, ids, [Outcome.LOST] * len(ids), [cause.encode()] * len(ids))


def remarked(event: Finished, remarks: dict[int, tuple[str, int | None]]) -> Finished:
    """Return ends of jobs with the texts and waits of those that failed; forget both."""
    row_remarks = [remarks.pop(id, None) for id in event.ids]
    if not any(row_remarks):
        return event
    texts = [None if remark is None else remark[0] for remark in row_remarks]
    waits = [None if remark is None else remark[1] for remark in row_remarks]
    return event.with_(texts=texts, waits=waits if waits.count(None) < len(waits) else None)


def _rows(event: Finished, rows: Sequence[int]) -> Finished:
    """Return the ends of some jobs of an event."""

    def of(column: Sequence[Any]) -> list[Any]:
        return [column[row] for row in rows]

    return event.with_(
        ids=of(event.ids),
        outcomes=of(event.outcomes),
        payloads=of(event.payloads),
        texts=None if event.texts is None else of(event.texts),
        waits=None if event.waits is None else of(event.waits),
    )


class MovingTime(Protocol):
    """A time that another thread or another process moves."""

    @property
    def value(self) -> float: ...


class LaneHost(Protocol):
    """The executor of a lane, with the parts that the lane uses."""

    post: PostEvent
    """Takes the lane's events. The value changes when the executor closes, so read it each time."""
    reporter: Reporter
    max_result: int
    """Maximum number of bytes of one result."""
    doing: Callable[[str], object]
    """Takes a text about present work. If the process ends, its parent adds this text."""
    begins_until: MovingTime
    """Time until which jobs may begin (WMP-9.22); worker processes share it with their parent."""

    def hand_back(self, lane: int, ids: list[int]) -> None:
        """Report jobs of a lane that will not begin although nobody recalled them."""


class Lane:
    """A ``Run`` action in progress."""

    __slots__ = (
        "action",
        "begin",
        "cancelled",
        "current",
        "done",
        "framed",
        "host",
        "job",
        "lock",
        "number",
        "outcomes",
        "payloads",
        "pending",
        "remarks",
        "running",
        "served",
        "task",
        "watched",
    )

    def __init__(self, action: Run, served: Served, host: LaneHost) -> None:
        self.action = action
        self.number = action.lane
        self.served = served
        self.host = host
        self.pending = set(action.ids)
        self.begin: Callable[[int], None] = self.pending.remove
        """Removes a job from ``pending``, or raises KeyError; worker processes override it."""
        self.cancelled: set[int] = set()
        self.current = 0
        self.running = 0
        """The job whose handler runs, 0 between two jobs; for the log."""
        self.job: RunningJob | None = None
        self.task: asyncio.Task[None] | None = None
        self.lock = Lock()
        self.watched = False
        """Whether the reporter flushes this lane within its interval."""
        self.done: list[int] = []
        self.outcomes: list[Outcome] = []
        self.payloads: list[Frame] = []
        self.remarks: dict[int, tuple[str, int | None]] = {}
        """Text and wait of each failed job; the runner adds them before it adds to ``done``."""
        self.framed: set[int] = set()
        """Jobs with the codec ``bytes`` whose result is a list of frames; added before ``done``."""

    def __len__(self) -> int:
        return len(self.action.ids)

    @property
    def role(self) -> str:
        """The role of the jobs."""
        return self.action.kind.role

    def doing(self, text: str) -> None:
        """Record a text for the case that this process ends during other work than its job."""
        self.host.doing(text)

    # -- by the driver's thread -------------------------------------------------------------

    def recall(self, ids: Iterable[int]) -> list[int]:
        """Take out jobs that have not begun, so that they never begin; return their numbers."""
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
        """Take out jobs that have not begun, and raise the flags of the others."""
        taken = self.recall(ids)
        self.cancelled.update(ids)
        return taken

    def abandon(self) -> None:
        """Begin no further job and raise every flag, because the executor closes."""
        self.pending.clear()
        self.cancelled.update(self.action.ids)

    # -- by the runner's thread -------------------------------------------------------------

    def hand_back(self) -> None:
        """Hand back the jobs that have not begun, because the worker did not run for too long.

        A manager may have given the worker up, and the jobs may have ended elsewhere (WMP-9.22).
        """
        taken = self.recall(self.action.ids)
        if taken:
            self.host.hand_back(self.number, taken)

    # -- by the threads of the reporter and the runner --------------------------------------

    def flush(self, now: float) -> bool:
        """Post all ended jobs, and the progress that is due.

        Returns:
            Whether some progress is not due yet.
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
        """Store the last result with ``put``; if it does not fit, post all results."""
        with self.lock:
            if not self.done:
                return
            # The buffer holds no codecs.
            fits = not self.framed and put(self.done[-1], self.outcomes[-1], self.payloads[-1])
            if not fits:
                self._post_done()

    def report(self, job: RunningJob, fraction: float | None, text: str | None) -> None:
        """Take a handler's progress: post it now, or leave it to the reporter."""
        now = monotonic()
        with self.lock:
            if self.job is not job:
                return  # the call came from a thread that outlived its job
            if fraction is not None:
                job.fraction = fraction
            if text is not None:
                job.text = text
            if now - job.reported_at >= REPORT_INTERVAL:
                self._post_progress(job, now)
                return
            job.pending = True
        if not self.watched:
            self.host.reporter.watch(self)

    def end_job(self, job: RunningJob) -> None:
        """Post the last progress of a job that ends, and accept no further progress."""
        with self.lock:
            if job.pending:
                self._post_progress(job, job.reported_at)
            self.job = None

    def _post_done(self) -> None:
        count = len(self.done)
        ids = self.done[:count]
        event = Finished(self.number, ids, self.outcomes[:count], self.payloads[:count])
        if self.remarks:
            event = remarked(event, self.remarks)
        # The runner may append during this call, but only behind this prefix.
        del self.done[:count], self.outcomes[:count], self.payloads[:count]
        if max(map(len, event.payloads)) > self.host.max_result:
            event = within_limit(event, self.host.max_result)
        if not self.framed:
            self.host.post(event)
            return
        framed = [row for row, id in enumerate(event.ids) if id in self.framed]
        self.framed.difference_update(event.ids)
        others = sorted(set(range(count)).difference(framed))
        if others:
            self.host.post(_rows(event, others))
        if framed:
            self.host.post(_rows(event, framed).with_(codec=FRAMES))

    def _post_progress(self, job: RunningJob, now: float) -> None:
        job.pending = False
        job.reported_at = now
        self.host.post(Reported(self.number, job.id, job.fraction, job.text))

    async def uncancel(self) -> None:
        """Clear the cancellation of the task, which must not reach the next job.

        The handler itself may have cancelled the task just before it returned.
        """
        task = self.task
        if task is None or not task.cancelling():
            return
        try:
            await asyncio_module().sleep(0)
        except asyncio_module().CancelledError:
            pass
        while task.cancelling():
            task.uncancel()

    def is_closed(self) -> bool:
        """Return whether the event loop has ended, and this coroutine is being closed.

        A handler may raise GeneratorExit too, but then the task of this lane runs.
        """
        try:
            return asyncio_module().current_task() is not self.task
        except RuntimeError:  # no loop runs in this thread
            return True

    def failed(self, id: int, error: BaseException) -> tuple[Outcome, bytes]:
        """Return the end of a job whose handler raised, or whose payload or result is wrong.

        Raises:
            Terminated: This process is about to end, and its parent ends the job.
        """
        if issubclass(type(error), Terminated):
            raise error
        try:
            if id in self.cancelled and _is_cancellation(error):
                self.remarks[id] = BEGAN, None
                return Outcome.CANCELLED, b""
            action = self.action
            failed: int | None = 0
            if action.failed is not None:
                failed = action.failed[list(action.ids).index(id)]
            self.remarks[id] = describe_failure(error, self.served.retry, failed, id)
            return Outcome.ERROR, describe_error(error)
        except Terminated:
            raise
        # Code of the exception's own class. Its errors must not end the worker, whose other jobs
        # would be lost, and which would carry this job to the next worker.
        except BaseException as problem:  # noqa: BLE001
            name = type(error).__name__
            text = f"the exception itself raised {type(problem).__name__} when it was read"
            self.remarks[id] = f"{name}: {text}\n", None
            return Outcome.ERROR, pack_error(name, text)


def asyncio_module() -> Any:
    """Return ``asyncio``, which lanes of coroutines need and worker processes do not."""
    import asyncio

    return asyncio


def _is_cancellation(error: BaseException) -> bool:
    # A worker process starts sooner without asyncio. An error of asyncio exists only where asyncio
    # was imported.
    loops = sys.modules.get("asyncio")
    return isinstance(error, _CANCELLATIONS) or (
        loops is not None and isinstance(error, loops.CancelledError)
    )


def run_lane(lane: Lane) -> None:
    """Run the lane's jobs here and now; all events are posted when this returns.

    Raises:
        Terminated: In a worker process that was asked to end; no other error.
    """
    try:
        # A plain handler never suspends the coroutine, so its first step is its last.
        run_lane_async(lane).send(None)
    except StopIteration:
        return
    raise AssertionError("a plain handler cannot wait")


async def run_lane_async(lane: Lane) -> None:
    """Run the lane's jobs in the current task; all events are posted when this returns.

    Raises:
        Terminated: As for :func:`run_lane`.
    """
    action, served, begin = lane.action, lane.served, lane.begin
    call, takes_job, is_async = served.call, served.takes_job, served.is_async
    codec, manager, role = action.kind.codec, action.manager[0], action.kind.role
    (decode, encode), convert = coders_of(codec), served.convert
    handler: object = call
    prepare = handler.prepare if isinstance(handler, Prepared) else None
    done, outcomes, payloads = lane.done, lane.outcomes, lane.payloads
    reporter, begins_until = lane.host.reporter, lane.host.begins_until
    ok, cancelled = Outcome.OK, Outcome.CANCELLED
    result: Any
    limited = action.limits is not None
    RUNNING.set(lane)
    for id, lease, runs, deadline, begin_by, payload in zip(
        action.ids,
        action.attempts,
        action.begun or repeat(None),
        action.deadlines or repeat(None),
        action.begin_by or action.deadlines or repeat(None),
        action.payloads,
        strict=False,  # ``repeat`` never ends
    ):
        if done and not lane.watched:
            # Results must not wait for the jobs behind them.
            reporter.watch(lane)
        if begins_until.value <= monotonic():
            lane.hand_back()
            break
        try:
            begin(id)
        except KeyError:
            continue
        if begin_by is not None and begin_by <= monotonic():
            outcome, result = cancelled, b""  # WMP-6.7, 6.19
        else:
            if limited:
                lane.host.post(Begun(lane.number, id))
            lane.running = id
            if is_async:
                # From here on a cancellation of the task is a cancellation of this job.
                lane.current = id
            try:
                if prepare is not None:
                    prepare()
                # Codecs and classes of arguments may be the user's code too.
                context = copy_context()
                if decode is not None:
                    argument = context.run(decode, payload)
                else:
                    argument = payload if type(payload) is bytes else bytes(payload)
                if convert is not None:
                    argument = context.run(convert, argument)
                if takes_job:
                    job = lane.job = RunningJob(lane, id, lease, manager, role, deadline, runs)
                    try:
                        result = context.run(call, argument, job)
                        if is_async:
                            result = await await_in(context, result)
                    finally:
                        lane.end_job(job)
                else:
                    result = context.run(call, argument)
                    if is_async:
                        result = await await_in(context, result)
                if decode is not None or type(result) is not bytes:
                    if decode is None and is_frames(result):
                        result = encode_frames(result)
                        lane.framed.add(id)
                    else:
                        result = context.run(encode, result)
                outcome = ok
            # This includes SystemExit and KeyboardInterrupt: the end of a handler must not end the
            # worker.
            except BaseException as error:
                if is_async and issubclass(type(error), GeneratorExit) and lane.is_closed():
                    raise
                outcome, result = lane.failed(id, error)
            if is_async:
                lane.current = 0
                if lane.task is not None and lane.task.cancelling():
                    await lane.uncancel()
            lane.running = 0
        payloads.append(result)
        outcomes.append(outcome)
        done.append(id)
    lane.flush(monotonic())
    RUNNING.set(None)
