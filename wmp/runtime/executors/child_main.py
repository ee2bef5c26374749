"""The main program of a worker process.

The main thread runs the lanes, because handlers may need the main thread of a process. A second
thread reads the parent's messages at the same time.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from math import inf
from queue import SimpleQueue
from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from wmp.lane_exchange import Begun, Finished, Interrupt, LaneKind, Recall, Recalled, Reported, Run
from wmp.runtime.common.threads import ThreadEnded
from wmp.runtime.executors.handler_calls import Lane, PoolEvent, Terminated, run_lane
from wmp.runtime.executors.handler_imports import load_handlers, set_depth
from wmp.runtime.executors.handlers import Served
from wmp.runtime.executors.job_log import log_handlers
from wmp.runtime.executors.local_executors import LocalExecutor
from wmp.runtime.executors.pipe import pack, receive
from wmp.runtime.executors.result_buffer import ResultBuffer
from wmp.vocabulary import Frame

if TYPE_CHECKING:
    from wmp.message import Kind

BEGUN: Final = 0
"""Index of a mark: the job that was begun last; 0 before the first job of a lane.

The child writes it.
"""
CONDEMNED: Final = 1
"""Index of a mark: the job that SIGTERM must end; ``ANY`` for the running job.

The parent writes it.
"""
ENDING: Final = 2
"""Index of a mark: 1 when the child ends because of SIGTERM."""
FILLED: Final = 3
"""Index of a mark: number of used bytes of the result buffer. The child writes it."""
STOPPED: Final = 4
"""Index of a mark: number of messages that keep jobs from beginning. The parent writes it."""
UNTIL: Final = 5
"""Index of a mark: microseconds until which jobs may begin; 0 for no limit. The parent writes it.
"""
MARKS: Final = 6

STOPS: Final = frozenset({"recall", "interrupt"})
"""The first words of messages that keep jobs from beginning."""

MARK_BYTES: Final = 8 * MARKS
"""Number of bytes of the marks, which begin the shared memory. The result buffer is behind them."""

ANY: Final = -1

_GRACE: Final = 1.0
"""Seconds after the parent's death in which a handler can still read its flag."""


def main(
    sock: socket.socket,
    handlers: bytes,
    memory: memoryview,
    max_jobs: int | None,
    max_memory: int | None,
    log_level: int | None,
    depth: int,
) -> None:
    """Serve the parent until the parent requests the end or has ended.

    Args:
        sock: This process's end of the socket pair.
        handlers: The pickled mapping of roles to :class:`Served`.
        memory: Memory that the parent shares, and that outlives this process: the marks ``BEGUN``
            and so on, and the result buffer.
        max_jobs: Number of jobs that this process begins; None for no limit.
        max_memory: Bytes of data that this process may have; None for the system's own limit.
        log_level: Lowest level of the handlers' log lines on stderr; None leaves the logging
            unchanged.
        depth: Number of worker processes in the line of parents, with this process.
    """
    mark = memory[:MARK_BYTES].cast("q")
    set_depth(depth)
    _quiet_signals(mark)
    lock = Lock()
    broken = False

    def send(message: tuple[Any, ...]) -> bool:
        nonlocal broken
        data = pack(message)
        with lock:
            if broken:
                return False
            # SIGTERM may interrupt the sending of a message. After half a message the parent could
            # read no further message.
            broken = True
            try:
                sock.sendall(data)
            except OSError:
                # The parent has ended. The reading thread notices this too and ends this process.
                return False
            broken = False
        return True

    try:
        if max_memory is not None:
            # The settings need attrs, which takes longer to import than all the rest.
            from wmp.runtime.executors.process_limits import limit_memory

            limit_memory(max_memory)
        served: Mapping[str, Served] = load_handlers(pickle.loads, handlers)
        if log_level is not None:
            log_handlers(log_level)
    # Importing the user's module may raise any error; the parent reports it.
    except BaseException as error:  # noqa: BLE001
        send(("failed", f"{type(error).__name__}: {error}"))
        return
    results = ResultBuffer(memory[MARK_BYTES:], mark, FILLED)
    child = _Child(sock, served, mark, results, max_jobs, send)
    send(("ready",))
    try:
        child.work()
    except Terminated:
        pass
    # A defect. Other threads could keep this process alive, and the parent would wait for its end.
    except BaseException as error:  # noqa: BLE001
        child.give_up("the main thread", error)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # after this only the interpreter itself ends


def _flat(payload: Frame) -> memoryview:
    return memoryview(payload).toreadonly()


def _quiet_signals(mark: memoryview[int]) -> None:
    # Ctrl-C goes to the whole process group, and the stop of a service to all its processes. Only
    # the parent may react: it finishes the jobs. SIGINT stays ignored in programs that handlers
    # start. SIGTERM is not ignored, because then such programs could not be stopped.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, functools.partial(_terminate, mark))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_end_at_sigterm)


def _end_at_sigterm() -> None:
    """In a process that a handler forks: let SIGTERM end that process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(mark: memoryview[int], number: int, frame: Any) -> None:
    """End the handler and this process, if the parent's SIGTERM is for the running job."""
    condemned = mark[CONDEMNED]
    if condemned and condemned in (ANY, mark[BEGUN]) and not mark[ENDING]:
        mark[ENDING] = 1
        raise Terminated(128 + number)


