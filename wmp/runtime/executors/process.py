"""Lanes on worker processes, for handlers that compute: spawned, watched, replaced.

A whole lane goes to a child in one message and its results come back in parts. The parent keeps
what has not ended yet, so that a child may die at any moment: the job that it was on is answered
``lost``, which costs it an attempt and nothing else, the rest of its lane goes to the next child.

A job that is told to stop, because it was cancelled or its deadline has passed, sees its flag.
If it goes on for ``cancel_grace``, its child gets SIGTERM, which raises ``SystemExit`` in the
handler, and SIGKILL a second later; another child takes its place. Processes that a handler
started are its own affair.

Two threads: the driver's hands lanes over and writes to the children's sockets without ever
waiting; one thread of this module reads them, writes what did not fit, and alone starts, reaps
and replaces children. What both touch is guarded by ``_lock``, held for moments; events are
posted by whoever made them, after the lock is released.
"""

from __future__ import annotations

import atexit
import logging
from collections import deque
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final

from wmp.actions import Interrupt, Recall, Run
from wmp.errors import ConfigError
from wmp.events import Finished, Recalled, Reported
from wmp.message import Outcome
from wmp.runtime.executors.assignment import NEVER, Assignment
from wmp.runtime.executors.base import cancelled, lost
from wmp.runtime.executors.child_main import ANY
from wmp.runtime.executors.child_process import ChildProcess, pack_handlers
from wmp.runtime.executors.child_selector import ChildSelector
from wmp.runtime.executors.lane import PoolEvent, PostEvent
from wmp.runtime.executors.process_limits import KILL_AFTER, ProcessLimits
from wmp.runtime.executors.restart_policy import RestartPolicy
from wmp.runtime.handlers import Served

__all__ = ["ProcessExecutor"]

_log = logging.getLogger(__name__)

_LEAVE: Final = 5.0
"""Seconds that a child has to end after its last job: other threads may keep a process alive."""

_GUARD: Final = "a program must start its worker under `if __name__ == '__main__':`"

_ADVICE: Final = 'use functions at the top of a module that can be imported, or pool="thread"'

_OUTCOMES: Final = tuple(Outcome)


