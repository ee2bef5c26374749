"""A running ``map``: pulls inputs, submits them in chunks of hundreds, puts results in order.

There is no object and no future for a job. The two APIs share all of this code and differ only in
waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, Iterable, Sequence
from enum import Enum, auto
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, Protocol, cast

from wmp.errors import ClosedError, QueueFull
from wmp.message import Frame, Limits
from wmp.runtime.driver.inbox import JobTerms
from wmp.runtime.submission.map_inputs import AsyncInputs, MapInputs
from wmp.runtime.submission.results import Ended, Status, result_of, undelivered
from wmp.runtime.submission.submissions import Submissions
from wmp.runtime.submission.thread_inputs import ThreadInputs

_CHUNK = 512
"""Maximum number of inputs that are pulled before they are submitted."""

_BYTES = 256 << 20
"""Maximum number of payload bytes that one map has submitted at a time."""

_PARTS = 8
"""Number of parts in which these bytes are submitted, so that new jobs arrive while old jobs run.
"""

_COPIED = 1 << 18
"""Bytes of results after which one ``take`` copies no more.

Beyond this number, results cannot reuse the memory of earlier results. Each result would use fresh
pages of memory, which cost the kernel more than the copy.
"""

_BURST = 256
"""Maximum number of results that are taken between two calls of ``fill``.

A call of ``fill`` costs as much as a few results.
"""


class MapWait(Enum):
    """The condition that a consumer waits for before its next step."""

    DRIVER = auto()
    """The consumer need not wait. If it runs on the driver's loop, it lets the driver run once."""
    FREE = auto()
    """The manager may accept more jobs."""
    RESULTS = auto()
    """The signal is set: for the next result in order, or the next input of an async iterable."""


class MapSignal(Protocol):
    """Wakes a consumer: an ``Event`` of asyncio or of threading."""

    def set(self) -> None: ...

    def clear(self) -> None: ...


