"""Progress and ends of jobs: their results, and the errors for ends without a result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from attrs import evolve, frozen

from wmp import codec
from wmp.actions import End, FailedAttempt
from wmp.errors import (
    DecodeError,
    JobCancelled,
    JobError,
    JobFailed,
    JobTimeout,
    WorkerLost,
)
from wmp.message import Frame, counted, printable
from wmp.runtime.codecs.payload_codecs import unpack

_LAYOUT: Final = "\n\t"
"""The control characters that stay in the text of a worker's exception."""


@frozen
class Status:
    """Progress of a job: the last report of its handler, or the reason why the job waits."""

    fraction: float | None
    """From 0 to 1."""
    text: str | None
    unserved: str = ""
    """The reason why no connected worker can do a waiting job; empty while a worker can."""
    stored: str = ""
    """Where a stored job waits; empty for other jobs, and while a worker has the job."""


def with_causes(status: Status | None, unserved: str, stored: str) -> Status | None:
    """Return a status with the reasons why the job waits, if there are such reasons."""
    if not unserved and not stored:
        return status
    return evolve(status or Status(None, None), unserved=unserved, stored=stored)


Ended = tuple[int, End | Exception, Frame, int]
"""(number, end, payload, attempts) of a job. The end is an exception if the manager ended first."""


def with_history(
    row: Ended, history: Sequence[FailedAttempt], offset: float | None = None
) -> Ended:
    """Return the end of a job that was tried again; its error has the history of the attempts.

    Args:
        row: The end.
        history: The attempts.
        offset: Seconds to add to the times of the attempts, to get seconds since 1970. None: the
            times are those of the monotonic clock.
    """
    id, end, payload, attempts = row
    if isinstance(end, Exception):
        return row
    error = error_of(id, end, payload, attempts)
    if offset is None:
        offset = time.time() - time.monotonic()
    error.history = tuple([evolve(failure, at=failure.at + offset) for failure in history])
    lines = [
        f"  {datetime.fromtimestamp(failure.at):%Y-%m-%d %H:%M:%S} attempt {failure.attempt} "
        f"at worker {failure.worker}: {failure.error}"
        for failure in error.history
    ]
    head = counted(len(lines), "attempt failed or was lost", "attempts failed or were lost")
    error.add_note("\n".join((f"{head}:", *lines)))
    return id, error, b"", attempts


def result_of(id: int, ended: Frame | Ended, codec_name: str) -> tuple[Any, Exception | None]:
    """Return (value, None) or (None, error) for a job.

    Args:
        id: The job's number.
        ended: The payload of the result if the job ended with a result, else the job's end.
        codec_name: Name of the codec; empty for ``bytes``.
    """
    if isinstance(ended, tuple):
        _, end, payload, attempts = ended
        if isinstance(end, Exception):
            return None, end
        if end is not End.OK:
            return None, error_of(id, end, payload, attempts)
    else:
        payload = ended
    return unpack(id, payload, codec_name)


def undelivered(id: int, error: BaseException) -> JobFailed:
    """Return the error of a job that ended, and whose end could not be delivered to its owner."""
    text = f"the job has ended, but the delivery of its end raised an error: {error}"
    failed = JobFailed(type(error).__name__, text, job_id=id)
    failed.__cause__ = error
    return failed


def error_of(id: int, end: End, payload: Frame, attempts: int) -> JobError:
    """Return the error of a job that ended without a result."""
    if end is End.ERROR:
        try:
            type_name, text, remote = codec.unpack_error(payload)
        except DecodeError as error:
            type_name, text, remote = (
                "Exception",
                f"the worker's error report cannot be decoded: {error}",
                "",
            )
        text, remote = printable(text, _LAYOUT), printable(remote, _LAYOUT)
        return JobFailed(printable(type_name), text, remote, job_id=id)
    text = bytes(payload).decode("utf-8", "replace")
    if end is End.CANCELLED:
        return JobCancelled(
            text or f"job {id} was cancelled", job_id=id, may_have_started=attempts > 0
        )
    if end is End.TIMEOUT:
        return JobTimeout(text or f"job {id} timed out", job_id=id)
    if end is End.LOST:
        host, _, cause = text.partition("\n")
        return WorkerLost(
            f"job {id} was lost after {counted(attempts, 'attempt')}, the last at worker {host}: "
            f"{cause}",
            job_id=id,
            attempts=attempts,
            cause=cause,
            host=host,
        )
    raise AssertionError(f"the end {end} has no error class")