class ProcessExecutor:
    """``slots`` worker processes, one lane each at a time."""

    def __init__(
        self, slots: int, served: dict[str, Served], post: PostEvent, upkeep: ProcessLimits
    ) -> None:
        self._slots = slots
        self._post_event = post
        self._served = served
        self._upkeep = upkeep
        self._grace = NEVER if upkeep.cancel_grace is None else upkeep.cancel_grace
        self._handlers = b""
        self._lock = Lock()
        self._lanes: dict[int, Assignment] = {}
        self._queue: deque[Assignment] = deque()
        """Lanes that wait for a child."""
        self._children: list[ChildProcess] = []
        self._succession = RestartPolicy()
        self._stop_at: float | None = None
        self._term_at = NEVER
        self._asleep_until = 0.0
        """When the thread looks at its alarms next; earlier ones must wake it."""
        self._muted = False
        self._watch: ChildSelector | None = None
        self._thread: Thread | None = None

    # -- by the driver's thread -------------------------------------------------------------

    def start(self) -> None:
        """Start the children and wait for the first of them.

        Raises:
            ConfigError: It could not import or unpickle the handlers.
        """
        self._handlers = pack_handlers(self._served)
        self._watch = ChildSelector()
        # Before multiprocessing's own, which would wait for the children to end by themselves.
        atexit.register(self._at_exit)
        self._thread = Thread(target=self._serve, name="wmp-processes", daemon=True)
        self._thread.start()
        problem = self._succession.wait_for_first()
        if problem is not None:
            self.stop()
            self.close(1.0)
            raise ConfigError(problem)

    def run(self, action: Run, served: Served) -> None:
        lane = Assignment(action)
        with self._lock:
            if self._stopping():
                return
            self._lanes[lane.number] = lane
            self._queue.append(lane)
            self._feed()

    def recall(self, action: Recall) -> bool:
        with self._lock:
            lane = self._lanes.get(action.lane)
            if lane is None:
                return False
            if lane.child is not None:
                lane.child.recalls.append((lane.number, action.ids))
                self._tell(lane.child, ("recall", lane.number, tuple(action.ids)))
                return True
            taken = lane.take(action.ids)
            self._settle(lane)
        self._post(Recalled(lane.number, taken))
        return True

    def interrupt(self, action: Interrupt) -> bool:
        with self._lock:
            lane = self._lanes.get(action.lane)
            if lane is None:
                return False
            if lane.child is not None:
                lane.interrupt(action.ids, monotonic(), self._grace)
                self._tell(lane.child, ("interrupt", lane.number, tuple(action.ids)))
                self._wake_for(lane.alarm)
                return True
            taken = lane.take(action.ids)
            self._settle(lane)
        if taken:
            self._post(cancelled(lane.number, taken))
        return True

    def interrupt_all(self) -> None:
        with self._lock:
            running = [Interrupt(lane.number, list(lane.jobs)) for lane in self._lanes.values()]
        for action in running:
            self.interrupt(action)

    def stop(self) -> None:
        """Begin nothing more, interrupt what runs, let the children end."""
        with self._lock:
            if self._stopping():
                return
            self._stop_at = float("inf")  # until ``close`` says how long
            self._queue.clear()
            for child in self._children:
                self._tell(child, ("close",))
        self._wake()

    def close(self, timeout: float) -> None:
        """Wait for the children, end by force those that do not in time."""
        stop_at = monotonic() + timeout
        self._term_at = stop_at - min(KILL_AFTER, timeout / 2)
        self._stop_at = stop_at
        self._wake()
        if self._thread is not None:
            self._thread.join(timeout + 2.0)  # a killed process is reaped in milliseconds
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
            self._post_event(event)

    def _wake(self) -> None:
        if self._watch is not None:
            self._watch.ring()

    def _wake_for(self, alarm: float) -> None:
        if alarm < self._asleep_until:
            self._wake()

    def _tell(self, child: ChildProcess, message: tuple[Any, ...]) -> None:
        """Under the lock: send what fits now, leave the rest to the thread."""
        if child.send(message):
            self._wake()

    def _feed(self) -> None:
        """Under the lock: give waiting lanes to children that are free."""
        if not self._queue or self._stopping():
            return
        for child in self._children:
            if child.idle:
                lane = self._queue.popleft()
                lane.child, child.lane = child, lane
                child.forget_marks()
                self._tell(child, lane.message())
                self._wake_for(lane.alarm)
                if not self._queue:
                    return

    def _settle(self, lane: Assignment) -> None:
        """Under the lock: forget a lane of which nothing is left."""
        if lane.jobs:
            return
        self._lanes.pop(lane.number, None)
        if lane.child is not None:
            lane.child.lane = None
            lane.child = None
            self._feed()
        else:
            try:
                self._queue.remove(lane)
            except ValueError:
                pass  # it was never there: it lost its child in this very moment

    # -- by the thread ----------------------------------------------------------------------

    def _serve(self) -> None:
        assert self._watch is not None
        succession = self._succession
        succession.ended(monotonic())
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
            elif now >= succession.at:
                succession.at = NEVER
                self._spawn()
            self._attend(now)
            for child, file in self._watch.wait(self._children, self._patience(now)):
                if child in self._children:  # else it died earlier in this round
                    self._look(child, file)
        succession.close()
        self._watch.close()

    def _patience(self, now: float) -> float | None:
        with self._lock:
            times = [self._stop_at, self._succession.at, self._term_at]
            for child in self._children:
                times.append(child.kill_at)
                if child.lane is not None and child.kill_at is None:
                    times.append(child.lane.alarm)
            self._asleep_until = until = min((t for t in times if t is not None), default=NEVER)
        # What is due already was done; after ``_stop_at`` killed children are waited for.
        return None if until == NEVER else max(0.05 if until <= now else 0.0, until - now)

    def _attend(self, now: float) -> None:
        """See that jobs which are told to stop do, and children which are told to end."""
        with self._lock:
            for child in self._children:
                lane = child.lane
                if child.kill_at is not None:
                    if now < child.kill_at:
                        continue
                    if not child.pardon():
                        child.kill()
                        child.kill_at = NEVER
                        continue
                if lane is None or lane.alarm > now:
                    continue
                running = child.begun
                raised, end = lane.look(running, now, self._grace)
                if raised:
                    self._tell(child, ("interrupt", lane.number, (running,)))
                if end:
                    child.condemn(running, now + KILL_AFTER)
            self._feed()  # to a child that was pardoned

    def _spawn(self) -> None:
        """Fill the places of children that are missing."""
        assert self._watch is not None
        while not self._stopping():
            if sum(not child.retiring for child in self._children) >= self._slots:
                return
            try:
                child = ChildProcess(self._handlers, self._upkeep)
            except OSError as error:  # no process, memory or descriptor left: try again later
                self._failed(f"a worker process could not be started: {error}")
                return
            except RuntimeError:  # multiprocessing's: this is a child that imports the program
                self._failed(_GUARD)
                return
            self._watch.add(child)
            with self._lock:
                self._children.append(child)
                if self._stopping():
                    self._tell(child, ("close",))

    def _look(self, child: ChildProcess, file: Any) -> None:
        """Write what is left, read what is there, notice its end."""
        assert self._watch is not None
        with self._lock:
            child.write()
        if child.is_open():
            try:
                for message in child.read():
                    self._heard(child, message)
            # A handler wrote into the socket, say: no sense can be made of this child any more.
            except Exception:  # noqa: BLE001
                _log.exception("worker process %s speaks nonsense and is killed", child.pid)
                child.kill()
            if not child.is_open():
                self._watch.hang_up(child)
        if file is not child.sock or not child.is_open():
            self._reap(child)

    def _heard(self, child: ChildProcess, message: tuple[Any, ...]) -> None:
        event: PoolEvent
        match message:
            case ("finished", number, ids, outcomes, payloads):
                with self._lock:
                    lane = child.lane
                    if lane is None or lane.number != number:
                        return
                    lane.progress(ids)
                    event = Finished(number, ids, [_OUTCOMES[o] for o in outcomes], payloads)
                    self._settle(lane)
            case ("recalled", number, ids):
                with self._lock:
                    if not child.recalls:
                        return  # answered when the child left its lane
                    child.recalls.popleft()
                    lane = child.lane
                    if lane is not None and lane.number == number:
                        lane.take(ids)
                        self._settle(lane)
                    event = Recalled(number, ids)
            case ("reported", number, id, fraction, text):
                event = Reported(number, id, fraction, text)
            case ("last",):
                with self._lock:
                    child.retiring = True
                    self._succession.ended(monotonic())  # the next is ready before it leaves
                return
            case ("left", _):
                with self._lock:
                    lane = child.lane
                    events = lane.release() if lane is not None else []
                    events += self._part(child)
                    if child.kill_at is None:
                        child.kill_at = monotonic() + _LEAVE
                for event in events:
                    self._post(event)
                return
            case ("broken", text):
                child.problem = f"worker process {child.pid} could not go on: {text}"
                return
            case ("ready",):
                with self._lock:
                    child.ready = True
                    self._feed()
                self._succession.came_up()
                return
            case ("failed", text):
                child.problem = f"a worker process could not load the handlers: {text}; " + _ADVICE
                return
            case _:
                return
        self._post(event)

    def _reap(self, child: ChildProcess) -> None:
        """The child has ended, or nobody can talk to it any more."""
        assert self._watch is not None
        self._watch.remove(child)
        how = child.reap()
        events: list[PoolEvent] = []
        with self._lock:
            self._children.remove(child)
            lane = child.lane
            if lane is not None:
                events = lane.bereave(child.shelf, child.begun, self._cause(child, how))
            events += self._part(child)
        for event in events:
            self._post(event)
        if self._stopping():
            return
        if child.ready:
            self._succession.ended(monotonic())
        else:
            self._failed(
                child.problem
                or f"a worker process {how} before it was ready, "
                f"its own message is on stderr; {_GUARD}"
            )

    def _cause(self, child: ChildProcess, how: str) -> str:
        """Why the job that a child was at has no end."""
        if child.condemned:
            return (
                f"it went on for {self._grace:g} s after its deadline; "
                f"its worker process {child.pid} was ended"
            )
        return child.problem or f"worker process {child.pid} {how}"

    def _part(self, child: ChildProcess) -> list[PoolEvent]:
        """Under the lock: part a child from its lane, and give what is left of that to another.

        Returns:
            Answers to the recalls that the child cannot answer any more.
        """
        lane, child.lane = child.lane, None
        events: list[PoolEvent] = []
        for number, ids in child.recalls:
            taken = lane.take(ids) if lane is not None and lane.number == number else []
            events.append(Recalled(number, taken))
        child.recalls.clear()
        if lane is not None:
            lane.child = None
            if lane.jobs and not self._stopping():
                self._queue.appendleft(lane)
            else:
                self._lanes.pop(lane.number, None)
        self._feed()
        return events

    def _failed(self, problem: str) -> None:
        """A child did not come up: try again later; for how long may lanes wait?"""
        hopeless = self._succession.failed(problem, monotonic())
        events = []
        with self._lock:
            if hopeless and not any(child.ready for child in self._children):
                for lane in self._queue:
                    events.append(lost(lane.number, list(lane.jobs), problem))
                    self._lanes.pop(lane.number, None)
                self._queue.clear()
        for event in events:
            self._post(event)
