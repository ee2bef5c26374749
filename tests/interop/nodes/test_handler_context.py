"""Each job runs in a context of its own: no context variable passes from one job to the next."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

import wmp
from tests.waiting import WAIT
from wmp.errors import JobFailed

USER: ContextVar[str] = ContextVar("user", default="nobody")

pytestmark = pytest.mark.interop


def plain(payload: bytes) -> bytes:
    seen = USER.get()
    USER.set(payload.decode())
    return seen.encode()


def reporting(payload: bytes, job: wmp.RunningJob) -> bytes:
    return plain(payload)


async def waiting(payload: bytes) -> bytes:
    before = plain(payload)
    await asyncio.sleep(0)
    assert USER.get() == payload.decode(), "a step after a wait has the job's own context"
    return before


async def waiting_and_reporting(payload: bytes, job: wmp.RunningJob) -> bytes:
    return await waiting(payload)


@pytest.mark.parametrize(
    ("handler", "pool"),
    [
        (plain, "thread"),
        (plain, "inline"),
        (plain, "process"),
        (reporting, "thread"),
        (waiting, "thread"),
        (waiting_and_reporting, "thread"),
    ],
)
def test_jobs_of_one_message_do_not_see_each_others_variables(handler: Any, pool: str) -> None:
    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=handler, slots=1, pool=pool),
    ):
        assert list(manager.map([b"alice", b"bob", b"carol"] * 20)) == [b"nobody"] * 60


@pytest.mark.parametrize(
    "error", [GeneratorExit, SystemExit, KeyboardInterrupt, asyncio.CancelledError, BaseException]
)
@pytest.mark.parametrize("waits", [False, True])
def test_no_error_of_a_coroutine_ends_its_worker(error: type[BaseException], waits: bool) -> None:
    async def handler(payload: bytes) -> bytes:
        if waits:
            await asyncio.sleep(0)
        if payload == b"poison":
            raise error("of the handler")
        return payload

    with (
        wmp.Manager() as manager,
        wmp.Worker(*manager.endpoints, handlers=handler, slots=1),
    ):
        with pytest.raises(JobFailed, match=error.__name__):
            manager.submit(b"poison").result(timeout=WAIT)
        assert manager.submit(b"after").result(timeout=WAIT) == b"after"
