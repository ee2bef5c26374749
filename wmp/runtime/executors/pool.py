"""The pool: an executor for plain handlers, usually threads, and one for ``async def`` handlers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Final, Protocol

from wmp.codec import pack_error
from wmp.errors import ConfigError
from wmp.lane_exchange import Finished, Interrupt, Recall, Recalled, Run
from wmp.message import Limits, Outcome
from wmp.retry import Retry
from wmp.runtime.codecs.payload_codecs import find_codec, unknown_codec
from wmp.runtime.common.threads import LONGEST_WAIT, start_thread
from wmp.runtime.executors.handler_calls import Lane, PostEvent, lost, run_lane
from wmp.runtime.executors.handlers import Handler, Served, serve, within_limit
from wmp.runtime.executors.local_executors import InlineExecutor, LocalExecutor
from wmp.runtime.executors.process_executor import ProcessExecutor
from wmp.runtime.executors.process_limits import ProcessLimits

KINDS: Final = ("thread", "process", "inline")


class LaneExecutor(Protocol):
    """Runs lanes in one way.

    Only the driver's thread calls the methods; only ``close`` may wait.
    """

    begins_until: Any
    """Time until which jobs may begin (WMP-9.22)."""

    def start(self) -> None: ...

    def run(self, action: Run, served: Served) -> None: ...

    def recall(self, action: Recall) -> bool:
        """Recall jobs, and return whether this executor holds the lane."""

    def interrupt(self, action: Interrupt) -> bool:
        """Interrupt jobs, and return whether this executor holds the lane."""

    def interrupt_all(self) -> None:
        """Interrupt every lane."""

    def stop(self) -> None:
        """Begin no further job and ask running handlers to end."""

    def close(self, timeout: float) -> None:
        """Wait until the handlers have ended, for ``timeout`` seconds at most.

        Post no event after that.
        """


class Pool:
    """Performs ``Run``, ``Recall`` and ``Interrupt`` on user code.

    The effect of an interruption depends on the executor. Every handler can read its flag. An
    ``async def`` handler is cancelled at its next ``await``. A worker process is ended by force if
    the job continues. A thread cannot be ended: a handler in a thread that neither reads its flag
    nor returns keeps its slot.

    Every method is called on the driver's thread. ``start`` of a process pool waits for the first
    child and its imports. ``close`` waits for its timeout at most. No other method waits.
    """

    def __init__(
        self,
        served: Mapping[str, Served],
        executors: Sequence[LaneExecutor],
        post: PostEvent,
        max_result: int,
    ) -> None:
        self._served = served
        self._plain, self._coroutines = executors
        self._executors = executors
        self._post = post
        self._max_result = max_result
        self._closed = False
        self.begins_until = self._coroutines.begins_until = self._plain.begins_until
        """Time on the monotonic clock until which lanes begin jobs; later they hand jobs back.

        After this time a manager may have given the worker up, because the worker has sent nothing
        (WMP-9.22).
        """
        self.before_run: Callable[[], object] | None = None
        """Called once, before the next lane starts."""
        self.newest: Run | None = None
        """The lane that started last; whoever reads it sets it to None."""

    def start(self) -> None:
        """Start the executors that serve a handler.

        Raises:
            ConfigError: A worker process cannot import or unpickle a handler.
        """
        kinds = {served.is_async for served in self._served.values()}
        if False in kinds:
            self._plain.start()
        if True in kinds:
            self._coroutines.start()

    def run(self, action: Run) -> None:
        """Start a lane. The answer is one or more ``Finished``."""
        if self._closed:
            return
        self.newest = action
        if self.before_run is not None:
            before, self.before_run = self.before_run, None
            before()
        served = self._served.get(action.kind.role)
        if served is None:
            roles = ", ".join(sorted(self._served))
            self._refuse(
                action,
                pack_error(
                    "UnknownRole",
                    f"no handler for role {action.kind.role!r}; this worker serves {roles}",
                ),
            )
            return
        if find_codec(action.kind.codec) is None:
            self._refuse(action, unknown_codec(action.kind.codec))
        elif served.is_async:
            self._coroutines.run(action, served)
        else:
            self._plain.run(action, served)

    def recall(self, action: Recall) -> None:
        """Take back jobs that have not begun; the answer is exactly one ``Recalled``."""
        if self._closed:
            return
        if not any(executor.recall(action) for executor in self._executors):
            self._post(Recalled(action.lane, ()))

    def interrupt(self, action: Interrupt) -> None:
        """Raise the jobs' cancelled flags; jobs that have not begun end as CANCELLED."""
        if not self._closed:
            any(executor.interrupt(action) for executor in self._executors)

    def interrupt_all(self) -> None:
        """Interrupt every job, because the worker ends."""
        if not self._closed:
            for executor in self._executors:
                executor.interrupt_all()

    def close(self, timeout: float) -> None:
        """Begin no further job, interrupt every job, and end within ``timeout`` seconds.

        No event is posted after this method has returned. Idempotent.
        """
        if self._closed:
            return
        self._closed = True
        deadline = monotonic() + min(timeout, LONGEST_WAIT)
        for executor in self._executors:
            executor.stop()
        for executor in self._executors:
            executor.close(max(0.0, deadline - monotonic()))

    def _refuse(self, action: Run, payload: bytes) -> None:
        k = len(action.ids)
        event = Finished(action.lane, action.ids, [Outcome.ERROR] * k, [payload] * k)
        self._post(within_limit(event, self._max_result))