class _ParentsTime:
    """A time in shared memory, which the parent moves."""

    def __init__(self, mark: memoryview[int]) -> None:
        self._mark = mark

    @property
    def value(self) -> float:
        return self._mark[UNTIL] / 1e6 or inf


class _ChildLanes(LocalExecutor):
    """The lanes of a child, which can hand back jobs that the parent has not recalled."""

    send: Callable[[tuple[Any, ...]], bool]

    def hand_back(self, lane: int, ids: list[int]) -> None:
        self.send(("unbegun", lane, ids))


class _Child:
    def __init__(
        self,
        sock: socket.socket,
        served: Mapping[str, Served],
        mark: memoryview[int],
        results: ResultBuffer,
        max_jobs: int | None,
        send: Callable[[tuple[Any, ...]], bool],
    ) -> None:
        self._sock = sock
        self._served = served
        self._mark = mark
        self._results = results
        self._left = max_jobs
        """Number of jobs that may still begin; None for no limit."""
        self._send = send
        self._lanes = _ChildLanes(self._post, doing=lambda text: send(("doing", text)))
        self._lanes.send = send
        self._lanes.begins_until = _ParentsTime(mark)
        self._stopped = 0
        """Number of the parent's messages ``STOPS`` that were obeyed."""
        self._obeyed = Condition()
        self._queue: SimpleQueue[Lane | None] = SimpleQueue()
        # A daemon thread, because it still waits in ``recv`` when this process ends.
        Thread(target=self._listen, name="wmp-parent", daemon=True).start()

    def work(self) -> None:
        """Run lanes until the parent requests the end."""
        while (lane := self._queue.get()) is not None:
            try:
                run_lane(lane)
            except Terminated:
                lane.flush(time.monotonic())
                raise
            self._lanes.forget(lane.number)
            if self._left == 0 or self._mark[ENDING]:
                self._send(("left", lane.number))
                return
            del lane

    def _post(self, event: PoolEvent) -> None:
        match event:
            case Finished(lane, ids, outcomes, payloads, texts, waits, codec):
                # The parent reads bytes. A view is written as bytes, without a copy before.
                plain = [p if type(p) is bytes else pickle.PickleBuffer(_flat(p)) for p in payloads]
                message = "finished", lane, ids, bytes(outcomes), plain, texts, waits, codec
                if self._send(message):
                    self._results.clear()
            case Begun(lane, id):
                self._send(("begun", lane, id))
            case Recalled(lane, ids):
                self._send(("recalled", lane, ids))
            case Reported(lane, id, fraction, text):
                self._send(("reported", lane, id, fraction, text))
            case ThreadEnded(name, cause):
                self.give_up(name, cause)

    def give_up(self, name: str, cause: BaseException) -> NoReturn:
        """End this process because one of its threads has ended.

        The parent starts another process.
        """
        self._send(("broken", f"{name} ended unexpectedly: {type(cause).__name__}: {cause}"))
        traceback.print_exception(cause)
        os._exit(1)

    def _listen(self) -> None:
        try:
            self._receive()
        # For example, there is no memory for a message. No thread would read further messages, so
        # this process ends.
        except BaseException as error:  # noqa: BLE001
            self._send(("broken", f"{type(error).__name__}: {error}"))
        os._exit(1)

    def _receive(self) -> None:
        for message in receive(self._sock):
            match message:
                case ("run", number, role, codec, *columns):
                    # All processes of the system share one clock for deadlines, so the parent's
                    # deadlines are valid here.
                    run = Run(number, cast("Kind", LaneKind(role, codec)), *columns)
                    lane = self._lanes.lanes[number] = Lane(run, self._served[role], self._lanes)
                    lane.begin = self._marking(lane)
                    self._queue.put(lane)
                case ("recall", number, ids):
                    if not self._lanes.recall(Recall(number, ids)):
                        self._post(Recalled(number, ()))
                    self._obey()
                case ("interrupt", number, ids):
                    self._lanes.interrupt(Interrupt(number, ids))
                    self._obey()
                case ("close",):
                    self._end()
        # The parent has ended. Handlers can read their flag; after the grace this process ends.
        self._end()
        time.sleep(_GRACE)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # noqa: BLE001 — no process is left to report it to
                pass

    def _obey(self) -> None:
        """Let jobs begin again after a message that kept jobs from beginning."""
        with self._obeyed:
            self._stopped += 1
            self._obeyed.notify_all()

    def _read_all(self) -> None:
        """Wait until the other thread has read all messages that keep jobs from beginning.

        This process may have been stopped, and the jobs may have ended meanwhile.
        """
        with self._obeyed:
            self._obeyed.wait_for(lambda: self._stopped == self._mark[STOPPED])

    def _marking(self, lane: Lane) -> Any:
        remove, mark, put = lane.pending.remove, self._mark, self._results.put

        def begin(id: int) -> None:
            if mark[STOPPED] != self._stopped:
                self._read_all()
            # A handler delayed the end of this process; with the end of its job the process ends.
            if mark[ENDING]:
                raise KeyError(id)
            remove(id)
            lane.keep(put)  # if this job kills the process, the results of the other jobs are safe
            mark[BEGUN] = id

        def begin_counted(id: int) -> None:
            left = self._left
            if not left:
                raise KeyError(id)  # the job is left for the next process
            begin(id)
            self._left = left - 1
            if left == 1:
                self._send(("last",))

        return begin if self._left is None else begin_counted

    def _end(self) -> None:
        self._lanes.stop()
        self._queue.put(None)
