"""A submitter's values as frames, and frames as results, progress and errors."""

from __future__ import annotations

from typing import Any, Final

from attrs import evolve, frozen

from wmp import codec
from wmp.actions import End
from wmp.errors import (
    ConfigError,
    DecodeError,
    JobCancelled,
    JobError,
    JobFailed,
    JobTimeout,
    WorkerLost,
)
from wmp.message import Frame, Limits, printable

__all__ = ["Ended", "Status", "error_of", "pack", "result_of", "value_of", "with_cause"]

_LAYOUT: Final = "\n\t"
"""The control characters that stay in the text of a worker's exception."""


@frozen
class Status:
    """Progress of a job: the last report of its handler, or why the job waits."""

    fraction: float | None
    """From 0 to 1."""
    text: str | None
    unserved: str = ""
    """The reason why no connected worker can do a waiting job; empty while one can."""


def with_cause(status: Status | None, unserved: str) -> Status | None:
    """Return a status that states why no worker can do its job, if the cause is not empty."""
    if not unserved:
        return status
    return evolve(status, unserved=unserved) if status else Status(None, None, unserved)


Ended = tuple[int, End | Exception, Frame, int]
"""(number, end, payload, attempts) of a job; the end is an exception if the manager ended first."""


def pack(payload: object, codec_name: str, limit: int = Limits.PAYLOAD) -> Frame:
    """Turn a user's payload into bytes.

    Args:
        payload: Bytes or text (``bytes``), any CBOR value (``cbor``).
        codec_name: ``"bytes"`` or ``"cbor"``.
        limit: Largest number of bytes.

    Raises:
        TypeError: The payload cannot be turned into bytes.
        ConfigError: The payload has too many bytes: no connection would carry them.
    """
    if codec_name == "cbor":
        try:
            data = codec.pack_value(payload)
        except Exception as error:
            # Cbor2's errors have several base classes; all mean the same here.
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
            f"a payload of {len(data)} bytes is too large; the limit is {limit} "
            "(Transport.max_frame, and 256 MiB in any case); split it into several jobs, or "
            "store the data elsewhere and send its address"
        )
    return data


def value_of(payload: Frame, codec_name: str) -> object:
    """Turn the result's payload into the submitter's value.

    Raises:
        DecodeError: The payload is no value of the codec.
    """
    if codec_name == "cbor":
        return codec.unpack_value(payload)
    return payload if type(payload) is bytes else bytes(payload)


def result_of(id: int, ended: Frame | Ended, codec_name: str) -> tuple[Any, Exception | None]:
    """Return (value, None) or (None, error) for a job.

    Args:
        id: The job's number.
        ended: The result's payload if the job ended with a result, else the job's end.
        codec_name: ``"bytes"`` or ``"cbor"``.
    """
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
        broken = JobFailed(
            "DecodeError", f"the result of the job cannot be decoded: {error}", job_id=id
        )
        broken.__cause__ = error
        return None, broken


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
            f"job {id} was lost after {attempts} attempts, the last at worker {host}: {cause}",
            job_id=id,
            attempts=attempts,
            cause=cause,
            host=host,
        )
    raise AssertionError(f"there is no error for {end}")
