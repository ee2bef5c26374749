"""An error from another process has the same type, fields and text."""

from __future__ import annotations

import copy
import pickle

import pytest

from wmp import errors
from wmp.errors import (
    DecodeError,
    JobCancelled,
    JobFailed,
    QueueFull,
    RetryLater,
    WMPError,
    WorkerLost,
)
from wmp.message import named

MADE: dict[str, WMPError] = {
    "DecodeError": DecodeError("bad", code="limit", source=(b"w", 1), command=3),
    "JobCancelled": JobCancelled("gone", job_id=2, may_have_started=True),
    "JobFailed": JobFailed("ValueError", "no", "Traceback …", job_id=3),
    "QueueFull": QueueFull(7),
    "RetryLater": RetryLater(10),
    "WorkerLost": WorkerLost("lost", job_id=1, attempts=2, cause="silence", host="pi:7"),
}


@pytest.mark.parametrize("name", errors.__all__)
@pytest.mark.parametrize("way", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_travels_whole(name, way):
    error = MADE.get(name) or getattr(errors, name)("a text")
    arrived = way(error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


@pytest.mark.parametrize(
    ("identity", "name"),
    [(b"rack-7", "rack-7"), ("tür".encode(), "tür"), (b"\xff\x00", "ff00"), (b"a\nb", "610a62")],
)
def test_people_read_the_identity_that_they_gave(identity, name):
    assert named(identity) == name
