"""The ends of jobs without a result, for the log: no protocol has a message for errors."""

from __future__ import annotations

from wmp.actions import End
from wmp.codec import unpack_error
from wmp.message import Frame

__all__ = ["explain_end"]


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
        return f"the worker {worker!r} was lost, and no retry is left: {cause}"
    return f"the job ended: {end.value}: {cause}"
