"""The jobs of one manager as its submitters see them: numbers, owners, room.

A job has no object here: its owner (a future, or the window of a ``map``) is looked up by the
job's number when its end comes. Submissions gather in columns until the driver takes them.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Final, Protocol

from attrs import frozen

from wmp import codec
from wmp.actions import End, Notify, Resolve
from wmp.errors import (
    ClosedError,
    ConfigError,
    DecodeError,
    JobCancelled,
    JobError,
    JobFailed,
    JobTimeout,
    QueueFull,
    WorkerLost,
)
from wmp.events import Cancelled, Submitted
from wmp.message import Frame, Kind, Limits

__all__ = [
    "Ended",
    "JobOwner",
    "JobTerms",
    "Status",
    "Submissions",
    "error_of",
    "pack",
    "result_of",
    "value_of",
]

logger = logging.getLogger("wmp")

_BUNDLE = 4096
"""Jobs that one Submitted carries at most: what a turn can chew without a pause."""


@frozen
class Status:
    """Progress of a job, as its handler reported it last."""

    fraction: float | None
    """From 0 to 1."""
    text: str | None


@frozen
class JobTerms:
    """What a submission asks for, apart from its payload. Equal ones share a Submitted."""

    kind: Kind
    priority: int
    timeout: float | None
    retries: int


Ended = tuple[int, End | Exception, Frame, int]
"""(number, end, payload, attempts) of a job that ended; an exception where its manager did."""


class JobOwner(Protocol):
    """Who waits for jobs. The driver calls all but ``given``; none may block or raise."""

    def given(self, first: int, count: int) -> None:
        """Learn the numbers of the jobs just handed in, before anything can happen to them."""

    def succeed(self, ids: Sequence[int], payloads: Sequence[Frame]) -> None:
        """Learn that jobs ended well: one or more, in the order of their ends."""

    def settle(self, rows: Sequence[Ended]) -> None:
        """Learn how jobs ended: one or more, in the order of their ends."""

    def progress(self, id: int, status: Status) -> None:
        """Learn what a job's handler reported."""

    def fail(self, id: int, error: Exception) -> None:
        """Learn that the manager ended before the job did."""


class _Gathering:
    """One Submitted that is still open: the driver closes it when its turn comes."""

    __slots__ = ("_ledger", "first", "order", "payloads")

    def __init__(self, ledger: Submissions, order: JobTerms, first: int) -> None:
        self._ledger = ledger
        self.order = order
        self.first = first
        self.payloads: list[Frame] = []

    def __call__(self) -> Submitted:
        return self._ledger.seal(self)


