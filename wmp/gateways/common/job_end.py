"""The ends of jobs without a result, for the log: no protocol has a message for errors."""

from __future__ import annotations

from typing import Final

from wmp.actions import Drop, End
from wmp.codec import unpack_error
from wmp.message import Frame

UNREADABLE: Final = "the result is not of the codec that its worker named"
"""The cause for a result that cannot be a reply."""


def no_reply(request: str, why: str) -> Drop:
    """Return the drop of a request that gets no reply; the log has its line as a warning.

    Args:
        request: The request or the requests, in words.
        why: The cause.
    """
    return Drop("no reply", detail=f"{request}: {why}")


def explain_end(end: End, payload: Frame) -> str:
    """Return why a job has no result, in one line.

    Args:
        end: How the job ended; not ``OK``.
        payload: The payload of this end, see :class:`~wmp.actions.Resolve`.
    """
    if end is End.ERROR:
        kind, text, _ = unpack_error(payload)
        return f"the handler failed: {kind}: {text}"
    cause = bytes(payload).decode("utf-8", "replace")
    if end is End.LOST:
        worker, _, cause = cause.partition("\n")
        if not worker:  # lost before a worker had the job
            return f"the job was lost: {cause}"
        return (
            f"the worker {worker!r} was lost, and max_worker_losses allows no further loss: {cause}"
        )
    return f"the job ended: {end.value}" + (f": {cause}" if cause else "")
