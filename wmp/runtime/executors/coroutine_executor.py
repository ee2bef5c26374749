"""Lanes of ``async def`` handlers: tasks on a separate event loop.

The loop is separate, because a handler that blocks by mistake would otherwise also block the
heartbeats. A lane is one task that awaits its jobs one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from threading import Thread

from wmp.errors import TransportError
from wmp.lane_exchange import Interrupt, Run
from wmp.message import Limits
from wmp.runtime.common.threads import ThreadEnded, start_thread
from wmp.runtime.executors.handler_calls import Lane, PostEvent, run_lane_async
from wmp.runtime.executors.handlers import Served
from wmp.runtime.executors.local_executors import LocalExecutor

_log = logging.getLogger(__name__)


class CoroutineExecutor(LocalExecutor):
    """A daemon thread with an event loop."""

    def __init__(self, post: PostEvent, max_result: int = Limits.PAYLOAD) -> None:
        super().__init__(post, max_result)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._ending = False
        self._ended = False
        """Whether the loop was stopped by this executor; a handler may stop it too."""
        self._last: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = start_thread(self._serve, "wmp-coroutines", failed=self.thread_ended)
        if self._thread is None:
            raise TransportError("cannot start a thread for async handlers; end other threads")

    def run(self, action: Run, served: Served) -> None:
        if self._loop is not None and not self._ending:
            lane = self.lanes[action.lane] = Lane(action, served, self)
            self._loop.call_soon_threadsafe(self._begin, lane)

    def interrupt(self, action: Interrupt) -> bool:
        known = super().interrupt(action)
        if known and self._loop is not None and not self._ending:
            # Only the loop's thread knows which job runs, because a job may begin at this moment.
            lane = self.lanes.get(action.lane)
            if lane is not None:
                self._loop.call_soon_threadsafe(self._cancel, lane, frozenset(action.ids))
        return known

    def stop(self) -> None:
        """Begin no further job, and cancel the running jobs."""
        if self._loop is not None and not self._ending:
            self._ending = True
            super().stop()
            with contextlib.suppress(RuntimeError):  # the thread has ended, and its loop is closed
                self._loop.call_soon_threadsafe(self._cancel_all)

    def close(self, timeout: float) -> None:
        """Wait for the cancelled tasks; leave tasks that do not end."""
        if self._thread is not None:
            self._thread.join(timeout)
        self.mute()

    # -- on the loop's thread ---------------------------------------------------------------

    def _serve(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        try:
            while not self._ended:
                try:
                    loop.run_forever()
                # A task that a handler started may raise one of these two errors through the loop.
                except (SystemExit, KeyboardInterrupt) as error:
                    _log.warning("a task of a handler raised %r and stopped the event loop", error)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _begin(self, lane: Lane) -> None:
        assert self._loop is not None
        lane.task = self._loop.create_task(self._run(lane))

    async def _run(self, lane: Lane) -> None:
        try:
            await run_lane_async(lane)
        except BaseException as error:
            # The jobs of the lane would never end. After the end of the executor no submitter waits
            # for them.
            if self._ending:
                raise
            self.post(ThreadEnded(f"the task of lane {lane.number}", error))
        self.forget(lane.number)

    @staticmethod
    def _cancel(lane: Lane, ids: frozenset[int]) -> None:
        # During this call the task waits in the handler of ``current``, so exactly this job is
        # cancelled.
        if lane.current in ids and lane.task is not None:
            lane.task.cancel()

    def _cancel_all(self) -> None:
        assert self._loop is not None
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._last = self._loop.create_task(self._stop_after(tasks))

    async def _stop_after(self, tasks: set[asyncio.Task[None]]) -> None:
        assert self._loop is not None
        if tasks:
            await asyncio.wait(tasks)
        self._ended = True
        self._loop.stop()