class Submissions:
    """Numbers jobs, remembers who waits for them, and bounds how many there are.

    ``add`` may be called from any thread, everything that tells of ends from the driver's.

    Args:
        post: The driver's ``post``.
        limit: Jobs held at most.
        codec: What payloads and results are: ``"bytes"`` or ``"cbor"``.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], Submitted] | Cancelled], None],
        limit: int,
        codec: str = "bytes",
    ) -> None:
        self.limit = limit
        self.codec = codec
        self._post = post
        self._lock = threading.Lock()
        self._owners: dict[int, JobOwner] = {}
        self._keys: dict[str, JobOwner] = {}
        """Jobs in progress that were handed in under a key, by that key."""
        self._key_of: dict[int, str] = {}
        self._next = 1
        self._open: _Gathering | None = None
        self._waiting: deque[Callable[[], None]] = deque()
        self._error: Exception | None = None

    def __len__(self) -> int:
        """Jobs that have not ended."""
        return len(self._owners)

    @property
    def room(self) -> int:
        """How many jobs may be added now."""
        return self.limit - len(self._owners)

    def add(
        self,
        owner: JobOwner,
        payloads: Sequence[Frame],
        order: JobTerms,
        *,
        key: str | None = None,
    ) -> JobOwner:
        """Hand in jobs; consecutive ones of equal orders share an event.

        Args:
            owner: Who is told of their ends.
            payloads: One a job.
            order: What they ask for.
            key: Of a single job: while another one of that key has not ended, nothing is
                handed in.

        Returns:
            ``owner``, or whoever owns the job in progress under ``key``.

        Raises:
            QueueFull: There is no room for all of them; none was added.
            ClosedError: The manager takes no more jobs.
        """
        count = len(payloads)
        with self._lock:
            if self._error is not None:
                raise self._closed()
            if key is not None and key in self._keys:
                return self._keys[key]
            owners = self._owners
            if len(owners) + count > self.limit:
                raise QueueFull(self.limit)
            first = self._next
            self._next = first + count
            owner.given(first, count)
            if key is not None:
                self._keys[key] = owner
                self._key_of[first] = key
            if count == 1:
                owners[first] = owner
            else:
                owners.update(dict.fromkeys(range(first, first + count), owner))
            open_ = self._open
            if (
                open_ is not None
                and open_.order == order
                and len(open_.payloads) + count <= _BUNDLE
            ):
                open_.payloads.extend(payloads)
                return owner
            gathering = self._open = _Gathering(self, order, first)
            gathering.payloads.extend(payloads)
            # Inside the lock: the machine wants growing numbers in the order of the inbox.
            self._post(gathering)
            return owner

    def seal(self, gathering: _Gathering) -> Submitted:
        """Close an open submission and return it as the event it has become."""
        with self._lock:
            if self._open is gathering:
                self._open = None
        order, payloads, first = gathering.order, gathering.payloads, gathering.first
        return Submitted(
            ids=range(first, first + len(payloads)),
            payloads=payloads,
            kind=order.kind,
            priority=order.priority,
            timeout=order.timeout,
            retries=order.retries,
        )

    def cancel(self, ids: Sequence[int]) -> bool:
        """Ask that jobs be cancelled; tell whether any of them had not ended."""
        open_ids = [id for id in ids if id in self._owners]
        if not open_ids:
            return False
        with self._lock:
            # What comes in from here on comes after the cancellation.
            self._open = None
            self._post(Cancelled(open_ids))
        return True

    def check_open(self) -> None:
        """Raise ClosedError when no more jobs are taken."""
        if self._error is not None:
            raise self._closed()

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once, from whatever thread, when there is room or no more hope of it."""
        with self._lock:
            if self._error is None and len(self._owners) >= self.limit:
                self._waiting.append(wake)
                return
        wake()

    def forget_waiter(self, wake: Callable[[], None]) -> None:
        """Undo ``when_room``; one that was woken already passes its turn on."""
        with self._lock:
            try:
                self._waiting.remove(wake)
            except ValueError:
                pass
            else:
                return
        self._wake(1)

    def _wake(self, count: int) -> None:
        # Under the lock, like the look at the room in when_room: nobody falls asleep between.
        with self._lock:
            count = len(self._waiting) if self._error is not None else min(count, self.room)
            wakes = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        for wake in wakes:
            wake()

    # -- from the driver --------------------------------------------------------------------

    def resolve(self, action: Resolve) -> None:
        """Tell the owners of these jobs how they ended."""
        if self._key_of:
            self._forget_keys(action.ids)
        owners = list(map(self._owners.pop, action.ids, repeat(None)))
        count = len(owners)
        first = owners[0]
        if (
            first is not None
            and action.ends.count(End.OK) == count
            and owners.count(first) == count
        ):
            first.succeed(action.ids, action.payloads)  # mostly
            self._wake(count)
            return
        rows = zip(action.ids, action.ends, action.payloads, action.attempts, strict=True)
        freed = 0
        # The jobs of a map end by the hundreds, one after the other: it is told once.
        for owner, group in groupby(zip(owners, rows, strict=True), _OWNER):
            if owner is not None:
                ended = list(map(_ROW, group))
                freed += len(ended)
                owner.settle(ended)
        if freed:
            self._wake(freed)

    def _forget_keys(self, ids: Sequence[int]) -> None:
        """Let jobs that ended be handed in again under their keys."""
        with self._lock:
            for id in ids:
                key = self._key_of.pop(id, None)
                if key is not None:
                    del self._keys[key]

    def notify(self, action: Notify) -> None:
        """Tell a job's owner about progress."""
        owner = self._owners.get(action.id)
        if owner is not None:
            owner.progress(action.id, Status(action.fraction, action.text))

    def refuse(self, error: Exception) -> None:
        """Take no more jobs; those that wait for room fail with ``error``."""
        with self._lock:
            if self._error is None:
                self._error = error
        self._wake(0)

    def fail(self, error: Exception) -> list[int]:
        """End every job that has not ended, with ``error``; return their numbers."""
        self.refuse(error)
        with self._lock:
            owners, self._owners = self._owners, {}
            self._keys.clear()
            self._key_of.clear()
        for id, owner in owners.items():
            owner.fail(id, self._closed(id))
        return list(owners)

    def _closed(self, id: int = 0) -> ClosedError:
        cause = self._error
        if not id:
            what = "the manager takes no more jobs"
        else:
            what = f"job {id} had not ended"
        error = ClosedError(f"{what}: {cause}" if cause is not None else what)
        if cause is not None and not isinstance(cause, ClosedError):
            error.__cause__ = cause
        return error


