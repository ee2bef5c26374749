"""Lanes on worker processes, for handlers that compute: processes are spawned, watched and
replaced.

A whole lane goes to a child in one message, and its results come back in parts. The parent keeps
the jobs that have not ended, so a child may die at any moment. Then its running job ends as
``lost``, which costs the job an attempt. The other jobs of the lane go to the next child. Processes
that a handler started are not ended together with the child.

There are two threads. The driver's thread sends lanes to the children's sockets and never waits.
The thread of this module reads the sockets, writes the bytes that did not fit, and starts, reaps
and replaces children. The lock ``_lock`` guards the state of both threads and is held only for
moments. Events are posted after the lock is released.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
from collections import deque
from math import inf
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final

from wmp.errors import ConfigError, TransportError
from wmp.lane_exchange import Begun, Finished, Interrupt, Recall, Recalled, Reported, Run
from wmp.message import Outcome
from wmp.runtime.common.threads import LONGEST_WAIT, start_thread
from wmp.runtime.executors.assignment import NEVER, Assignment
from wmp.runtime.executors.child_main import ANY
from wmp.runtime.executors.child_process import ChildProcess, pack_handlers
from wmp.runtime.executors.child_selector import ChildSelector
from wmp.runtime.executors.handler_calls import PoolEvent, PostEvent, cancelled, lost
from wmp.runtime.executors.handler_imports import check_no_import
from wmp.runtime.executors.handlers import Handler, Served, within_limit
from wmp.runtime.executors.kill_deadlines import KILL_AFTER, KillDeadlines
from wmp.runtime.executors.process_limits import ProcessLimits
from wmp.runtime.executors.restart_policy import RestartPolicy

_log = logging.getLogger(__name__)

_LEAVE: Final = 5.0
"""Seconds within which a child must end after its last job; its other threads may keep it alive."""

_GUARD: Final = "a program must start its worker under `if __name__ == '__main__':`"

_DAEMONIC: Final = (
    "this process is a daemonic process of multiprocessing, which may start no worker processes; "
    "start it with daemon=False (a multiprocessing.Pool has no such setting: use "
    'concurrent.futures), or use pool="thread"'
)

_ADVICE: Final = 'use functions at the top of a module that can be imported, or pool="thread"'

_OUTCOMES: Final = tuple(Outcome)


def _imports_main(handler: Handler) -> bool:
    """Return whether a handler may need the main module; a handler of calls declares that not."""
    owner = getattr(handler, "__self__", handler)
    return bool(getattr(owner, "imports_main", True))


class _ChildrensTime:
    """The time until which jobs may begin, in memory that the children share (WMP-9.22)."""

    def __init__(self, executor: ProcessExecutor) -> None:
        self._executor, self._value = executor, inf

    @property
    def value(self) -> float:
        return self._value

    @value.setter
    def value(self, until: float) -> None:
        with self._executor._lock:
            self._value = until
            for child in self._executor._children:
                child.let_begin(until)


class ProcessExecutor:
    """``slots`` worker processes, each with one lane at a time."""

    def __init__(
        self,
        slots: int,
        served: dict[str, Served],
        post: PostEvent,
        limits: ProcessLimits,
        max_result: int,
    ) -> None:
        self._slots = slots
        self._post_event = post
        self._served = served
        self._limits = limits
        self._max_result = max_result
        self._handlers = b""
        self.begins_until = _ChildrensTime(self)
        self._imports_main = True
        """Whether a handler may need the main module of this program."""
        self._lock = Lock()
        self._assignments: dict[int, Assignment] = {}
        """All assignments, by the number of their lane."""
        self._children_at: dict[int, ChildProcess] = {}
        """The children that run jobs, by the number of their lane."""
        self._queue: deque[Assignment] = deque()
        """Assignments that wait for a child."""
        self._children: list[ChildProcess] = []
        self._deadlines = KillDeadlines(limits.cancel_grace, self._raise_flag)
        self._restarts = RestartPolicy()
        self._stop_at: float | None = None
        self._term_at = NEVER
        self._asleep_until = 0.0
        """Time at which the thread wakes next; an earlier alarm must wake it."""
        self._muted = False
        self._selector: ChildSelector | None = None
        self._thread: Thread | None = None

    # -- by the driver's thread -------------------------------------------------------------

    def start(self) -> None:
        """Start the children and wait for the first of them.

        Raises:
            ConfigError: This process may start no process, a module that a worker imports makes
                this call, or the child could not import or unpickle the handlers.
        """
        check_no_import(served.call for served in self._served.values())
        if multiprocessing.current_process().daemon:
            raise ConfigError(_DAEMONIC)
        self._handlers = pack_handlers(self._served)
        self._imports_main = any(_imports_main(served.call) for served in self._served.values())
        self._selector = ChildSelector()
        # At the exit this function is called before the function of multiprocessing, which would
        # wait for the children to end by themselves.
        atexit.register(self._at_exit)
        self._thread = start_thread(self._serve, "wmp-processes", failed=self._post)
        if self._thread is None:
            atexit.unregister(self._at_exit)
            self._selector.close()
            raise TransportError(
                "cannot start the thread of the worker processes; end other threads"
            )
        problem = self._restarts.wait_for_first()
        if problem is not None:
            self.stop()
            self.close(1.0)
            raise ConfigError(problem)

    def run(self, action: Run, served: Served) -> None:
        assignment = Assignment(action)
        with self._lock:
            if self._stopping():
                return
            self._assignments[assignment.number] = assignment
            self._queue.append(assignment)
            self._assign()

    def recall(self, action: Recall) -> bool:
        number = action.lane
        with self._lock:
            assignment = self._assignments.get(number)
            if assignment is None:
                return False
            child = self._children_at.get(number)
            if child is not None:
                child.recalls.append((number, action.ids))
                self._send(child, ("recall", number, tuple(action.ids)))
                return True
            taken = assignment.take(action.ids)
            self._forget_if_empty(assignment)
        self._post(Recalled(number, taken))
        return True

    def interrupt(self, action: Interrupt) -> bool:
        number = action.lane
        with self._lock:
            assignment = self._assignments.get(number)
            if assignment is None:
                return False
            child = self._children_at.get(number)
            if child is not None:
                assignment.interrupt(action.ids)
                self._deadlines.interrupt(assignment, action.ids, monotonic())
                self._send(child, ("interrupt", number, tuple(action.ids)))
                self._wake_for(assignment.alarm)
                return True
            taken = assignment.take(action.ids)
            self._forget_if_empty(assignment)
        if taken:
            self._post(cancelled(number, taken))
        return True

    def interrupt_all(self) -> None:
        with self._lock:
            actions = [
                Interrupt(assignment.number, list(assignment.jobs))
                for assignment in self._assignments.values()
            ]
        for action in actions:
            self.interrupt(action)

    def stop(self) -> None:
        """Begin no further job, interrupt every job, and let the children end."""
        with self._lock:
            if self._stopping():
                return
            self._stop_at = float("inf")  # the time is set by ``close``
            self._queue.clear()
            for child in self._children:
                self._send(child, ("close",))
        self._wake()

    def close(self, timeout: float) -> None:
        """Wait for the children; end by force the children that have not ended in time."""
        stop_at = monotonic() + timeout
        self._term_at = stop_at - min(KILL_AFTER, timeout / 2)
        self._stop_at = stop_at
        self._wake()
        if self._thread is not None:
            # The end of a killed process is noticed within milliseconds.
            self._thread.join(timeout + 2.0)
            self._thread = None
        atexit.unregister(self._at_exit)
        self._muted = True

    def _at_exit(self) -> None:
        self.stop()
        self.close(0.0)

    # -- by both ----------------------------------------------------------------------------

    def _stopping(self) -> bool:
        return self._stop_at is not None

    def _post(self, event: PoolEvent) -> None:
        if not self._muted:
            if type(event) is Finished:
                event = within_limit(event, self._max_result)
            self._post_event(event)

    def _wake(self) -> None:
        if self._selector is not None:
            self._selector.wake()

    def _wake_for(self, alarm: float) -> None:
        if alarm < self._asleep_until:
            self._wake()

    def _send(self, child: ChildProcess, message: tuple[Any, ...]) -> None:
        """Under the lock: send the bytes that fit now, and leave the other bytes to the thread."""
        if child.send(message):
            self._wake()

    def _raise_flag(self, child: ChildProcess, job: int) -> None:
        """Under the lock: make a child raise the flag of its running job."""
        if child.assignment is not None:
            self._send(child, ("interrupt", child.assignment.number, (job,)))

    def _assign(self) -> None:
        """Under the lock: give waiting assignments to free children."""
        if not self._queue or self._stopping():
            return
        for child in self._children:
            if child.idle:
                assignment = self._queue.popleft()
                child.assignment = assignment
                self._children_at[assignment.number] = child
                child.forget_marks()
                self._send(child, assignment.message())
                self._wake_for(assignment.alarm)
                if not self._queue:
                    return

    def _forget_if_empty(self, assignment: Assignment) -> None:
        """Under the lock: remove an assignment without jobs."""
        if assignment.jobs:
            return
        self._assignments.pop(assignment.number, None)
        child = self._children_at.pop(assignment.number, None)
        if child is not None:
            child.assignment = None
            self._assign()
        else:
            try:
                self._queue.remove(assignment)
            except ValueError:
                pass  # the assignment was not queued, because its child was lost just now

    # -- by the thread ----------------------------------------------------------------------

    def _serve(self) -> None:
        assert self._selector is not None
        try:
            self._watch_children()
        finally:
            # After an error of the thread, no other code would end the remaining children.
            self._stop_at = monotonic()
            for child in self._children:
                child.kill()
                child.reap()
            self._restarts.close()
            self._selector.close()

    def _watch_children(self) -> None:
        """Start, read, replace and end children until the executor is closed."""
        assert self._selector is not None
        restarts = self._restarts
        restarts.ended(monotonic())
        while True:
            now = monotonic()
            if self._stop_at is not None:
                if not self._children:
                    break
                if now >= self._stop_at:
                    for child in self._children:
                        child.kill()
                elif now >= self._term_at:
                    self._term_at = NEVER
                    for child in self._children:
                        child.condemn(ANY, NEVER)
            elif now >= restarts.start_at:
                restarts.start_at = NEVER
                self._spawn()
            self._enforce_deadlines(now)
            for child, file in self._selector.wait(self._children, self._time_to_sleep(now)):
                if child in self._children:  # otherwise the child died earlier in this round
                    self._attend(child, file)

    def _time_to_sleep(self, now: float) -> float | None:
        with self._lock:
            until = min(
                NEVER if self._stop_at is None else self._stop_at,
                self._term_at,
                self._restarts.start_at,
                self._deadlines.next(self._children),
            )
            self._asleep_until = until
        # Due alarms were handled. After ``_stop_at`` the thread waits only for children that it has
        # killed.
        pause = min(max(0.05 if until <= now else 0.0, until - now), LONGEST_WAIT)
        return None if until == NEVER else pause

    def _enforce_deadlines(self, now: float) -> None:
        with self._lock:
            for child in self._children:
                self._deadlines.enforce(child, now)
            # A child that ended its job before the kill is free again.
            self._assign()

    def _spawn(self) -> None:
        """Start children in place of missing children."""
        assert self._selector is not None
        while not self._stopping():
            if sum(not child.retiring for child in self._children) >= self._slots:
                return
            try:
                child = ChildProcess(self._handlers, self._limits, self._imports_main)
            except OSError as error:  # no process, memory or descriptor is left: try again later
                self._failed(f"a worker process could not be started: {error}")
                return
            except RuntimeError:
                # multiprocessing raises this if a child imports the main program and starts a pool
                # there.
                self._failed(_GUARD)
                return
            except Exception as error:  # noqa: BLE001 - reported to all waiting jobs
                # The thread must go on: without it, the jobs of this executor would never end.
                _log.exception("a worker process could not be started")
                text = f"{type(error).__name__}: {error}"
                self._failed(f"a worker process could not be started: {text}")
                return
            self._selector.add(child)
            with self._lock:
                self._children.append(child)
                child.let_begin(self.begins_until.value)
                if self._stopping():
                    self._send(child, ("close",))

    def _attend(self, child: ChildProcess, file: Any) -> None:
        """Write the child's backlog, read its messages, notice its end."""
        assert self._selector is not None
        with self._lock:
            child.write()
        if child.is_open():
            try:
                for message in child.read():
                    self._take_message(child, message)
            # For example, a handler wrote into the socket, so no message of this child can be read
            # any more.
            except Exception:  # noqa: BLE001
                _log.exception(
                    "killed worker process %s, which sent an unreadable message; "
                    "a handler may have written to its socket",
                    child.pid,
                )
                child.kill()
            if not child.is_open():
                self._selector.remove_socket(child)
        if file is not child.sock or not child.is_open():
            self._reap(child)

    def _take_message(self, child: ChildProcess, message: tuple[Any, ...]) -> None:
        event: PoolEvent
        match message:
            case ("finished", number, ids, outcomes, payloads, texts, waits, codec):
                with self._lock:
                    assignment = child.assignment
                    if assignment is None or assignment.number != number:
                        return
                    assignment.progress(ids)
                    ends = [_OUTCOMES[o] for o in outcomes]
                    event = Finished(number, ids, ends, payloads, texts, waits, codec)
                    self._forget_if_empty(assignment)
            case ("recalled", number, ids):
                with self._lock:
                    if not child.recalls:
                        return  # the recall was answered when the child left its lane
                    child.recalls.popleft()
                    assignment = child.assignment
                    if assignment is not None and assignment.number == number:
                        assignment.take(ids)
                        self._forget_if_empty(assignment)
                    event = Recalled(number, ids)
            case ("unbegun", number, ids):
                with self._lock:
                    assignment = child.assignment
                    if assignment is None or assignment.number != number:
                        return
                    ids = assignment.take(ids)
                    self._forget_if_empty(assignment)
                event = Recalled(number, ids)
            case ("begun", number, id):
                event = Begun(number, id)
            case ("reported", number, id, fraction, text):
                event = Reported(number, id, fraction, text)
            case ("last",):
                with self._lock:
                    child.retiring = True
                    # The next child is ready before this child leaves.
                    self._restarts.ended(monotonic())
                return
            case ("left", _):
                with self._lock:
                    assignment = child.assignment
                    events = assignment.release() if assignment is not None else []
                    events += self._unassign(child)
                    if child.kill_at is None:
                        child.kill_at = monotonic() + _LEAVE
                for event in events:
                    self._post(event)
                return
            case ("broken", text):
                child.problem = f"worker process {child.pid} failed: {text}"
                # The child may hold no job that could be lost with this cause.
                _log.warning("worker: %s; a new process takes its place", child.problem)
                return
            case ("doing", text):
                child.doing = text
                return
            case ("ready",):
                with self._lock:
                    child.ready = True
                    self._assign()
                self._restarts.came_up()
                return
            case ("failed", text):
                child.problem = f"a worker process could not load the handlers: {text}; " + _ADVICE
                return
            case _:
                return
        self._post(event)

    def _reap(self, child: ChildProcess) -> None:
        """End the running job of a child that ended or closed its socket; start another child."""
        assert self._selector is not None
        self._selector.remove(child)
        how = child.reap()
        events: list[PoolEvent] = []
        with self._lock:
            self._children.remove(child)
            assignment = child.assignment
            if assignment is not None:
                cause = self._cause(child, how)
                events = assignment.child_died(child.results, child.begun, cause)
            events += self._unassign(child)
        for event in events:
            self._post(event)
        if self._stopping():
            return
        if child.ready:
            self._restarts.ended(monotonic())
        else:
            self._failed(
                child.problem
                or f"a worker process {how} before it was ready; "
                f"stderr shows the message of that process; {_GUARD}"
            )

    def _cause(self, child: ChildProcess, how: str) -> str:
        """Return the cause for which the running job of a child is lost."""
        if child.condemned:
            return (
                f"the job ran for {self._deadlines.grace:g} s after its deadline; "
                f"worker process {child.pid} was killed"
            )
        return child.problem or f"worker process {child.pid} {how} {child.doing}".rstrip()

    def _unassign(self, child: ChildProcess) -> list[PoolEvent]:
        """Under the lock: take the assignment of a child back, and queue it for another child.

        Returns:
            Answers to the recalls that the child can no longer answer.
        """
        assignment, child.assignment = child.assignment, None
        events: list[PoolEvent] = []
        for number, ids in child.recalls:
            taken = []
            if assignment is not None and assignment.number == number:
                taken = assignment.take(ids)
            events.append(Recalled(number, taken))
        child.recalls.clear()
        if assignment is not None:
            self._children_at.pop(assignment.number, None)
            if assignment.jobs and not self._stopping():
                self._queue.appendleft(assignment)
            else:
                self._assignments.pop(assignment.number, None)
        self._assign()
        return events

    def _failed(self, problem: str) -> None:
        """Start another child later. After many failures, end the jobs that wait for a child."""
        hopeless = self._restarts.failed(problem, monotonic())
        events = []
        with self._lock:
            if hopeless and not any(child.ready for child in self._children):
                for assignment in self._queue:
                    events.append(lost(assignment.number, list(assignment.jobs), problem))
                    self._assignments.pop(assignment.number, None)
                self._queue.clear()
        for event in events:
            self._post(event)
