"""What runs inside a worker process.

Its main thread runs the lanes, so that handlers find themselves where they expect: in the main
thread of a process. A second thread reads what the parent says meanwhile.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Mapping, MutableSequence
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final

from wmp.actions import Interrupt, Recall, Run
from wmp.events import Finished, Recalled, Reported
from wmp.message import Kind
from wmp.runtime.handlers import Served
from wmp.runtime.pools.lane import Lane, PoolEvent, run_lane
from wmp.runtime.pools.local import LocalLanes
from wmp.runtime.pools.pipe import pack, receive

__all__ = ["main"]

_GRACE: Final = 1.0
"""Seconds that a handler has to see its flag after the parent died."""


def main(sock: socket.socket, handlers: bytes, mark: MutableSequence[int]) -> None:
    """Serve the parent until it says so, or is gone.

    Args:
        sock: This end of the pair.
        handlers: Pickled role → :class:`Served`.
        mark: Shared with the parent; its only entry is the job that was begun last.
    """
    _quiet_signals()
    lock = Lock()

    def send(message: tuple[Any, ...]) -> None:
        data = pack(message)
        try:
            with lock:
                sock.sendall(data)
        except OSError:
            pass  # the parent is gone; the reading thread sees it too and ends this process

    try:
        served: Mapping[str, Served] = pickle.loads(handlers)
    # Importing the user's module may raise anything; the parent says it.
    except BaseException as error:  # noqa: BLE001
        send(("failed", f"{type(error).__name__}: {error}"))
        return
    child = _Child(sock, served, mark, send)
    send(("ready",))
    child.work()


def _quiet_signals() -> None:
    # Ctrl-C goes to the whole process group, a stop of the service to all its processes: both
    # are for the parent, which drains. SIGINT is ignored for programs that handlers start as
    # well; SIGTERM is not, they could not be stopped any more.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class _Child:
    def __init__(
        self,
        sock: socket.socket,
        served: Mapping[str, Served],
        mark: MutableSequence[int],
        send: Any,
    ) -> None:
        self._sock = sock
        self._served = served
        self._mark = mark
        self._send = send
        self._lanes = LocalLanes(self._post)
        self._queue: SimpleQueue[Lane | None] = SimpleQueue()
        # Daemon: it hangs in ``recv`` when this process ends.
        Thread(target=self._listen, name="wmp-parent", daemon=True).start()

    def work(self) -> None:
        """Run lanes until the parent wants no more."""
        while (lane := self._queue.get()) is not None:
            run_lane(lane)
            self._lanes.forget(lane)
            del lane

    def _post(self, event: PoolEvent) -> None:
        match event:
            case Finished(lane, ids, outcomes, payloads):
                plain = [p if type(p) is bytes else bytes(p) for p in payloads]
                self._send(("finished", lane, ids, bytes(outcomes), plain))
            case Recalled(lane, ids):
                self._send(("recalled", lane, ids))
            case Reported(lane, id, fraction, text):
                self._send(("reported", lane, id, fraction, text))

    def _listen(self) -> None:
        for message in receive(self._sock):
            match message:
                case ("run", number, role, codec, manager, ids, attempts, deadlines, payloads):
                    # The clock of deadlines is the whole system's, so they hold here too.
                    kind = Kind(role=role, codec=codec)
                    run = Run(number, kind, manager, ids, attempts, deadlines, payloads)
                    lane = self._lanes.open(run, self._served[role])
                    lane.begin = self._marking(lane)
                    self._queue.put(lane)
                case ("recall", number, ids):
                    if not self._lanes.recall(Recall(number, ids)):
                        self._post(Recalled(number, ()))
                case ("interrupt", number, ids):
                    self._lanes.interrupt(Interrupt(number, ids))
                case ("close",):
                    self._end()
        # The parent is gone. Handlers see their flag; one that does not look is cut off.
        self._end()
        time.sleep(_GRACE)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # noqa: BLE001 — nobody is left who could be told
                pass
        os._exit(1)

    def _marking(self, lane: Lane) -> Any:
        remove, mark = lane.pending.remove, self._mark

        def begin(id: int) -> None:
            remove(id)
            mark[0] = id

        return begin

    def _end(self) -> None:
        self._lanes.stop()
        self._queue.put(None)