_OWNER: Final = itemgetter(0)
_ROW: Final = itemgetter(1)


def pack(payload: object, codec_name: str, limit: int = Limits.PAYLOAD) -> Frame:
    """Turn what a user handed in into bytes.

    Args:
        payload: Bytes or text (``bytes``), any CBOR value (``cbor``).
        codec_name: ``"bytes"`` or ``"cbor"``.
        limit: Bytes that it may have.

    Raises:
        TypeError: It cannot be turned into bytes.
        ConfigError: They are too many: no worker would ever get them.
    """
    if codec_name == "cbor":
        try:
            data = codec.pack_value(payload)
        except Exception as error:  # cbor2's own tree has several roots; all mean the same here.
            raise TypeError(
                f"a payload of type {type(payload).__name__} is not a CBOR value ({error}); "
                "use numbers, text, bytes, booleans, None, lists and dicts of them"
            ) from error
    elif type(payload) is bytes:
        data = payload
    elif isinstance(payload, str):
        data = payload.encode()
    elif isinstance(payload, bytes | bytearray | memoryview):
        data = bytes(payload)
    else:
        raise TypeError(
            f"a payload is bytes or str with codec='bytes', got {type(payload).__name__}; "
            "encode it, or use codec='cbor' for numbers, lists and dicts"
        )
    if len(data) > limit:
        raise ConfigError(
            f"a payload of {len(data)} bytes is too large, at most {limit} are sent "
            "(Transport.max_frame, and 256 MiB in any case); split it into several jobs, or send "
            "the place where it is to be found"
        )
    return data


def value_of(payload: Frame, codec_name: str) -> object:
    """Turn the payload of a job that ended well into what its submitter gets.

    Raises:
        DecodeError: It is not what the codec makes.
    """
    if codec_name == "cbor":
        return codec.unpack_value(payload)
    return payload if type(payload) is bytes else bytes(payload)


def result_of(id: int, ended: Frame | Ended, codec_name: str) -> tuple[Any, Exception | None]:
    """Turn how a job ended, or its result when it ended well, into what its submitter gets: a
    value, or an error."""
    if isinstance(ended, tuple):
        _, end, payload, attempts = ended
        if isinstance(end, Exception):
            return None, end
        if end is not End.OK:
            return None, error_of(id, end, payload, attempts)
    else:
        payload = ended
    try:
        return value_of(payload, codec_name), None
    except DecodeError as error:
        broken = JobFailed("DecodeError", f"the result is broken: {error}", job_id=id)
        broken.__cause__ = error
        return None, broken


def error_of(id: int, end: End, payload: Frame, attempts: int) -> JobError:
    """Make the error of a job that did not end well."""
    if end is End.ERROR:
        try:
            type_name, text, remote = codec.unpack_error(payload)
        except DecodeError as error:
            type_name, text, remote = "Exception", f"the worker's account is broken: {error}", ""
        return JobFailed(type_name, text, remote, job_id=id)
    text = bytes(payload).decode("utf-8", "replace")
    if end is End.CANCELLED:
        return JobCancelled(
            text or f"job {id} was cancelled", job_id=id, may_have_started=attempts > 0
        )
    if end is End.TIMEOUT:
        return JobTimeout(text or f"the time of job {id} ran out", job_id=id)
    if end is End.LOST:
        host, _, cause = text.partition("\n")
        return WorkerLost(
            f"job {id} was given up after {attempts} attempts, the last one at {host}: {cause}",
            job_id=id,
            attempts=attempts,
            cause=cause,
            host=host,
        )
    raise AssertionError(f"no error of {end}")
