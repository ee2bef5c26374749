"""A ``map`` in flight: pulls inputs, hands them in by the hundreds, puts results in order.

No object and no future a job. Both APIs share all of it but the waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, cast

from wmp.errors import ClosedError, QueueFull
from wmp.message import Frame, Limits
from wmp.runtime.submission.map_inputs import MapInputs
from wmp.runtime.submission.submissions import Ended, JobTerms, Status, Submissions, result_of

__all__ = ["MapPipeline"]

_CHUNK = 512
"""Inputs pulled before they are handed in, at most."""

_BYTES = 256 << 20
"""Bytes of payloads that one map keeps under way."""

_PARTS = 8
"""Parts in which those bytes are handed in, so that new ones come while old ones are done."""

_COPIED = 1 << 18
"""Bytes of results copied in one look, until they are reached. More at once would not find the
memory of those before: each came into fresh pages, which cost the kernel more than the copy."""

_BURST = 256
"""Results taken between two looks at the inputs, at most: a look costs as much as a few of them."""


class MapPipeline:
    """Inputs and results of one ``map``. It is the owner of its jobs.

    The consumer's side is ``fill``, ``take``, ``waits``, ``finished`` and ``abandon``; it must
    stay in one thread. ``wake`` is called by the driver when the next result in order is there.

    Args:
        ledger: Where the jobs go.
        payloads: The inputs; pulled in ``fill`` only.
        order: What every job asks for.
        codec: ``"bytes"`` or ``"cbor"``.
        in_flight: Jobs handed in and not yet taken, at most.
        wake: Ends the consumer's waiting.
        limit: Bytes that one payload may have.
        max_bytes: Bytes of payloads handed in and not yet taken; one job may exceed it alone,
            and the last of what is handed in at once.
    """

    def __init__(
        self,
        ledger: Submissions,
        payloads: Iterable[Any],
        order: JobTerms,
        *,
        codec: str,
        in_flight: int,
        wake: Callable[[], None],
        limit: int = Limits.PAYLOAD,
        max_bytes: int = _BYTES,
    ) -> None:
        self._ledger = ledger
        self._max_bytes = max_bytes
        self._bytes = 0
        self._parts: deque[tuple[int, int]] = deque()
        """Last job and bytes of what was handed in at once: cheaper than a size for each job."""
        self._inputs = MapInputs(payloads, codec, limit)
        self._order = order
        self._codec = codec
        self._in_flight = in_flight
        self._top_up = max(1, min(in_flight // 4, ledger.limit // 4, _CHUNK))
        self._wake = wake
        self._runs: deque[range] = deque()
        """Numbers of the jobs handed in and not yet taken, as they were given."""
        self._count = 0
        """How many they are."""
        self._ended: dict[int, Frame | Ended] = {}
        """Results of those that ended well; of the others how they ended."""
        self._chunk: list[Frame] = []
        self._abandoned = False

    # -- the consumer's side ----------------------------------------------------------------

    def fill(self) -> bool:
        """Pull one chunk of inputs and hand it in; tell whether another could follow at once."""
        if self._chunk:
            return self._hand_in()
        if self._inputs.ended:
            return False
        free = min(self._in_flight - self._count, self._ledger.room, _CHUNK)
        # Small top-ups would make small messages: wait until a good part is free.
        if free <= 0 or (self._count and free < self._top_up):
            return False
        room = min(self._max_bytes - self._bytes, self._max_bytes // _PARTS)
        if self._count and room <= 0:
            return False
        self._chunk = self._inputs.pull(free, room)
        return self._hand_in()

    def _hand_in(self) -> bool:
        if not self._chunk:
            return False
        ledger, chunk = self._ledger, self._chunk
        try:
            room = ledger.room
            if room <= 0:
                ledger.check_open()
                return False
            # What fits, and not all or nothing: others may fill the manager again and again.
            part = chunk if len(chunk) <= room else chunk[:room]
            ledger.add(self, part, self._order)
        except QueueFull:
            return False
        except ClosedError as error:
            # What was handed in before still ends, and its results come first.
            self._inputs.close(error)
            self._chunk = []
            return False
        self._chunk = chunk[len(part) :]
        size = sum(map(len, part))
        self._bytes += size
        self._parts.append((self._runs[-1][-1], size))
        return True

    @property
    def starved(self) -> bool:
        """Whether nothing can come before the manager has room again."""
        return not self._count and (bool(self._chunk) or not self._inputs.ended)

    @property
    def finished(self) -> bool:
        """Whether everything was taken; raises what the inputs raised, in its place."""
        if self._count or self._chunk or not self._inputs.ended:
            return False
        if self._inputs.error is not None:
            raise self._inputs.error
        return True

    @property
    def waits(self) -> bool:
        """Whether the next result in order has yet to come."""
        return self._count > 0 and not self.ready()

    def take(self) -> list[Any]:
        """Return the results that are next in order and there; not all at once, maybe none.

        Raises:
            JobError: The next job did not end well.
            ClosedError: The manager closed before it ended.
        """
        most = min(_BURST, self._top_up)
        ids: Sequence[int] = self._runs[0][:most] if self._runs else ()
        if len(ids) < most:
            ids = list(islice(chain.from_iterable(self._runs), most))
        looked = list(map(self._ended.get, ids))
        if None in looked:
            del looked[looked.index(None) :]
        found = cast("list[Frame | Ended]", looked)
        values: list[Any] = found
        error: Exception | None = None
        if self._codec == "cbor" or not _PLAIN.issuperset(map(type, found)):
            values, copied = [], 0
            for id, ended in zip(ids, found, strict=False):
                value, error = result_of(id, ended, self._codec)
                if error is not None:
                    break
                values.append(value)
                copied += len(ended[2] if isinstance(ended, tuple) else ended)
                if copied >= _COPIED:
                    break
        # An error is taken alone: what comes before it must be had first.
        self._forget(ids[: len(values) if error is None or values else 1])
        if error is not None and not values:
            raise error
        return values

    def _forget(self, ids: Sequence[int]) -> None:
        """These, the first of all, have been looked at for the last time."""
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
        """Tell whether ``take`` has something to return."""
        return self._count > 0 and self._runs[0][0] in self._ended

    def abandon(self) -> None:
        """Cancel what is in flight and forget its results."""
        self._abandoned = True
        self._inputs.close()
        self._chunk = []
        outstanding = [id for run in self._runs for id in run if id not in self._ended]
        self._runs.clear()
        self._count = 0
        self._parts.clear()
        self._ended.clear()
        if outstanding:
            self._ledger.cancel(outstanding)

    # -- the driver's side ------------------------------------------------------------------

    def given(self, first: int, count: int) -> None:
        """Learn the numbers of a chunk."""
        self._runs.append(range(first, first + count))
        self._count += count

    def succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        """Keep results until their places come."""
        if not self._abandoned:
            self._ended.update(zip(ids, payloads, strict=True))
            self._nudge()

    def settle(self, rows: Sequence[Ended]) -> None:
        """Keep ends until their places come."""
        if not self._abandoned:
            self._ended.update(zip(map(_NUMBER, rows), rows, strict=True))
            self._nudge()

    def progress(self, id: int, status: Status) -> None:
        """Nobody asked."""

    def fail(self, id: int, error: Exception) -> None:
        """Keep an error until its place comes."""
        if not self._abandoned:
            self._ended[id] = (id, error, b"", 0)
            self._nudge()

    def _nudge(self) -> None:
        # The consumer empties its signal before it looks at what ended: a head that it changed
        # meanwhile was therefore there to be seen.
        try:
            if self._runs[0][0] in self._ended:
                self._wake()
        except IndexError:
            pass


_NUMBER: Final = itemgetter(0)
_PLAIN: Final = frozenset({bytes})
