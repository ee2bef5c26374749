"""The runner of a lane: it calls the handler for each job, and adds the result to the lane."""

from __future__ import annotations

from contextvars import copy_context
from itertools import repeat
from time import monotonic
from typing import Any

from wmp.events import Begun
from wmp.message import Outcome
from wmp.runtime.codecs.payload_codecs import coders_of, encode_frames, is_frames
from wmp.runtime.executors.handler_context import await_in
from wmp.runtime.executors.handlers import RunningJob
from wmp.runtime.executors.job_log import RUNNING
from wmp.runtime.executors.lane import Lane


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
    done, outcomes, payloads = lane.done, lane.outcomes, lane.payloads
    reporter = lane.host.reporter
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
                if decode is not None:
                    argument = decode(payload)
                else:
                    argument = payload if type(payload) is bytes else bytes(payload)
                if convert is not None:
                    argument = convert(argument)
                context = copy_context()
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
                        result = encode(result)
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
