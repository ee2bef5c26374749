"""The ``map`` of an executor: its arguments in chunks, and its results in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from threading import Event, Lock
from typing import Any, Final

from wmp.calls.call import Call
from wmp.runtime.submission.input_thread import InputThread

_PATIENCE: Final = 0.005
"""Seconds that arguments wait for the rest of their chunk while no call is under way."""

Row = tuple[Any, ...]
"""The arguments of one call."""

Cancel = Callable[[Iterable[Call[Any]]], object]
"""Cancels those of the calls that no worker has."""


def columns_of(iterables: Sequence[Iterable[Any]], size: int) -> Iterator[list[list[Any]]]:
    """Yield the arguments of chunks of calls: a list of first arguments, of second, and so on.

    Args:
        iterables: Their items are the arguments. The shortest iterable ends the last chunk.
        size: Number of calls in a chunk.
    """
    rows = zip(*iterables, strict=False)
    whole = iter(iterables[0]) if len(iterables) == 1 else None
    while True:
        if whole is not None:
            columns = [list(islice(whole, size))]
        else:
            columns = list(map(list, zip(*islice(rows, size), strict=True)))
        if not columns or not columns[0]:
            return
        yield columns


def results_of(
    waiting: deque[Call[Any]],
    calls: Iterator[Call[Any]],
    until: float | None,
    cancel: Cancel,
) -> Iterator[Any]:
    """Yield the results of calls in order. If the caller stops, cancel the calls that wait.

    Args:
        waiting: Calls that are submitted.
        calls: Further calls. Each step submits a call.
        until: Time of the clock ``monotonic`` after which a wait raises TimeoutError.
        cancel: Cancels calls that no worker has.
    """
    try:
        while waiting:
            call = waiting.popleft()
            waiting.extend(islice(calls, 1))
            try:
                left = None if until is None else until - time.monotonic()
                results = call.results(left)
            except BaseException:
                waiting.append(call)
                raise
            yield from results
    finally:
        cancel(waiting)


class BufferedCalls:
    """The calls of a ``map`` that are submitted while results are taken.

    A thread pulls the arguments and submits each chunk that is full, so no result waits for further
    arguments. If no call is under way, the consumer submits a chunk that is not full.

    Args:
        rows: Yields the arguments of each call.
        submit: Submits the calls of a chunk as one job.
        cancel: Cancels calls that no worker has.
        size: Maximum number of calls in a chunk.
        limit: Maximum number of chunks whose results were not taken.
    """

    def __init__(
        self,
        rows: Iterator[Row],
        submit: Callable[[list[Row]], Call[Any]],
        cancel: Cancel,
        size: int,
        limit: int,
    ) -> None:
        self._submit = submit
        self._cancel = cancel
        self._size = size
        self._limit = limit
        self._taken = 0
        """Number of calls whose results were taken."""
        self._calls: deque[Call[Any]] = deque()
        """Chunks that were submitted and whose results were not taken."""
        self._error: BaseException | None = None
        """Error of a submission; it belongs behind the results of the earlier calls."""
        self._closed = Event()
        self._lock = Lock()
        """Held by the thread that submits."""
        self._came = Event()
        self._inputs = InputThread(rows, self._serve)
        self._request()

    @property
    def started(self) -> bool:
        """Whether a thread could be started. Without it this object cannot be used."""
        return self._inputs.started

    def results(self, until: float | None) -> Iterator[Any]:
        """Yield the results of the calls in order. The end of the iterator ends the thread.

        Args:
            until: Time of the clock ``monotonic`` after which a wait raises TimeoutError.

        Raises:
            TimeoutError: No result came in time.
            BaseException: The arguments, their submission or a call raised this exception.
        """
        results = self._results(until)
        next(results)  # only an iterator that has begun has an end
        return results

    def _results(self, until: float | None) -> Iterator[Any]:
        try:
            yield None
            while (call := self._next(until)) is not None:
                left = None if until is None else until - time.monotonic()
                results = call.results(left)
                self._calls.popleft()
                self._taken += len(results)
                self._request()
                yield from results
        finally:
            self._closed.set()
            self._inputs.close()
            self._cancel(list(self._calls))

    def _next(self, until: float | None) -> Call[Any] | None:
        """Return the next call, and wait for it; return None after the last call."""
        calls, waited = self._calls, False
        while True:
            self._came.clear()
            # The thread may wait inside of the lock, for example while the manager is full. It
            # wakes this consumer afterwards.
            if not (calls and calls[0].done()) and self._lock.acquire(blocking=False):
                try:
                    self._fill(partly=waited and not calls)
                    if not calls and self._has_ended():
                        return None
                finally:
                    self._lock.release()
            if calls:
                return calls[0]
            wait = _PATIENCE if self._inputs.queue else None
            if until is not None:
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the next arguments of map() have not come in time")
                wait = left if wait is None else min(wait, left)
            waited = not self._came.wait(wait)

    def _has_ended(self) -> bool:
        """Under the lock: return whether no further call comes."""
        if self._error is not None:
            raise self._error
        # Read first: what the thread has added before it is exhausted must not be lost.
        exhausted = self._inputs.exhausted
        if exhausted and not self._inputs.queue:
            if self._inputs.failure is not None:
                raise self._inputs.failure
            return True
        return False

    def _request(self) -> None:
        """Let the thread pull the arguments of as many calls as may be under way."""
        self._inputs.request(self._taken + self._limit * self._size)

    def _serve(self) -> None:
        """On the thread: submit the calls whose arguments have come, and wake the consumer."""
        try:
            with self._lock:
                self._fill()
        # The consumer raises this error, which is kept.
        except BaseException:  # noqa: BLE001
            pass
        finally:
            self._came.set()

    def _fill(self, partly: bool = False) -> None:
        """Under the lock: submit each full chunk of the arguments that have come.

        Args:
            partly: Whether a chunk that is not full is submitted too.
        """
        queue = self._inputs.queue
        while queue and len(self._calls) < self._limit and self._error is None:
            exhausted = self._inputs.exhausted
            if self._closed.is_set() or (len(queue) < self._size and not (partly or exhausted)):
                return
            chunk = [queue.popleft() for _ in range(min(self._size, len(queue)))]
            try:
                call = self._submit(chunk)
            except BaseException as error:
                self._error = error
                if isinstance(error, Exception):
                    return
                raise
            self._calls.append(call)
            if self._closed.is_set():
                self._cancel([call])