class ThreadExecutor(LocalExecutor):
    """Lanes on at most ``slots`` daemon threads. A thread is started if no other thread is free.

    This executor is the default. It suits handlers that wait, and short handlers.
    """

    def __init__(self, slots: int, post: PostEvent, max_result: int = Limits.PAYLOAD) -> None:
        super().__init__(post, max_result)
        self._slots = slots
        self._threads: list[Thread] = []
        self._queue: SimpleQueue[Lane | None] = SimpleQueue()
        self._idle: deque[None] = deque()
        """A token for each thread that waits; taken for each lane that is queued."""

    def start(self) -> None:
        """Do nothing: threads start with the first lanes."""

    def run(self, action: Run, served: Served) -> None:
        try:
            self._idle.pop()
        except IndexError:
            if len(self._threads) < self._slots:
                # A daemon thread: a handler that never returns must not keep the process alive.
                name = f"wmp-handlers-{len(self._threads)}"
                thread = start_thread(self._work, name, failed=self.thread_ended)
                if thread is not None:
                    self._threads.append(thread)
                elif not self._threads:
                    self.post(
                        lost(
                            action.lane,
                            list(action.ids),
                            "the worker could not start a thread for the job",
                        )
                    )
                    return
        lane = self.lanes[action.lane] = Lane(action, served, self)
        self._queue.put(lane)

    def _work(self) -> None:
        while (lane := self._queue.get()) is not None:
            run_lane(lane)
            self.lanes.pop(lane.number, None)
            del lane  # a thread without work must not keep its last payloads
            self._idle.append(None)

    def close(self, timeout: float) -> None:
        """Wait for running handlers; leave handlers that do not end."""
        deadline = monotonic() + timeout
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        self.mute()


def open_pool(
    kind: str,
    handlers: Mapping[str, Handler],
    slots: int,
    post: PostEvent,
    process_limits: ProcessLimits | None = None,
    *,
    max_result: int = Limits.PAYLOAD,
    retries: Mapping[str, Retry] | None = None,
) -> Pool:
    """Make a pool; the caller must call ``start`` next.

    Args:
        kind: ``thread``, ``process`` (spawned children) or ``inline`` (on the caller's thread).
            With any kind, ``async def`` handlers run on an event loop of the pool.
        handlers: Handlers by role.
        slots: Number of lanes of plain handlers that run at the same time.
        post: Takes the pool's events. It is called from any thread, also from inside the pool's
            methods, and must only queue.
        process_limits: Limits of worker processes.
        max_result: Maximum number of bytes of one result; a larger result becomes an error.
        retries: Settings of each role that name the errors after which a job is tried again; a role
            may be absent.

    Raises:
        ConfigError: An argument is wrong.
    """
    if kind not in KINDS:
        raise ConfigError(f"pool is {kind!r}; expected one of {', '.join(KINDS)}")
    if slots < 1:
        raise ConfigError(f"slots is {slots}; expected 1 or more")
    if not handlers:
        raise ConfigError("handlers is empty; expected a mapping of one role or more to callables")
    again = retries or {}
    served = {role: serve(role, handler, again.get(role)) for role, handler in handlers.items()}
    plain: LaneExecutor
    if kind == "thread":
        plain = ThreadExecutor(slots, post, max_result)
    elif kind == "inline":
        plain = InlineExecutor(post, max_result)
    else:
        children = {role: handler for role, handler in served.items() if not handler.is_async}
        plain = ProcessExecutor(
            slots, children, post, process_limits or ProcessLimits(), max_result
        )
    # Worker processes import this module, need no event loop, and start sooner without asyncio.
    from wmp.runtime.executors.coroutine_executor import CoroutineExecutor

    return Pool(served, (plain, CoroutineExecutor(post, max_result)), post, max_result)