class MapPipeline:
    """Inputs and results of one ``map``. The object is the owner of its jobs.

    The consumer calls ``step`` until it returns None, and ``abandon`` at the end, all from one
    thread. The driver sets the signal when the next result in order has arrived.

    Args:
        submissions: Take the jobs.
        payloads: The inputs; pulled only in ``step``, unless they are an async iterable.
        terms: Terms of every job.
        codec: Name of the codec of payloads and results.
        in_flight: Maximum number of jobs that are submitted and whose results are not taken.
        signal: Ends the consumer's wait for results.
        limit: Maximum number of bytes of one payload.
        max_bytes: Maximum number of bytes of payloads that are submitted and not taken. One job may
            exceed it alone, and so may the last of the jobs that are submitted at once.
        lenient: Whether an error of a job or of an invalid input is put among the results instead
            of being raised.
        threaded: Whether a thread pulls the inputs, so that a wait for the next input holds no
            result back.
    """

    def __init__(
        self,
        submissions: Submissions,
        payloads: Iterable[Any] | AsyncIterable[Any],
        terms: JobTerms,
        *,
        codec: str,
        in_flight: int,
        signal: MapSignal,
        limit: int = Limits.PAYLOAD,
        max_bytes: int = _BYTES,
        lenient: bool = False,
        threaded: bool = False,
    ) -> None:
        self._submissions = submissions
        self._max_bytes = max_bytes
        self._bytes = 0
        self._parts: deque[tuple[int, int]] = deque()
        """Last job and number of bytes of each chunk: cheaper than a number for each job."""
        self._inputs: MapInputs
        if isinstance(payloads, AsyncIterable):
            self._inputs = AsyncInputs(payloads, codec, limit, signal.set, lenient=lenient)
        elif threaded:
            self._inputs = ThreadInputs(payloads, codec, limit, signal.set, lenient=lenient)
        else:
            self._inputs = MapInputs(payloads, codec, limit, lenient=lenient)
        self._lenient = lenient
        self._unfit = 0
        """Number of invalid inputs. Their places have negative numbers."""
        self._terms = terms
        self._codec = codec
        self._in_flight = in_flight
        self._top_up = max(1, min(in_flight // 4, submissions.limit // 4, _CHUNK))
        self._signal = signal
        self._runs: deque[range] = deque()
        """Numbers of the jobs submitted and not yet taken, as they were given."""
        self._count = 0
        """Number of these jobs."""
        self._ended: dict[int, Frame | Ended] = {}
        """Results of jobs, and ends of jobs without a result."""
        self._chunk: list[Frame] = []
        self._filled = False
        """Whether the last step submitted a chunk."""
        self._abandoned = False

    # -- the consumer's side ----------------------------------------------------------------

    def step(self) -> list[Any] | MapWait | None:
        """Do all work that needs no waiting.

        Returns:
            The next results in order; or the condition to wait for; or None after the last result.

        Raises:
            JobError: The next job ended without a result; not with ``lenient``.
            ClosedError: The manager closed before the job ended.
            Exception: The inputs raised this error, and all results before it were returned.
        """
        while not self.finished:
            # After each chunk, results that have arrived are returned before the next chunk.
            self._filled = not (self._filled and self.ready()) and self.fill()
            if self._filled:
                return MapWait.DRIVER
            values = self.take()
            if values:
                return values
            if self.starved:
                return MapWait.FREE
            # Cleared before the check: a result that comes after the check sets the signal again.
            self._signal.clear()
            if self.waits or (self._inputs.awaited and not self.ready()):
                return MapWait.RESULTS
        return None

    def fill(self) -> bool:
        """Pull one chunk of inputs and submit it.

        Return whether another chunk could follow at once.
        """
        if self._chunk:
            return self._submit_chunk()
        if self._inputs.unfit is not None:
            self._keep_unfit(self._inputs.unfit)
            self._inputs.unfit = None
        if self._inputs.ended:
            return False
        free = min(self._in_flight - self._count, self._submissions.free, _CHUNK)
        # Small chunks would make small messages, so wait until a good part is free.
        if free <= 0 or (self._count and free < self._top_up):
            return False
        bytes_left = min(self._max_bytes - self._bytes, self._max_bytes // _PARTS)
        if self._count and bytes_left <= 0:
            return False
        self._chunk = self._inputs.pull(free, bytes_left)
        return self._submit_chunk() or self._inputs.unfit is not None

    def _keep_unfit(self, error: Exception) -> None:
        """Put the error of an invalid input among the results."""
        self._unfit += 1
        number = -self._unfit
        self._ended[number] = number, error, b"", 0
        self._given(number, 1)

    def _submit_chunk(self) -> bool:
        if not self._chunk:
            return False
        submissions, chunk = self._submissions, self._chunk
        try:
            free = submissions.free
            if free <= 0:
                submissions.check_open()
                return False
            # Submit as many as fit, because other submitters may fill the manager again and again.
            part = chunk if len(chunk) <= free else chunk[:free]
            submissions.add(self, part, self._terms)
        except QueueFull:
            return False
        except ClosedError as error:
            # Jobs that were submitted before still end, and their results come first.
            self._inputs.close(error)
            self._chunk = []
            return False
        self._chunk = chunk[len(part) :]
        self._count_bytes(part)
        return True

    def _count_bytes(self, part: Sequence[Frame]) -> None:
        """Count the bytes of the jobs that were submitted last."""
        size = sum(map(len, part))
        self._bytes += size
        self._parts.append((self._runs[-1][-1], size))

    @property
    def starved(self) -> bool:
        """Whether no result can come before the manager accepts jobs again."""
        comes = self._open and not self._inputs.awaited
        return not self._count and (bool(self._chunk) or comes)

    @property
    def _open(self) -> bool:
        """Whether some inputs are not submitted yet."""
        inputs = self._inputs
        return bool(self._chunk) or inputs.unfit is not None or not inputs.ended

    @property
    def finished(self) -> bool:
        """Whether every result was taken. After the last result the inputs' error is raised."""
        if self._count or self._open:
            return False
        if self._inputs.error is not None:
            raise self._inputs.error
        return True

    @property
    def waits(self) -> bool:
        """Whether the next result in order has not come yet."""
        return self._count > 0 and not self.ready()

    def take(self) -> list[Any]:
        """Return the next results that have arrived, in order; perhaps only some of them, or none.

        Raises:
            JobError: The next job ended without a result; not with ``lenient``.
            ClosedError: The manager closed before the job ended.
        """
        ids = self._next_ids(min(_BURST, self._top_up))
        looked = list(map(self._ended.get, ids))
        if None in looked:
            del looked[looked.index(None) :]
        arrived = cast("list[Frame | Ended]", looked)
        values: list[Any] = arrived
        error: Exception | None = None
        if self._codec != "bytes" or not _PLAIN.issuperset(map(type, arrived)):
            values, copied = [], 0
            for id, ended in zip(ids, arrived, strict=False):
                value, error = result_of(id, ended, self._codec)
                if error is not None:
                    if not self._lenient or isinstance(error, ClosedError):
                        break
                    value, error = error, None
                values.append(value)
                copied += len(ended[2] if isinstance(ended, tuple) else ended)
                if copied >= _COPIED:
                    break
        # An error is taken alone, after the results before it.
        self._forget(ids[: len(values) if error is None or values else 1])
        if error is not None and not values:
            raise error
        return values

    def _next_ids(self, maximum: int) -> Sequence[int]:
        """Return the numbers of the jobs whose results are next, whether they have come or not."""
        ids: Sequence[int] = self._runs[0][:maximum] if self._runs else ()
        return (
            ids if len(ids) >= maximum else list(islice(chain.from_iterable(self._runs), maximum))
        )

    def _forget(self, ids: Sequence[int]) -> None:
        """Remove the first jobs, whose results were taken."""
        ended, runs, count = self._ended, self._runs, len(ids)
        for id in ids:
            del ended[id]
        self._count -= count
        while count:
            run = runs[0]
            if count < len(run):
                runs[0] = run[count:]
                break
            runs.popleft()
            count -= len(run)
        while self._parts and (not self._count or self._parts[0][0] < self._runs[0][0]):
            self._bytes -= self._parts.popleft()[1]

    def ready(self) -> bool:
        """Return whether ``take`` has a result to return, or an error to raise."""
        return self._count > 0 and self._runs[0][0] in self._ended

    def abandon(self) -> None:
        """Cancel the submitted jobs and drop their results."""
        self._abandoned = True
        self._inputs.close()
        self._chunk = []
        outstanding = self._outstanding()
        self._runs.clear()
        self._count = 0
        self._parts.clear()
        self._ended.clear()
        if outstanding:
            self._submissions.cancel(outstanding)

    def _outstanding(self) -> list[int]:
        """Return the numbers of the jobs that have not ended."""
        return [id for run in self._runs for id in run if id not in self._ended]

    # -- the driver's side ------------------------------------------------------------------

    def _given(self, first: int, count: int) -> None:
        """Take the numbers of the jobs of a chunk."""
        self._runs.append(range(first, first + count))
        self._count += count

    def _succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        """Keep results until the results before them are taken."""
        if not self._abandoned:
            self._ended.update(zip(ids, payloads, strict=True))
            self._wake()

    def _settle(self, rows: Sequence[Ended]) -> None:
        """Keep ends until the results before them are taken."""
        if not self._abandoned:
            self._ended.update(zip(map(_NUMBER, rows), rows, strict=True))
            self._wake()

    def _undelivered(self, ids: Sequence[int], error: BaseException) -> None:
        """Keep the error in place of ends that have not arrived here."""
        if not self._abandoned:
            runs = tuple(self._runs)
            for id in ids:
                if id not in self._ended and any(id in run for run in runs):
                    self._ended[id] = id, undelivered(id, error), b"", 0
            self._signal.set()

    def _progress(self, id: int, status: Status) -> None:
        """Ignore progress: a ``map`` does not report it."""

    def _wake(self) -> None:
        # The consumer clears the signal before it checks for the next result. A result that came
        # and was taken in between needs no signal.
        try:
            if self._runs[0][0] in self._ended:
                self._signal.set()
        except IndexError:
            pass


_NUMBER: Final = itemgetter(0)
_PLAIN: Final = frozenset({bytes})
